// Servers that a test starts and that are gone with it: redis-server and etcd, where they are installed.
#pragma once
#include "../../support/folder.h"
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace stores {

uint16_t free_port();
std::string find_program(const std::string &name); // in PATH; "" = not installed
void write_file(const std::string &path, const std::string &text, unsigned mode = 0600);

// A program in the background; killed at the end, also when the test dies.
class Process {
public:
  Process(const std::string &file, const std::vector<std::string> &arguments, const std::string &log);
  ~Process();
  Process(const Process &) = delete;
  Process &operator=(const Process &) = delete;
  void signal(int number) const;
  bool ended();

private:
  pid_t pid_ = -1;
};

bool answers(uint16_t port);             // something listens there
bool answers(const std::string &socket); // likewise

// At a TCP port and at a socket, with a password.
class Redis {
public:
  static bool installed();
  explicit Redis(const std::string &more = ""); // further lines of its configuration
  uint16_t port() const { return port_; }
  std::string socket() const { return (folder_.path / "socket").string(); }
  static constexpr const char *kPassword = "pass:w/rd@1";
  std::string url() const;      // with the password
  std::string unix_url() const; // likewise
  void signal(int number) const { process_->signal(number); }
  void stop() { process_.reset(); }
  void start();

private:
  support::Folder folder_;
  uint16_t port_;
  std::optional<Process> process_;
};

// One member at a TCP port.
class Etcd {
public:
  static bool installed();
  explicit Etcd(const std::vector<std::string> &more = {}, const std::string &scheme = "http");
  uint16_t port() const { return port_; }
  std::string url() const;
  void signal(int number) const { process_->signal(number); }

private:
  support::Folder folder_;
  uint16_t port_ = 0;
  std::optional<Process> process_;
};

} // namespace stores
