// tutti/core/comm/startup.h: what a process does once, before its first communicator.
#pragma once
#include "config/config.h"
#include "plugin/registry.h"
#include "tutti/plugin/net.h"
#include "tutti/plugin/tuner.h"

namespace tutti {

struct Process {
  std::shared_ptr<const Config> config;
  Registry *registry = nullptr;
};
// What the core offers to plugins: before the registry is first used.
void provide_services();
// Configuration, log, host services for plugins, plugins; then the start-up lines. The first outcome stays.
Result<Process> process();

// The net for traffic between ranks that share no memory: net.name, else the plugins of plugins.net in order, else the fastest
// with a device; empty when none has one. A named net that cannot be used is an error. `why` says what was passed over.
Result<Iface<tutti_net_v1>> choose_net(const Config &config, const Registry &registry, std::string *why);
// plugins.tuner, else "table", else the first loaded; empty when there is none. `why` as above.
Result<Iface<tutti_tuner_v1>> choose_tuner(const Config &config, const Registry &registry, std::string *why);

} // namespace tutti
