// tutti/core/bootstrap/rendezvous.h: where the ranks of a job meet when no launcher carries the unique id for them: an address,
// a file, or a name of this host. Rank 0 starts the root; the others find it. Every rank makes the same calls in the same
// order.
#pragma once
#include "bootstrap/bootstrap.h"
#include "bootstrap/wire.h"

namespace tutti::boot {

Status bad(std::string message); // invalid_usage

// TUTTI_COMM_ID: "host:port", "[v6]:port", "file:PATH".
Result<tuttiUniqueId> id_from_text(const std::string &text, const Config &config, int rank, Deadline deadline);

// The host of rank 0 and the ports of which its root takes the first free one; whoever answers there proves that it is the
// root. name: what all ranks know of the job and no other job has. It is no secret: the key comes from core.job_key_file.
struct Place {
  std::string host;
  std::vector<uint16_t> ports;
  std::string name;
  std::string from; // the variables that say so, for messages
};
Result<tuttiUniqueId> id_from_place(const Place &place, const Config &config, int rank, Deadline deadline);
// Its addresses, of socket.family alone, without ports. A name server is waited for until the deadline. from: for messages.
Result<std::vector<Endpoint>> resolve(const std::string &host, const std::string &from, const Config &config,
                                      Deadline deadline);
// Ports that depend on the name alone: out of socket.port_range, else below those that systems give to clients; never `taken`.
std::vector<uint16_t> ports_for(std::string_view name, const Config &config, uint16_t taken = 0);

// The secret in a job key file, which nobody but this user may be able to read.
Result<Secret> read_job_key(const std::string &path);

// All ranks are on this host: rank 0 hands its id to processes of the same user, whose identity the kernel vouches for.
Result<tuttiUniqueId> id_from_host(const std::string &name, const Config &config, int rank, int nranks, Deadline deadline);

bool inherited(std::string_view path); // a descriptor of this process, not a name that others can use
Result<tuttiUniqueId> id_from_file(const std::string &path, const Config &config, int rank, uint32_t generation,
                                   Deadline deadline);

// Whether the root that made this id is alive: files and stores may have one that is left from a job that crashed. At most
// `patience`.
Status probe_root(const UniqueId &id, const Config &config, int rank, Nanos patience, Deadline deadline);

// A store that all ranks reach, and the job's name in it. Rank 0 puts its id there, boxed with the job key where there is one.
struct StorePlace {
  std::string url;  // core.rendezvous
  std::string name; // what all ranks know of the job and no other job has
};
Result<tuttiUniqueId> id_from_store(const StorePlace &place, const Config &config, int rank, Deadline deadline);
std::string store_key(std::string_view job, uint32_t generation);

} // namespace tutti::boot
