// What process managers say: PMI-1 against a server of this test that answers rightly, wrongly, in part or not at all; Slurm's
// lists of hosts and tasks.
#include "bootstrap/hostlist.h"
#include "bootstrap/pmi.h"
#include "help.h"
#include <fmt/ranges.h>
#include <mutex>
#include <sys/socket.h>

using namespace help;
using boot::Pmi;

namespace {

// One client's server. `say` makes the answer to a request; the key space is shared by all servers of a job.
class Server {
public:
  using Say = std::function<std::string(const std::string &request)>;
  explicit Server(Say say) {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    mine_.reset(fds[0]);
    client.reset(fds[1]);
    thread_ = std::thread([this, say = std::move(say)] { serve(say); });
  }
  ~Server() {
    shutdown(mine_.get(), SHUT_RDWR);
    thread_.join();
  }
  UniqueFd client;

private:
  void serve(const Say &say) {
    std::string rest;
    char text[512];
    for (ssize_t n; (n = read(mine_.get(), text, sizeof text)) > 0;) {
      rest.append(text, static_cast<size_t>(n));
      for (size_t end; (end = rest.find('\n')) != rest.npos; rest.erase(0, end + 1)) {
        const std::string answer = say(rest.substr(0, end));
        if (answer == "close") return (void)shutdown(mine_.get(), SHUT_RDWR);
        // In two parts: an answer may arrive in any pieces.
        const size_t half = answer.size() / 2;
        for (const std::string &part : {answer.substr(0, half), answer.substr(half)})
          if (send(mine_.get(), part.data(), part.size(), MSG_NOSIGNAL) < 0) return;
      }
    }
  }
  UniqueFd mine_;
  std::thread thread_;
};

std::string word(const std::string &line, const std::string &key) {
  const auto words = boot::parse_pmi(line);
  const auto it = words->find(key);
  return it == words->end() ? "" : it->second;
}

// A job's key space, as a process manager keeps it.
struct Space {
  size_t value_max = 1024;
  std::mutex m;
  std::map<std::string, std::string> values;
  size_t longest = 0;
  std::string answer(const std::string &request) {
    const std::lock_guard lock(m);
    const std::string cmd = word(request, "cmd"), key = word(request, "key");
    longest = std::max(longest, word(request, "value").size());
    if (cmd == "init") return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
    if (cmd == "get_maxes") return fmt::format("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max={}\n", value_max);
    if (cmd == "get_my_kvsname") return "cmd=my_kvsname kvsname=kvs_7_0\n";
    if (cmd == "barrier_in") return "cmd=barrier_out\n";
    if (cmd == "finalize") return "cmd=finalize_ack\n";
    if (word(request, "kvsname") != "kvs_7_0") return "cmd=put_result rc=-1 msg=no_such_space\n";
    if (cmd == "put")
      return values.emplace(key, word(request, "value")).second ? "cmd=put_result rc=0 msg=success\n"
                                                                : "cmd=put_result rc=-1 msg=duplicate_key\n";
    const auto it = values.find(key);
    return it == values.end() ? fmt::format("cmd=get_result rc=-1 msg=key_{}_not_found value=unknown\n", key)
                              : fmt::format("cmd=get_result rc=0 msg=success value={}\n", it->second);
  }
};

} // namespace

TEST_CASE("a value travels through a process manager, whole, however short its values are") {
  for (const size_t value_max : {17, 256, 1024}) {
    Space space;
    space.value_max = value_max;
    Server first([&](const std::string &r) { return space.answer(r); }),
        second([&](const std::string &r) { return space.answer(r); });
    Pmi a(first.client.get()), b(second.client.get());
    const std::string value(256, 'x');
    CHECK(line(a.start(soon())) == "");
    CHECK(line(b.start(soon())) == "");
    CHECK(line(a.put("k", value, soon())) == "");
    CHECK(line(a.barrier(soon())) == "");
    const auto got = b.get("k", soon());
    REQUIRE_MESSAGE(got.ok(), line(got));
    CHECK(*got == value);
    CHECK(space.longest < value_max);
    CHECK(line(b.get("other", soon())).find("key_other_not_found") != std::string::npos);
    CHECK(line(b.get("k", soon())) == ""); // an answer that says no ends nothing
    CHECK(line(a.put("k", "again", soon())).find("duplicate_key") != std::string::npos);
    CHECK(line(a.finalize(soon())) == "");
    CHECK(line(b.finalize(soon())) == "");
  }
}

