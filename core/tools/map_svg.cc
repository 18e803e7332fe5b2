// Draws communication maps: a square per pair of ranks, darker for more bytes.
#include "tools/map_svg.h"
#include "plan/svg_page.h"
#include <algorithm>
#include <cmath>

namespace tutti::tools::commmap {
namespace {

constexpr double kLeft = 120, kTop = 96, kBars = 96; // kBars: room for the totals of rows and columns
constexpr double kLegend = 220, kLine = 17;

double cell_size(int n) {
  return n <= 8 ? 52 : n <= 16 ? 44 : n <= 24 ? 34 : n <= 64 ? 14 : n <= 128 ? 8 : n <= 256 ? 4 : 2;
}

// Light for little, dark for much. Nothing at all is white, and a little is not.
std::string shade(double part) {
  return fmt::format("hsl({:.0f},70%,{:.1f}%)", 205 + 20 * part, 93 - 68 * part);
}

std::string host_name(const Comm &c, int rank) {
  const auto at = c.ranks.find(rank);
  return at == c.ranks.end() ? "" : at->second.host;
}

// The first `most` bytes, or fewer: no character is cut in two.
std::string cut(const std::string &text, size_t most) {
  size_t end = std::min(most, text.size());
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) end--;
  return text.substr(0, end);
}

class HeatMap {
public:
  HeatMap(const Comm &c, double top)
      : c_(c), pairs_(c), order_(by_host(c)), sent_(pairs_.sent()), received_(pairs_.received()), top_(top + kTop),
        cell_(cell_size(c.nranks)), side_(cell_ * c.nranks) {
    for (const auto &[pair, counts] : pairs_.cells()) most_ = std::max(most_, static_cast<double>(counts.bytes));
    position_.resize(order_.size());
    for (size_t i = 0; i < order_.size(); i++) position_[static_cast<size_t>(order_[i])] = static_cast<double>(i);
  }
  double width() const { return kLeft + side_ + kBars + kLegend + 24; }
  double bottom() const { return top_ + std::max(side_ + kBars, 15 * kLine); }

  std::string draw() {
    heading();
    out_ += svg::rect(kLeft, top_, side_, side_, "white", "stroke=\"#888\"");
    for (int r = 0; r < c_.nranks; r++) own_place(r);
    for (const auto &[pair, counts] : pairs_.cells()) cell(pair.first, pair.second, counts);
    labels();
    hosts();
    totals();
    legend();
    return out_;
  }

private:
  double x(int rank) const { return kLeft + position_[static_cast<size_t>(rank)] * cell_; }
  double y(int rank) const { return top_ + position_[static_cast<size_t>(rank)] * cell_; }

