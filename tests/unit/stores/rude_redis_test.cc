// store-redis with what is no Redis, or loses answers.
#include "fakes.h"
#include "help.h"
#include <mutex>
#include <sys/socket.h>

using namespace stores;

namespace {

std::string at(const Listener &l) {
  return "redis://127.0.0.1:" + std::to_string(l.port());
}

// Takes the first SET and cuts the connection in place of an answer; afterwards the key holds `then`, or what was put where
// that is empty.
std::function<void(int)> loses_answer(std::string then) {
  struct State {
    std::mutex mutex; // guards value
    std::string value;
  };
  return [then = std::move(then), state = std::make_shared<State>()](int fd) {
    char buffer[4096];
    for (ssize_t n; (n = ::recv(fd, buffer, sizeof buffer, 0)) > 0;) {
      const std::string in(buffer, static_cast<size_t>(n));
      const std::lock_guard lock(state->mutex);
      std::string out = "+PONG\r\n";
      if (has(in, "\r\nSET\r\n") && state->value.empty()) {
        const size_t length = in.find('$', in.find("SET") + 5 + in.substr(in.find("SET") + 5).find("\r\n") + 2);
        const size_t from = in.find("\r\n", length) + 2;
        state->value = then.empty() ? in.substr(from, in.find("\r\n", from) - from) : then;
        ::shutdown(fd, SHUT_RDWR);
        return;
      }
      if (has(in, "\r\nSET\r\n")) out = "$-1\r\n"; // NX: there is one
      if (has(in, "\r\nGET\r\n")) out = "$" + std::to_string(state->value.size()) + "\r\n" + state->value + "\r\n";
      ::send(fd, out.data(), out.size(), MSG_NOSIGNAL);
    }
  };
}

} // namespace

TEST_CASE("what does not speak Redis' protocol is an error at once, with what it said") {
  Code code = Code::ok;
  const Listener web(says("HTTP/1.1 400 Bad Request\r\n\r\n")), silent(says("")), closes([](int) {});
  const std::string other = open_error(at(web), {}, 10s, &code);
  CHECK_MESSAGE(has(other, at(web) + ": what answers does not speak Redis' protocol"), other);
  CHECK(code == Code::remote);
  CHECK(has(open_error(at(silent), {}, 300ms, &code), "PING has not been answered within 0.3 s: it does not answer"));
  CHECK(code == Code::timeout);
  const std::string cut = open_error(at(closes), {}, 300ms);
  CHECK_MESSAGE((has(cut, "it closed the connection") || has(cut, "the connection was cut")), cut);
  CHECK(closes.connections() > 1); // it was tried again
  const Listener list(says("*1\r\n$1\r\nx\r\n")), endless(says("$1000000000\r\n" + std::string(200 * 1024, 'x')));
  CHECK(has(open_error(at(list)), "answers with a list"));
  CHECK(has(open_error(at(endless)), "answers with more than"));
}

TEST_CASE("a server that is loading is waited for until the deadline") {
  const Listener loading(says("-LOADING Redis is loading the dataset in memory\r\n"));
  const std::string s = open_error(at(loading), {}, 400ms);
  CHECK_MESSAGE(has(s, "within 0.4 s: PING: LOADING Redis is loading"), s);
  const Listener cluster(says("-MOVED 3999 127.0.0.1:6381\r\n"));
  CHECK(has(open_error(at(cluster)), "no part of a cluster"));
}

TEST_CASE("an add whose answer is lost finds out whether it was the first") {
  const Listener own(loses_answer("")), others(loses_answer("another's"));
  CHECK(Client(at(own)).add("k", "mine") == "first");
  CHECK(Client(at(others)).add("k", "mine") == "second");
}

TEST_CASE("URLs that cannot be used are refused with the reason, and without their password") {
  const std::pair<const char *, const char *> table[] = {
      {"redis://", "names no host"},
      {"redis://h:0", "port that is not of 1 to 65535"},
      {"redis://h:70000", "port that is not of 1 to 65535"},
      {"redis://h:x", "port that is not of 1 to 65535"},
      {"redis://::1", "IPv6 address without ["},
      {"redis://[::1", "a [ without an IPv6 address"},
      {"redis://h/one", "\"one\" is no number of a database"},
      {"redis://h?db=1", "nothing follows ?"},
      {"redis://a,b", "names several servers"},
      {"redis://u:hunter2%zz@h", "has a % without"},
      {"redis://u:hun/ter2@h", "port that is not"},
      {"redis+unix://host/path", "has a host where a path begins"},
      {"redis+unix:///p?x=1", "db=NUMBER"},
      {"rediss://:hunter2@h", "built without TLS"},
      {"memcached://h", "no plugin knows the store"},
      {"no url", "no plugin knows the store"},
  };
  for (const auto &[url, why] : table) {
    const std::string which = url; // clang 14: INFO cannot capture a binding
    const std::string said = open_error(url, {}, 2s);
    INFO(which, ": ", said);
    CHECK(has(said, why));
    CHECK_FALSE(has(said, "hunter2"));
    CHECK_FALSE(has(said, "ter2"));
  }
  const std::string path = "/" + std::string(200, 'p');
  CHECK(has(open_error("redis+unix://" + path), "has 201 bytes"));
  CHECK(has(open_error("redis+unix:///nonexistent/socket", {}, 200ms), "No such file or directory"));
  CHECK(has(open_error("redis://host.invalid", {}, 2s), "resolve"));
}
