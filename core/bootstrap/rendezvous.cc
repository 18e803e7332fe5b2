// Addresses: host:port, and hosts that a launcher names. Files are in id_file.cc, names of this host in id_local.cc.
#include "bootstrap/rendezvous.h"
#include "bootstrap/crypto.h"
#include "bootstrap/helper.h"
#include "bootstrap/hub.h"
#include "bootstrap/launch.h"
#include "config/secret.h"
#include "log/log.h"
#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <fmt/ranges.h>
#include <mutex>
#include <netdb.h>
#include <set>
#include <sys/stat.h>

namespace tutti::boot {

Status bad(std::string message) {
  Error e;
  e.code = Code::invalid_usage;
  e.phase = "bootstrap";
  e.message = std::move(message);
  return Status(std::move(e));
}

Result<Secret> read_job_key(const std::string &path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)); // a FIFO must not block
  if (!fd) return fail_errno(errno, "cannot open the job key file " + path).phase("bootstrap");
  struct stat st {};
  fstat(fd.get(), &st);
  if (st.st_uid != geteuid() || (st.st_mode & 077) != 0 || !S_ISREG(st.st_mode))
    return bad(fmt::format(
        "job key file {}: it must be a regular file of this user that nobody else may read (mode 0600, it is {:04o})", path,
        st.st_mode & 07777));
  std::array<std::byte, 4096> buf;
  const ssize_t n = read(fd.get(), buf.data(), buf.size());
  struct Wiped {
    std::span<std::byte> bytes;
    ~Wiped() { wipe(bytes); }
  } wiped{buf};
  if (n < 16)
    return bad(fmt::format("job key file {}: it holds {} bytes, at least 16 are needed", path, std::max<ssize_t>(n, 0)));
  return hash_to_secret("tutti job key", std::span(buf).first(static_cast<size_t>(n)));
}

namespace {

constexpr size_t kPorts = 3;                            // of a place; the address of a unique id holds as many of IPv6
constexpr size_t kAddresses = 2;                        // of a host
constexpr uint16_t kLowPort = 15000, kHighPort = 29999; // clients get theirs from 32768 on

Result<std::vector<Endpoint>> look_up(const std::string &host, const std::string &from, int family) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = family;
  const int rc = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (rc != 0) return bad(fmt::format("{}: cannot resolve \"{}\": {}", from, host, gai_strerror(rc)));
  std::vector<Endpoint> out;
  for (addrinfo *p = list; p; p = p->ai_next) {
    if (p->ai_family != AF_INET && p->ai_family != AF_INET6) continue;
    Endpoint e;
    std::memcpy(&e.storage, p->ai_addr, p->ai_addrlen);
    out.push_back(e);
  }
  freeaddrinfo(list);
  if (out.empty()) return bad(fmt::format("{}: \"{}\" has no IP address", from, host));
  return out;
}

} // namespace

Result<std::vector<Endpoint>> resolve(const std::string &host, const std::string &from, const Config &config,
                                      Deadline deadline) {
  using Found = Result<std::vector<Endpoint>>;
  const std::string &text = config.text("socket.family");
  const int family = text == "AF_INET" ? AF_INET : text == "AF_INET6" ? AF_INET6 : AF_UNSPEC;
  auto found = within<Found>(deadline, [host, from, family] { return look_up(host, from, family); });
  if (found) return std::move(*found);
  return fail(Code::timeout, "{}: \"{}\" has not been resolved within {}", from, host, seconds(deadline.span()))
      .phase("bootstrap")
      .hint("does the name server answer? an IP address needs none");
}

