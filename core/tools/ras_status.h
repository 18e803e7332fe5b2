// tutti/core/tools/ras_status.h: `tutti ras` without a word behind it: shows running jobs.
#pragma once
#include "tools/ras_view.h"

namespace tutti::tools::ras_live {

struct StatusOptions {
  LookOptions look;
  ViewOptions view;
  TextOptions text;
  bool json = false, where = false, dump = false;
  double watch = 0;      // seconds between two looks; 0 = once
  double interval = 0.3; // between the two looks of a single answer; 0 = one look, no rates
  std::string output;    // folder for flight-recorder files
};

int status(StatusOptions options); // an exit code of cli.h

} // namespace tutti::tools::ras_live
