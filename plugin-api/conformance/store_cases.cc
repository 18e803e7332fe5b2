// The suite of stores. They are servers: core.rendezvous (TUTTI_RENDEZVOUS) names the one that cases use, under keys of their
// own that expire. Without one, what needs a server is skipped.
#include "base/time.h"
#include "config/config.h"
#include "manners.h"
#include "net_bench.h"
#include "plugin/services.h"
#include "suite.h"
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace tutti::conformance {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Nanos kTimeout = seconds(5), kGrace = milliseconds(500), kTtl = seconds(60);
constexpr milliseconds kScheduling{250}; // what a crowded machine adds

bool has_scheme(const tutti_store_v1 &t, std::string_view url) {
  for (const char *const *s = t.schemes; *s; s++)
    if (url.starts_with(std::string(*s) + "://")) return true;
  return false;
}
std::string server_of(const tutti_store_v1 &t) {
  const auto config = Config::load();
  std::string url = config.ok() ? (*config)->text("core.rendezvous") : "";
  if (url.empty()) skip("it needs a server: TUTTI_RENDEZVOUS=URL names one");
  if (!has_scheme(t, url)) skip("the store that TUTTI_RENDEZVOUS names is another plugin's");
  return url;
}

tutti_status try_open(const Plugin &plugin, const tutti_store_v1 &t, const std::string &url, Nanos timeout, tutti_store **out) {
  tutti_store_config config{};
  config.struct_size = sizeof(config);
  config.url = url.c_str();
  config.timeout_ns = static_cast<uint64_t>(timeout.count());
  clear_plugin_error();
  const Deadline deadline = Deadline::in(timeout + kGrace + kScheduling);
  const tutti_status s = t.open(plugin.state, &config, out);
  require(!deadline.expired(), "open() took longer than its time and half a second");
  return s;
}
// The reason that came with a status; a plugin that gives none breaks its word.
std::string reason(const Plugin &plugin, tutti_status s, const char *call) {
  std::string text = plugin_error(plugin, s, call).error().message;
  require(text.find("the plugin gave no reason") == std::string::npos, "{} returned {} and no reason", call, status_name(s));
  return text;
}

// A store in the hands of one thread at a time, but that any may close it.
class Client {
public:
  Client(const Plugin &plugin, const void *table) : plugin_(plugin), t_(*static_cast<const tutti_store_v1 *>(table)) {
    tutti_store *opened = nullptr;
    const tutti_status s = try_open(plugin, t_, server_of(t_), kTimeout, &opened);
    if (s != TUTTI_OK) broken("{}", reason(plugin, s, "open()"));
    require(opened != nullptr, "open() returned OK and no store");
    store_ = opened;
  }
  ~Client() { close(); }
  Client(const Client &) = delete;
  Client &operator=(const Client &) = delete;
  void close() {
    if (tutti_store *const mine = store_.exchange(nullptr)) t_.close(mine);
  }

  tutti_status try_set(const std::string &key, std::string_view value, Nanos ttl = kTtl) {
    return timed("set()", kTimeout, [&] {
      return t_.set(store_, key.c_str(), value.data(), static_cast<uint32_t>(value.size()), ns(ttl), ns(kTimeout));
    });
  }
  void set(const std::string &key, std::string_view value, Nanos ttl = kTtl) { ok(try_set(key, value, ttl), "set()"); }
  bool add(const std::string &key, std::string_view value) {
    uint32_t first = 7;
    ok(timed("add()", kTimeout,
             [&] {
               return t_.add(store_, key.c_str(), value.data(), static_cast<uint32_t>(value.size()), ns(kTtl), ns(kTimeout),
                             &first);
             }),
       "add()");
    require(first <= 1, "add() says first = {}", first);
    return first == 1;
  }
  tutti_status try_get(const std::string &key, std::string *value, uint32_t room, bool wait, Nanos timeout) {
    std::vector<char> bytes(room + 16, '\x5a');
    uint32_t n = room;
    const tutti_status s = timed("get()", timeout, [&] {
      return t_.get(store_, key.c_str(), bytes.data(), &n, wait ? uint32_t{TUTTI_STORE_WAIT} : 0u, ns(timeout));
    });
    const auto from = bytes.begin() + (s == TUTTI_OK ? std::min(n, room) : 0);
    require(std::all_of(from, bytes.end(), [](char c) { return c == '\x5a'; }), "get() wrote where it had no room or no value");
    if (s == TUTTI_OK) value->assign(bytes.data(), n);
    if (s == TUTTI_ERR_TRUNCATED) *value = std::to_string(n);
    return s;
  }
  std::optional<std::string> get(const std::string &key, bool wait = false, Nanos timeout = kTimeout) {
    std::string value;
    const tutti_status s = try_get(key, &value, TUTTI_STORE_VALUE_BYTES, wait, timeout);
    if (s == TUTTI_AGAIN) return {};
    ok(s, "get()");
    return value;
  }
  void remove(const std::string &key) {
    ok(timed("remove()", kTimeout, [&] { return t_.remove(store_, key.c_str(), ns(kTimeout)); }), "remove()");
  }

private:
  static uint64_t ns(Nanos span) { return static_cast<uint64_t>(span.count()); }
  void ok(tutti_status s, const char *call) {
    if (s != TUTTI_OK) broken("{}", reason(plugin_, s, call));
  }
  template <class Fn> tutti_status timed(const char *call, Nanos timeout, Fn &&fn) {
    clear_plugin_error();
    const Deadline deadline = Deadline::in(timeout + kGrace + kScheduling);
    const tutti_status s = fn();
    require(!deadline.expired(), "{} took longer than its time and half a second", call);
    return s;
  }
  const Plugin &plugin_;
  const tutti_store_v1 &t_;
  std::atomic<tutti_store *> store_{nullptr};
};

// Nobody else's, and another in every run.
std::string own_key(const char *what) {
  const auto now = static_cast<uint64_t>(Clock::now().time_since_epoch().count());
  return fmt::format("tutti-check/{}/{:x}/{}", ::getpid(), now, what);
}

void refuses_urls(const Plugin &plugin, const void *table) {
  const auto &t = *static_cast<const tutti_store_v1 *>(table);
  for (const std::string url : {"", "x", "://"}) {
    tutti_store *store = nullptr;
    const tutti_status s = try_open(plugin, t, url, kTimeout, &store);
    require(s == TUTTI_ERR_INVALID, "open(\"{}\") returned {}, expected INVALID", url, status_name(s));
    (void)reason(plugin, s, "open()");
  }
}

void nobody_answers(const Plugin &plugin, const void *table) {
  const auto &t = *static_cast<const tutti_store_v1 *>(table);
  for (const char *const *scheme = t.schemes; *scheme; scheme++) {
    tutti_store *store = nullptr;
    const std::string url = fmt::format("{}://some-user:hunter2@127.0.0.1:1/path", *scheme); // nothing listens at port 1
    const tutti_status s = try_open(plugin, t, url, seconds(1), &store);
    if (s == TUTTI_OK) {
      t.close(store);
      skip("this store needs no server");
    }
    const std::string why = reason(plugin, s, "open()");
    require(why.find("hunter2") == std::string::npos, "a reason shows the password of the URL: {}", why);
  }
}

void put_and_got(const Plugin &plugin, const void *table) {
  Client a(plugin, table), b(plugin, table);
  const std::string key = own_key("value");
  a.set(key, "one");
  require(b.get(key) == "one", "what one client has put another does not get");
  b.set(key, "two, which is longer");
  require(a.get(key) == "two, which is longer", "a second value does not take the place of the first");
  a.set(key, "3");
  require(b.get(key) == "3", "a shorter value does not take the place of a longer one");
  a.remove(key);
}

void absent(const Plugin &plugin, const void *table) {
  Client a(plugin, table);
  const auto began = Clock::now();
  require(!a.get(own_key("absent")), "a key that nobody has put has a value");
  require(Clock::now() - began < seconds(2), "get() of an absent key waits, though WAIT is not asked for");
}

void absent_waits(const Plugin &plugin, const void *table) {
  Client a(plugin, table);
  const auto began = Clock::now();
  require(!a.get(own_key("absent"), true, milliseconds(700)), "a key that nobody has put has a value");
  require(Clock::now() - began >= milliseconds(690), "get() with WAIT says that there is none before its time is over");
}

void wakes(const Plugin &plugin, const void *table) {
  Client a(plugin, table), b(plugin, table);
  const std::string key = own_key("late");
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(600)); // most likely the other waits by then; it may not yet
    b.set(key, "here");
  });
  const auto got = a.get(key, true, seconds(5));
  const auto at = Clock::now();
  later.join();
  require(got == "here", "get() with WAIT does not see a value that comes meanwhile");
  require(Clock::now() - at < seconds(1), "get() with WAIT returned before the value was put");
  a.remove(key);
}

