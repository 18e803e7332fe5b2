// What launchers leave in the environment. Order: tutti run and TUTTI_RANK; torchrun, which others may have started; Open MPI
// and PMIx; then those that bring no place to meet.
#include "bootstrap/launch.h"
#include "bootstrap/crypto.h"
#include "bootstrap/dialer.h"
#include "bootstrap/helper.h"
#include "bootstrap/hub.h"
#include "log/log.h"
#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <future>
#include <mutex>
#include <netdb.h>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>

namespace tutti {
namespace boot {
namespace {

using Launch = Bootstrap::Launch;
constexpr auto kPoll = std::chrono::milliseconds(50);

Status bad(std::string message) {
  Error e;
  e.code = Code::invalid_usage;
  e.phase = "bootstrap";
  e.message = std::move(message);
  return Status(std::move(e));
}

Result<int> env_int(const char *name, int fallback) {
  const char *text = std::getenv(name);
  if (!text || !*text) return fallback;
  int v = 0;
  const char *end = text + std::strlen(text);
  const auto [p, ec] = std::from_chars(text, end, v);
  if (ec != std::errc() || p != end || v < 0) return bad(fmt::format("{}=\"{}\" is not a number of at least 0", name, text));
  return v;
}

Status read_ranks(Launch *out, const char *rank, const char *nranks, const char *local_rank, const char *local_size) {
  const auto get = [](const char *name, int *to) -> Status {
    auto v = env_int(name, *to);
    if (!v.ok()) return std::move(v.status());
    *to = v.value();
    return {};
  };
  TUTTI_TRY(get(rank, &out->rank));
  TUTTI_TRY(get(nranks, &out->nranks));
  TUTTI_TRY(get(local_rank, &out->local_rank));
  TUTTI_TRY(get(local_size, &out->local_size));
  if (out->nranks < 1 || out->rank < 0 || out->rank >= out->nranks)
    return bad(fmt::format("{}={} and {}={}: ranks are 0 to {} - 1", rank, out->rank, nranks, out->nranks, nranks));
  return {};
}

// ---- TUTTI_COMM_ID=host:port

Result<std::vector<Endpoint>> look_up(const HostPort &hp, int family) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = family;
  const int rc = getaddrinfo(hp.host.c_str(), std::to_string(hp.port).c_str(), &hints, &list);
  if (rc != 0) return bad(fmt::format("TUTTI_COMM_ID: cannot resolve \"{}\": {}", hp.host, gai_strerror(rc)));
  std::vector<Endpoint> out;
  for (addrinfo *p = list; p; p = p->ai_next) {
    if (p->ai_family != AF_INET && p->ai_family != AF_INET6) continue;
    Endpoint e;
    std::memcpy(&e.storage, p->ai_addr, p->ai_addrlen);
    out.push_back(e);
  }
  freeaddrinfo(list);
  if (out.empty()) return bad(fmt::format("TUTTI_COMM_ID: \"{}\" has no IP address", hp.host));
  return out;
}

Result<std::vector<Endpoint>> resolve(const HostPort &hp, const Config &config, Deadline deadline) {
  using Found = Result<std::vector<Endpoint>>;
  const std::string &text = config.text("socket.family");
  const int family = text == "AF_INET" ? AF_INET : text == "AF_INET6" ? AF_INET6 : AF_UNSPEC;
  auto found = within<Found>(deadline, [hp, family] { return look_up(hp, family); });
  if (found) return std::move(*found);
  return fail(Code::timeout, "TUTTI_COMM_ID: \"{}\" has not been resolved within {}", hp.host, seconds(deadline.span()))
      .phase("bootstrap")
      .hint("does the name server answer? an IP address needs none");
}

// Debian and others give a host's own name an address of its loopback, where ranks of other hosts reach nothing.
bool name_of_loopback(const HostPort &hp, std::span<const Endpoint> where) {
  in6_addr literal;
  if (hp.host == "localhost" || inet_pton(AF_INET, hp.host.c_str(), &literal) == 1 ||
      inet_pton(AF_INET6, hp.host.c_str(), &literal) == 1)
    return false; // meant so
  return std::any_of(where.begin(), where.end(), is_loopback);
}

Status listen_for_address(const HostPort &hp, std::span<const Endpoint> where, const Config &config) {
  Hub &hub = Service::get().hub();
  const std::string hint = "TUTTI_COMM_ID must name a free port of the host of rank 0";
  Status last;
  bool any = false;
  if (name_of_loopback(hp, where)) {
    last = hub.listen_at(hp.port, config);
    any = last.ok();
    if (any && config.text("socket.ifname").empty()) return {}; // everywhere
  }
  for (const Endpoint &e : where) {
    Status s = hub.listen_at(e);
    any = any || s.ok();
    if (!s.ok()) last = std::move(s);
  }
  return any ? Status() : std::move(last).phase("bootstrap").hint(hint);
}

// The job's secret from core.job_key_file, else one that everybody who knows the address can make.
Result<Secret> job_key(const Config &config, const std::string &address, int rank) {
  const std::string &path = config.text("core.job_key_file");
  if (path.empty()) {
    const std::string hint = "put 32 random bytes into a file of mode 0600 on every host and name it in TUTTI_JOB_KEY_FILE";
    if (config.text("core.security") == "required")
      return fail(Code::invalid_usage, "core.security is \"required\" and TUTTI_COMM_ID={} brings no job key", address)
          .phase("bootstrap")
          .hint(hint);
    if (rank == 0) // once per job
      log::write_once(log::Level::warn, log::Subsys::bootstrap, "no-job-key",
                      "TUTTI_COMM_ID=" + address + " brings no job key: anybody who can reach that port can join; " + hint);
    return hash_to_secret("tutti address key", std::as_bytes(std::span(address.data(), address.size())));
  }
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
  if (n < 16)
    return bad(fmt::format("job key file {}: it holds {} bytes, at least 16 are needed", path, std::max<ssize_t>(n, 0)));
  return hash_to_secret("tutti job key", std::span(buf).first(static_cast<size_t>(n)));
}

// Listeners before the root: its contact needs them. The root before the address: who comes early must find it.
Status serve_address(const UniqueId &id, const HostPort &hp, const Config &config) {
  static std::mutex m; // guards served, and makes the second caller wait for the first one's root
  static std::set<uint64_t> served;
  std::lock_guard lock(m);
  if (!served.count(id.base)) { // one root serves all generations of an address
    auto r = start_root(config, id, true);
    if (!r.ok()) return std::move(r.status());
  }
  if (Status s = listen_for_address(hp, id.endpoints, config); !s.ok()) {
    if (!served.count(id.base)) release_id(encode(id));
    return s;
  }
  served.insert(id.base);
  return {};
}

Result<tuttiUniqueId> id_from_address(const std::string &text, const Config &config, int rank, uint32_t generation,
                                      Deadline deadline) {
  TUTTI_ASSIGN(hp, parse_host_port(text));
  TUTTI_ASSIGN(where, resolve(hp, config, deadline));
  TUTTI_ASSIGN(key, job_key(config, text, rank));
  UniqueId id;
  id.secret = key;
  id.from_address = true;
  id.generation = generation;
  id.base = derive_u64(key, "tutti address", std::as_bytes(std::span(text.data(), text.size())));
  id.endpoints = where;
  if (rank == 0) TUTTI_TRY(serve_address(id, hp, config));
  return encode(id);
}

// ---- TUTTI_COMM_ID=file:PATH

bool inherited(const std::string &path) {
  return path.rfind("/proc/self/fd/", 0) == 0 || path.rfind("/dev/fd/", 0) == 0;
}

// An id from an open file; AGAIN (timeout) when it is not there yet.
Result<UniqueId> read_id_file(const std::string &path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | (inherited(path) ? 0 : O_NOFOLLOW)));
  if (!fd)
    return errno == ENOENT ? fail(Code::timeout, "file {} does not exist", path) : fail_errno(errno, "cannot open " + path);
  struct stat st {};
  fstat(fd.get(), &st);
  if (!S_ISREG(st.st_mode)) return bad(fmt::format("{} is no regular file", path));
  if (!inherited(path) && (st.st_uid != geteuid() || (st.st_mode & 077) != 0))
    return bad(
        fmt::format("file {} belongs to user {} and has mode {:04o}: it must be this user's and mode 0600, it holds a secret",
                    path, st.st_uid, st.st_mode & 07777));
  tuttiUniqueId raw;
  if (pread(fd.get(), raw.internal, sizeof raw.internal, 0) != static_cast<ssize_t>(sizeof raw.internal))
    return fail(Code::timeout, "file {} is incomplete", path);
  return decode(raw);
}

