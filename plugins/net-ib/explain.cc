// tutti/plugins/net-ib/explain.cc
#include "explain.h"
#include <cerrno>
#include <sys/resource.h>

namespace tutti::net_ib {

using plugin::text;

namespace {

std::string error_text(int err) {
  return text(std::generic_category().message(err), " (errno ", err, ")");
}

std::string hex(uint64_t n) {
  char buf[24];
  std::snprintf(buf, sizeof buf, "0x%llx", static_cast<unsigned long long>(n));
  return buf;
}

std::string address_of(const Port &p) {
  if (!p.ethernet && p.gid_index < 0) return text("LID ", p.lid);
  std::string out = text("GID ", p.gid_text.empty() ? "none" : p.gid_text);
  return p.gid_index >= 0 ? text(out, ", index ", p.gid_index) : out;
}

// The limit on pinned memory and what mends it.
std::string memlock_text() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "the limit on pinned memory (ulimit -l) may be too low";
  if (limit.rlim_cur == RLIM_INFINITY)
    return "pinned memory is not limited (ulimit -l is unlimited): the device itself has no more to give, or the machine is "
           "out "
           "of memory";
  return text("ulimit -l is ", limit.rlim_cur / 1024,
              " KiB, and net-ib needs its memory pinned: raise it with `ulimit -l "
              "unlimited`, LimitMEMLOCK=infinity of the service that starts the job, \"* - memlock unlimited\" in "
              "/etc/security/limits.d, or --ulimit memlock=-1 of a container");
}

// 4.096 us * 2^timeout, each of the tries.
std::string waited(const Settings &s) {
  if (s.timeout == 0) return "for ever";
  const double seconds = 4.096e-6 * static_cast<double>(uint64_t{1} << s.timeout) * (s.retry_count + 1);
  char buf[32];
  std::snprintf(buf, sizeof buf, seconds < 1 ? "%.3f s" : "%.0f s", seconds);
  return buf;
}

std::string retry_hint(const Ends &ends, const Settings &s) {
  std::string out = text("the peer's device acknowledged none of ", s.retry_count + 1, " tries in about ", waited(s),
                         ": the peer is gone, its port is down, or packets are lost on the way");
  if (ends.own && ends.own->ethernet)
    out +=
        "; if this happens from the start, look for a GID of another subnet or address family, an MTU that a switch does not "
        "carry, or a firewall in front of UDP port 4791; if it happens under load, for missing flow control (PFC, ECN) in the "
        "counters out_of_sequence and packet_seq_err";
  else
    out += "; look at the cable and at the subnet manager's routes";
  if (ends.own && ends.peer_mtu != 0 && ends.peer_mtu != mtu_bytes(ends.own->mtu))
    out += text("; the ports differ in MTU, ", mtu_bytes(ends.own->mtu), " here and ", ends.peer_mtu,
                " at the peer: what lies between may drop packets of the smaller size, too");
  return out + "; options timeout and retry_count say how long to try";
}

std::string rnr_hint(const Settings &s) {
  return text("the peer's queue had no receive posted for ", s.rnr_retry + 1,
              " tries: the peer has stopped or is far behind; rnr_retry = 7 waits for ever");
}

std::string hint(const ibv_wc &wc, const Ends &ends, const Settings &s) {
  switch (wc.status) {
  case IBV_WC_LOC_LEN_ERR:
    return "a message was longer than the memory posted for it, or than the port carries";
  case IBV_WC_LOC_QP_OP_ERR:
    return "the device could not carry out the request: its port lost its link or its address, or the queue pair was damaged";
  case IBV_WC_LOC_PROT_ERR:
    return text(
        "memory of the message is not covered by its registration: it was freed or unmapped before the transfer ended; ",
        memlock_text());
  case IBV_WC_WR_FLUSH_ERR:
    return "the queue pair had failed before, and this is only what was left in it: look for the first error of this "
           "connection, "
           "here or at the peer";
  case IBV_WC_BAD_RESP_ERR:
    return "the peer's device answered what was not asked: packets of another connection, or damaged ones, arrive here";
  case IBV_WC_LOC_ACCESS_ERR:
    return "the peer wrote to memory of this process that it may not access: it was released here while the peer still sent";
  case IBV_WC_REM_INV_REQ_ERR:
    return "the peer's device refused the request: the message is longer than what it expects, or not allowed on its queue "
           "pair";
  case IBV_WC_REM_ACCESS_ERR:
    return "the peer's memory may not be accessed with this key: the peer has released it, or has been started again";
  case IBV_WC_REM_OP_ERR:
    return "the peer's device could not carry out the request: its own error is in the peer's log or in the kernel's there";
  case IBV_WC_RETRY_EXC_ERR:
    return retry_hint(ends, s);
  case IBV_WC_RNR_RETRY_EXC_ERR:
    return rnr_hint(s);
  case IBV_WC_REM_INV_RD_REQ_ERR:
    return "the peer's device refused the read";
  case IBV_WC_REM_ABORT_ERR:
    return "the peer's device gave the operation up";
  case IBV_WC_RESP_TIMEOUT_ERR:
    return "the peer's device did not answer in time: it is gone, or packets are lost on the way";
  case IBV_WC_FATAL_ERR:
  case IBV_WC_GENERAL_ERR:
    return "the device or its driver failed: look at the kernel's log (dmesg) and at the device's firmware";
  default: // of kinds of queues and requests that net-ib does not use
    return "net-ib uses nothing that can fail so: look at the device's driver and firmware";
  }
}

const char *state_name(ibv_qp_state s) {
  return s == IBV_QPS_INIT  ? "INIT"
         : s == IBV_QPS_RTR ? "RTR"
         : s == IBV_QPS_RTS ? "RTS"
         : s == IBV_QPS_ERR ? "ERR"
                            : "another state";
}

std::string modify_hint(int err, ibv_qp_state to, const Ends &ends) {
  if (to == IBV_QPS_RTR) {
    switch (err) {
    case ENODATA:
      return "the GID at this index is gone: an address was taken from the network interface";
    case ETIMEDOUT:
      return "the peer's hardware address was not found: its network interface is down, ARP or neighbour discovery is lost, or "
             "the peer is in another network and no route leads there";
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EADDRNOTAVAIL:
      return "no route leads from the network interface of this GID to that of the peer";
    case EINVAL:
      return "the device does not take these addresses: the GIDs are of different kinds, or the MTU is larger than the port's";
    default:
      break;
    }
  }
  if (err == EINVAL && to == IBV_QPS_INIT) return "the device does not take the port or the index of the partition key";
  if (err == ENODEV || err == EIO) return "the device is gone or is being reset";
  return ends.own ? text("look at the kernel's log (dmesg) for ", ends.own->device) : "look at the kernel's log (dmesg)";
}

} // namespace