void one_is_first(const Plugin &plugin, const void *table) {
  constexpr int kClients = 8, kRounds = 5;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < kClients; i++) clients.push_back(std::make_unique<Client>(plugin, table));
  for (int round = 0; round < kRounds; round++) {
    const std::string key = own_key("first");
    std::atomic<int> ready{0}, firsts{0}, winner{-1};
    std::vector<std::thread> threads;
    for (int i = 0; i < kClients; i++)
      threads.emplace_back([&, i] {
        ready++;
        while (ready < kClients) std::this_thread::yield();
        if (!clients[static_cast<size_t>(i)]->add(key, std::to_string(i))) return;
        firsts++;
        winner = i;
      });
    for (auto &t : threads) t.join();
    require(firsts == 1, "{} of {} that add a key at once are told that they are first", firsts.load(), kClients);
    require(clients[0]->get(key) == std::to_string(winner), "the value is not that of the one who was first");
    clients[0]->remove(key);
  }
}

void add_again(const Plugin &plugin, const void *table) {
  Client a(plugin, table);
  const std::string key = own_key("again");
  require(a.add(key, "one"), "add() of a new key is not first");
  require(!a.add(key, "two") && a.get(key) == "one", "add() puts a value where there is one");
  a.remove(key);
  require(a.add(key, "three"), "add() after remove() is not first");
  a.remove(key);
  a.set(key, "four");
  require(!a.add(key, "five"), "add() does not see what set() has put");
  a.remove(key);
}