namespace {

// Debian and others give a host's own name an address of its loopback, where ranks of other hosts reach nothing.
bool name_of_loopback(const std::string &host, std::span<const Endpoint> where) {
  in6_addr literal;
  if (host == "localhost" || inet_pton(AF_INET, host.c_str(), &literal) == 1 ||
      inet_pton(AF_INET6, host.c_str(), &literal) == 1)
    return false; // meant so
  return std::any_of(where.begin(), where.end(), is_loopback);
}

Status listen_at_port(const std::string &host, uint16_t port, std::span<const Endpoint> where, const Config &config) {
  Hub &hub = Service::get().hub();
  Status last;
  bool any = false;
  if (name_of_loopback(host, where)) {
    last = hub.listen_at(port, config);
    any = last.ok();
    if (any && config.text("socket.ifname").empty()) return {}; // everywhere
  }
  for (Endpoint e : where) {
    e.set_port(port);
    Status s = hub.listen_at(e);
    any = any || s.ok();
    if (!s.ok()) last = std::move(s);
  }
  return any ? Status() : last;
}

// At the first of the ports that is free.
Status listen_at_place(const Place &place, std::span<const Endpoint> where, const Config &config) {
  Status last;
  for (const uint16_t port : place.ports) {
    last = listen_at_port(place.host, port, where, config);
    if (!last.ok()) continue;
    log::info(log::Subsys::bootstrap, "the root of this job is at {} port {} ({})", place.host, port, place.from);
    return {};
  }
  return std::move(last)
      .phase("bootstrap")
      .hint(place.ports.size() == 1
                ? place.from + " must name a free port of the host of rank 0"
                : fmt::format("{} says that rank 0 is on {}, where one of the ports {} must be free; or set "
                              "TUTTI_COMM_ID=host:port",
                              place.from, place.host, fmt::join(place.ports, ", ")));
}

// The job's secret from core.job_key_file, else one that everybody who knows the place can make.
Result<Secret> job_key(const Config &config, const Place &place, int rank) {
  const std::string &path = config.text("core.job_key_file");
  if (path.empty()) {
    const std::string hint = "put 32 random bytes into a file of mode 0600 on every host and name it in TUTTI_JOB_KEY_FILE";
    if (const std::string &level = config.text("core.security"); level != "authenticated")
      return fail(Code::invalid_usage, "core.security is \"{}\" and {} brings no job key", level, place.from)
          .phase("bootstrap")
          .hint(hint);
    if (rank == 0) // once per job
      log::write_once(log::Level::warn, log::Subsys::bootstrap, "no-job-key",
                      fmt::format("{} brings no job key: anybody who can reach port {} of {} can join; {}", place.from,
                                  fmt::join(place.ports, " or "), place.host, hint));
    return hash_to_secret("tutti address key", std::as_bytes(std::span(place.name.data(), place.name.size())));
  }
  return read_job_key(path);
}

// Listeners before the root: its contact needs them. The root before the address: who comes early must find it.
Status serve(const UniqueId &id, const Place &place, std::span<const Endpoint> where, const Config &config) {
  static std::mutex m; // guards served, and makes the second caller wait for the first one's root
  static std::set<uint64_t> served;
  std::lock_guard lock(m);
  if (served.count(id.base)) return {};
  auto r = start_root(config, id, true); // one root serves all generations of an address
  if (!r.ok()) return std::move(r.status());
  if (Status s = listen_at_place(place, where, config); !s.ok()) {
    release_id(encode(id));
    return s;
  }
  served.insert(id.base);
  return {};
}

Result<tuttiUniqueId> id_at(const Place &place, const Config &config, int rank, uint32_t generation, Deadline deadline) {
  TUTTI_ASSIGN(where, resolve(place.host, place.from, config, deadline));
  TUTTI_ASSIGN(key, job_key(config, place, rank));
  UniqueId id;
  id.secret = key;
  id.from_address = true;
  id.generation = generation;
  id.base = derive_u64(key, "tutti address", std::as_bytes(std::span(place.name.data(), place.name.size())));
  if (place.ports.size() > 1 && where.size() > kAddresses) where.resize(kAddresses); // an id has room for a few
  for (const uint16_t port : place.ports)
    for (Endpoint e : where) {
      e.set_port(port);
      id.endpoints.push_back(e);
    }
  if (rank == 0) TUTTI_TRY(serve(id, place, where, config));
  return encode(id);
}

uint32_t next_generation() {
  static std::atomic<uint32_t> calls{0}; // every rank makes the same ones in the same order
  return calls.fetch_add(1);
}

} // namespace

Result<tuttiUniqueId> id_from_text(const std::string &text, const Config &config, int rank, Deadline deadline) {
  const uint32_t generation = next_generation();
  if (text.starts_with("file:")) return id_from_file(text.substr(5), config, rank, generation, deadline);
  TUTTI_ASSIGN(hp, parse_host_port(text));
  return id_at({hp.host, {hp.port}, text, "TUTTI_COMM_ID=" + text}, config, rank, generation, deadline);
}

Result<tuttiUniqueId> id_from_place(const Place &place, const Config &config, int rank, Deadline deadline) {
  return id_at(place, config, rank, next_generation(), deadline);
}

std::vector<uint16_t> ports_for(std::string_view name, const Config &config, uint16_t taken) {
  auto [low, high] = std::pair<int, int>(kLowPort, kHighPort);
  if (const auto [first, last] = port_range(config); first > 0) low = first, high = last;
  const auto span = static_cast<uint64_t>(high - low) + 1;
  std::vector<uint16_t> out;
  const uint64_t start = hash_u64("tutti port", name);
  for (uint64_t i = 0; i < span && out.size() < kPorts; i++)
    if (const auto port = static_cast<uint16_t>(static_cast<uint64_t>(low) + (start + i) % span); port != taken)
      out.push_back(port);
  return out;
}

Result<HostPort> parse_host_port(std::string_view text) {
  const auto wrong = [&] {
    return bad(fmt::format("TUTTI_COMM_ID=\"{}\" is neither host:port, [v6]:port nor file:PATH; the port is 1 to 65535{}",
                           without_password(text),
                           text.find("://") == std::string_view::npos ? "" : "; stores are for TUTTI_RENDEZVOUS"));
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return wrong();
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.front() == '[') {
    if (host.back() != ']' || host.size() < 3) return wrong();
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return wrong(); // a bare IPv6 address: where does the port begin
  }
  unsigned port = 0;
  const auto [p, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (ec != std::errc() || p != digits.data() + digits.size() || port == 0 || port > 65535) return wrong();
  for (char c : host)
    if (static_cast<unsigned char>(c) <= 32) return wrong();
  return HostPort{std::string(host), static_cast<uint16_t>(port)};
}

} // namespace tutti::boot
