// tutti/core/ras/report.h: what one process says of itself when it is asked, as JSON ("tutti.ras-process/1").
#pragma once
#include "bootstrap/wire.h"
#include "ras/flight_file.h"
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tutti::ras {

constexpr std::string_view kReportFormat = "tutti.ras-process/1";

// A process as the kernel of its host sees it.
struct Look {
  enum class Seen { unknown, running, stopped, zombie, gone };
  Seen seen = Seen::unknown;
  int64_t pid = 0; // in the process-id namespace of who looked; 0 = not known
  int64_t uid = -1;
  int64_t cpu_ns = 0; // used so far
  bool abnormal() const { return seen == Seen::stopped || seen == Seen::zombie || seen == Seen::gone; }
};
std::string_view seen_name(Look::Seen seen); // "running", "stopped", ...

struct Place { // of a process
  uint64_t comm = 0;
  int rank = -1;
  auto operator<=>(const Place &) const = default;
};

struct CommReport {
  FlightFile flight;     // its state, last and oldest operation; of a rank that has no engine yet only `who`
  std::string joining;   // what it waits for while it is set up; "" = it is
  int64_t set_up_ns = 0; // since 1970
  uint64_t memory = 0, fds = 0;
  std::map<int, std::string> ways; // how it reaches peers over a network: "net socket eth0 10.0.0.1 -> 10.0.0.2"
  bool collnet = false;
  std::string collnet_lost;             // why
  std::vector<int> left;                // ranks that have said goodbye
  std::map<int, std::string> restoring; // control connections that are lost and not restored yet, by peer
};

struct ProcessReport {
  uint64_t process = 0; // Contact::process[0]
  int64_t pid = 0;
  uint64_t host_id = 0;
  std::string host, version;
  int64_t now_ns = 0, started_ns = 0, cpu_ns = 0; // started: when it was first asked to be ready for questions
  uint64_t rss = 0, fds = 0, threads = 0;
  std::vector<std::string> addresses; // where it listens
  std::vector<CommReport> comms;
  struct Neighbour {
    uint64_t process = 0;
    Look look;
  };
  std::vector<Neighbour> neighbours; // of its host, where something is wrong with them
  struct Known {
    boot::Contact contact;
    uint64_t under = 0; // Identity::comm of how it may be asked
    std::vector<Place> places;
  };
  std::vector<Known> more;        // processes of its job that the question did not name
  std::vector<std::string> notes; // what became of a dump
};

// A process that did not answer.
struct Silent {
  uint64_t process = 0;
  int64_t pid = 0;
  uint64_t host_id = 0;
  std::string host, why; // "stopped (by a signal or a debugger)", "no answer within 2 s"
  Look look;
  int64_t heard_ns = 0; // when it was last heard of; 0 = never by who asked
  std::vector<Place> places;
};

std::string encode(const ProcessReport &r);
std::string encode(const Silent &s);
Result<ProcessReport> parse_report(std::string_view text, const std::string &origin);
Result<Silent> parse_silent(std::string_view text, const std::string &origin);
std::optional<boot::Endpoint> endpoint(std::string_view text); // "10.0.0.1:80", "[::1]:80"; no names

} // namespace tutti::ras