std::string describe(const Ends &ends) {
  std::string out = ends.own ? text(ends.own->name(), " (", address_of(*ends.own), ")") : "";
  if (ends.peer_gid.empty()) return out;
  return text(out, " -> ", ends.peer_gid.rfind("LID", 0) == 0 ? "" : "GID ", ends.peer_gid);
}

std::string explain(const ibv_wc &wc, const char *request, const Ends &ends, const Settings &settings) {
  return text(describe(ends), ": ", request, " failed with status ", static_cast<int>(wc.status), " (",
              ibv_wc_status_str(wc.status), ", vendor code ", hex(wc.vendor_err), "): ", hint(wc, ends, settings));
}

tutti_status status_of(ibv_wc_status status) {
  switch (status) {
  case IBV_WC_SUCCESS:
    return TUTTI_OK;
  case IBV_WC_RETRY_EXC_ERR:
  case IBV_WC_RNR_RETRY_EXC_ERR:
  case IBV_WC_RESP_TIMEOUT_ERR:
  case IBV_WC_REM_INV_REQ_ERR:
  case IBV_WC_REM_ACCESS_ERR:
  case IBV_WC_REM_OP_ERR:
  case IBV_WC_REM_INV_RD_REQ_ERR:
  case IBV_WC_REM_ABORT_ERR:
  case IBV_WC_BAD_RESP_ERR:
  case IBV_WC_WR_FLUSH_ERR: // what failed before it was the peer, or says so itself
    return TUTTI_ERR_REMOTE;
  case IBV_WC_LOC_LEN_ERR:
    return TUTTI_ERR_TRUNCATED;
  default:
    return TUTTI_ERR_SYSTEM;
  }
}

