// tutti/plugins/net-fault/inner.h: the plugin inside: its file, its host, its table.
#pragma once
#include "tutti/plugin/cxx/host.hpp"
#include "tutti/plugin/net.h"
#include <map>
#include <memory>

namespace tutti::net_fault {

using plugin::Host;

// To the plugin inside this is the core: its diagnostics are passed on as ours, its options are those of `inner_options`, and
// what else it asks for are the core's own services, which know our host.
class Inner {
public:
  // file: a path, or the name of a plugin beside ours. options: "key=value". Throws.
  Inner(const Host &outer, const std::string &file, const std::vector<std::string> &options, const std::string &origin);
  ~Inner();
  Inner(const Inner &) = delete;
  const tutti_net_v1 &net() const { return *net_; }
  void *state() const { return state_; }

private:
  struct Value {
    std::string text;
    int64_t number = 0;
    bool set = false;
  };
  struct Services;
  void read_options(const std::vector<std::string> &options);
  Value parse(const tutti_option &option, const std::string &text) const;

  Host outer_;
  std::string origin_;
  const tutti_plugin_desc *desc_ = nullptr;
  const tutti_net_v1 *net_ = nullptr;
  void *state_ = nullptr;
  tutti_host host_{};
  std::map<std::string, Value, std::less<>> values_;
};

} // namespace tutti::net_fault
