// tutti/core/tools/plan_tool.h: `tutti plan show`, `check`, `simulate` and `volume`.
#pragma once
#include <span>
#include <string>

namespace tutti::tools {

// Arguments after "plan". Prints to standard output, errors to standard error; exit codes of cli.h, kVerdict for findings.
int plan_main(std::span<const std::string> args);
int plan_main(int argc, char **argv); // argv[0] is "plan"

} // namespace tutti::tools
