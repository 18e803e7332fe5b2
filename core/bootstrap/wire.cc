#include "bootstrap/wire.h"
#include "tutti/plugin/cxx/netif.hpp"
#include <algorithm>
#include <cstring>

namespace tutti::boot {
namespace {

constexpr uint32_t kIdMagic = 0x31495454;        // "TTI1"
constexpr uint32_t kHelloMagic = 0x31485454;     // "TTH1"
constexpr uint32_t kChallengeMagic = 0x31435454; // "TTC1"
constexpr uint32_t kProofMagic = 0x31505454;     // "TTP1"
constexpr size_t kMaxEndpoints = 16;
constexpr size_t kMostSecurity = 32;

// FNV-1a: finds ids that were cut or mistyped; it keeps nobody out.
uint32_t checksum(std::span<const std::byte> data) {
  uint32_t h = 2166136261u;
  for (std::byte b : data) h = (h ^ static_cast<uint32_t>(b)) * 16777619u;
  return h;
}

template <class T> void copy(std::span<const std::byte> from, T *to) {
  if (from.size() == to->size()) std::memcpy(to->data(), from.data(), from.size());
}

} // namespace

void Writer::text(std::string_view s, size_t limit) {
  s = s.substr(0, std::min<size_t>(limit, 65535));
  u16(static_cast<uint16_t>(s.size()));
  raw(std::as_bytes(std::span(s.data(), s.size())));
}

uint64_t Reader::number(size_t n) {
  const auto part = raw(n);
  uint64_t v = 0;
  for (size_t i = 0; i < part.size(); i++) v |= static_cast<uint64_t>(part[i]) << (8 * i);
  return v;
}

std::span<const std::byte> Reader::raw(size_t n) {
  if (!ok_ || data_.size() - at_ < n) {
    ok_ = false;
    return {};
  }
  at_ += n;
  return data_.subspan(at_ - n, n);
}

std::string Reader::text() {
  const auto part = raw(u16());
  std::string s(reinterpret_cast<const char *>(part.data()), part.size());
  for (char &c : s) // it ends up in log lines
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  return s;
}

uint16_t Endpoint::port() const {
  return family() == AF_INET6 ? ntohs(reinterpret_cast<const sockaddr_in6 *>(&storage)->sin6_port)
                              : ntohs(reinterpret_cast<const sockaddr_in *>(&storage)->sin_port);
}

void Endpoint::set_port(uint16_t p) {
  if (family() == AF_INET6)
    reinterpret_cast<sockaddr_in6 *>(&storage)->sin6_port = htons(p);
  else
    reinterpret_cast<sockaddr_in *>(&storage)->sin_port = htons(p);
}

std::string Endpoint::text() const {
  netif::Address a;
  a.storage = storage;
  return netif::to_text(a, port());
}

// The scope of a link-local address means nothing elsewhere and is not sent.
bool is_loopback(const Endpoint &e) {
  if (e.family() == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6 *>(&e.storage)->sin6_addr);
  return ntohl(reinterpret_cast<const sockaddr_in *>(&e.storage)->sin_addr.s_addr) >> 24 == 127;
}

void put(Writer &w, const Endpoint &e) {
  w.u8(e.family() == AF_INET6 ? 6 : 4);
  if (e.family() == AF_INET6)
    w.raw(std::as_bytes(std::span(reinterpret_cast<const sockaddr_in6 *>(&e.storage)->sin6_addr.s6_addr)));
  else
    w.raw(std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in *>(&e.storage)->sin_addr, 1)));
  w.u16(e.port());
}

bool get(Reader &r, Endpoint *e) {
  const uint8_t version = r.u8();
  const auto bytes = r.raw(version == 6 ? 16 : 4);
  if (!r.ok() || (version != 4 && version != 6)) return false;
  *e = {};
  e->storage.ss_family = version == 6 ? AF_INET6 : AF_INET;
  if (version == 6)
    std::memcpy(&reinterpret_cast<sockaddr_in6 *>(&e->storage)->sin6_addr, bytes.data(), 16);
  else
    std::memcpy(&reinterpret_cast<sockaddr_in *>(&e->storage)->sin_addr, bytes.data(), 4);
  e->set_port(r.u16());
  return r.ok();
}

std::string Contact::text() const {
  return fmt::format("pid {} on {}", pid, hostname);
}

void put(Writer &w, const Contact &c) {
  w.u64(c.process[0]);
  w.u64(c.process[1]);
  w.u64(c.host);
  w.i32(c.pid);
  w.text(c.hostname, 255);
  const size_t n = std::min(c.endpoints.size(), kMaxEndpoints);
  w.u8(static_cast<uint8_t>(n));
  for (size_t i = 0; i < n; i++) put(w, c.endpoints[i]);
}

bool get(Reader &r, Contact *c) {
  c->process = {r.u64(), r.u64()};
  c->host = r.u64();
  c->pid = r.i32();
  c->hostname = r.text();
  const size_t n = r.u8();
  if (!r.ok() || n > kMaxEndpoints) return false;
  c->endpoints.resize(n);
  for (Endpoint &e : c->endpoints)
    if (!get(r, &e)) return false;
  return r.ok();
}