std::string explain_open(int err) {
  switch (err) {
  case ENOENT:
  case ENXIO:
    return text("cannot be opened: ", error_text(err),
                "; its file in /dev/infiniband is missing, as in a container that was not given it");
  case EACCES:
  case EPERM:
    return text("cannot be opened: ", error_text(err), "; this user may not use the files in /dev/infiniband");
  case ENOMEM:
    return text("cannot be opened: ", error_text(err), "; ", memlock_text());
  case ENOSYS:
  case EOPNOTSUPP:
    return text("cannot be opened: ", error_text(err), "; libibverbs has no driver for it (Debian: ibverbs-providers)");
  default:
    return text("cannot be opened: ", error_text(err));
  }
}

std::string explain_create_qp(int err, const Port &port, uint32_t send_wr, uint32_t recv_wr, uint32_t inline_bytes) {
  const std::string what = text(port.name(), ": cannot make a queue pair of ", send_wr, " sends, ", recv_wr, " receives and ",
                                inline_bytes, " bytes inline: ", error_text(err));
  switch (err) {
  case ENOMEM:
    return text(what, "; ", memlock_text(),
                "; or the device has given out all its queue pairs: fewer channels or a smaller "
                "qps_per_connection need fewer");
  case ENOSPC:
    return text(what,
                "; the device has given out all its queue pairs: fewer channels or a smaller qps_per_connection need fewer");
  case EINVAL:
    return text(what, "; that is more than the device can: smaller values of max_inflight and inline_bytes need less");
  default:
    return what;
  }
}

std::string explain_reg_mr(int err, const std::string &device, const char *call, const void *addr, uint64_t bytes) {
  const std::string what = text(device, ": cannot register ", bytes, " bytes at ", hex(reinterpret_cast<uintptr_t>(addr)), ": ",
                                call, ": ", error_text(err));
  switch (err) {
  case ENOMEM:
  case EAGAIN:
  case EPERM:
    return text(what, "; ", memlock_text());
  case EFAULT:
    return text(what, "; part of it is not mapped, or may not be written");
  case EOPNOTSUPP:
    return text(what, "; the kernel or the device's driver cannot do it for this kind of memory");
  case EINVAL:
    return text(what, "; the device does not take this range or this kind of memory");
  default:
    return what;
  }
}

std::string explain_modify_qp(int err, ibv_qp_state to, const Ends &ends) {
  return text(describe(ends), ": the queue pair cannot go to ", state_name(to), ": ", error_text(err), "; ",
              modify_hint(err, to, ends));
}

bool worth_retrying(int err, ibv_qp_state to) {
  return to == IBV_QPS_RTR &&
         (err == ETIMEDOUT || err == EHOSTUNREACH || err == ENETUNREACH || err == EAGAIN || err == EADDRNOTAVAIL);
}

std::string mismatch(const Port &own, const PeerPort &peer) {
  if (own.ethernet != peer.ethernet)
    return text(own.name(), " is a port of ", own.ethernet ? "Ethernet" : "InfiniBand", ", that of the peer one of ",
                peer.ethernet ? "Ethernet" : "InfiniBand",
                ": they are different networks; choose ports of one kind with option hca");
  if (!own.ethernet) return "";
  const bool mine = is_ipv4(own.gid), theirs = is_ipv4(peer.gid);
  if (mine == theirs) return "";
  return text(own.name(), " has the GID ", own.gid_text, ", an IPv", mine ? 4 : 6, " address, and the peer ",
              gid_text(peer.gid), ", one of IPv", theirs ? 4 : 6,
              ": give both hosts addresses of one family, or set option family, gid_index or addr_range alike on both");
}

std::string explain_all_down(const std::vector<Ends> &paths, nanoseconds how_long) {
  std::string out;
  for (const Ends &e : paths) out += text(out.empty() ? "" : ", ", describe(e));
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(how_long).count();
  return text(out, paths.size() > 1 ? ": all these ports have" : ": the port has", " been down for ", ms / 1000, ".",
              ms % 1000 / 100, " s, longer than link_down_timeout: look at cable, switch port and network interface");
}

} // namespace tutti::net_ib
