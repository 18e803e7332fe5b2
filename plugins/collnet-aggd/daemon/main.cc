// tutti/plugins/collnet-aggd/daemon/main.cc: tutti-aggd, the command.
#include "log/log.h"
#include "server.h"
#include "status.h"
#include "status_text.h"
#include <cerrno>
#include <CLI/CLI.hpp>
#include <csignal>
#include <iostream>
#include <sys/signalfd.h>

using namespace tutti;
using namespace tutti::aggd;

namespace {

int complain(const Status &status) {
  std::cerr << "error: " << status.error().line() << "\n";
  return 1;
}

int serve(const std::string &config, bool check) {
  auto settings = read_settings(config, true);
  if (!settings.ok()) return complain(settings.status());
  if (check) {
    const Status admin = settings->admin.empty() ? Status() : AdminSocket::check(settings->admin);
    return admin.ok() ? 0 : complain(admin);
  }
  // Whoever is to read the log may have stopped, or gone; a file may be limited. Neither is a reason to wait, or to end.
  for (const int s : {SIGPIPE, SIGXFSZ}) ::signal(s, SIG_IGN);
  log::Settings log;
  log.level = static_cast<log::Level>(settings->log_level);
  log.patience = milliseconds(0);
  log::configure(log);
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGTERM, SIGINT}) sigaddset(&set, s);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  const Fd stop(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  Server server(std::move(*settings));
  if (Status s = server.start(); !s.ok()) return complain(s);
  if (Status s = server.run(stop.get()); !s.ok()) return complain(s);
  return 0;
}

int tell(const std::string &config, std::string socket, bool as_json) {
  if (socket.empty()) {
    auto settings = read_settings(config, false);
    if (!settings.ok()) return complain(settings.status());
    socket = settings->admin;
  }
  auto status = ask_status(socket);
  if (!status.ok()) return complain(status.status());
  std::cout << (as_json ? *status : status_text(*status));
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  CLI::App app("tutti-aggd adds up in the network what the ranks of a job send to it (docs/collnet.md)");
  std::string config = "/etc/tutti/aggd.toml", socket;
  bool check = false, as_json = false;
  app.add_option("--config", config, "the daemon's file")->capture_default_str();
  app.add_flag("--check", check, "only read the file and look at what it names, and say what is wrong");
  CLI::App *status = app.add_subcommand("status", "asks the running daemon for its groups, members and memory");
  status->add_option("--socket", socket, "the daemon's [aggd] admin; else as --config says");
  status->add_option("--config", config, "the daemon's file");
  status->add_flag("--json", as_json, "for programs");
  CLI11_PARSE(app, argc, argv);
  if (!crypto_ready()) {
    std::cerr << "error: libsodium cannot start: no source of random numbers\n";
    return 1;
  }
  return *status ? tell(config, socket, as_json) : serve(config, check);
}
