// tutti/core/tools/ras_diff.h: puts the flight-recorder files of ranks together and finds out who is to blame: who called
// something else, who never came, and where a chain of ranks that wait for each other ends.
#pragma once
#include "ras/flight_file.h"
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tutti::tools::rasdiff {

using ras::FlightFile;

struct Rank {
  FlightFile file;
  std::string origin;
  uint64_t called = 0, completed = 0; // numbers of its last collectives
};

struct Side { // of a disagreement
  std::string call;
  std::vector<int> ranks;
};
struct Disagreement {
  uint64_t number = 0;
  bool way = false;        // the calls are alike, but run in different ways
  std::vector<Side> sides; // the one with most ranks first
};

// From the worst to the best that can be said.
enum class Kind { disagreement, absent, no_file, held, deadlock, finished, moving, failed, behind, nothing };
std::string_view kind_name(Kind kind);
struct Verdict {
  Kind kind = Kind::nothing;
  std::vector<int> culprits; // ranks; of communicator `comm`
  uint64_t comm = 0;
  std::string text; // one line
};

struct Comm {
  uint64_t id = 0;
  std::string name;
  int nranks = 0;
  std::map<int, Rank> ranks;
  std::vector<int> missing; // without a file
  // Why, where that is known: "rank 3 (pid 12 on n1) is stopped". Of a live job; files alone say nothing.
  std::map<int, std::string> absence;
  std::vector<Disagreement> disagreements;
  std::string error; // the first that any of its ranks had
  Verdict verdict;
};

struct Job {
  std::vector<Comm> comms; // by id
  std::vector<std::string> warnings;
  Verdict verdict; // of the communicator that explains the others
};

// An error names both files where two do not fit together.
Result<Job> merge(std::vector<std::pair<std::string, FlightFile>> files);
void judge(Job &job);

std::string ranks_text(const std::vector<int> &ranks); // "rank 3", "ranks 0-2, 5"
std::string time_text(int64_t ns);                     // "31 s", "4.2 ms"
std::string as_text(const Job &job);
std::string to_json(const Job &job);

} // namespace tutti::tools::rasdiff
