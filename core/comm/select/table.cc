#include "comm/select/table.h"
#include "base/types.h"
#include <algorithm>
#include <charconv>
#include <map>

namespace tutti {
namespace {

constexpr char kRefusal = '!';
constexpr size_t kMost = UINT16_MAX; // of choices, of lists: places are 16 bits

Bytes bytes_from(std::string_view text) {
  const auto *p = reinterpret_cast<const std::byte *>(text.data());
  return {p, p + text.size()};
}

// Texts that are said again and again, as numbers.
class Words {
public:
  size_t number(std::string_view text) {
    std::string line(text);
    std::replace(line.begin(), line.end(), '\n', ' '); // ends a word
    const auto [it, fresh] = numbers_.try_emplace(std::move(line), numbers_.size());
    if (fresh) lines_ += it->first + '\n';
    return it->second;
  }
  std::string text() const { return fmt::format("{}\n{}", numbers_.size(), lines_); }

private:
  std::map<std::string, size_t> numbers_;
  std::string lines_;
};

// Reads numbers and lines; the first that is not there, or over its limit, spoils the rest.
class Reader {
public:
  explicit Reader(std::string_view text) : text_(text) {}
  bool good() const { return good_; }
  size_t number(size_t limit) {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n')) text_.remove_prefix(1);
    size_t value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    good_ = good_ && error == std::errc() && value <= limit;
    if (!good_) return 0;
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    return value;
  }
  std::string line() {
    const size_t end = text_.find('\n');
    good_ = good_ && end != std::string_view::npos;
    if (!good_) return "";
    std::string out(text_.substr(0, end));
    text_.remove_prefix(end + 1);
    return out;
  }
  // One of `words`.
  const std::string &word(const std::vector<std::string> &words) {
    static const std::string none;
    const size_t i = number(words.empty() ? 0 : words.size() - 1);
    return good_ && i < words.size() ? words[i] : none;
  }

private:
  std::string_view text_;
  bool good_ = true;
};

std::vector<std::string> read_words(Reader &in, size_t limit) {
  std::vector<std::string> words;
  const size_t n = in.number(limit);
  in.line();
  for (size_t i = 0; i < n && in.good(); i++) words.push_back(in.line());
  return words;
}

Result<Choice> read_choice(Reader &in, const std::vector<std::string> &words, const Registry &registry) {
  Choice c;
  const std::string &algo = in.word(words), &proto = in.word(words);
  for (uint32_t *n : {&c.channels, &c.slot_bytes, &c.depth, &c.flags}) *n = static_cast<uint32_t>(in.number(UINT32_MAX));
  c.refusal = in.word(words);
  if (!in.good() || algo.empty()) return c;
  TUTTI_ASSIGN(a, registry.named<tutti_algo_v1>(TUTTI_ALGO, algo));
  TUTTI_ASSIGN(p, registry.named<tutti_proto_v1>(TUTTI_PROTO, proto));
  c.algo = a;
  c.proto = p;
  return c;
}

WayList read_list(Reader &in, const std::vector<std::string> &words, size_t choices) {
  WayList out;
  for (size_t n = in.number(kMost); n > 0 && in.good(); n--) {
    WayList::Way w{static_cast<uint16_t>(in.number(choices - 1))};
    const size_t excluded = in.number(3);
    w.by_algo = excluded & 1;
    w.by_proto = excluded & 2;
    out.ways.push_back(w);
  }
  for (size_t n = in.number(kMost); n > 0 && in.good(); n--) {
    WayList::Ruled r;
    r.algo = in.word(words);
    r.proto = in.word(words);
    r.reason = in.word(words);
    out.ruled_out.push_back(std::move(r));
  }
  return out;
}

} // namespace

std::string_view row_name(uint32_t row) {
  return row == kRowV ? std::string_view("alltoallv") : coll_name(row);
}

bool same(const Choice &a, const Choice &b) {
  return a.algo.table == b.algo.table && a.proto.table == b.proto.table && a.channels == b.channels &&
         a.slot_bytes == b.slot_bytes && a.depth == b.depth && a.flags == b.flags && a.refusal == b.refusal;
}

uint16_t SelectionTable::add(Choice choice) {
  const auto hit = std::find_if(choices.begin(), choices.end(), [&](const Choice &o) { return same(o, choice); });
  const auto place = static_cast<uint16_t>(hit - choices.begin());
  if (hit == choices.end()) choices.push_back(std::move(choice));
  return place;
}

uint16_t SelectionTable::add(WayList ways) {
  const auto hit = std::find(lists.begin(), lists.end(), ways);
  const auto place = static_cast<uint16_t>(hit - lists.begin());
  if (hit == lists.end()) lists.push_back(std::move(ways));
  return place;
}

Status SelectionTable::fits() const {
  for (const auto &[what, count] : {std::pair("ways", choices.size()), std::pair("lists of ways", lists.size())})
    if (count > kMost)
      return fail(Code::invalid_usage, "the tuner makes {} or more distinct {}, the selection table holds {}", count, what,
                  kMost)
          .hint("a tuner that proposes the same channels, slots and depths for neighbouring sizes makes few");
  return {};
}

// Text: the model's constants and device, the words, then numbers: choices, lists, and the rows of both indices.
Bytes SelectionTable::encode() const {
  Words words;
  std::string out = fmt::format("{}\n", choices.size());
  for (const Choice &c : choices)
    out += fmt::format("{} {} {} {} {} {} {}\n", words.number(c.algo ? c.algo.table->name : ""),
                       words.number(c.proto ? c.proto.table->name : ""), c.channels, c.slot_bytes, c.depth, c.flags,
                       words.number(c.refusal));
  out += fmt::format("{}\n", lists.size());
  for (const WayList &l : lists) {
    out += fmt::format("{}", l.ways.size());
    for (const auto &w : l.ways) out += fmt::format(" {} {}", w.choice, (w.by_algo ? 1 : 0) + (w.by_proto ? 2 : 0));
    out += fmt::format(" {}", l.ruled_out.size());
    for (const auto &r : l.ruled_out)
      out += fmt::format(" {} {} {}", words.number(r.algo), words.number(r.proto), words.number(r.reason));
    out += '\n';
  }
  for (const auto *rows : {&index, &list})
    for (const auto &row : *rows) out += fmt::format("{}\n", fmt::join(row, " "));
  return bytes_from(costs + "\n" + device + "\n" + words.text() + out);
}

Bytes SelectionTable::encode_refusal(std::string_view why) {
  return bytes_from(kRefusal + std::string(why));
}

std::optional<std::string> SelectionTable::refusal_in(std::span<const std::byte> text) {
  if (text.empty() || text[0] != std::byte{kRefusal}) return std::nullopt;
  std::string out(reinterpret_cast<const char *>(text.data()) + 1, text.size() - 1);
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?'); // it becomes a line of messages
  return out;
}

Result<SelectionTable> SelectionTable::decode(std::span<const std::byte> text, const Registry &registry) {
  Reader in({reinterpret_cast<const char *>(text.data()), text.size()});
  SelectionTable t;
  t.costs = in.line();
  t.device = in.line();
  const std::vector<std::string> words = read_words(in, text.size());
  for (size_t n = in.number(kMost); n > 0 && in.good(); n--) {
    TUTTI_ASSIGN(c, read_choice(in, words, registry));
    t.choices.push_back(std::move(c));
  }
  for (size_t n = in.number(kMost); n > 0 && in.good() && !t.choices.empty(); n--)
    t.lists.push_back(read_list(in, words, t.choices.size()));
  const bool any = !t.choices.empty() && !t.lists.empty();
  for (auto &row : t.index)
    for (uint16_t &i : row) i = static_cast<uint16_t>(in.number(any ? t.choices.size() - 1 : 0));
  for (auto &row : t.list)
    for (uint16_t &i : row) i = static_cast<uint16_t>(in.number(any ? t.lists.size() - 1 : 0));
  if (!in.good() || !any) return fail(Code::internal, "the selection table of rank 0 cannot be read");
  return t;
}

} // namespace tutti
