// tutti/core/tools/plan_volume.h: `tutti plan volume`: how many bytes training and its collectives move, by formulas. Tests
// hold them to what the simulation of real plans counts.
#pragma once
#include "base/status.h"
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace tutti::tools {

struct VolumeArgs {
  std::string topic = "all";
  int ranks = 8;                                               // n
  uint64_t bytes = 1 << 20;                                    // S, of the larger buffer
  double parameters = 175e9;                                   // P
  int element = 2;                                             // e, bytes
  uint64_t batch = 8, seq = 2048, hidden = 12288, layers = 96; // B, s, h, L
  int tensor = 8, stages = 8;                                  // t, p
  int micro_batches = 0;                                       // m; 0 = as many as stages
  int ports = 48;                                              // k, of a switch
  bool json = false;
};

struct Volume {
  std::string topic, what, formula;
  std::vector<std::pair<char, double>> inputs; // the letters of the formula
  double value = 0;
  std::string unit; // "bytes", ...; "" = a ratio or number
};

void volume_options(CLI::App *app, VolumeArgs *args);
// Of one topic, or of all. An error when the topic or an input makes no sense.
Result<std::vector<Volume>> volumes(const VolumeArgs &args);
std::string volume_text(const std::vector<Volume> &volumes, bool json);

} // namespace tutti::tools
