// store-etcd with a stand-in for the gateway that keeps keys and does what real ones do when they are not well.
#include "checker.h"
#include "fakes.h"
#include "help.h"
#include "servers.h"
#include <csignal>
#include <cstdlib>
#include <thread>

using namespace stores;

namespace {

const std::string kPlugin = std::string(TUTTI_BINARY_DIR) + "/lib/tutti/plugins/libtutti-store-etcd.so";

std::string findings(const CheckReport &r) {
  std::string out;
  for (const auto &f : r.findings) out += f.rule + ": " + f.text + "\n";
  for (const auto &s : r.skipped) out += "skipped " + s + "\n";
  return out;
}
void passes_suite(const std::string &url) {
  setenv("TUTTI_RENDEZVOUS", url.c_str(), 1);
  const CheckReport r = check_plugin(kPlugin, {});
  unsetenv("TUTTI_RENDEZVOUS");
  INFO(findings(r));
  CHECK(r.findings.empty());
  CHECK(r.skipped.empty());
  CHECK(r.passed == 20);
}
// This answer in place of every request's to `path`; the first `times` only, where that is not 0.
FakeEtcd::Fault instead(std::string path, std::string reply, int times = 0) {
  return [=, n = std::make_shared<std::atomic<int>>(0)](const std::string &asked, int) -> std::optional<std::string> {
    if (asked != path || (times > 0 && ++*n > times)) return std::nullopt;
    return reply;
  };
}
std::string error_body(int code, const std::string &text) {
  return "{\"error\":\"" + text + "\",\"code\":" + std::to_string(code) + ",\"message\":\"" + text + "\"}";
}
bool etcd_missing() {
  if (Etcd::installed()) return false;
  MESSAGE("skipped: no etcd here");
  return true;
}

} // namespace

TEST_CASE("the etcd plugin passes the suite of stores at a stand-in, with a user, too") {
  FakeEtcd open, closed;
  passes_suite(open.url());
  CHECK(open.contents().empty()); // cases tidy up
  closed.require_user("root", "p@ss");
  passes_suite(closed.url("root:p%40ss"));
}

TEST_CASE("keys are below the URL's path, and expire with their lease") {
  FakeEtcd server;
  Client client(server.url());
  CHECK(client.set("a/b", "v") == "");
  CHECK(server.contents() == std::map<std::string, std::string>{{"L3Rlc3QvYS9i", "dg=="}}); // /test/a/b: v
  Client elsewhere("etcd://127.0.0.1:" + std::to_string(server.port()));
  CHECK(elsewhere.get("a/b") == "(none)");
  CHECK(elsewhere.get("test/a/b") == "v");
}

TEST_CASE(
    "user and password come from URL, options, file or etcdctl's variables; wrong and missing ones are named, not shown") {
  FakeEtcd server;
  server.require_user("root", "hunter2");
  support::Folder folder;
  const std::string file = (folder.path / "password").string(), url = server.url();
  Code code = Code::ok;
  const std::string none = open_error(url, {}, 5s, &code);
  CHECK_MESSAGE(has(none, "/v3/kv/range: etcdserver: user name is empty"), none);
  CHECK(code == Code::invalid_usage);
  const std::string wrong = open_error(server.url("root:hunter3"));
  CHECK_MESSAGE(has(wrong, "authentication failed"), wrong);
  CHECK_FALSE(has(wrong, "hunter3"));
  CHECK(has(open_error(server.url("root")), "user root has no password"));
  write_file(file, "hunter2\n");
  const Environment options = {{"TUTTI_PLUGIN_STORE_ETCD_USER", "root"}, {"TUTTI_PLUGIN_STORE_ETCD_PASSWORD_FILE", file}};
  CHECK(open_error(url, options) == "");
  write_file(file, "hunter2\n", 0644);
  CHECK(has(open_error(url, options), "mode 0600"));
  setenv("ETCDCTL_USER", "root:hunter2", 1);
  CHECK(open_error(url) == "");
  setenv("ETCDCTL_USER", "root", 1);
  setenv("ETCDCTL_PASSWORD", "hunter2", 1);
  CHECK(open_error(url) == "");
  unsetenv("ETCDCTL_USER"), unsetenv("ETCDCTL_PASSWORD");
  FakeEtcd without;
  CHECK(has(open_error(without.url("root:hunter2")), "authentication is not enabled"));
}

