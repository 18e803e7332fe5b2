// Draws a simulation as a space-time diagram.
#include "base/types.h"
#include "plan/groups.h"
#include "plan/refs.h"
#include "plan/simulate.h"
#include "plan/svg_page.h"
#include <algorithm>
#include <cmath>
#include <map>

namespace tutti {
namespace {

constexpr double kLeft = 96, kTop = 78, kBox = 22, kLanePitch = 30, kRankGap = 24, kMinWidth = 820, kMaxWidth = 4000;
constexpr double kLabelBox = 30; // wide enough for "+12"
constexpr double kSmallestBox = 4;

// "2.5 µs", "310 ns", "1.2 ms".
std::string time_text(double seconds) {
  if (seconds == 0) return "0";
  if (seconds < 1e-6) return fmt::format("{:.4g} ns", seconds * 1e9);
  return seconds < 1e-3 ? fmt::format("{:.4g} µs", seconds * 1e6) : fmt::format("{:.4g} ms", seconds * 1e3);
}

class Drawing {
public:
  Drawing(Plans plans, const Simulation &s) : plans_(plans), s_(s), p_(*plans[0]) {
    double y = kTop;
    for (const auto &plan : plans) {
      rank_y_.push_back(y);
      y += static_cast<double>(plan->lanes.size()) * kLanePitch + kRankGap;
    }
    bottom_ = y;
    find_chunks();
    find_scale();
    for (const SimHop &h : s.critical) (h.message ? critical_messages_ : critical_runs_)[h.number] = true;
  }

  std::string draw() {
    rows();
    axis();
    for (size_t m = 0; m < s_.messages.size(); m++) arrow(m);
    for (size_t r = 0; r < s_.runs.size(); r++) box(r);
    const double legend_bottom = legend(bottom_ + 52);
    return head(legend_bottom + 16) + out_ + "</svg>\n";
  }

private:
  const tutti_step &step(const SimRun &r) const { return plans_[r.rank]->lanes[r.lane].steps[r.step]; }
  // The chunks that a run moves: (group, place in the collective).
  std::vector<std::pair<uint32_t, uint64_t>> chunks(const SimRun &r) const {
    const Plan &p = *plans_[r.rank];
    const tutti_ref &ref = sizing_ref(step(r));
    std::vector<std::pair<uint32_t, uint64_t>> list;
    for (uint32_t j = 0; j < ref.count; j++) {
      const auto c = static_cast<uint32_t>(ref_first(ref, r.iter)) + j;
      const bool own_place = p.request.coll != TUTTI_COLL_ALL_TO_ALL; // all blocks of an all-to-all have one identity
      list.emplace_back(p.lanes[r.lane].group, own_place ? chunk_identity(p, ref.buf, c) : sizing_chunk(p, ref.buf, c).chunk);
    }
    return list;
  }
  void find_chunks() {
    for (const SimRun &r : s_.runs)
      for (const auto &c : chunks(r)) colour_.emplace(c, 0);
    size_t n = 0;
    for (auto &[c, number] : colour_) number = n++;
  }
  std::string chunk_name(const std::pair<uint32_t, uint64_t> &c) const {
    return p_.groups > 1 ? fmt::format("{}.{}", c.first, c.second) : fmt::format("{}", c.second);
  }
  // Neighbouring numbers get hues far apart.
  std::string fill(const std::pair<uint32_t, uint64_t> &c, int lightness) const {
    const size_t number = colour_.at(c);
    const double hue = colour_.size() <= 12 ? 360.0 * static_cast<double>(number) / static_cast<double>(colour_.size())
                                            : std::fmod(137.508 * static_cast<double>(number), 360.0);
    return fmt::format("hsl({:.0f},65%,{}%)", hue, lightness);
  }

  // Wide enough that a box with its label fits between two beginnings on a lane, where that is possible at all.
  void find_scale() {
    double gap = s_.seconds > 0 ? s_.seconds : 1;
    next_begin_.assign(s_.runs.size(), -1);
    std::map<std::pair<uint32_t, uint32_t>, size_t> previous;
    for (size_t i = 0; i < s_.runs.size(); i++) {
      const SimRun &r = s_.runs[i];
      const auto [it, fresh] = previous.emplace(std::pair(r.rank, r.lane), i);
      if (!fresh) {
        next_begin_[it->second] = r.begin;
        const double d = r.begin - s_.runs[it->second].begin;
        if (d > 0) gap = std::min(gap, d);
        it->second = i;
      }
    }
    const double span = s_.seconds > 0 ? s_.seconds : 1;
    width_ = std::clamp(span / gap * (kLabelBox + 6), kMinWidth, kMaxWidth);
    scale_ = width_ / span;
  }
  double x(double time) const { return kLeft + time * scale_; }
  double lane_y(uint32_t rank, uint32_t lane) const { return rank_y_[rank] + lane * kLanePitch; }
  double box_width(size_t i) const {
    const SimRun &r = s_.runs[i];
    const double room = next_begin_[i] > r.begin ? (next_begin_[i] - r.begin) * scale_ - 2 : kLabelBox;
    return std::max({(r.end - r.begin) * scale_, std::min(kLabelBox, room), kSmallestBox});
  }