  void heading() {
    std::string what =
        fmt::format("communicator {}{}: {} ranks", c_.id, c_.name.empty() ? "" : fmt::format(" \"{}\"", c_.name), c_.nranks);
    out_ += svg::text(16, top_ - kTop + 18, "font-size=\"14\" font-weight=\"bold\"", what);
    out_ += svg::text(kLeft, top_ - 44, "fill=\"#444\"", "to rank");
    out_ += svg::text(16, top_ - 8, "fill=\"#444\"", "from rank");
  }
  void own_place(int rank) { out_ += svg::rect(x(rank), y(rank), cell_, cell_, "#ddd"); }
  void cell(int from, int to, const Counts &c) {
    const double part = most_ > 0 ? static_cast<double>(c.bytes) / most_ : 0;
    const double edge = cell_ >= 8 ? 0.5 : 0;
    std::string square = svg::rect(x(to) + edge, y(from) + edge, cell_ - 2 * edge, cell_ - 2 * edge, shade(part));
    square.resize(square.rfind("/>")); // it gets a title
    out_ += fmt::format("{}><title>{} to {}: {} bytes, {} messages</title></rect>\n", square, from, to, c.bytes, c.messages);
    if (cell_ >= 30)
      out_ += svg::text(x(to) + cell_ / 2, y(from) + cell_ / 2 + 4,
                        fmt::format("font-size=\"{}\" text-anchor=\"middle\" fill=\"{}\"", cell_ >= 44 ? 12 : 10,
                                    part > 0.5 ? "white" : "#222"),
                        bytes_text(static_cast<double>(c.bytes)));
  }
  void labels() {
    const int every = cell_ >= 14 ? 1 : cell_ >= 8 ? 4 : cell_ >= 4 ? 8 : 16;
    for (int i = 0; i < c_.nranks; i += every) {
      const int rank = order_[static_cast<size_t>(i)];
      const bool known = c_.ranks.count(rank) != 0;
      const std::string style = fmt::format("font-size=\"{}\"{}", cell_ >= 30 ? 12 : 9, known ? "" : " fill=\"#b00020\"");
      out_ += svg::text(x(rank) + cell_ / 2, top_ - 6, style + " text-anchor=\"middle\"", fmt::format("{}", rank));
      out_ += svg::text(kLeft - 6, y(rank) + cell_ / 2 + 4, style + " text-anchor=\"end\"", fmt::format("{}", rank));
    }
  }
  // A line between hosts, and their names where the ranks of each have room for it.
  void hosts() {
    for (size_t first = 0, end = 0; first < order_.size(); first = end) {
      const std::string host = host_name(c_, order_[first]);
      while (end < order_.size() && host_name(c_, order_[end]) == host) end++;
      const double from = static_cast<double>(first) * cell_, to = static_cast<double>(end) * cell_;
      if (first > 0) {
        out_ += svg::line(kLeft + from, top_, kLeft + from, top_ + side_, "stroke=\"#b36b00\" stroke-width=\"1.5\"");
        out_ += svg::line(kLeft, top_ + from, kLeft + side_, top_ + from, "stroke=\"#b36b00\" stroke-width=\"1.5\"");
      }
      if (to - from < 12) continue;
      const size_t letters = static_cast<size_t>((to - from) / 6);
      const std::string name = host.empty() ? "?" : host;
      out_ += svg::text(kLeft + (from + to) / 2, top_ - 24, "font-size=\"11\" fill=\"#b36b00\" text-anchor=\"middle\"",
                        cut(name, letters));
      out_ += svg::text(16, top_ + (from + to) / 2 + 4, "font-size=\"11\" fill=\"#b36b00\"", cut(name, 14));
    }
  }
  // Bars beside rows and below columns, as long as the largest of both allows.
  void totals() {
    const uint64_t largest = std::max(imbalance(sent_).bytes, imbalance(received_).bytes);
    const double scale = largest ? (kBars - 46) / static_cast<double>(largest) : 0;
    const double edge = cell_ >= 8 ? 1 : 0, thick = cell_ - 2 * edge;
    out_ += svg::text(kLeft + side_ + 6, top_ - 6, "font-size=\"11\" fill=\"#444\"", "sent");
    out_ += svg::text(kLeft - 6, top_ + side_ + 14, "font-size=\"11\" fill=\"#444\" text-anchor=\"end\"", "received");
    for (int r = 0; r < c_.nranks; r++) {
      const auto i = static_cast<size_t>(r);
      const double out = static_cast<double>(sent_[i]), in = static_cast<double>(received_[i]);
      out_ += svg::rect(kLeft + side_ + 6, y(r) + edge, out * scale, thick, "#777");
      out_ += svg::rect(x(r) + edge, top_ + side_ + 6, thick, in * scale, "#777");
      if (cell_ < 14) continue;
      out_ += svg::text(kLeft + side_ + 10 + out * scale, y(r) + cell_ / 2 + 4, "font-size=\"10\"", bytes_text(out));
      if (cell_ >= 30)
        out_ += svg::text(x(r) + cell_ / 2, top_ + side_ + 18 + in * scale, "font-size=\"10\" text-anchor=\"middle\"",
                          bytes_text(in));
    }
  }

