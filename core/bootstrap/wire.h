// tutti/core/bootstrap/wire.h: what travels on control connections: unique ids, handshake messages, frames. Parsers take bytes
// of strangers: they check every length and never allocate more than what arrived.
#pragma once
#include "bootstrap/bootstrap.h"
#include "bootstrap/secret.h"
#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>

namespace tutti::boot {

class Writer {
public:
  void u8(uint8_t v) { out_.push_back(std::byte(v)); }
  void u16(uint16_t v) { number(v, 2); }
  void u32(uint32_t v) { number(v, 4); }
  void u64(uint64_t v) { number(v, 8); }
  void i32(int32_t v) { u32(static_cast<uint32_t>(v)); }
  void raw(std::span<const std::byte> data) { out_.insert(out_.end(), data.begin(), data.end()); }
  void text(std::string_view s, size_t limit = 1024);
  Bytes take() { return std::move(out_); }
  size_t size() const { return out_.size(); }

private:
  void number(uint64_t v, int bytes) { // little endian on the wire
    for (int i = 0; i < bytes; i++) out_.push_back(std::byte(v >> (8 * i)));
  }
  Bytes out_;
};

// After the first read past the end, ok() is false and all reads give zero.
class Reader {
public:
  explicit Reader(std::span<const std::byte> data) : data_(data) {}
  uint8_t u8() { return static_cast<uint8_t>(number(1)); }
  uint16_t u16() { return static_cast<uint16_t>(number(2)); }
  uint32_t u32() { return static_cast<uint32_t>(number(4)); }
  uint64_t u64() { return number(8); }
  int32_t i32() { return static_cast<int32_t>(u32()); }
  std::span<const std::byte> raw(size_t n);
  std::string text();
  std::span<const std::byte> rest() { return raw(data_.size() - at_); }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && at_ == data_.size(); }

private:
  uint64_t number(size_t n);
  std::span<const std::byte> data_;
  size_t at_ = 0;
  bool ok_ = true;
};

// An IPv4 or IPv6 address with its port.
struct Endpoint {
  sockaddr_storage storage{};
  int family() const { return storage.ss_family; }
  uint16_t port() const;
  void set_port(uint16_t port);
  socklen_t length() const { return family() == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in); }
  std::string text() const; // "10.0.0.1:80", "[::1]:80"
};
bool is_loopback(const Endpoint &e);
void put(Writer &w, const Endpoint &e);
bool get(Reader &r, Endpoint *e);

// What a rank needs to reach another one.
struct Contact {
  std::array<uint64_t, 2> process{};
  uint64_t host = 0;
  int32_t pid = 0;
  std::string hostname;
  std::vector<Endpoint> endpoints;
  std::string text() const; // "pid 123 on host"
};
void put(Writer &w, const Contact &c);
bool get(Reader &r, Contact *c);

// The 128 bytes of tuttiUniqueId.
struct UniqueId {
  Secret secret{};
  uint64_t base = 0;         // names the root; the communicator's id is derived from it, the secret and the generation
  uint32_t generation = 0;   // n-th communicator met through one root that stays (launcher, address)
  bool from_address = false; // the root may appear later than the ranks: refusals are retried until the deadline
  uint64_t process = 0;      // names the root's unix-domain listener
  uint32_t host = 0;         // low half of the root's host id: whether that listener can be reached
  std::vector<Endpoint> endpoints;
};
tuttiUniqueId encode(const UniqueId &id); // endpoints that do not fit are left out, from the end
Result<UniqueId> decode(const tuttiUniqueId &id);

// ---- handshake: hello -> challenge or refusal -> proof. Fixed sizes, below the 256 bytes a stranger may send.
constexpr uint16_t kWireVersion = 3;
constexpr int kRootRank = -1; // `to` of a check-in
constexpr int kAskRank = -2;  // `to` of a question (core/ras): of no rank, but of the process
using Nonce = std::array<std::byte, 32>;
using Mac = std::array<std::byte, 32>;
// What an end says of encryption, in what both prove; TCP connections are encrypted when either wants it. See tls.h.
enum : uint16_t { kCanEncrypt = 1, kWantsEncryption = 2 };

