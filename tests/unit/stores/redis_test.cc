// store-redis with a redis-server that is right, stopped, gone, full, a replica, or has rights of its own.
#include "checker.h"
#include "help.h"
#include "servers.h"
#include <csignal>
#include <cstdlib>
#include <thread>

using namespace stores;

namespace {

const std::string kPlugin = std::string(TUTTI_BINARY_DIR) + "/lib/tutti/plugins/libtutti-store-redis.so";

bool missing() {
  if (Redis::installed()) return false;
  MESSAGE("skipped: no redis-server here");
  return true;
}
std::string findings(const CheckReport &r) {
  std::string out;
  for (const auto &f : r.findings) out += f.rule + ": " + f.text + "\n";
  for (const auto &s : r.skipped) out += "skipped " + s + "\n";
  return out;
}
bool shows_password(const std::string &s) {
  return has(s, Redis::kPassword) || has(s, "pass%3A") || has(s, "hunter2");
}

} // namespace

TEST_SUITE_BEGIN("redis-server");

TEST_CASE("the redis plugin passes the suite of stores, over TCP and over a socket in the file system") {
  if (missing()) return;
  Redis server;
  for (const std::string &url : {server.url() + "/3", server.unix_url()}) {
    setenv("TUTTI_RENDEZVOUS", url.c_str(), 1);
    const CheckReport r = check_plugin(kPlugin, {});
    unsetenv("TUTTI_RENDEZVOUS");
    INFO(findings(r));
    CHECK(r.findings.empty());
    CHECK(r.skipped.empty());
    CHECK(r.passed == 20);
  }
}

TEST_CASE("passwords come from the URL, a file of mode 0600 or REDISCLI_AUTH; wrong and missing ones are named, never shown") {
  if (missing()) return;
  Redis server;
  support::Folder folder;
  const std::string plain = "redis://127.0.0.1:" + std::to_string(server.port()), file = (folder.path / "password").string();
  Code code = Code::ok;
  const std::string none = open_error(plain, {}, 5s, &code);
  CHECK_MESSAGE(has(none, plain + ": PING: NOAUTH Authentication required"), none);
  CHECK(has(none, "plugin.store-redis.password_file"));
  CHECK(code == Code::invalid_usage);
  const std::string wrong = open_error("redis://:hunter2@127.0.0.1:" + std::to_string(server.port()));
  CHECK_MESSAGE(has(wrong, "AUTH: WRONGPASS"), wrong);
  CHECK_FALSE(shows_password(wrong));
  const Environment from_file = {{"TUTTI_PLUGIN_STORE_REDIS_PASSWORD_FILE", file}};
  CHECK(has(open_error(plain, from_file), "No such file or directory"));
  write_file(file, std::string(Redis::kPassword) + "\nnot this line\n");
  CHECK(open_error(plain, from_file) == "");
  write_file(file, std::string(Redis::kPassword) + "\n", 0640);
  CHECK(has(open_error(plain, from_file), "mode 0600"));
  write_file(file, "\n");
  CHECK(has(open_error(plain, from_file), "its first line is empty"));
  setenv("REDISCLI_AUTH", Redis::kPassword, 1);
  CHECK(open_error(plain) == "");
  unsetenv("REDISCLI_AUTH");
}

TEST_CASE("a user of the server's access control gets what it may, and what it may not is named") {
  if (missing()) return;
  Redis server("user alice on >hunter2 ~tutti/* +@all -set\nuser bob on >hunter2 ~tutti/* +@all");
  const std::string at = "@127.0.0.1:" + std::to_string(server.port());
  Client bob("redis://bob:hunter2" + at), alice("redis://alice:hunter2" + at);
  CHECK(bob.set("tutti/a", "1") == "");
  CHECK(alice.get("tutti/a") == "1");
  Code code = Code::ok;
  const std::string denied = alice.set("tutti/a", "2", 5s, &code);
  CHECK_MESSAGE(has(denied, "SET: NOPERM"), denied);
  CHECK(code == Code::invalid_usage);
  CHECK_FALSE(shows_password(denied));
  CHECK(has(bob.set("other", "2"), "NOPERM"));
  CHECK(bob.get("tutti/a") == "1"); // and it goes on
  CHECK(has(open_error("redis://bob" + at), "user bob has no password"));
}

TEST_CASE("databases are apart, and one that the server does not have is an error") {
  if (missing()) return;
  Redis server;
  Client none(server.url()), zero(server.url() + "/0"), five(server.url() + "/5"), socket(server.unix_url() + "?db=5");
  CHECK(five.set("k", "in 5") == "");
  CHECK(zero.get("k") == "(none)");
  CHECK(none.get("k") == "(none)");
  CHECK(socket.get("k") == "in 5");
  const std::string out = open_error(server.url() + "/99");
  CHECK_MESSAGE(has(out, "SELECT 99: ERR DB index is out of range"), out);
  CHECK_FALSE(shows_password(out));
}

TEST_CASE("a server that is stopped is a timeout that says so, and goes on when it is continued") {
  if (missing()) return;
  Redis server;
  Client client(server.url());
  CHECK(client.set("k", "1") == "");
  server.signal(SIGSTOP);
  Code code = Code::ok;
  const auto began = Clock::now();
  const std::string late = client.set("k", "2", 500ms, &code);
  CHECK(Clock::now() - began < 2s);
  CHECK_MESSAGE(has(late, "SET has not been answered within 0.5 s: it does not answer"), late);
  CHECK(code == Code::timeout);
  CHECK_FALSE(shows_password(late));
  CHECK(has(open_error(server.unix_url(), {}, 500ms), "it does not answer"));
  code = Code::ok;
  CHECK(has(client.get("none", true, 500ms, &code), "it does not answer")); // not "there is none": nobody said so
  CHECK(code == Code::timeout);
  server.signal(SIGCONT);
  CHECK(client.set("k", "3") == "");
  CHECK(client.get("k") == "3");
}

TEST_CASE("a server that is gone is a timeout with the last reason, and one that comes back within it is used") {
  if (missing()) return;
  Redis server;
  Client client(server.url());
  CHECK(client.set("k", "1") == "");
  server.stop();
  const std::string gone = client.set("k", "2", 300ms);
  CHECK_MESSAGE(has(gone, "Connection refused"), gone);
  std::string said;
  std::thread meanwhile([&] { said = client.set("k", "3", 20s); });
  server.start(); // here: a server ends with the thread that started it
  meanwhile.join();
  CHECK(said == "");
  CHECK(client.get("k") == "3");
}

TEST_CASE("a server that is full, and one that may not be written to, say so") {
  if (missing()) return;
  Redis full("maxmemory 100kb\nmaxmemory-policy noeviction"), replica("replicaof 127.0.0.1 1\nreplica-read-only yes");
  const std::string oom = Client(full.url()).set("k", "v");
  CHECK_MESSAGE(has(oom, "SET: OOM command not allowed"), oom);
  const std::string readonly = Client(replica.url()).set("k", "v");
  CHECK_MESSAGE(has(readonly, "SET: READONLY"), readonly);
  CHECK(has(readonly, "name the primary"));
}

TEST_SUITE_END();
