// tutti/core/tools/check_plugin.h: `tutti check-plugin PATH`: is this file a plugin that keeps every rule?
#pragma once
#include <span>
#include <string>

namespace tutti {

// The subcommand: args without "check-plugin". 0 no findings, 1 findings, 2 could not check, 64 bad arguments.
int check_plugin_main(std::span<const std::string> args);

} // namespace tutti
