// tutti/plugins/collnet-aggd/daemon/admin.h: the Unix socket of `tutti-aggd status`, both ends.
#pragma once
#include "base/status.h"
#include "sockets.h"
#include <sys/stat.h>

namespace tutti::aggd {

// A path of the file system that is a socket of this process, for as long as it is. What else lies there stays: a file, or the
// socket of a daemon that runs; only a socket that nobody listens at, of a daemon that was killed, makes room.
class AdminSocket {
public:
  AdminSocket() = default;
  AdminSocket(const AdminSocket &) = delete;
  ~AdminSocket(); // removes the path, unless another process has put something else there
  // Whether a socket could be made at `path`; changes nothing.
  static Status check(const std::string &path);
  Result<Fd> listen(const std::string &path); // for this process's user alone

private:
  std::string path_;
  struct stat made_ {};
};

// What a running daemon answers at its [aggd] admin, within `limit` altogether.
Result<std::string> ask_status(const std::string &path, milliseconds limit = milliseconds(5000));

} // namespace tutti::aggd