TEST_CASE("a token that has ended is asked for again") {
  FakeEtcd server;
  server.require_user("root", "hunter2");
  Client client(server.url("root:hunter2"));
  CHECK(client.set("k", "1") == "");
  server.forget_tokens();
  CHECK(client.get("k") == "1");
}

TEST_CASE("several servers are tried in turn: one that is gone or ill costs nothing but time") {
  FakeEtcd well, ill(instead("/v3/kv/range", FakeEtcd::http(503, error_body(14, "etcdserver: no leader"))));
  const std::string dead = std::to_string(free_port()), ill_port = std::to_string(ill.port());
  Client client("etcd://127.0.0.1:" + dead + ",127.0.0.1:" + ill_port + ",127.0.0.1:" + std::to_string(well.port()));
  CHECK(client.set("k", "1") == "");
  CHECK(client.get("k") == "1");
  const std::string none = open_error("etcd://127.0.0.1:" + dead + ",127.0.0.1:" + ill_port, {}, 1500ms);
  CHECK_MESSAGE(has(none, "http://127.0.0.1:" + dead + ": "), none);
  CHECK_MESSAGE(has(none, "http://127.0.0.1:" + ill_port + ": /v3/kv/range: etcdserver: no leader (HTTP 503)"), none);
}

TEST_CASE("a server that is busy for a while is asked again, and one that stays so is a timeout") {
  FakeEtcd soon(instead("/v3/kv/range", FakeEtcd::http(503, error_body(14, "etcdserver: leader changed")), 3));
  CHECK(open_error(soon.url()) == "");
  FakeEtcd crowded(instead("/v3/kv/range", FakeEtcd::http(429, error_body(8, "etcdserver: too many requests")), 2));
  CHECK(open_error(crowded.url()) == "");
  const Listener silent(says(""));
  Code code = Code::ok;
  const std::string late = open_error("etcd://127.0.0.1:" + std::to_string(silent.port()), {}, 400ms, &code);
  CHECK_MESSAGE(has(late, "/v3/kv/range has not been answered within 0.4 s: it does not answer"), late);
  CHECK(code == Code::timeout);
}

TEST_CASE("a store that is full, and one that refuses, say so at once") {
  FakeEtcd full(instead("/v3/kv/put", FakeEtcd::http(429, error_body(8, "etcdserver: mvcc: database space exceeded"))));
  const std::string space = Client(full.url()).set("k", "v");
  CHECK_MESSAGE(has(space, "/v3/kv/put: etcdserver: mvcc: database space exceeded"), space);
  FakeEtcd denies(instead("/v3/kv/put", FakeEtcd::http(403, error_body(7, "etcdserver: permission denied"))));
  Code code = Code::ok;
  CHECK(has(Client(denies.url()).set("k", "v", 5s, &code), "permission denied"));
  CHECK(code == Code::invalid_usage);
}

TEST_CASE("what is no etcd is an error at once, with the beginning of what it said") {
  const auto reply = [](std::string body, int status = 200) { return instead("/v3/kv/range", FakeEtcd::http(status, body)); };
  FakeEtcd page(reply("<html>\n<body>welcome")), list(reply("[1,2]")), bare(reply("{}")),
      odd(reply("{\"header\":{},\"kvs\":[{\"value\":\"@@\"}]}")), old(reply("404 page not found\n", 404)),
      large(reply(std::string(400 * 1024, ' ')));
  CHECK(has(open_error(page.url()), "no JSON of etcd: \"<html> <body>welcome\""));
  CHECK(has(open_error(list.url()), "no JSON of etcd"));
  CHECK(has(open_error(bare.url()), "no \"header\""));
  CHECK(has(open_error(odd.url()), "no base64"));
  CHECK(has(open_error(old.url()), "is it etcd, of 3.4 or later?"));
  CHECK(has(open_error(large.url()), "answers with more than"));
  const Listener other(says("+PONG\r\n"));
  CHECK(has(open_error("etcd://127.0.0.1:" + std::to_string(other.port())), "does not speak HTTP"));
}