void expires(const Plugin &plugin, const void *table) {
  Client a(plugin, table);
  const std::string key = own_key("expires");
  const auto began = Clock::now();
  a.set(key, "for a second", seconds(1));
  bool seen = false;
  for (;;) {
    const bool there = a.get(key).has_value();
    const auto age = Clock::now() - began;
    seen = seen || there;
    if (!there) {
      require(seen, "a value that expires after 1 s was never there");
      require(age >= seconds(1), "a value that expires after 1 s was gone earlier");
      return;
    }
    require(age < milliseconds(6500), "a value that expires after 1 s is there after 6.5 s");
    std::this_thread::sleep_for(milliseconds(50));
  }
}

void stays(const Plugin &plugin, const void *table) {
  Client a(plugin, table);
  const std::string key = own_key("stays");
  a.set(key, "for a second", seconds(1));
  a.set(key, "for good", Nanos(0));
  std::this_thread::sleep_for(milliseconds(6500)); // by then the first would be gone
  require(a.get(key) == "for good", "a value that was put without an end goes when the one before it would have");
  a.remove(key);
}

void sizes(const Plugin &plugin, const void *table) {
  Client a(plugin, table);
  Random random(11);
  const std::string key = own_key("sizes");
  for (const size_t n : {size_t(TUTTI_STORE_VALUE_BYTES), size_t(1), size_t(0), size_t(4095)}) {
    std::string value(n, 0);
    random.fill(value.data(), value.size());
    a.set(key, value);
    require(a.get(key) == value, "a value of {} bytes is not what was put", n);
  }
  a.remove(key);
  const std::string longest = (key + "/" + std::string(TUTTI_STORE_KEY_BYTES, 'k')).substr(0, TUTTI_STORE_KEY_BYTES);
  a.set(longest, "long");
  require(a.get(longest) == "long", "a key of {} bytes has no value", longest.size());
  a.remove(longest);
}

