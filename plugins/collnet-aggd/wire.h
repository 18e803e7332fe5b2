// tutti/plugins/collnet-aggd/wire.h: what goes between the plugin and tutti-aggd, and between daemons. The one place for it.
//
//   both begin   Hello ->, <- Challenge, Proof ->      each proves that it knows the key; at most 256 bytes, 2 s
//   then frames  Header (32 bytes), body, zeros up to a multiple of 8
//     -> join    <- grant or error    at once: what is reserved, or why nothing is
//     -> cover                        a daemon's join grows: which members have come below it
//     <- start                        all members are in; from here on data
//     -> chunk   <- chunk             the k-th of one direction answers the k-th of the other, with the same header
//     -> waits                        a daemon tells whose part of the present chunk is missing, when that takes long
//     <- asks                         a daemon below is to tell that at once: one that is stopped does not
//     <- error, -> error              the last words of either side; end of file without error or goodbye is a failure
//     -> goodbye                      a member leaves between operations
//
// Numbers are little endian, as all our hosts.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::aggd {

static_assert(std::endian::native == std::endian::little);

inline constexpr uint16_t version_first = 1, version_last = 1;
inline constexpr size_t unproved_bytes = 256;            // what a stranger may send
inline constexpr uint32_t most_members = 4096;           // of a group
inline constexpr uint32_t most_body = 16 << 10;          // of a frame that is no chunk
inline constexpr uint32_t most_post = 1u << 30;          // bytes of a post
inline constexpr uint32_t least_window = 64 << 10;       // bytes
inline constexpr uint32_t most_window = 256u << 20;      // bytes
inline constexpr uint32_t most_chunk = 8 << 20;          // bytes
inline constexpr uint32_t most_progress_ms = 86'400'000; // a day
inline constexpr uint16_t default_port = 4797;

// A chunk may become four times as wide between daemons, and must still fit.
constexpr uint32_t chunk_of_window(uint32_t window) {
  return window / 8;
}

// ---- before the frames -------------------------------------------------------------------------------------------------
using Key = std::array<uint8_t, 32>;
using Nonce = std::array<uint8_t, 32>;
using Mac = std::array<uint8_t, 32>;
inline constexpr std::array<char, 8> magic_hello{'t', 'u', 't', 't', 'i', 'A', 'G', 'G'};

enum class Role : uint16_t { member = 1, daemon = 2 };
struct Hello {
  std::array<char, 8> magic;
  uint16_t first, last; // versions that it speaks
  Role role;
  uint16_t reserved;
  Nonce nonce;
};
struct Challenge {
  std::array<char, 8> magic;
  uint16_t version; // chosen; 0: none fits, and mac is void
  uint16_t first, last, reserved;
  Nonce nonce;
  Mac mac; // under the key: who answers, the hello, the challenge
};
struct Proof {
  Mac mac; // the same, by who said hello
};
static_assert(sizeof(Hello) == 48 && sizeof(Challenge) == 80 && sizeof(Proof) == 32);
static_assert(sizeof(Hello) + sizeof(Proof) <= unproved_bytes);

bool crypto_ready(); // libsodium has a source of random numbers
void random_fill(std::span<uint8_t> out);
// The key of a file: a regular one of 16 to 4096 bytes that belongs to this user or root and that nobody else may read. Else
// empty, and `why` is the rest of a sentence that begins with the path.
std::optional<Key> read_key(const std::string &path, std::string &why);
Hello make_hello(Role role, uint16_t first = version_first, uint16_t last = version_last);
bool is_hello(const Hello &hello);
Challenge make_challenge(const Key &key, const Hello &hello);
Proof make_proof(const Key &key, const Hello &hello, const Challenge &challenge);
bool proves(const Key &key, const Hello &hello, const Challenge &challenge);                     // the daemon
bool proves(const Key &key, const Hello &hello, const Challenge &challenge, const Proof &proof); // who said hello

// ---- frames --------------------------------------------------------------------------------------------------------------
enum class Kind : uint8_t { chunk = 1, join = 2, grant = 3, cover = 4, start = 5, error = 6, goodbye = 7, waits = 8, asks = 9 };
enum : uint8_t {
  flag_average = 1, // the sum is divided by the number of members
  flag_empty = 2,   // the body stays away: this side has nothing to give to, or to get from, the operation
  flag_wide = 4,    // a partial result of a type of 8 or 16 bits, as float32
};
struct Header {
  uint16_t magic;
  Kind kind;
  uint8_t flags;
  uint32_t seq;    // of the post, from 0
  uint32_t offset; // of the chunk in its post
  uint32_t bytes;  // of the chunk in its own element type; of any other frame: its body
  uint32_t total;  // of the post
  uint8_t coll, dtype, op, reserved;
  int32_t root; // -1: none
  uint32_t tag; // the caller's; compared like the rest
};
static_assert(sizeof(Header) == 32);
inline constexpr uint16_t magic_header = 0x7461;

