// tutti/plugins/collnet-aggd/daemon/status_text.h: status_json() for people.
#pragma once
#include <string>

namespace tutti::aggd {

std::string status_text(const std::string &json); // what is no status of this version stays as it is

} // namespace tutti::aggd
