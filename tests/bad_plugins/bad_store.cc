// A store within one process, for the suite of stores. As it is it keeps every promise; FORM in the environment is the name of
// a bug, which bug() asks for.
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tutti/plugin/cxx/plugin.hpp>
#include <tutti/plugin/cxx/store_client.hpp>

namespace bent {
using namespace tutti::plugin;
using Clock = std::chrono::steady_clock;
using Nanos = std::chrono::nanoseconds;

bool bug(const char *name) {
  static const char *const is = std::getenv("FORM") ? std::getenv("FORM") : "";
  return std::strcmp(is, name) == 0;
}

struct Entry {
  std::string value;
  Clock::time_point until = Clock::time_point::max();
};
struct Shelf {
  std::mutex mutex; // guards entries
  std::map<std::string, Entry> entries;
  Entry *find(const std::string &key) {
    const auto at = entries.find(key);
    if (at == entries.end()) return nullptr;
    const auto late = bug("expires_late") ? std::chrono::seconds(30) : std::chrono::seconds(0);
    if (at->second.until == Clock::time_point::max() || Clock::now() < at->second.until + late) return &at->second;
    entries.erase(at);
    return nullptr;
  }
  void put(const std::string &key, std::string_view value, Nanos ttl) {
    Entry &e = entries[key];
    e.value = value;
    if (bug("cuts_at_nul")) e.value = e.value.c_str();
    if (ttl.count() > 0)
      e.until = Clock::now() + (bug("expires_early") ? ttl / 2 : ttl);
    else if (!bug("keeps_time"))
      e.until = Clock::time_point::max();
  }
};
Shelf shelf;

class Client {
public:
  void set(const std::string &key, std::string_view value, Nanos ttl, Nanos) {
    if (bug("forgets")) return;
    const std::lock_guard<std::mutex> lock(shelf.mutex);
    shelf.put(key, value, ttl);
  }
  bool add(const std::string &key, std::string_view value, Nanos ttl, Nanos) {
    if (bug("all_first")) {
      set(key, value, ttl, {});
      return true;
    }
    const std::lock_guard<std::mutex> lock(shelf.mutex);
    if (shelf.find(key)) return false;
    shelf.put(key, value, ttl);
    return true;
  }
  std::optional<std::string> get(const std::string &key, bool wait, Nanos timeout) {
    const Limit limit(timeout, interrupt_);
    for (;;) {
      {
        const std::lock_guard<std::mutex> lock(shelf.mutex);
        if (const Entry *e = shelf.find(key)) return e->value;
      }
      if ((!wait && !bug("always_waits")) || limit.over() || (wait && bug("never_waits"))) return std::nullopt;
      if (bug("hangs"))
        std::this_thread::sleep_for(limit.left() + std::chrono::seconds(1));
      else if (bug("deaf"))
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      else
        limit.sleep(std::chrono::milliseconds(20));
    }
  }
  void remove(const std::string &key, Nanos) {
    const std::lock_guard<std::mutex> lock(shelf.mutex);
    if (!shelf.find(key) && bug("strict_remove")) fail(TUTTI_ERR_REMOTE, "there is no ", key);
    shelf.entries.erase(key);
    if (bug("prefix")) std::erase_if(shelf.entries, [&](const auto &e) { return e.first.compare(0, key.size(), key) == 0; });
  }
  void cancel() { interrupt_.set(); }

private:
  Interrupt interrupt_;
};

class Plugin {
public:
  static constexpr Info info{"bad-store", "1.0.0", "tests", "Apache-2.0", "a store within one process"};
  static constexpr const char *store_name = "memory";
  static constexpr const char *const store_schemes[] = {"memory", nullptr};
  using Store = Client;
  explicit Plugin(const Host &host) : host_(host) {}
  std::unique_ptr<Client> store_open(const std::string &text, Nanos) const {
    const StoreUrl url = bug("takes_all") ? StoreUrl{} : parse_store_url(text, 1);
    if (url.has_password) fail(TUTTI_ERR_DENIED, bug("tells") ? text : url.shown, ": it knows nobody");
    auto out = std::make_unique<Client>();
    if (bug("leaks")) [[maybe_unused]]
      const int fd = ::dup(0);
    return out;
  }

private:
  Host host_;
};

} // namespace bent

TUTTI_CXX_PLUGIN(bent::Plugin)