void too_long(const Plugin &plugin, const void *table) {
  Client a(plugin, table);
  const std::string key = own_key("long"), value(TUTTI_STORE_VALUE_BYTES + 1, 'v');
  const auto refused = [&](tutti_status s, const char *what) {
    require(s == TUTTI_ERR_INVALID, "{}: set() returned {}, expected INVALID", what, status_name(s));
    (void)reason(plugin, s, "set()");
  };
  refused(a.try_set(key, value), "a value of a byte too many");
  refused(a.try_set(std::string(TUTTI_STORE_KEY_BYTES + 1, 'k'), "v"), "a key of a byte too many");
  refused(a.try_set("", "v"), "an empty key");
  a.set(key, "fits");
  require(a.get(key) == "fits", "after a value that was refused the store does not go on");
  a.remove(key);
}

void any_bytes(const Plugin &plugin, const void *table) {
  Client a(plugin, table);
  std::string value;
  for (int i = 0; i < 256; i++) value += static_cast<char>(i);
  const std::string base = own_key("bytes");
  const std::vector<std::string> keys = {base, base + "/x", base + "/", base + " \t\r\n\"'*?[]{}\\%\x01\xc3\xa4",
                                         base + "\xff"};
  for (size_t i = 0; i < keys.size(); i++) a.set(keys[i], value + std::to_string(i));
  for (size_t i = 0; i < keys.size(); i++)
    require(a.get(keys[i]) == value + std::to_string(i), "key {} of strange bytes does not have its value", i);
  a.remove(keys[0]);
  require(a.get(keys[1]).has_value(), "remove() takes keys with it that begin with the one it was given");
  for (const auto &k : keys) a.remove(k);
}

void truncated(const Plugin &plugin, const void *table) {
  Client a(plugin, table);
  const std::string key = own_key("room");
  a.set(key, std::string(100, 'x'));
  std::string value;
  const tutti_status s = a.try_get(key, &value, 99, false, kTimeout);
  require(s == TUTTI_ERR_TRUNCATED, "a value that is longer than the room: get() returned {}, expected TRUNCATED",
          status_name(s));
  require(value == "100", "get() says that {} bytes are there, they are 100", value);
  require(a.try_get(key, &value, 100, false, kTimeout) == TUTTI_OK, "a value that just fits is not returned");
  a.remove(key);
}

void removes(const Plugin &plugin, const void *table) {
  Client a(plugin, table), b(plugin, table);
  const std::string key = own_key("gone");
  a.remove(key);
  a.set(key, "v");
  b.remove(key);
  require(!a.get(key), "what was removed is still there");
}

void close_while_waiting(const Plugin &plugin, const void *table) {
  Client a(plugin, table);
  tutti_status s = TUTTI_OK;
  std::string reason_text;
  std::atomic<bool> begun{false};
  std::thread waiting([&] {
    std::string value;
    begun = true;
    s = a.try_get(own_key("never"), &value, 100, true, seconds(10));
    if (s < 0) reason_text = reason(plugin, s, "get()");
  });
  while (!begun) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(300)); // until the call has most likely begun
  const auto began = Clock::now();
  a.close();
  const auto took = Clock::now() - began;
  waiting.join();
  require(took < seconds(2) + kScheduling, "close() did not end the call that waits within 2 s");
  require(s == TUTTI_ERR_CANCELLED, "close() ended a call that waits with {}, expected CANCELLED", status_name(s));
}

