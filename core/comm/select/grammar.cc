#include "comm/select/grammar.h"
#include "base/types.h"
#include <algorithm>
#include <cctype>

namespace tutti {
namespace {

std::string lower(std::string_view s) {
  std::string out(s);
  for (char &c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

std::string joined(std::span<const std::string> names) {
  std::string out;
  for (const auto &n : names) out += (out.empty() ? "" : ", ") + n;
  return out.empty() ? "none" : out;
}

std::string coll_names() {
  std::string out;
  for (tutti_coll c = 0; c < TUTTI_COLL_BARRIER; c++) out += (out.empty() ? "" : ", ") + std::string(coll_name(c));
  return out;
}

// NCCL's algorithms that have another name here, or none.
struct Foreign {
  std::string_view name, ours, what;
};
constexpr Foreign kForeign[] = {
    {"collnetdirect", "collnet_direct", "reduction in the network's switches"},
    {"collnetchain", "collnet_chain", "reduction in the network's switches"},
    {"nvls", "", "reduction in NVLink switches, which host memory has none of; direct and tree are near to it"},
    {"nvlstree", "", "reduction in NVLink switches, which host memory has none of; tree and hier are near to it"},
};
const Foreign *foreign(std::string_view name) {
  const auto *const hit = std::find_if(std::begin(kForeign), std::end(kForeign), [&](const auto &f) { return f.name == name; });
  return hit == std::end(kForeign) ? nullptr : hit;
}

template <class F> Status for_each_part(std::string_view text, char by, F &&fn) {
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(by, at), text.size());
    if (const auto part = trimmed(text.substr(at, end - at)); !part.empty()) TUTTI_TRY(fn(part));
    at = end + 1;
  }
  return {};
}

} // namespace

Result<NameFilter> NameFilter::parse(std::string_view given, std::string_view origin, std::string_view what,
                                     std::span<const std::string> known) {
  NameFilter filter;
  std::string text(given); // messages about it are one line
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  filter.origin_ = origin;
  auto one_part = [&](std::string_view part) -> Status {
    Rule rule;
    bool absent = false; // some name is NCCL's for what is not here
    std::optional<tutti_coll> coll;
    rule.text = part;
    if (const size_t colon = part.find(':'); colon != std::string_view::npos) {
      coll = coll_from(trimmed(part.substr(0, colon)));
      if (!coll)
        return fail(Code::invalid_argument, "{}: \"{}\" names no collective; there are {}", origin, part.substr(0, colon),
                    coll_names());
      part = trimmed(part.substr(colon + 1));
    }
    rule.exclude = !part.empty() && part.front() == '^';
    if (rule.exclude) part.remove_prefix(1);
    TUTTI_TRY(for_each_part(part, ',', [&](std::string_view name) -> Status {
      std::string ours = lower(name);
      const auto loaded = [&] {
        return std::any_of(known.begin(), known.end(), [&](const auto &k) { return lower(k) == ours; });
      };
      const Foreign *const theirs = loaded() ? nullptr : foreign(ours);
      if (theirs && !theirs->ours.empty()) ours = theirs->ours;
      if (loaded()) {
        rule.names.push_back(ours);
        return {};
      }
      absent |= theirs != nullptr;
      if (theirs && rule.exclude) return {}; // it is not there, as was wished
      return fail(Code::invalid_argument, "{}: unknown {} \"{}\"{}; loaded are {}", origin, what, name,
                  theirs ? fmt::format(", which in NCCL is {}", theirs->what) : "", joined(known));
    }));
    if (rule.names.empty() && absent) return {}; // nothing is excluded
    if (rule.names.empty())
      return fail(Code::invalid_argument, "{}: \"{}\" lists no {}; loaded are {}", origin, rule.text, what, joined(known));
    for (tutti_coll c = 0; c < TUTTI_COLL_COUNT; c++) {
      if (coll ? c != *coll : filter.rules_[c].own) continue;
      filter.rules_[c] = rule;
      filter.rules_[c].own = coll.has_value();
    }
    return {};
  };
  TUTTI_TRY(for_each_part(text, ';', one_part));
  return filter;
}

bool NameFilter::allows(tutti_coll coll, std::string_view name) const {
  const Rule &r = rules_[coll];
  const bool listed = std::find(r.names.begin(), r.names.end(), lower(name)) != r.names.end();
  return listed != r.exclude;
}

bool NameFilter::forced(tutti_coll coll) const {
  return !rules_[coll].exclude;
}

std::string NameFilter::describe(tutti_coll coll) const {
  return fmt::format("\"{}\" ({})", rules_[coll].text, origin_);
}

} // namespace tutti
