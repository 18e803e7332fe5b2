// tests/collnet/raw.h: a connection to a daemon that speaks the wire itself, and may break its rules.
#pragma once
#include "daemon.h"
#include "sockets.h"

namespace collnet {

class Raw {
public:
  explicit Raw(const Daemon &daemon) : Raw(daemon.port()) {}
  explicit Raw(int port); // connected; throws when it cannot be
  bool send(const void *data, size_t bytes);
  template <class T> bool send(const T &value) { return send(&value, sizeof value); }
  bool send(const std::string &frame) { return send(frame.data(), frame.size()); }
  bool receive(void *data, size_t bytes, milliseconds limit = milliseconds(5000));
  bool ends(milliseconds limit = milliseconds(10'000));                                        // the daemon closes it
  bool prove(const tutti::aggd::Key &key, tutti::aggd::Role role = tutti::aggd::Role::member); // the whole handshake
  // The next frame; empty: none came.
  std::optional<tutti::aggd::Header> frame(std::vector<uint8_t> *body = nullptr, milliseconds limit = milliseconds(5000));
  bool join(const tutti::aggd::Join &join, const tutti::aggd::Key &key);
  bool started(); // grant and start come
  int fd() const { return fd_.get(); }
  void close() { fd_.reset(); }

private:
  tutti::aggd::Fd fd_;
};

tutti::aggd::Key key_of(const Folder &folder);
tutti::aggd::Join join_of(const tutti::aggd::Token &token, int member, uint32_t members, uint32_t progress_ms = 1000);
tutti::aggd::Token any_token();

} // namespace collnet