Status write_id_file(const std::string &path, const tuttiUniqueId &id) {
  struct stat st;
  if (lstat(path.c_str(), &st) == 0 && !read_id_file(path).ok())
    return fail(Code::invalid_usage,
                "TUTTI_COMM_ID=file:{0}: {0} exists and holds no unique id of this user's; it is left as it is", path)
        .phase("bootstrap")
        .hint("name a file that does not exist");
  const std::string temporary = fmt::format("{}.{:016x}", path, random_u64());
  UniqueFd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno(errno, "cannot create " + temporary).phase("bootstrap");
  const bool written = write(fd.get(), id.internal, sizeof id.internal) == static_cast<ssize_t>(sizeof id.internal);
  int err = written ? 0 : (errno ? errno : EIO);
  if (err == 0 && rename(temporary.c_str(), path.c_str()) != 0) err = errno;
  if (err == 0) return {};
  unlink(temporary.c_str());
  return fail_errno(err, "cannot write " + path).phase("bootstrap");
}

// Only the file of this very id: a later job may have replaced it.
void remove_id_file(const std::string &path, uint64_t base) {
  auto id = read_id_file(path);
  if (id.ok() && id.value().base == base) unlink(path.c_str());
}

// Whether the root that made this id is alive: a file may be left from a job that crashed.
Status probe(const UniqueId &id, const Config &config, int rank, Deadline deadline) {
  Service &service = Service::get();
  const Identity root = root_identity(id);
  Dialer::Job job;
  if (id.host == static_cast<uint32_t>(host_id(config))) job.targets.push_back({unix_listener_name(id.process), {}, {}});
  add_targets(&job.targets, id.endpoints, config);
  job.hello.library = library_version();
  job.hello.comm = root.comm;
  job.hello.from = rank;
  random_bytes(job.hello.nonce);
  job.key = root.key;
  job.deadline = std::min(deadline.at(), Clock::now() + std::chrono::seconds(1));
  job.prove = false;
  struct Answer {
    std::promise<Status> promise;
    std::shared_ptr<Dialer> dialer;
  };
  auto answer = std::make_shared<Answer>();
  auto future = answer->promise.get_future();
  service.post([&service, job, answer] {
    answer->dialer = Dialer::start(service, job, [answer](Result<Conn::Ptr> r) {
      answer->promise.set_value(r.ok() ? Status() : r.status());
      Service::get().post([answer] { answer->dialer = nullptr; });
    });
  });
  if (future.wait_until(deadline.at() + std::chrono::seconds(1)) != std::future_status::ready)
    return fail(Code::timeout, "no answer from the root");
  return future.get();
}