constexpr uint64_t padded(uint64_t bytes) {
  return (bytes + 7) & ~uint64_t{7};
}
uint32_t element_bytes(uint8_t dtype); // 0: unknown
inline bool is_narrow(uint8_t dtype) { // computed in float32
  return dtype == 6 || dtype == 9 || dtype == 10 || dtype == 11;
}
// Bytes of the body, without padding.
uint64_t body_bytes(const Header &h);
inline uint64_t frame_bytes(const Header &h) {
  return sizeof(Header) + padded(body_bytes(h));
}
// Empty when it is a header that a peer may send; else what is wrong with it. Chunks: at most `most` bytes.
std::string check_header(const Header &h, uint32_t most, uint32_t members);
Header control_header(Kind kind, size_t body);
Header chunk_header(uint8_t coll, uint8_t dtype, uint8_t op, uint8_t flags);

// What members of a group can differ in.
enum class Field : uint16_t { none, coll, dtype, op, bytes, root, tag, order, members, average };
std::string_view field_name(Field field);
Field difference(const Header &a, const Header &b); // of two chunks that should be the same
// "float", "4096", "all_reduce": the value of a field.
std::string field_value(Field field, const Header &h);

// ---- bodies --------------------------------------------------------------------------------------------------------------
class Members { // a set of them
public:
  explicit Members(uint32_t n = 0) : n_(n), bits_((n + 7) / 8) {}
  uint32_t size() const { return n_; }
  void add(uint32_t m) { bits_[m / 8] |= static_cast<uint8_t>(1u << (m % 8)); }
  bool has(uint32_t m) const { return m < n_ && (bits_[m / 8] >> (m % 8) & 1); }
  uint32_t count() const;
  int first() const; // -1: none
  bool meets(const Members &o) const;
  bool holds(const Members &o) const; // all of them
  void add(const Members &o);
  std::string list(bool there, uint32_t most = 16) const; // "0, 2-5": those that are (not) in the set
  std::span<const uint8_t> bytes() const { return bits_; }
  bool operator==(const Members &) const = default;
  static std::optional<Members> from(uint32_t n, std::span<const uint8_t> bytes);

private:
  uint32_t n_;
  std::vector<uint8_t> bits_;
};

using Token = std::array<uint8_t, 16>; // of a group: equal at all members, and never used twice
struct Join {
  uint64_t job = 0;
  Token token{};
  uint32_t members = 0;
  int32_t member = -1; // -1: a daemon
  uint32_t local = 0;  // members that join at the same daemon; 0 from a daemon
  uint32_t window = 0; // bytes asked for
  uint32_t outstanding = 0;
  uint32_t chunk = 0, chunk_min = 0; // the largest that it will send, and the smallest that it would cut
  uint32_t progress_ms = 0, deadline_ms = 0;
};
// What a subtree can do; grows with every member that comes.
struct Cover {
  uint64_t shape = 0; // hash of the order in which it folds
  uint64_t mbps = 0;  // of one stream at its slowest daemon, whose link they share; 0: not known
  uint32_t depth = 0, daemons = 0;
  uint32_t window = 0, chunk = 0, outstanding = 0; // the least that somebody in it has
  uint32_t chunk_min = 0;                          // the largest
};
struct CoverOf {
  Cover cover;
  Members members;
};
struct Grant {
  uint64_t epoch = 0; // of this run of the daemon
  uint32_t window = 0, outstanding = 0, chunk = 0, progress_ms = 0;
};
struct Start {
  Cover all;
};
// tutti_collnet_reason's values.
enum class Reason : uint16_t {
  none = 0,
  unsupported = 1,
  no_resource = 2,
  unreachable = 3,
  auth = 4,
  version = 5,
  mismatch = 6,
  member_lost = 7,
  aggregator_lost = 8,
  timeout = 9,
};
std::string_view reason_name(Reason reason);
struct Fault {
  Reason reason = Reason::none;
  Field field = Field::none;
  int32_t member = -1;
  uint64_t limit = 0, in_use = 0;
  std::string text;     // one line, at most 1000 bytes
  bool hearsay = false; // a member says so, not about itself, and no daemon knows it
};

std::string frame(const Join &join);
std::string frame(const CoverOf &cover);
std::string frame(const Grant &grant);
std::string frame(const Start &start);
std::string frame(const Fault &fault);
std::string goodbye_frame();
std::string waits_frame(const Members &missing);
std::string asks_frame();
// Empty: the bytes are no such body.
std::optional<Join> read_join(std::span<const uint8_t> body);
std::optional<CoverOf> read_cover(std::span<const uint8_t> body, uint32_t members);
std::optional<Grant> read_grant(std::span<const uint8_t> body);
std::optional<Start> read_start(std::span<const uint8_t> body);
std::optional<Fault> read_fault(std::span<const uint8_t> body);

uint64_t hash64(std::span<const uint8_t> bytes); // for tokens, shapes and order ids

} // namespace tutti::aggd