TEST_CASE("a process manager that talks nonsense, says too much, ends the job or leaves is an error that shows what it said") {
  const std::tuple<const char *, std::string, const char *> table[] = {
      {"garbage", "HTTP/1.1 400 Bad Request\n", "is no KEY=VALUE"},
      {"another answer", "cmd=put_result rc=0\n", "not with cmd=response_to_init"},
      {"no command", "rc=0 msg=fine\n", "names no cmd"},
      {"a word twice", "cmd=a cmd=b\n", "\"cmd\" is there twice"},
      {"control characters", "cmd=resp\x01nse\n", "?"},
      {"another version", "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n", "version 2 of the protocol"},
      {"a refusal", "cmd=response_to_init rc=-1 msg=version_mismatch\n", "rc=-1 version_mismatch"},
      {"a line without end", std::string(8192, 'x'), "more than 4096 bytes"},
      {"an abort", "cmd=abort exitcode=1\n", "ends the job"},
      {"the end", "close", "closed the connection"},
  };
  for (const auto &row : table) {
    CAPTURE(std::get<0>(row));
    Server server([&row](const std::string &) { return std::get<1>(row); });
    Pmi pmi(server.client.get());
    const std::string said = line(pmi.start(soon()));
    CHECK_MESSAGE(said.find(std::get<2>(row)) != std::string::npos, said);
    for (const char c : said) CHECK(static_cast<unsigned char>(c) >= 32);
  }
}

TEST_CASE("a process manager that answers in part or not at all is a timeout, after which nothing more is asked") {
  for (const std::string &answer : {std::string(), std::string("cmd=response_to_init pmi_ver")}) {
    int requests = 0;
    {
      Server server([&](const std::string &) { return requests++, answer; });
      Pmi pmi(server.client.get());
      Status s = pmi.start(Deadline::in(50ms));
      CHECK(s.code() == Code::timeout);
      CHECK(line(s).find("no answer within 0.05 s (after \"cmd=init\")") != std::string::npos);
      CHECK(line(pmi.barrier(soon())).find("of no more use") != std::string::npos);
    }
    CHECK(requests == 1);
  }
}

TEST_CASE("ranks that do not come to the exchange are said so, and a descriptor that is no socket is named") {
  Space space;
  Server server([&](const std::string &r) { return r.find("barrier") == r.npos ? space.answer(r) : std::string(); });
  Pmi pmi(server.client.get());
  REQUIRE(line(pmi.start(soon())) == "");
  CHECK(line(pmi.barrier(Deadline::in(50ms))).find("not all ranks came to the exchange of the unique id within 0.05 s") !=
        std::string::npos);
  Pmi none(1'000'000);
  CHECK(line(none.start(soon())).find("PMI_FD=1000000") != std::string::npos);
}

TEST_CASE("lists of hosts expand as Slurm means them") {
  const auto names = [](std::string_view text) {
    const auto r = boot::expand_hostlist(text);
    return r.ok() ? fmt::format("{}", fmt::join(*r, " ")) : "error: " + line(r);
  };
  CHECK(names("n1") == "n1");
  CHECK(names("n[1-3,07],m2") == "n1 n2 n3 n07 m2");
  CHECK(names("node[008-011]") == "node008 node009 node010 node011");
  CHECK(names("rack[0-1]-[1,3]x,login") == "rack0-1x rack0-3x rack1-1x rack1-3x login");
  CHECK(names("a.b-c,d") == "a.b-c d");
  for (const char *text : {"", ",", "a,", ",a", "a,,b", "n[", "n[1", "n]", "n[]", "n[a]", "n[3-1]", "n[1-]", "n[-2]", "n[1,]",
                           "n [1]", "n[1-99999999]", "n[0-999][0-999]", "n[1[2]]", "n[99999999999999999999]"})
    CHECK_MESSAGE(names(text).find("error: ") == 0, text, " -> ", names(text));
  CHECK(boot::expand_hostlist("n[1-3]", 3).ok());
  CHECK(boot::expand_hostlist("n[18446744073709551615]", 3).ok()); // the largest of its numbers, once
  CHECK_FALSE(boot::expand_hostlist("n[1-4]", 3).ok());
}

TEST_CASE("counts of tasks per node are those of the node") {
  const auto tasks = [](std::string_view text, int node) {
    const auto r = boot::tasks_on_node(text, node);
    return r.ok() ? *r : -1;
  };
  CHECK(tasks("4", 0) == 4);
  CHECK(tasks("4(x2),3", 1) == 4);
  CHECK(tasks("4(x2),3", 2) == 3);
  CHECK(tasks("4(x2),3", 3) == -1);
  for (const char *text : {"", "x", "4(", "4(x)", "4(x0)", "4(y2)", "4(x2", "(x2)", "-1", "4(x999999999)"})
    CHECK_MESSAGE(tasks(text, 0) == -1, text);
}