Result<tuttiUniqueId> id_from_file(const std::string &path, const Config &config, int rank, uint32_t generation,
                                   Deadline deadline) {
  if (inherited(path)) { // the launcher made it and hosts the root
    TUTTI_ASSIGN(id, read_id_file(path));
    id.generation = generation;
    return encode(id);
  }
  if (rank == 0) {
    TUTTI_ASSIGN(id, new_id(config));
    auto r = start_root(config, id, false, [path, base = id.base] { remove_id_file(path, base); });
    if (!r.ok()) return std::move(r.status());
    const tuttiUniqueId raw = encode(id);
    TUTTI_TRY(write_id_file(path, raw));
    return raw;
  }
  std::string last;
  for (;;) {
    auto id = read_id_file(path);
    if (id.ok()) {
      const Status alive = probe(id.value(), config, rank, deadline);
      if (alive.ok()) return encode(id.value());
      last = fmt::format("the id in it leads nowhere (left by an earlier job?): {}", alive.error().message);
    } else {
      last = id.status().error().message;
      if (id.status().code() == Code::invalid_usage) return std::move(id.status());
    }
    if (deadline.expired()) break;
    std::this_thread::sleep_for(std::min<Nanos>(kPoll, deadline.left())); // a shared file system tells nobody
  }
  return fail(Code::timeout, "TUTTI_COMM_ID=file:{}: no usable unique id from rank 0 within {}: {}", path,
              seconds(deadline.span()), last)
      .phase("bootstrap")
      .peer(0);
}