struct Hello {
  uint16_t wire = kWireVersion;
  uint16_t security = 0; // kCanEncrypt, kWantsEncryption
  uint32_t library = 0;  // version, as tuttiGetVersion gives it
  uint64_t comm = 0;     // communicator, or UniqueId::base at the root; of a question the id that its key belongs to
  int32_t from = -1, to = -1;
  Nonce nonce{};
};
constexpr size_t kHelloBytes = 4 + 4 + 4 + 8 + 4 + 4 + 32;
Bytes encode(const Hello &h);
std::optional<Hello> decode_hello(std::span<const std::byte> data);

enum class Refusal : uint8_t { none = 0, unknown = 1, wire = 2, busy = 3 };
std::string_view text(Refusal r);
struct Challenge {
  Refusal refusal = Refusal::none; // set: nothing else counts
  uint16_t wire = kWireVersion;
  uint16_t security = 0;
  Nonce nonce{};
  Mac mac{};
};
constexpr size_t kChallengeBytes = 4 + 1 + 4 + 32 + 32;
Bytes encode(const Challenge &c);
std::optional<Challenge> decode_challenge(std::span<const std::byte> data);

constexpr size_t kProofBytes = 4 + 32;
Bytes encode_proof(const Mac &mac);
std::optional<Mac> decode_proof(std::span<const std::byte> data);

// ---- frames, on authenticated connections
enum class FrameType : uint8_t {
  message = 1,   // tag; payload is the application's
  gather = 2,    // tag = number of the allgather; origin, direction, piece
  failure = 3,   // an Error
  goodbye = 4,   // u8: 1 = everybody was done
  check_in = 5,  // rank -> root: CheckIn
  welcome = 6,   // root -> rank: who hosts the root
  successor = 7, // root -> rank: u8 1: Contact of rank + 1, 0: of rank - 1
  in_ring = 8,   // rank -> root: connected to both neighbours; root -> first root: i32, the rank that is
  branch = 9,    // root -> first root of several: BranchIn
  at_root = 10, // root <-> first root: i32, a rank that has checked in; u8 1: its Contact follows, for its neighbours elsewhere
  council = 11, // who goes on after a failure, see council.h
  gone = 12,    // i32, a rank that has ended or left after a failure
  question = 13, // core/ras: what is asked
  answer = 14,   // core/ras: tag says of what kind
  resume = 15,   // first on a connection over TCP, both ways: tag = frames of the other end that have come; u64 attempt
  ack = 16,      // tag = the same
};
struct Frame {
  FrameType type{};
  uint64_t tag = 0;
  Bytes payload;
  UniqueFd fd;
};
constexpr size_t kFrameHeader = 16;
constexpr uint32_t kFrameLimit = 64u << 20; // payload
struct FrameHeader {
  uint32_t length = 0;
  FrameType type{};
  bool fd = false;
  uint64_t tag = 0;
};
void encode(const FrameHeader &h, std::byte *out);
std::optional<FrameHeader> decode_header(std::span<const std::byte, kFrameHeader> data);

struct CheckIn {
  uint32_t generation = 0;
  int32_t nranks = 0, rank = -1;
  uint32_t library = 0;
  uint64_t left_ns = 0, span_ns = 0; // of the rank's deadline
  int32_t nroots = 1, root = 0;      // how many there are, and which one this is
  uint64_t ids = 0;                  // a hash of all unique ids in their order
  std::string security;              // core.security
  Bytes first_root;                  // its unique id, in a box that only this root opens; empty when this is the first
  Contact contact;
};
Bytes encode(const CheckIn &c);
std::optional<CheckIn> decode_check_in(std::span<const std::byte> data);

// A root's first words to the first one: who it is, and what its first rank said.
struct BranchIn {
  Contact contact;
  CheckIn first;
};
Bytes encode(const BranchIn &b);
std::optional<BranchIn> decode_branch(std::span<const std::byte> data);

// Several roots share the ranks evenly, in order; the first ones take one more where it does not come out.
struct RankRange {
  int low = 0, high = 0; // [low, high)
  int size() const { return high - low; }
};
RankRange ranks_of_root(int nranks, int nroots, int root);
int root_of_rank(int nranks, int nroots, int rank);

Bytes encode(const Error &e);
std::optional<Error> decode_error(std::span<const std::byte> data);

// "3, 5-7, 9"; at most `limit` groups, then "and 12 more".
std::string list_ranks(std::span<const int> ranks, size_t limit = 16);
std::string seconds(Nanos span); // "30 s", "1.5 s"
uint32_t library_version();
std::string version_text(uint32_t version);

} // namespace tutti::boot