void leaves_nothing(const Plugin &plugin, const void *table) {
  { Client warm(plugin, table); }
  const size_t fds = open_descriptors(), threads = live_threads();
  for (int i = 0; i < 20; i++) {
    Client a(plugin, table);
    if (i % 2) (void)a.get(own_key("none"));
  }
  const Deadline deadline = Deadline::in(seconds(2));
  while (!deadline.expired() && (open_descriptors() > fds || live_threads() > threads))
    std::this_thread::sleep_for(milliseconds(10));
  require(open_descriptors() <= fds, "{} descriptors are left of 20 stores that were closed", open_descriptors() - fds);
  require(live_threads() <= threads, "{} threads are left of 20 stores that were closed", live_threads() - threads);
}

void side_by_side(const Plugin &plugin, const void *table) {
  std::vector<std::thread> threads;
  const std::string base = own_key("side");
  for (int i = 0; i < 4; i++)
    threads.emplace_back([&, i] {
      Client a(plugin, table);
      const std::string key = fmt::format("{}/{}", base, i);
      for (int k = 0; k < 20; k++) {
        a.set(key, fmt::format("{} {}", i, k));
        require(a.get(key) == fmt::format("{} {}", i, k), "beside other stores a value is not what was put");
      }
      a.remove(key);
    });
  for (auto &t : threads) t.join();
}

void after_fork(const Plugin &plugin, const void *table) {
  Client a(plugin, table);
  const std::string key = own_key("fork");
  a.set(key, "parent");
  const pid_t child = own_fork();
  require(child >= 0, "fork failed");
  if (child == 0) {
    Client own(plugin, table);
    const bool right = own.get(key) == "parent";
    own.set(key, "child");
    own.close();
    ::_exit(right ? 0 : 3);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a forked child cannot use a store of its own");
  require(a.get(key).has_value(), "after a child has used a store of its own, the parent's does not work");
  a.remove(key);
}

} // namespace

std::span<const Case> store_cases() {
  static const Case all[] = {
      {"S-01", "what is no URL is refused as INVALID, with a reason", refuses_urls},
      {"S-02", "where nobody answers, open() ends in time, and no reason has a password", nobody_answers},
      {"S-03", "what one client puts, another gets; the last value counts", put_and_got},
      {"S-04", "a key that is not there is AGAIN, at once", absent},
      {"S-05", "with WAIT, it is AGAIN at the deadline", absent_waits},
      {"S-06", "with WAIT, a value that comes meanwhile is returned", wakes},
      {"S-07", "of several that add a key at once, one is first, and its value stays", one_is_first, seconds(30)},
      {"S-08", "add() leaves what is there, and is first again after remove()", add_again},
      {"S-09", "a value with a time is gone after it, not before, and within 5 s", expires},
      {"S-10", "a value without a time stays, whatever the one before it had", stays},
      {"S-11", "values of 0 to 65536 bytes and keys of up to 512 come back as they were", sizes},
      {"S-12", "what is longer is refused as INVALID, and the store goes on", too_long},
      {"S-13", "keys and values are bytes, and no key stands for others", any_bytes},
      {"S-14", "a value that is longer than the room is TRUNCATED, with its size", truncated},
      {"S-15", "what is removed is gone, and removing nothing is no error", removes},
      {"S-16", "close() ends a call that waits, with CANCELLED", close_while_waiting},
      {"S-17", "stores that are closed leave no descriptors and no threads", leaves_nothing, seconds(60)},
      {"S-18", "several threads use stores of their own at once", side_by_side, seconds(30)},
      {"S-19", "a forked child uses stores of its own, and the parent's go on", after_fork},
  };
  return all;
}

} // namespace tutti::conformance
