// A core for the parts of the plugin: options from a map over the plugin's table, its log, and the watch service, whose
// descriptors a test serves itself.
#pragma once
#include "settings.h"
#include <map>
#include <mutex>

class TestHost {
public:
  using Options = std::map<std::string, std::string>;
  explicit TestHost(Options options = {}, bool watches = true);
  TestHost(const TestHost &) = delete;
  tutti::plugin::Host host() { return tutti::plugin::Host(&host_); }
  std::string log() const;
  size_t watched() const { return watches_.size(); }
  // Calls what watches a readable descriptor, as the core's service thread does.
  void serve();
  // Reads the settings; "" or what they throw.
  std::string settings_error();

private:
  friend struct TestServices;
  struct Watch {
    void (*fn)(void *, uint32_t);
    void *arg;
  };
  std::string value(const std::string &key) const;
  Options options_;
  bool has_watch_;
  tutti_host host_{};
  std::map<int, Watch> watches_;
  mutable std::mutex mutex_; // guards log_
  std::string log_;
};

tutti::net_ib::Settings settings_with(TestHost::Options options);
