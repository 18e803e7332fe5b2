// tutti/core/tools/help.h: how the help of all subcommands looks.
#pragma once
#include <CLI/CLI.hpp>

namespace tutti::tools {

// "-n,--iters N=20" instead of "-n,--iters INT:INT in [1 - 100000000]=20": a value out of range tells the range.
class HelpText : public CLI::Formatter {
public:
  HelpText() { column_width(34); }
  std::string make_option_opts(const CLI::Option *option) const override;
};

} // namespace tutti::tools
