#include "ras/own_report.h"
#include "base/ticks.h"
#include "bootstrap/hub.h"
#include "bootstrap/member.h"
#include "ras/flight.h"
#include "tutti/tutti.h"
#include <algorithm>
#include <ctime>
#include <dirent.h>
#include <memory>
#include <unistd.h>

namespace tutti::ras {
namespace {

constexpr size_t kMostLooks = 4096;

uint64_t open_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR *)> folder(::opendir("/proc/self/fd"), ::closedir);
  uint64_t n = 0;
  while (folder && ::readdir(folder.get())) n++;
  return n > 3 ? n - 3 : 0; // ".", ".." and the folder's own
}

void add_engine(const Flight &flight, CommReport *out) {
  flight.look([&](Engine &e) {
    const Engine::Usage usage = e.usage();
    out->memory = usage.bytes;
    out->fds = usage.fds;
    out->collnet_lost = e.collnet_lost();
    if (!flight.is_set_up()) return; // its peers are not known yet
    out->set_up_ns = flight.set_up_ns();
    out->collnet = e.collnet() != nullptr;
    for (const LinkTraffic &l : out->flight.record.state.links)
      if (l.link_class == LinkClass::net && l.messages && !out->ways.contains(l.peer))
        out->ways[l.peer] = e.describe_link(l.peer);
  });
}

CommReport of_member(const boot::Member &m, const boot::Contact &self) {
  CommReport c;
  FlightIdentity &who = c.flight.who;
  who.comm = who.job = m.comm();
  who.rank = m.rank();
  who.nranks = m.nranks();
  who.host = self.hostname;
  who.pid = ::getpid();
  c.flight.reason = "asked";
  c.joining = m.joining();
  if (c.joining.empty()) c.joining = "has joined, and is being set up or is ending";
  return c;
}

} // namespace

ProcessReport own_report(const boot::Contact &self, int64_t started_ns) {
  ProcessReport r;
  r.process = self.process[0];
  r.pid = ::getpid();
  r.host_id = self.host;
  r.host = self.hostname;
  r.version = fmt::format("{}.{}.{}", TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH);
  r.now_ns = ticks::Reader().now_ns();
  r.started_ns = started_ns;
  timespec used{};
  if (::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0) r.cpu_ns = used.tv_sec * 1'000'000'000ll + used.tv_nsec;
  if (const auto stat = read_stat(r.pid)) r.rss = stat->rss, r.threads = stat->threads;
  r.fds = open_descriptors();
  for (const boot::Endpoint &e : self.endpoints) r.addresses.push_back(e.text());
  std::map<Place, std::vector<int>> left;
  std::map<Place, std::map<int, std::string>> restoring;
  std::map<Place, CommReport> comms;
  for (const auto &m : boot::Service::get().hub().members()) {
    const Place place{m->comm(), m->rank()};
    left[place] = m->gone();
    for (const auto &lost : m->reconnecting()) restoring[place][lost.rank] = lost.text();
    comms[place] = of_member(*m, self);
  }
  for (const auto &flight : flights()) {
    auto brief = flight->brief();
    if (!brief.ok()) continue;
    CommReport c;
    c.flight = std::move(*brief);
    add_engine(*flight, &c);
    if (!flight->is_set_up() && c.flight.record.state.error.ok()) c.joining = "is being set up";
    comms[{c.flight.who.comm, c.flight.who.rank}] = std::move(c);
  }
  for (auto &[place, c] : comms) {
    c.left = left[place];
    c.restoring = std::move(restoring[place]);
    r.comms.push_back(std::move(c));
  }
  return r;
}

std::map<uint64_t, Fellow> fellows() {
  std::map<uint64_t, Fellow> out;
  boot::Hub &hub = boot::Service::get().hub();
  for (const auto &m : hub.members()) {
    const auto contacts = m->contacts();
    for (size_t r = 0; r < contacts.size() && out.size() < kMostLooks * 4; r++) {
      const boot::Contact &c = contacts[r];
      if (c.pid == 0 || c.process == hub.process()) continue;
      Fellow &f = out[c.process[0]];
      if (f.places.empty()) f.contact = c, f.under = m->asking();
      f.places.push_back({m->comm(), static_cast<int>(r)});
    }
  }
  return out;
}

std::vector<ProcessReport::Neighbour> ailing(const boot::Contact &self, const std::map<uint64_t, Fellow> &fellows,
                                             Neighbours *neighbours) {
  std::vector<uint64_t> ring;
  for (const auto &[process, f] : fellows)
    if (f.contact.host == self.host) ring.push_back(process);
  std::vector<ProcessReport::Neighbour> out;
  const auto from = static_cast<size_t>(std::upper_bound(ring.begin(), ring.end(), self.process[0]) - ring.begin());
  for (size_t i = 0; i < std::min(ring.size(), kMostLooks); i++) {
    const uint64_t process = ring[(from + i) % ring.size()];
    const Look look = neighbours->look(process);
    if (!look.abnormal()) break;
    out.push_back({process, look});
  }
  return out;
}

} // namespace tutti::ras