TEST_CASE("a connection that is cut is another try, and an add whose answer is lost finds out whether it was the first") {
  FakeEtcd cuts(instead("/v3/kv/range", "-", 2)), loses(instead("/v3/kv/txn", "", 1));
  CHECK(open_error(cuts.url()) == "");
  CHECK(Client(loses.url()).add("k", "mine") == "first");
  CHECK(Client(loses.url()).add("k", "other") == "second");
}

TEST_CASE("URLs of etcd that cannot be used are refused with the reason") {
  const std::pair<const char *, const char *> table[] = {{"etcd://", "names no host"},
                                                         {"etcd://a,,b", "names no host"},
                                                         {"etcd://a:1,b:x", "port that is not"},
                                                         {"etcd://h?x", "nothing follows ?"},
                                                         {"etcd://u:hunter2%@h", "has a % without"}};
  for (const auto &[url, why] : table) {
    const std::string which = url; // clang 14: INFO cannot capture a binding
    const std::string said = open_error(url, {}, 2s);
    INFO(which, ": ", said);
    CHECK(has(said, why));
    CHECK_FALSE(has(said, "hunter2"));
  }
}

TEST_SUITE_BEGIN("etcd");

TEST_CASE("the etcd plugin passes the suite of stores at a real etcd") {
  if (etcd_missing()) return;
  Etcd server;
  passes_suite(server.url());
}

TEST_CASE("an etcd that is stopped is a timeout, and goes on when it is continued; one that is full says so") {
  if (etcd_missing()) return;
  Etcd server({"--quota-backend-bytes=65536"});
  Client client(server.url());
  server.signal(SIGSTOP);
  Code code = Code::ok;
  const std::string late = client.get("k", true, 500ms, &code);
  CHECK_MESSAGE(has(late, "it does not answer"), late);
  CHECK(code == Code::timeout);
  server.signal(SIGCONT);
  CHECK(client.get("k") == "(none)");
  std::string full;
  for (int i = 0; i < 20 && full.empty(); i++) full = client.set("k" + std::to_string(i), std::string(60000, 'x'));
  CHECK_MESSAGE(has(full, "database space exceeded"), full);
}

TEST_CASE("etcds:// asks for a certificate that it trusts") {
  const std::string openssl = find_program("openssl");
  if (etcd_missing() || openssl.empty()) return;
  support::Folder folder;
  const std::string cert = (folder.path / "cert").string(), key = (folder.path / "key").string();
  Process make(openssl,
               {"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
                key, "-out", cert, "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"},
               (folder.path / "log").string());
  for (int i = 0; i < 500 && !make.ended(); i++) std::this_thread::sleep_for(20ms);
  Etcd server({"--cert-file=" + cert, "--key-file=" + key}, "https");
  const std::string url = "etcds://127.0.0.1:" + std::to_string(server.port());
  Code code = Code::ok;
  const std::string stranger = open_error(url, {}, 5s, &code);
  CHECK_MESSAGE(has(stranger, "its certificate is not trusted"), stranger);
  CHECK(code == Code::invalid_usage);
  CHECK(open_error(url, {{"TUTTI_PLUGIN_STORE_ETCD_CA_FILE", cert}}) == "");
  CHECK(has(open_error(url, {{"TUTTI_PLUGIN_STORE_ETCD_CA_FILE", key}}), "certificate"));
}

TEST_SUITE_END();
