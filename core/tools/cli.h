// tutti/core/tools/cli.h: what the subcommands share.
#pragma once
#include "base/status.h"
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::tools {

// Exit codes of all subcommands.
constexpr int kOk = 0;
constexpr int kVerdict = 1; // the tool worked and says no: wrong data, too slow, findings
constexpr int kFailed = 2;  // the tool could not do its work
constexpr int kUsage = 64;  // bad arguments

// "32M", "1K", "128", "2G": units of 1024, upper or lower case, an optional "B" or "iB" after the unit.
Result<uint64_t> parse_size(std::string_view text);
std::string size_text(uint64_t bytes); // "8", "1K", "128M": the shortest exact form

// The command line of a rank of the built-in launch: the user's words without --ranks N. command: "perf"; terminal: a
// descriptor for progress that it inherits, or -1.
std::vector<std::string> rank_words(const std::string &command, const std::vector<std::string> &words, int terminal);

// Writes "error: <text>" on stderr.
void print_error(std::string_view text);
std::string own_path(); // of this executable

int run_main(int argc, char **argv);
int perf_main(int argc, char **argv); // argv[1] is the operation
int info_main(int argc, char **argv);
int topo_main(int argc, char **argv);
int tune_main(int argc, char **argv);
int explain_main(int argc, char **argv);
int map_main(int argc, char **argv);
int ras_main(int argc, char **argv);
// Prints what `tutti ras diff` says of flight-recorder files. An exit code.
int diff_flights(const std::vector<std::string> &paths, bool json);

} // namespace tutti::tools
