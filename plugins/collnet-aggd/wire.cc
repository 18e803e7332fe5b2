// tutti/plugins/collnet-aggd/wire.cc
#include "wire.h"
#include "tutti/plugin/base.h"
#include <algorithm>
#include <sodium.h>

namespace tutti::aggd {

// ---- frames --------------------------------------------------------------------------------------------------------------
uint32_t element_bytes(uint8_t dtype) {
  constexpr std::array<uint8_t, TUTTI_DT_COUNT> bytes{1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return dtype < bytes.size() ? bytes[dtype] : 0;
}

uint64_t body_bytes(const Header &h) {
  if (h.kind != Kind::chunk) return h.bytes;
  if (h.flags & flag_empty) return 0;
  if (!(h.flags & flag_wide)) return h.bytes;
  return uint64_t{h.bytes} * 4 / element_bytes(h.dtype);
}

std::string check_header(const Header &h, uint32_t most, uint32_t members) {
  if (h.magic != magic_header) return "bytes that are no frame";
  if (h.kind < Kind::chunk || h.kind > Kind::asks) return "a frame of kind " + std::to_string(static_cast<int>(h.kind));
  if (h.kind != Kind::chunk) {
    if (h.bytes > most_body) return "a frame of " + std::to_string(h.bytes) + " bytes, above " + std::to_string(most_body);
    return "";
  }
  const uint32_t element = element_bytes(h.dtype);
  if (element == 0) return "element type " + std::to_string(h.dtype);
  if (h.op >= TUTTI_RED_COUNT) return "reduction " + std::to_string(h.op);
  if (h.coll != TUTTI_COLL_ALL_REDUCE && h.coll != TUTTI_COLL_REDUCE && h.coll != TUTTI_COLL_BROADCAST &&
      h.coll != TUTTI_COLL_BARRIER)
    return "collective " + std::to_string(h.coll);
  const bool rooted = h.coll == TUTTI_COLL_REDUCE || h.coll == TUTTI_COLL_BROADCAST;
  if (rooted ? h.root < 0 || static_cast<uint32_t>(h.root) >= members : h.root != -1) return "root " + std::to_string(h.root);
  if (h.flags & ~(flag_average | flag_empty | flag_wide)) return "flags " + std::to_string(h.flags);
  if ((h.flags & flag_average) && (h.op != TUTTI_RED_SUM || h.coll == TUTTI_COLL_BROADCAST))
    return "an average of what is no sum";
  if ((h.flags & flag_wide) && (!is_narrow(h.dtype) || h.coll == TUTTI_COLL_BROADCAST))
    return "a wide chunk of a type that has none";
  if (h.bytes > most) return "a chunk of " + std::to_string(h.bytes) + " bytes, above the granted " + std::to_string(most);
  if (h.bytes % element || h.offset % element || h.total % element)
    return "a chunk of " + std::to_string(h.bytes) + " bytes that cuts an element";
  if (h.total > most_post || uint64_t{h.offset} + h.bytes > h.total || (h.bytes == 0 && h.total != 0))
    return "a chunk beyond its post";
  if (h.reserved != 0) return "a reserved field that is not 0";
  return "";
}

Header control_header(Kind kind, size_t body) {
  Header h{};
  h.magic = magic_header;
  h.kind = kind;
  h.bytes = static_cast<uint32_t>(body);
  h.root = -1;
  return h;
}
Header chunk_header(uint8_t coll, uint8_t dtype, uint8_t op, uint8_t flags) {
  Header h = control_header(Kind::chunk, 0);
  h.coll = coll;
  h.dtype = dtype;
  h.op = op;
  h.flags = flags;
  return h;
}

std::string_view field_name(Field field) {
  constexpr std::array<std::string_view, 10> names{"none", "collective", "element type", "reduction", "bytes",
                                                   "root", "tag",        "order",        "members",   "average"};
  const auto i = static_cast<size_t>(field);
  return i < names.size() ? names[i] : "unknown field";
}

Field difference(const Header &a, const Header &b) {
  if (a.coll != b.coll) return Field::coll;
  if (a.dtype != b.dtype) return Field::dtype;
  if (a.op != b.op) return Field::op;
  if (a.total != b.total) return Field::bytes;
  if (a.root != b.root) return Field::root;
  if ((a.flags ^ b.flags) & flag_average) return Field::average;
  if (a.tag != b.tag) return Field::tag;
  if (a.seq != b.seq || a.offset != b.offset || a.bytes != b.bytes) return Field::order;
  return Field::none;
}

std::string field_value(Field field, const Header &h) {
  constexpr std::array<const char *, TUTTI_DT_COUNT> types{"int8", "uint8", "int32",  "uint32",   "int64",  "uint64",
                                                           "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"};
  constexpr std::array<const char *, TUTTI_RED_COUNT> ops{"sum", "prod", "max", "min"};
  constexpr std::array<const char *, TUTTI_COLL_COUNT> colls{"all_reduce",     "reduce",   "broadcast", "all_gather",
                                                             "reduce_scatter", "alltoall", "gather",    "scatter",
                                                             "barrier",        "sendrecv"};
  const auto named = [](const auto &names, size_t i) { return i < names.size() ? names[i] : "unknown"; };
  switch (field) {
  case Field::coll:
    return named(colls, h.coll);
  case Field::dtype:
    return named(types, h.dtype);
  case Field::op:
    return named(ops, h.op);
  case Field::bytes:
    return std::to_string(h.total);
  case Field::root:
    return std::to_string(h.root);
  case Field::tag:
    return std::to_string(h.tag);
  case Field::average:
    return h.flags & flag_average ? "average" : "no average";
  default:
    return std::to_string(h.bytes) + " bytes from byte " + std::to_string(h.offset) + " of post " + std::to_string(h.seq);
  }
}

// ---- bodies --------------------------------------------------------------------------------------------------------------
uint32_t Members::count() const {
  uint32_t n = 0;
  for (const uint8_t b : bits_) n += static_cast<uint32_t>(std::popcount(b));
  return n;
}
int Members::first() const {
  for (uint32_t m = 0; m < n_; m++)
    if (has(m)) return static_cast<int>(m);
  return -1;
}
bool Members::meets(const Members &o) const {
  for (size_t i = 0; i < bits_.size() && i < o.bits_.size(); i++)
    if (bits_[i] & o.bits_[i]) return true;
  return false;
}
bool Members::holds(const Members &o) const {
  for (size_t i = 0; i < o.bits_.size(); i++)
    if (o.bits_[i] & ~(i < bits_.size() ? bits_[i] : 0)) return false;
  return true;
}
void Members::add(const Members &o) {
  for (size_t i = 0; i < bits_.size() && i < o.bits_.size(); i++) bits_[i] |= o.bits_[i];
}
std::string Members::list(bool there, uint32_t most) const {
  std::string out;
  uint32_t spans = 0;
  for (uint32_t m = 0; m < n_; m++) {
    if (has(m) != there) continue;
    uint32_t end = m;
    while (end + 1 < n_ && has(end + 1) == there) end++;
    if (++spans > most) return out + ", ...";
    if (!out.empty()) out += ", ";
    out += std::to_string(m);
    if (end > m) out += (end > m + 1 ? "-" : ", ") + std::to_string(end);
    m = end;
  }
  return out;
}
std::optional<Members> Members::from(uint32_t n, std::span<const uint8_t> bytes) {
  Members out(n);
  if (bytes.size() != out.bits_.size()) return {};
  std::copy(bytes.begin(), bytes.end(), out.bits_.begin());
  if (n % 8 && (out.bits_.back() >> (n % 8)) != 0) return {};
  return out;
}

std::string_view reason_name(Reason reason) {
  constexpr std::array<std::string_view, 10> names{"none",    "unsupported", "no resource", "unreachable",     "authentication",
                                                   "version", "mismatch",    "member lost", "aggregator lost", "timeout"};
  const auto i = static_cast<size_t>(reason);
  return i < names.size() ? names[i] : "unknown";
}

namespace {

class Out {
public:
  template <class T> Out &put(T value) {
    body_.append(reinterpret_cast<const char *>(&value), sizeof value);
    return *this;
  }
  Out &bytes(std::span<const uint8_t> b) {
    body_.append(reinterpret_cast<const char *>(b.data()), b.size());
    return *this;
  }
  std::string frame(Kind kind) {
    const Header h = control_header(kind, body_.size());
    std::string out(reinterpret_cast<const char *>(&h), sizeof h);
    out += body_;
    out.resize(sizeof h + padded(body_.size()), '\0');
    return out;
  }

private:
  std::string body_;
};

// Runs dry rather than over: ok() tells at the end.
class In {
public:
  explicit In(std::span<const uint8_t> body) : left_(body) {}
  template <class T> T get() {
    T value{};
    if (left_.size() < sizeof value) return ok_ = false, left_ = {}, value;
    std::memcpy(&value, left_.data(), sizeof value);
    left_ = left_.subspan(sizeof value);
    return value;
  }
  std::span<const uint8_t> rest() {
    const auto out = left_;
    left_ = {};
    return out;
  }
  bool done() const { return ok_ && left_.empty(); }

private:
  std::span<const uint8_t> left_;
  bool ok_ = true;
};

void put(Out &out, const Cover &c) {
  out.put(c.shape).put(c.mbps).put(c.depth).put(c.daemons).put(c.window).put(c.chunk).put(c.outstanding).put(c.chunk_min);
}
Cover get_cover(In &in) {
  Cover c;
  c.shape = in.get<uint64_t>();
  c.mbps = in.get<uint64_t>();
  c.depth = in.get<uint32_t>();
  c.daemons = in.get<uint32_t>();
  c.window = in.get<uint32_t>();
  c.chunk = in.get<uint32_t>();
  c.outstanding = in.get<uint32_t>();
  c.chunk_min = in.get<uint32_t>();
  return c;
}
bool fits(const Cover &c) {
  return c.chunk >= 64 && c.chunk <= most_chunk && c.chunk % 64 == 0 && c.outstanding >= 1 && c.depth >= 1 && c.depth <= 64 &&
         c.daemons >= 1 && c.window >= least_window;
}

// Bytes of the UTF-8 character that the text begins with; 0: it begins with none.
size_t character(std::span<const uint8_t> text) {
  const uint8_t c = text[0];
  const size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
  if (n > text.size()) return 0;
  for (size_t i = 1; i < n; i++)
    if ((text[i] & 0xc0) != 0x80) return 0;
  const bool out_of_range = (c == 0xe0 && text[1] < 0xa0) || (c == 0xed && text[1] > 0x9f) || (c == 0xf0 && text[1] < 0x90) ||
                            (c == 0xf4 && text[1] > 0x8f);
  return n > 1 && out_of_range ? 0 : n;
}

// One line of UTF-8, whatever came.
std::string line_of(std::span<const uint8_t> text) {
  std::string out;
  while (!text.empty()) {
    const size_t n = character(text);
    const bool control = n == 1 && (text[0] < 0x20 || text[0] == 0x7f);
    if (n == 0 || control)
      out += control ? ' ' : '?';
    else
      out.append(reinterpret_cast<const char *>(text.data()), n);
    text = text.subspan(std::max<size_t>(n, 1));
  }
  return out;
}

} // namespace

std::string frame(const Join &j) {
  Out out;
  out.put(j.job)
      .put(j.token)
      .put(j.members)
      .put(j.member)
      .put(j.local)
      .put(j.window)
      .put(j.outstanding)
      .put(j.chunk)
      .put(j.chunk_min);
  return out.put(j.progress_ms).put(j.deadline_ms).frame(Kind::join);
}
std::optional<Join> read_join(std::span<const uint8_t> body) {
  In in(body);
  Join j;
  j.job = in.get<uint64_t>();
  j.token = in.get<Token>();
  j.members = in.get<uint32_t>();
  j.member = in.get<int32_t>();
  j.local = in.get<uint32_t>();
  j.window = in.get<uint32_t>();
  j.outstanding = in.get<uint32_t>();
  j.chunk = in.get<uint32_t>();
  j.chunk_min = in.get<uint32_t>();
  j.progress_ms = in.get<uint32_t>();
  j.deadline_ms = in.get<uint32_t>();
  const bool fits = in.done() && j.members >= 1 && j.members <= most_members && j.member >= -1 &&
                    j.member < static_cast<int32_t>(j.members) && j.local <= j.members && j.outstanding >= 1 &&
                    j.progress_ms >= 1;
  if (!fits) return {};
  return j;
}

std::string frame(const CoverOf &c) {
  Out out;
  put(out, c.cover);
  return out.bytes(c.members.bytes()).frame(Kind::cover);
}
std::optional<CoverOf> read_cover(std::span<const uint8_t> body, uint32_t members) {
  In in(body);
  const Cover cover = get_cover(in);
  auto set = Members::from(members, in.rest());
  if (!in.done() || !set || !fits(cover)) return {};
  return CoverOf{cover, std::move(*set)};
}

std::string frame(const Grant &g) {
  return Out().put(g.epoch).put(g.window).put(g.outstanding).put(g.chunk).put(g.progress_ms).frame(Kind::grant);
}
std::optional<Grant> read_grant(std::span<const uint8_t> body) {
  In in(body);
  Grant g;
  g.epoch = in.get<uint64_t>();
  g.window = in.get<uint32_t>();
  g.outstanding = in.get<uint32_t>();
  g.chunk = in.get<uint32_t>();
  g.progress_ms = in.get<uint32_t>();
  const bool sound = g.window >= least_window && g.window <= most_window && g.chunk >= 64 && g.chunk <= g.window &&
                     g.outstanding >= 1 && g.progress_ms >= 1 && g.progress_ms <= most_progress_ms;
  if (!in.done() || !sound) return {};
  return g;
}

std::string frame(const Start &s) {
  Out out;
  put(out, s.all);
  return out.frame(Kind::start);
}
std::optional<Start> read_start(std::span<const uint8_t> body) {
  In in(body);
  Start s;
  s.all = get_cover(in);
  if (!in.done() || !fits(s.all)) return {};
  return s;
}

std::string frame(const Fault &f) {
  const std::string_view text = std::string_view(f.text).substr(0, 1000);
  Out out;
  out.put(f.reason).put(f.field).put(f.member).put(f.limit).put(f.in_use).put(f.hearsay);
  return out.bytes({reinterpret_cast<const uint8_t *>(text.data()), text.size()}).frame(Kind::error);
}
std::optional<Fault> read_fault(std::span<const uint8_t> body) {
  In in(body);
  Fault f;
  f.reason = in.get<Reason>();
  f.field = in.get<Field>();
  f.member = in.get<int32_t>();
  f.limit = in.get<uint64_t>();
  f.in_use = in.get<uint64_t>();
  f.hearsay = in.get<uint8_t>() != 0;
  const auto text = in.rest();
  if (!in.done() || f.reason == Reason::none || f.reason > Reason::timeout || f.field > Field::average || text.size() > 1000)
    return {};
  f.text = line_of(text);
  return f;
}

std::string goodbye_frame() {
  return Out().frame(Kind::goodbye);
}

std::string asks_frame() {
  return Out().frame(Kind::asks);
}

std::string waits_frame(const Members &missing) {
  return Out().bytes(missing.bytes()).frame(Kind::waits);
}

uint64_t hash64(std::span<const uint8_t> bytes) {
  std::array<uint8_t, 16> out;
  crypto_generichash(out.data(), out.size(), bytes.data(), bytes.size(), nullptr, 0);
  uint64_t value = 0;
  std::memcpy(&value, out.data(), sizeof value);
  return value;
}

} // namespace tutti::aggd
