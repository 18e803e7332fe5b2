// A core for one plugin file: options from a map, the last error and the log kept for the test to read.
#pragma once
#include "tutti/plugin/plugin.h"
#include <map>
#include <mutex>
#include <string>
#include <vector>

class FakeHost {
public:
  using Options = std::map<std::string, std::string>;
  explicit FakeHost(Options options = {}); // opens the plugin; see status()
  ~FakeHost();
  FakeHost(const FakeHost &) = delete;
  tutti_status status() const { return status_; }
  const tutti_net_v1 &net() const { return *net_; }
  void *plugin() const { return plugin_; }
  const tutti_plugin_desc &desc() const { return *desc_; }
  bool encrypts() const { return options_.count("encrypt"); } // no option of the plugin: contexts are to encrypt
  std::string last_error() const;
  std::string log() const;
  static int warnings(); // lines at WARN of all hosts of this process

private:
  friend struct Services;
  std::string value(const char *key) const; // throws std::out_of_range for an unknown one
  Options options_;
  const tutti_plugin_desc *desc_ = nullptr;
  const tutti_net_v1 *net_ = nullptr;
  void *plugin_ = nullptr;
  tutti_status status_ = TUTTI_OK;
  tutti_host host_{};
  mutable std::mutex mutex_; // guards error_ and log_
  std::string error_, log_;
};
