// tutti/core/ras/flight.h: the flight recorder of a live communicator, and when it is written: when the communicator fails, on
// a signal, on request. Nothing here waits for the communicator's owner, and what cannot be written harms nobody.
#pragma once
#include "config/config.h"
#include "exec/engine.h"
#include "ras/flight_file.h"
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tutti::ras {

class Flight : public std::enable_shared_from_this<Flight> {
public:
  // Of an engine that lives until end(). The process's signal is watched from the first one on that has record.signal.
  static std::shared_ptr<Flight> begin(FlightIdentity who, std::shared_ptr<const Config> config, Engine &engine);
  Flight(FlightIdentity who, std::shared_ptr<const Config> config, Engine &engine);

  const FlightIdentity &who() const { return who_; }
  // What there is now; nothing once the communicator has ended. [any thread]
  Result<FlightFile> snapshot(std::string_view reason) const;
  // The same with its oldest and last operation alone: what is asked for often.
  Result<FlightFile> brief() const;
  // fn(engine), unless the communicator has ended. It stays while fn runs. [any thread]
  bool look(const std::function<void(Engine &)> &fn) const;
  bool is_set_up() const { return set_up_ns_ != 0; }
  int64_t set_up_ns() const { return set_up_ns_; } // wall clock
  void set_up();                                   // its peers are known
  // To this file, patterns replaced; "" = to that of record.file. [any thread]
  Status write(std::string_view path, std::string_view reason);

  // The communicator has failed: the service thread writes the file, if record.file asks for it. [any thread]
  void failed();
  // The same by this thread, unless it has been done. Before who was told of the failure may end the process.
  void settle();
  // By the service thread, upon the signal.
  void on_signal();
  void end(); // settle(), and the engine may go

private:
  std::string own_path() const; // "" = none
  Status write_file(const std::string &path, std::string_view reason);
  void write_unasked(std::string_view reason); // says so where it cannot be
  void settle_once();

  const FlightIdentity who_;
  const std::shared_ptr<const Config> config_;
  mutable std::mutex mutex_; // guards engine_: it stays while a snapshot is made
  Engine *engine_;
  std::mutex settling_; // guards settled_; held until the file is there. The service thread does not wait for it
  bool settled_ = false;
  std::mutex dumping_; // what goes into a pipe, one dump at a time; not for the service thread
  std::atomic<bool> failed_{false};
  std::atomic<int64_t> set_up_ns_{0};
};

std::vector<std::shared_ptr<Flight>> flights(); // of this process's communicators, while they live [any thread]

// flight_signal.cc: from now on the signal of record.signal has the process's flight recorders written. Once per process.
void watch_signal(const Config &config);

} // namespace tutti::ras