tuttiUniqueId encode(const UniqueId &id) {
  Writer w;
  w.u32(kIdMagic);
  w.u8(id.from_address ? 1 : 0);
  w.u32(id.generation);
  w.u64(id.base);
  w.u64(id.process);
  w.u32(id.host);
  w.raw(id.secret);
  Writer list;
  uint8_t count = 0;
  for (const Endpoint &e : id.endpoints) {
    const size_t bytes = e.family() == AF_INET6 ? 19 : 7;
    if (w.size() + 1 + list.size() + bytes + 4 > TUTTI_UNIQUE_ID_BYTES) continue;
    put(list, e);
    count++;
  }
  w.u8(count);
  w.raw(list.take());
  Bytes out = w.take();
  out.resize(TUTTI_UNIQUE_ID_BYTES - 4);
  const uint32_t sum = checksum(out);
  Writer tail;
  tail.u32(sum);
  const Bytes t = tail.take();
  out.insert(out.end(), t.begin(), t.end());
  tuttiUniqueId result;
  std::memcpy(result.internal, out.data(), TUTTI_UNIQUE_ID_BYTES);
  wipe(out);
  return result;
}

Result<UniqueId> decode(const tuttiUniqueId &raw) {
  const auto bytes = std::as_bytes(std::span(raw.internal));
  Reader r(bytes);
  const auto bad = [](std::string_view why) {
    return fail(Code::invalid_argument, "this is no unique id: {}", why)
        .phase("bootstrap")
        .hint("pass all 128 bytes that tuttiGetUniqueId() gave to one rank, unchanged, to every rank");
  };
  if (r.u32() != kIdMagic) return bad("it does not begin as one of this version does");
  if (Reader(bytes.last(4)).u32() != checksum(bytes.first(TUTTI_UNIQUE_ID_BYTES - 4))) return bad("its checksum is wrong");
  UniqueId id;
  id.from_address = r.u8() & 1;
  id.generation = r.u32();
  id.base = r.u64();
  id.process = r.u64();
  id.host = r.u32();
  copy(r.raw(32), &id.secret);
  const size_t n = r.u8();
  if (n > kMaxEndpoints) return bad("it lists too many addresses");
  id.endpoints.resize(n);
  for (Endpoint &e : id.endpoints)
    if (!get(r, &e)) return bad("an address in it is malformed");
  return id;
}

Bytes encode(const Hello &h) {
  Writer w;
  w.u32(kHelloMagic);
  w.u16(h.wire);
  w.u16(h.security);
  w.u32(h.library);
  w.u64(h.comm);
  w.i32(h.from);
  w.i32(h.to);
  w.raw(h.nonce);
  return w.take();
}

std::optional<Hello> decode_hello(std::span<const std::byte> data) {
  Reader r(data);
  if (r.u32() != kHelloMagic) return {};
  Hello h;
  h.wire = r.u16();
  h.security = r.u16();
  h.library = r.u32();
  h.comm = r.u64();
  h.from = r.i32();
  h.to = r.i32();
  copy(r.raw(32), &h.nonce);
  if (!r.done() || h.from < 0 || h.to < kAskRank) return {};
  return h;
}

std::string_view text(Refusal r) {
  switch (r) {
  case Refusal::none:
    return "accepted";
  case Refusal::unknown:
    return "the process there knows nothing of this communicator or rank";
  case Refusal::wire:
    return "the process there speaks another version of the protocol";
  case Refusal::busy:
    return "the process there has too many unfinished connections";
  }
  return "refused";
}

Bytes encode(const Challenge &c) {
  Writer w;
  w.u32(kChallengeMagic);
  w.u8(static_cast<uint8_t>(c.refusal));
  w.u16(c.wire);
  w.u16(c.security);
  w.raw(c.nonce);
  w.raw(c.mac);
  return w.take();
}

std::optional<Challenge> decode_challenge(std::span<const std::byte> data) {
  Reader r(data);
  if (r.u32() != kChallengeMagic) return {};
  Challenge c;
  const uint8_t refusal = r.u8();
  c.refusal = static_cast<Refusal>(refusal);
  c.wire = r.u16();
  c.security = r.u16();
  copy(r.raw(32), &c.nonce);
  copy(r.raw(32), &c.mac);
  if (!r.done() || refusal > static_cast<uint8_t>(Refusal::busy)) return {};
  return c;
}

Bytes encode_proof(const Mac &mac) {
  Writer w;
  w.u32(kProofMagic);
  w.raw(mac);
  return w.take();
}

std::optional<Mac> decode_proof(std::span<const std::byte> data) {
  Reader r(data);
  if (r.u32() != kProofMagic) return {};
  Mac mac{};
  copy(r.raw(32), &mac);
  if (!r.done()) return {};
  return mac;
}

