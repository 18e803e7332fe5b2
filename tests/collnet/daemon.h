// tests/collnet/daemon.h: tutti-aggd processes on loopback, with a folder of their own that goes with them.
#pragma once
#include "../support/temp_folder.h"
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <sys/types.h>
#include <vector>

namespace collnet {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

class Folder : public support::TempFolder {
public:
  std::string key(const std::string &name = "key",
                  const std::string &bytes = "0123456789abcdef0123456789abcdef") const; // made, 0600
};

class Daemon {
public:
  // `more`: TOML behind [aggd] listen, key_file, admin and parent. Waits until it listens; throws when it does not.
  Daemon(const Folder &folder, std::string name, std::string more = "", const Daemon *parent = nullptr, std::string key = "",
         std::string host = "127.0.0.1");
  ~Daemon(); // killed where it still runs
  Daemon(const Daemon &) = delete;
  std::string address() const { return host_ + ":" + std::to_string(port_); }
  int port() const { return port_; }
  int metrics_port() const { return metrics_; }
  void signal(int number) const;
  int wait(milliseconds limit); // exit status; -1: it still runs
  // At the same port, once it has ended; in_child: what its process does to itself before.
  void restart(const std::function<void()> &in_child = {});
  void below(const Daemon &parent) { parent_ = parent.address(); } // from its next start on
  bool runs() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  nlohmann::json status() const;                                   // null: nobody answers
  std::string command(const std::vector<std::string> &args) const; // output of tutti-aggd --config ... args
  static std::string output_of(const std::string &args);           // of tutti-aggd args, for 20 s at most
  std::string log() const;
  // Whether `holds` comes true in time.
  template <class Fn> bool becomes(Fn holds, milliseconds limit = milliseconds(10'000)) const {
    for (const auto end = Clock::now() + limit; Clock::now() < end; pause())
      if (const nlohmann::json s = status(); !s.is_null() && holds(s)) return true;
    return false;
  }
  // Memory that the process has, each page counted once (rings are mapped twice); 0: it cannot be told.
  uint64_t memory_kib() const;
  // That it has had no more than its limit over what it had when it had started, and what it keeps for itself.
  bool within(uint64_t limit_kib) const;

private:
  static void pause();
  void start(const std::function<void()> &in_child = {});
  const Folder &folder_;
  const std::string name_;
  std::string more_, key_, parent_, host_;
  int port_ = 0, metrics_ = 0;
  pid_t pid_ = -1;
  uint64_t at_start_ = 0; // memory_kib() then
};

} // namespace collnet