Result<tuttiUniqueId> id_from_text(const std::string &text, const Config &config, int rank, Deadline deadline) {
  static std::atomic<uint32_t> calls{0}; // every rank makes the same ones in the same order
  const uint32_t generation = calls.fetch_add(1);
  if (text.rfind("file:", 0) == 0) return id_from_file(text.substr(5), config, rank, generation, deadline);
  return id_from_address(text, config, rank, generation, deadline);
}

// ---- Open MPI and other PMIx launchers

Result<Launch> from_pmix(const Config &config, Deadline deadline) {
  Launch out;
  TUTTI_ASSIGN(info, pmix_start(deadline));
  out.rank = info.rank;
  out.nranks = info.nranks;
  out.local_rank = info.local_rank;
  out.local_size = info.local_size;
  out.source = "PMIx";
  if (std::getenv("OMPI_COMM_WORLD_RANK")) {
    out.source = "Open MPI";
    TUTTI_TRY(read_ranks(&out, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                         "OMPI_COMM_WORLD_LOCAL_SIZE"));
  }
  if (out.nranks < 1 || out.rank < 0 || out.rank >= out.nranks)
    return bad(fmt::format("the PMIx launcher says rank {} of {}", out.rank, out.nranks));
  if (const std::string &text = config.text("core.comm_id"); !text.empty()) {
    TUTTI_ASSIGN(given, id_from_text(text, config, out.rank, deadline));
    out.id = given;
    return out;
  }
  static std::atomic<uint32_t> calls{0};
  const std::string key = fmt::format("tutti.id.{}", calls.fetch_add(1));
  tuttiUniqueId mine;
  if (out.rank == 0) {
    TUTTI_ASSIGN(made, Bootstrap::create_id(config));
    mine = made;
  }
  TUTTI_TRY(pmix_exchange(key, out.rank == 0 ? &mine : nullptr, &out.id, deadline));
  return out;
}

Result<Launch> from_tutti(const Config &config, Deadline deadline) {
  Launch out;
  TUTTI_TRY(read_ranks(&out, "TUTTI_RANK", "TUTTI_NRANKS", "TUTTI_LOCAL_RANK", "TUTTI_LOCAL_SIZE"));
  const std::string &text = config.text("core.comm_id");
  if (text.empty()) {
    if (out.nranks > 1)
      return bad("TUTTI_RANK and TUTTI_NRANKS are set, TUTTI_COMM_ID is not: it says where the ranks meet, as host:port of "
                 "rank 0 or file:PATH");
    TUTTI_ASSIGN(made, Bootstrap::create_id(config));
    out.id = made;
    out.source = "TUTTI_RANK";
    return out;
  }
  TUTTI_ASSIGN(id, id_from_text(text, config, out.rank, deadline));
  out.id = id;
  out.source = text.rfind("file:", 0) == 0 && inherited(text.substr(5)) ? "tutti run" : "TUTTI_COMM_ID";
  return out;
}

bool set(const char *name) {
  const char *v = std::getenv(name);
  return v && *v;
}