void encode(const FrameHeader &h, std::byte *out) {
  Writer w;
  w.u32(h.length);
  w.u8(static_cast<uint8_t>(h.type));
  w.u8(h.fd ? 1 : 0);
  w.u16(0);
  w.u64(h.tag);
  const Bytes b = w.take();
  std::memcpy(out, b.data(), kFrameHeader);
}

std::optional<FrameHeader> decode_header(std::span<const std::byte, kFrameHeader> data) {
  Reader r(data);
  FrameHeader h;
  h.length = r.u32();
  const uint8_t type = r.u8(), flags = r.u8();
  h.type = static_cast<FrameType>(type);
  h.fd = flags & 1;
  const uint16_t zero = r.u16();
  h.tag = r.u64();
  if (h.length > kFrameLimit || type < 1 || type > static_cast<uint8_t>(FrameType::ack) || flags > 1 || zero != 0) return {};
  return h;
}

Bytes encode(const CheckIn &c) {
  Writer w;
  w.u32(c.generation);
  w.i32(c.nranks);
  w.i32(c.rank);
  w.u32(c.library);
  w.u64(c.left_ns);
  w.u64(c.span_ns);
  w.i32(c.nroots);
  w.i32(c.root);
  w.u64(c.ids);
  w.text(c.security, kMostSecurity);
  w.u16(static_cast<uint16_t>(c.first_root.size()));
  w.raw(c.first_root);
  put(w, c.contact);
  return w.take();
}

std::optional<CheckIn> decode_check_in(std::span<const std::byte> data) {
  Reader r(data);
  CheckIn c;
  c.generation = r.u32();
  c.nranks = r.i32();
  c.rank = r.i32();
  c.library = r.u32();
  c.left_ns = r.u64();
  c.span_ns = r.u64();
  c.nroots = r.i32();
  c.root = r.i32();
  c.ids = r.u64();
  c.security = r.text();
  const auto box = r.raw(r.u16());
  c.first_root.assign(box.begin(), box.end());
  if (!get(r, &c.contact) || !r.done()) return {};
  if (c.nroots < 1 || c.root < 0 || c.root >= c.nroots || (c.nroots > 1 && c.nroots > c.nranks)) return {};
  if (c.rank >= 0 && c.rank < c.nranks && c.root != root_of_rank(c.nranks, c.nroots, c.rank)) return {};
  return c;
}

Bytes encode(const BranchIn &b) {
  Writer w;
  put(w, b.contact);
  w.raw(encode(b.first));
  return w.take();
}

std::optional<BranchIn> decode_branch(std::span<const std::byte> data) {
  Reader r(data);
  BranchIn b;
  if (!get(r, &b.contact)) return {};
  auto first = decode_check_in(r.rest());
  if (!first) return {};
  b.first = std::move(*first);
  return b;
}

RankRange ranks_of_root(int nranks, int nroots, int root) {
  const int each = nranks / nroots, more = nranks % nroots;
  const int low = root * each + std::min(root, more);
  return {low, low + each + (root < more ? 1 : 0)};
}

int root_of_rank(int nranks, int nroots, int rank) {
  const int each = nranks / nroots, more = nranks % nroots, wide = more * (each + 1); // ranks of the roots that take one more
  return rank < wide ? rank / (each + 1) : more + (rank - wide) / each;
}

Bytes encode(const Error &e) {
  Writer w;
  w.i32(static_cast<int32_t>(e.code));
  w.i32(e.peer);
  w.i32(e.sys_errno);
  w.text(e.phase);
  w.text(e.operation);
  w.text(e.endpoint);
  w.text(e.hint, 4096);
  w.text(e.message, 4096);
  return w.take();
}

std::optional<Error> decode_error(std::span<const std::byte> data) {
  Reader r(data);
  Error e;
  const int32_t code = r.i32();
  e.code = code > 0 && code <= static_cast<int32_t>(Code::timeout) ? static_cast<Code>(code) : Code::remote;
  e.peer = r.i32();
  e.sys_errno = r.i32();
  e.phase = r.text();
  e.operation = r.text();
  e.endpoint = r.text();
  e.hint = r.text();
  e.message = r.text();
  if (!r.done()) return {};
  return e;
}

std::string list_ranks(std::span<const int> ranks, size_t limit) {
  std::string out;
  size_t groups = 0;
  for (size_t i = 0; i < ranks.size();) {
    size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) j++;
    if (groups++ == limit) return out + fmt::format(" and {} more", ranks.size() - i);
    if (!out.empty()) out += ", ";
    out += j == i       ? fmt::format("{}", ranks[i])
           : j == i + 1 ? fmt::format("{}, {}", ranks[i], ranks[j])
                        : fmt::format("{}-{}", ranks[i], ranks[j]);
    i = j + 1;
  }
  return out;
}

std::string seconds(Nanos span) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(span).count();
  return ms % 1000 == 0 ? fmt::format("{} s", ms / 1000) : fmt::format("{:.3g} s", static_cast<double>(ms) / 1000);
}

uint32_t library_version() {
  return TUTTI_MAJOR * 10000 + TUTTI_MINOR * 100 + TUTTI_PATCH;
}
std::string version_text(uint32_t v) {
  return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

} // namespace tutti::boot