  std::string head(double height) const {
    const double width = kLeft + width_ + 60;
    std::string title = fmt::format("{} by {}, {} ranks", coll_name(p_.request.coll), p_.algo, p_.request.nranks);
    if (p_.request.root >= 0) title += fmt::format(", root {}", p_.request.root);
    std::string sub = fmt::format("simulated: {} in all, {} messages, {} chunk{}", time_text(s_.seconds), s_.messages.size(),
                                  colour_.size(), colour_.size() == 1 ? "" : "s");
    if (p_.groups > 1) sub += fmt::format(" in {} groups (named group.chunk)", p_.groups);
    return svg::head(width, height, title, sub);
  }
  void rows() {
    for (uint32_t r = 0; r < plans_.size(); r++) {
      const size_t lanes = plans_[r]->lanes.size();
      const double height = static_cast<double>(lanes) * kLanePitch;
      out_ += svg::rect(kLeft - 8, rank_y_[r] - 4, width_ + 52, height, r % 2 ? "#f4f4f4" : "#ececec");
      out_ += fmt::format("<text x=\"16\" y=\"{:.1f}\" font-size=\"14\" font-weight=\"bold\">{}</text>\n",
                          rank_y_[r] + height / 2, rank_name(plans_, r));
      for (uint32_t l = 0; lanes > 1 && l < lanes; l++)
        out_ += svg::text(kLeft - 12, lane_y(r, l) + 15, "font-size=\"10\" fill=\"#666\" text-anchor=\"end\"",
                          fmt::format("{}", l));
    }
  }
  void axis() {
    const double raw = s_.seconds > 0 ? s_.seconds * 90 / width_ : 1; // a tick every 90 pixels or so
    const double power = std::pow(10, std::floor(std::log10(raw)));
    const double tick = raw <= power ? power : raw <= 2 * power ? 2 * power : raw <= 5 * power ? 5 * power : 10 * power;
    const double y = bottom_ - 6;
    out_ += svg::line(kLeft, y, kLeft + width_, y, "stroke=\"#444\"");
    for (int i = 0; i * tick <= s_.seconds * 1.0001; i++) {
      out_ += svg::line(x(i * tick), kTop - 8, x(i * tick), y + 5, "stroke=\"#ccc\" stroke-dasharray=\"2 4\"");
      out_ += svg::text(x(i * tick), y + 20, "text-anchor=\"middle\" fill=\"#444\"", time_text(i * tick));
    }
  }
  void arrow(size_t at) {
    const SimMessage &m = s_.messages[at];
    const SimRun &from = s_.runs[m.from], &to = s_.runs[m.to];
    const bool down = to.rank > from.rank;
    const double x1 = x(m.leaves), y1 = lane_y(from.rank, from.lane) + (down ? kBox : 0);
    const double x2 = x(m.arrives), y2 = lane_y(to.rank, to.lane) + (down ? 0 : kBox);
    const bool critical = critical_messages_.contains(static_cast<int64_t>(at));
    const std::string colour = fill(chunks(from)[0], 42);
    const double length = std::max(std::hypot(x2 - x1, y2 - y1), 0.1), ux = (x2 - x1) / length, uy = (y2 - y1) / length;
    out_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"{}\"/>\n",
                        x1, y1, x2 - 6 * ux, y2 - 6 * uy, colour, critical ? "3" : "1.2");
    out_ += fmt::format("<polygon points=\"{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}\" fill=\"{}\"/>\n", x2, y2,
                        x2 - 8 * ux - 3.5 * uy, y2 - 8 * uy + 3.5 * ux, x2 - 8 * ux + 3.5 * uy, y2 - 8 * uy - 3.5 * ux, colour);
  }
  void box(size_t at) {
    const SimRun &r = s_.runs[at];
    const tutti_step &s = step(r);
    const auto list = chunks(r);
    const double width = box_width(at), y = lane_y(r.rank, r.lane);
    const bool critical = critical_runs_.contains(static_cast<int64_t>(at));
    std::string label = has(s, TUTTI_STEP_REDUCE) ? "+" : "";
    label += chunk_name(list[0]);
    if (list.size() > 1) label += "…";
    std::string tip = fmt::format("{} lane {} step {} iteration {} slice {}: {}chunk", rank_name(plans_, r.rank), r.lane,
                                  r.step, r.iter, r.slice, has(s, TUTTI_STEP_REDUCE) ? "combines " : "");
    for (const auto &c : list) tip += " " + chunk_name(c);
    tip += fmt::format(", {} to {}", time_text(r.begin), time_text(r.end));
    out_ += fmt::format(
        "<g><title>{}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\" rx=\"3\" fill=\"{}\" "
        "stroke=\"{}\" stroke-width=\"{}\"/>",
        svg::escape(tip), x(r.begin), y, width, kBox, fill(list[0], 74), critical ? "black" : "#555", critical ? "2.5" : "0.8");
    if (has(s, TUTTI_STEP_STORE) && s.dst.buf == TUTTI_BUF_OUT)
      out_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"3\" fill=\"#222\"/>", x(r.begin) + 1,
                          y + kBox - 4, width - 2);
    if (width >= 7.5 * static_cast<double>(std::min<size_t>(label.size(), 4)))
      out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", x(r.begin) + width / 2, y + 14,
                          label);
    out_ += "</g>\n";
  }
  double legend(double y) {
    const double right = kLeft + width_;
    double at = kLeft;
    const auto item = [&](const std::string &picture, const std::string &text, double room) {
      if (at + room > right) at = kLeft, y += 26;
      out_ += fmt::format("<g transform=\"translate({:.1f},{:.1f})\">{}<text x=\"34\" y=\"13\">{}</text></g>\n", at, y, picture,
                          text);
      at += room;
    };
    const std::string plain = "<rect width=\"26\" height=\"18\" rx=\"3\" fill=\"white\" stroke=\"#555\" stroke-width=\"0.8\"/>";
    item(plain, "a step of a lane", 150);
    item(plain + "<text x=\"13\" y=\"13\" text-anchor=\"middle\">+</text>", "combines what it got", 180);
    item(plain + "<rect x=\"1\" y=\"14\" width=\"24\" height=\"3\" fill=\"#222\"/>", "writes the result", 150);
    item("<rect width=\"26\" height=\"18\" rx=\"3\" fill=\"white\" stroke=\"black\" stroke-width=\"2.5\"/>",
         "on the critical path", 170);
    item("<line x1=\"0\" y1=\"9\" x2=\"20\" y2=\"9\" stroke=\"#555\" stroke-width=\"1.2\"/><polygon points=\"26,9 18,5.5 "
         "18,12.5\" "
         "fill=\"#555\"/>",
         "a message", 120);
    at = kLeft, y += 28;
    size_t shown = 0;
    for (const auto &[c, number] : colour_) {
      if (shown++ == 24) {
        item("", fmt::format("and {} more chunks", colour_.size() - 24), 170);
        break;
      }
      item(fmt::format("<rect width=\"26\" height=\"18\" rx=\"3\" fill=\"{}\" stroke=\"#555\" stroke-width=\"0.8\"/>",
                       fill(c, 74)),
           "chunk " + chunk_name(c), 116);
    }
    return y + 22;
  }

  Plans plans_;
  const Simulation &s_;
  const Plan &p_;
  std::vector<double> rank_y_, next_begin_; // next_begin_: of the next run of the lane, by run; -1 = none
  std::map<std::pair<uint32_t, uint64_t>, size_t> colour_;
  std::map<int64_t, bool> critical_runs_, critical_messages_;
  double bottom_ = 0, width_ = kMinWidth, scale_ = 1;
  std::string out_;
};

} // namespace

Result<std::string> draw_svg(Plans plans, const Simulation &simulation) {
  if (plans.empty() || simulation.runs.empty())
    return fail(Code::invalid_argument, "there is nothing to draw: no step moves a byte");
  if (simulation.runs.size() > kMostDrawn)
    return fail(Code::invalid_argument, "{} steps are too many to draw (limit {}): fewer ranks, channels or slices",
                simulation.runs.size(), kMostDrawn);
  Findings findings; // none: they could be simulated
  const WithGroups all(plans, findings);
  return Drawing(all.plans(), simulation).draw();
}

} // namespace tutti
