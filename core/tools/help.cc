#include "tools/help.h"
#include <algorithm>

namespace tutti::tools {

std::string HelpText::make_option_opts(const CLI::Option *option) const {
  if (option->get_type_size() == 0) return "";
  std::string type = option->get_type_name();
  const size_t open = type.find('{'), close = type.find('}');
  const std::string word = type.substr(0, type.find(':'));
  if (open != type.npos && close != type.npos) {
    type = type.substr(open + 1, close - open - 1); // IsMember's "{a,b}"
    std::replace(type.begin(), type.end(), ',', '|');
  } else if (word == "BOOLEAN") {
    type = "0|1";
  } else if (word == "INT" || word == "UINT" || word == "FLOAT") {
    type = "N";
  } else {
    type = word;
  }
  std::string out = " " + type;
  if (!option->get_default_str().empty()) out += "=" + option->get_default_str();
  if (option->get_required()) out += " (required)";
  return out;
}

} // namespace tutti::tools
