#include "tools/explained.h"

namespace tutti::tools {

constexpr size_t kFirstRoom = 64 << 10, kMostRoom = 64 << 20; // there is a line per peer

Result<std::string> ask_explanation(tuttiComm_t comm, const std::string &coll, size_t count, tuttiDataType_t type) {
  tuttiResult_t r = tuttiSuccess;
  for (size_t room = kFirstRoom; room <= kMostRoom; room *= 8) {
    std::string text(room, '\0');
    r = tuttiCommExplain(comm, coll.c_str(), count, type, text.data(), text.size());
    if (r == tuttiSuccess) return text.substr(0, text.find('\0'));
    if (std::string_view(tuttiGetLastError(comm)).find("cap ") == std::string_view::npos) break; // not the room's fault
  }
  return fail(Code::invalid_usage, "{}", tuttiGetLastError(comm));
}

} // namespace tutti::tools