  void legend() {
    const double left = kLeft + side_ + kBars + 16;
    double at = top_ + 4;
    const auto say = [&](const std::string &words, const char *style = "font-size=\"12\"") {
      out_ += svg::text(left, at, style, words);
      at += kLine;
    };
    say("bytes of payload", "font-size=\"12\" font-weight=\"bold\"");
    for (int i = 4; i >= 0; i--) {
      out_ += svg::rect(left, at - 12, 20, 15, shade(i / 4.0), "stroke=\"#888\" stroke-width=\"0.5\"");
      out_ += svg::text(left + 28, at, "", i ? bytes_text(most_ * i / 4) : "a few");
      at += kLine;
    }
    out_ += svg::rect(left, at - 12, 20, 15, "white", "stroke=\"#888\" stroke-width=\"0.5\"");
    out_ += svg::text(left + 28, at, "", "nothing");
    at += kLine * 1.5;
    say("largest over mean", "font-size=\"12\" font-weight=\"bold\"");
    const auto ratio = [&](const char *what, const Imbalance &i) {
      say(i.most < 0 ? fmt::format("{}: nothing moved", what)
                     : fmt::format("{}: {:.2f}, {}", what, i.ratio,
                                   i.to < 0 ? fmt::format("rank {}", i.most) : fmt::format("{} to {}", i.most, i.to)));
    };
    ratio("sent", imbalance(sent_));
    ratio("received", imbalance(received_));
    ratio("pairs", imbalance(pairs_));
    if (const auto lost = missing(c_).size()) say(fmt::format("no file of {} rank{}", lost, lost == 1 ? "" : "s"), kRed);
    if (pairs_.unequal()) say(fmt::format("{} pairs: ends differ", pairs_.unequal()), kRed);
    if (pairs_.written_once())
      say(fmt::format("written once for several: {}", bytes_text(static_cast<double>(pairs_.written_once()))));
  }
  static constexpr const char *kRed = "font-size=\"12\" fill=\"#b00020\"";

  const Comm &c_;
  const Pairs pairs_;
  const std::vector<int> order_;
  const std::vector<uint64_t> sent_, received_;
  std::vector<double> position_; // of a rank in the drawing
  const double top_, cell_, side_;
  double most_ = 0;
  std::string out_;
};

uint64_t total(const Comm &c) {
  uint64_t sum = 0;
  for (const uint64_t b : Pairs(c).sent()) sum += b;
  return sum;
}

} // namespace

Result<std::string> draw(const Map &map, std::string_view title) {
  std::vector<std::pair<uint64_t, const Comm *>> comms;
  for (const Comm &c : map)
    if (const uint64_t bytes = total(c)) comms.emplace_back(bytes, &c);
  if (comms.empty()) return fail(Code::invalid_argument, "there is nothing to draw: no rank has sent anything to another");
  std::stable_sort(comms.begin(), comms.end(), [](const auto &a, const auto &b) { return a.first > b.first; });
  double width = 0, bottom = 62;
  std::string body;
  uint64_t bytes = 0;
  for (const auto &[sum, comm] : comms) {
    if (comm->nranks > kMostDrawn)
      return fail(Code::invalid_argument, "communicator {} has {} ranks, too many to draw (limit {}); JSON has no limit",
                  comm->id, comm->nranks, kMostDrawn);
    HeatMap one(*comm, bottom);
    body += one.draw();
    width = std::max(width, one.width());
    bottom = one.bottom() + 16;
    bytes += sum;
  }
  return svg::head(width, bottom, title,
                   fmt::format("{}B from rank to rank in all; K, M, G are powers of 1024; point at a square to read it",
                               bytes_text(static_cast<double>(bytes)))) +
         body + "</svg>\n";
}

} // namespace tutti::tools::commmap