// Its workers inherit what srun or mpirun told the agent, which is about agents. But a script under srun or mpirun that sets
// RANK and the like for the application changes nothing: the sizes are the launcher's.
bool started_by_torchrun() {
  if (!set("RANK") || !set("WORLD_SIZE")) return false;
  if (set("TORCHELASTIC_RUN_ID")) return true;
  if (!set("LOCAL_RANK")) return false;
  const std::string size = std::getenv("WORLD_SIZE");
  for (const char *name : {"OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"})
    if (set(name)) return size != std::getenv(name);
  return true;
}

// torchrun, srun without PMIx and the like give rank and size; where to meet is missing or must come from TUTTI_COMM_ID.
Result<Launch> from_other(const Config &config, Deadline deadline, bool torchrun) {
  struct Known {
    const char *rank, *nranks, *local_rank, *local_size, *name, *missing;
  };
  static const Known known[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "Open MPI",
       "libpmix.so.2 was not found: install it (libpmix2), or set TUTTI_COMM_ID=host:port with a free port of rank 0's host"},
      {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "srun",
       "srun gave no PMIx server: start with srun --mpi=pmix, or set TUTTI_COMM_ID=host:port with a free port of rank 0's "
       "host"},
      {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "torchrun",
       "MASTER_ADDR and MASTER_PORT belong to its own store and are not used: set TUTTI_COMM_ID=host:port with another free "
       "port of "
       "rank 0's host, or file:PATH on a shared file system, or broadcast a unique id through the store"},
  };
  for (const Known &k : known) {
    if (!set(k.rank) || !set(k.nranks) || (torchrun && std::strcmp(k.name, "torchrun") != 0)) continue;
    Launch out;
    out.source = k.name;
    // srun writes "4(x2)" here on some systems; it is only information
    TUTTI_TRY(
        read_ranks(&out, k.rank, k.nranks, k.local_rank, std::strcmp(k.name, "srun") == 0 ? "TUTTI_LOCAL_SIZE" : k.local_size));
    const std::string &text = config.text("core.comm_id");
    if (text.empty() && out.nranks > 1)
      return bad(fmt::format("started by {} ({}={}, {}={}), but not told where the ranks meet", k.name, k.rank, out.rank,
                             k.nranks, out.nranks))
          .hint(k.missing);
    if (text.empty()) {
      TUTTI_ASSIGN(made, Bootstrap::create_id(config));
      out.id = made;
      return out;
    }
    TUTTI_ASSIGN(id, id_from_text(text, config, out.rank, deadline));
    out.id = id;
    return out;
  }
  return bad("no launcher found: neither TUTTI_RANK and TUTTI_NRANKS nor a PMIx launcher's environment is set")
      .hint("start with `tutti run -n N program` or `mpirun -np N program`, or set TUTTI_RANK, TUTTI_NRANKS and TUTTI_COMM_ID");
}

} // namespace

Result<HostPort> parse_host_port(std::string_view text) {
  const auto wrong = [&] {
    return bad(fmt::format("TUTTI_COMM_ID=\"{}\" is neither host:port, [v6]:port nor file:PATH; the port is 1 to 65535", text));
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

} // namespace boot

Result<UniqueFd> create_id_fd(const tuttiUniqueId &id) {
  UniqueFd fd(memfd_create("tutti-id", 0)); // inherited by the ranks on purpose
  if (!fd) return fail_errno(errno, "cannot create a memory file for the unique id");
  if (write(fd.get(), id.internal, sizeof id.internal) != static_cast<ssize_t>(sizeof id.internal))
    return fail_errno(errno, "cannot write the unique id");
  return fd;
}

Result<Bootstrap::Launch> Bootstrap::launch_from_env(const Config &config, Deadline deadline) {
  if (std::getenv("TUTTI_RANK") || std::getenv("TUTTI_NRANKS")) return boot::from_tutti(config, deadline);
  const bool torchrun = boot::started_by_torchrun();
  if (!torchrun && boot::pmix_available()) return boot::from_pmix(config, deadline);
  return boot::from_other(config, deadline, torchrun);
}

} // namespace tutti
