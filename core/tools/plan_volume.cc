#include "tools/plan_volume.h"
#include "tools/cli.h"
#include "tools/help.h"
#include "tools/perf.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tutti::tools {
namespace {

// The inputs as the formulas name them.
struct Letters {
  double n, S, P, e, B, s, h, L, t, p, m, k;
};

struct Letter {
  char name;
  const char *meaning;
  double Letters::*value;
};
constexpr Letter kLetters[] = {{'n', "ranks", &Letters::n},
                               {'S', "bytes of the larger buffer", &Letters::S},
                               {'P', "parameters of the model", &Letters::P},
                               {'e', "bytes of an element", &Letters::e},
                               {'B', "sequences in the batch of one replica", &Letters::B},
                               {'s', "elements (tokens) of a sequence", &Letters::s},
                               {'h', "width of the hidden layer", &Letters::h},
                               {'L', "layers", &Letters::L},
                               {'t', "ranks that share a layer", &Letters::t},
                               {'p', "stages of the pipeline", &Letters::p},
                               {'m', "micro-batches that the batch is cut into", &Letters::m},
                               {'k', "ports of a switch", &Letters::k}};

// Letters in a formula are inputs; "log2", "floor" and "min" are the only words.
struct Formula {
  const char *topic, *what, *formula, *inputs, *unit;
  double (*value)(const Letters &);
  int stages = 0; // the fewest that have what it is about
};

double once(const Letters &x) { // what a rank sends of a buffer that it keeps its own block of
  return (x.n - 1) / x.n;
}
double model(const Letters &x) {
  return x.P * x.e;
}
double activation(const Letters &x) {
  return x.B * x.s * x.h * x.e;
}
double floor_log2(double n) {
  return std::bit_width(static_cast<uint64_t>(n)) - 1;
}

constexpr Formula kFormulas[] = {
    {"ring", "all_reduce, sent per rank", "2 (n - 1) / n * S", "nS", "bytes",
     [](const Letters &x) { return 2 * once(x) * x.S; }},
    {"ring", "all_reduce, all ranks together", "2 (n - 1) S", "nS", "bytes",
     [](const Letters &x) { return 2 * (x.n - 1) * x.S; }},
    {"ring", "all_reduce, messages one after the other", "2 (n - 1)", "n", "", [](const Letters &x) { return 2 * (x.n - 1); }},
    {"ring", "reduce_scatter or all_gather, sent per rank", "(n - 1) / n * S", "nS", "bytes",
     [](const Letters &x) { return once(x) * x.S; }},
    {"ring", "reduce_scatter or all_gather, all ranks together", "(n - 1) S", "nS", "bytes",
     [](const Letters &x) { return (x.n - 1) * x.S; }},
    {"ring", "reduce_scatter or all_gather, messages one after the other", "n - 1", "n", "",
     [](const Letters &x) { return x.n - 1; }},
    {"ring", "broadcast or reduce, sent by the busiest rank", "S", "S", "bytes", [](const Letters &x) { return x.S; }},
    {"ring", "broadcast or reduce, all ranks together", "(n - 1) S", "nS", "bytes",
     [](const Letters &x) { return (x.n - 1) * x.S; }},
    {"tree", "all_reduce, sent by the busiest rank", "min(2, n / 2) S", "nS", "bytes",
     [](const Letters &x) { return std::min(2.0, x.n / 2) * x.S; }},
    {"tree", "all_reduce, all ranks together", "2 (n - 1) S", "nS", "bytes",
     [](const Letters &x) { return 2 * (x.n - 1) * x.S; }},
    {"tree", "all_reduce, messages one after the other", "2 floor(log2 n)", "n", "",
     [](const Letters &x) { return 2 * floor_log2(x.n); }},
    {"tree", "broadcast or reduce, sent by the busiest rank", "S", "S", "bytes", [](const Letters &x) { return x.S; }},
    {"tree", "broadcast or reduce, all ranks together", "(n - 1) S", "nS", "bytes",
     [](const Letters &x) { return (x.n - 1) * x.S; }},
    {"collnet", "all_reduce in the switches, sent per rank", "S", "S", "bytes", [](const Letters &x) { return x.S; }},
    {"collnet", "all_reduce in the switches, received per rank", "S", "S", "bytes", [](const Letters &x) { return x.S; }},
    {"collnet", "of what a ring sends per rank", "n / (2 (n - 1))", "n", "",
     [](const Letters &x) { return x.n / (2 * (x.n - 1)); }},
    {"ddp", "all_reduce of gradients, sent per rank and step", "2 (n - 1) / n * P e", "nPe", "bytes",
     [](const Letters &x) { return 2 * once(x) * model(x); }},
    {"ddp", "all ranks together", "2 (n - 1) P e", "nPe", "bytes", [](const Letters &x) { return 2 * (x.n - 1) * model(x); }},
    {"zero1", "reduce_scatter of gradients, all_gather of parameters, sent per rank and step", "2 (n - 1) / n * P e", "nPe",
     "bytes", [](const Letters &x) { return 2 * once(x) * model(x); }},
    {"zero2", "reduce_scatter of gradients, all_gather of parameters, sent per rank and step", "2 (n - 1) / n * P e", "nPe",
     "bytes", [](const Letters &x) { return 2 * once(x) * model(x); }},
    {"zero3", "all_gather of parameters twice, reduce_scatter of gradients, sent per rank and step", "3 (n - 1) / n * P e",
     "nPe", "bytes", [](const Letters &x) { return 3 * once(x) * model(x); }},
    {"tensor", "one all_reduce of activations, its buffer", "B s h e", "Bshe", "bytes", activation},
    {"tensor", "per layer, two all_reduces forward and two backward, sent per rank", "4 * 2 (t - 1) / t * B s h e", "tBshe",
     "bytes", [](const Letters &x) { return 8 * (x.t - 1) / x.t * activation(x); }},
    {"tensor", "per step, sent per rank", "4 L * 2 (t - 1) / t * B s h e", "LtBshe", "bytes",
     [](const Letters &x) { return 8 * x.L * (x.t - 1) / x.t * activation(x); }},
    {"pipeline", "one message: activations of a micro-batch", "B / m * s h e", "Bmshe", "bytes",
     [](const Letters &x) { return activation(x) / x.m; }},
    {"pipeline", "sent by an inner stage per step, activations on and gradients back", "2 B s h e", "Bshe", "bytes",
     [](const Letters &x) { return 2 * activation(x); }, 3},
    {"pipeline", "all stages together per step", "2 (p - 1) B s h e", "pBshe", "bytes",
     [](const Letters &x) { return 2 * (x.p - 1) * activation(x); }},
    {"fat-tree", "hosts", "k^3 / 4", "k", "", [](const Letters &x) { return x.k * x.k * x.k / 4; }},
    {"fat-tree", "switches", "5 k^2 / 4", "k", "", [](const Letters &x) { return 5 * x.k * x.k / 4; }},
    {"fat-tree", "switches of the core", "k^2 / 4", "k", "", [](const Letters &x) { return x.k * x.k / 4; }},
    {"fat-tree", "switches at the edge, and as many between", "k^2 / 2", "k", "",
     [](const Letters &x) { return x.k * x.k / 2; }},
    {"fat-tree", "cables, those of the hosts too", "3 k^3 / 4", "k", "",
     [](const Letters &x) { return 3 * x.k * x.k * x.k / 4; }},
};

constexpr const char *kBus = "busbw";

std::vector<std::string> topics() {
  std::vector<std::string> out{kBus};
  for (const Formula &f : kFormulas)
    if (out.back() != f.topic) out.emplace_back(f.topic);
  return out;
}

Letters letters_of(const VolumeArgs &a) {
  Letters x{};
  x.n = a.ranks, x.S = static_cast<double>(a.bytes), x.P = a.parameters, x.e = a.element;
  x.B = static_cast<double>(a.batch), x.s = static_cast<double>(a.seq), x.h = static_cast<double>(a.hidden);
  x.L = static_cast<double>(a.layers), x.t = a.tensor, x.p = a.stages, x.m = a.micro_batches ? a.micro_batches : a.stages;
  x.k = a.ports;
  return x;
}

std::vector<std::pair<char, double>> inputs_of(std::string_view names, const Letters &x) {
  std::vector<std::pair<char, double>> out;
  for (const char name : names)
    for (const Letter &l : kLetters)
      if (l.name == name) out.emplace_back(name, x.*l.value);
  return out;
}

// Whole where it is whole, else six digits behind the point.
std::string number(double v) {
  if (v == std::floor(v)) return fmt::format("{:.0f}", v);
  std::string text = fmt::format("{:.6f}", v);
  return text.erase(text.find_last_not_of('0') + 1);
}

std::string as_text(const std::vector<Volume> &volumes) {
  size_t widest = 0;
  for (const Volume &v : volumes) widest = std::max(widest, v.formula.size());
  std::string out, topic, used;
  for (const Volume &v : volumes) {
    if (v.topic != topic) out += fmt::format("{}{}\n", topic.empty() ? "" : "\n", v.topic);
    topic = v.topic;
    std::string inputs;
    for (const auto &[name, value] : v.inputs) {
      inputs += fmt::format("{}{} = {}", inputs.empty() ? "" : ", ", name, number(value));
      if (used.find(name) == std::string::npos) used += name;
    }
    out += fmt::format("  {}\n    {:<{}}  = {}{}{}\n", v.what, v.formula, widest, number(v.value), v.unit.empty() ? "" : " ",
                       v.unit + (inputs.empty() ? "" : "   with " + inputs));
  }
  out += '\n';
  for (const Letter &l : kLetters)
    if (used.find(l.name) != std::string::npos) out += fmt::format("{}: {}\n", l.name, l.meaning);
  return out;
}

std::string as_json(const std::vector<Volume> &volumes) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Volume &v : volumes) {
    nlohmann::ordered_json inputs = nlohmann::ordered_json::object();
    for (const auto &[name, value] : v.inputs) inputs[std::string(1, name)] = value;
    all.push_back({{"topic", v.topic}, {"what", v.what}, {"formula", v.formula}, {"inputs", inputs}, {"value", v.value}});
    if (!v.unit.empty()) all.back()["unit"] = v.unit;
  }
  return all.dump(1) + "\n";
}

} // namespace

void volume_options(CLI::App *app, VolumeArgs *a) {
  const auto some = CLI::Range(uint64_t{1}, uint64_t{1} << 40);
  const auto number = [&](const char *name, uint64_t *to, const char *help) {
    app->add_option(name, *to, help)->check(some)->capture_default_str();
  };
  app->add_option("topic,--topic", a->topic, fmt::format("all, or one of {}", fmt::join(topics(), ", ")))
      ->capture_default_str();
  app->add_option("-n,--ranks", a->ranks, "n: ranks of the collectives, or replicas")
      ->check(CLI::Range(2, 1 << 24))
      ->capture_default_str();
  app->add_option_function<std::string>(
         "-b,--bytes",
         [a](const std::string &text) {
           const auto bytes = parse_size(text);
           if (!bytes.ok()) throw CLI::ValidationError("--bytes", bytes.status().error().message);
           a->bytes = *bytes;
         },
         "S: bytes of the larger buffer (1M)")
      ->type_name("SIZE");
  app->add_option("--parameters", a->parameters, "P: parameters of the model, 175e9 say")
      ->check(CLI::Range(1.0, 1e18))
      ->capture_default_str();
  app->add_option("--element", a->element, "e: bytes of a parameter, gradient or activation")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  number("--batch", &a->batch, "B: sequences that one replica takes per step");
  number("--seq", &a->seq, "s: tokens of a sequence");
  number("--hidden", &a->hidden, "h: width of the hidden layer");
  number("--layers", &a->layers, "L: layers");
  app->add_option("--tensor", a->tensor, "t: ranks that share a layer")->check(CLI::Range(2, 1 << 24))->capture_default_str();
  app->add_option("--stages", a->stages, "p: stages of the pipeline")->check(CLI::Range(2, 1 << 24))->capture_default_str();
  app->add_option("--micro-batches", a->micro_batches, "m: parts of a batch; 0 = as many as stages")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  app->add_option("--ports", a->ports, "k: ports of a switch of the fat tree, an even number")
      ->check(CLI::Range(2, 1 << 16))
      ->capture_default_str();
  app->add_flag("--json", a->json, "for programs");
  app->footer(
      "Formulas for n ranks with one link each: a ring, the double binary tree, a switch that adds up (collnet), and what\n"
      "data, tensor and pipeline parallel training send. Tests hold them to what `tutti plan simulate` and real ranks count.");
}

Result<std::vector<Volume>> volumes(const VolumeArgs &args) {
  const auto known = topics();
  const bool all = args.topic == "all";
  if (!all && std::find(known.begin(), known.end(), args.topic) == known.end())
    return fail(Code::invalid_argument, "no topic \"{}\"; all, or one of {}", args.topic, fmt::join(known, ", "));
  if ((all || args.topic == "fat-tree") && args.ports % 2 != 0)
    return fail(Code::invalid_argument, "--ports {}: half of a switch's ports go up, so their number is even", args.ports);
  if (!(args.parameters >= 1)) return fail(Code::invalid_argument, "--parameters {}: not a number from 1 on", args.parameters);
  const Letters x = letters_of(args);
  std::vector<Volume> out;
  for (const perf::Operation *op : perf::all_operations()) {
    if (!op->has_data || (!all && args.topic != kBus)) continue;
    const perf::BusFactor &f = op->factor;
    out.push_back({kBus, fmt::format("{}, bus bandwidth per algorithm bandwidth", op->name), f.formula,
                   inputs_of(std::string_view(f.formula).find('n') == std::string_view::npos ? "" : "n", x), f.of(args.ranks),
                   ""});
  }
  for (const Formula &f : kFormulas)
    if ((all || args.topic == f.topic) && args.stages >= f.stages)
      out.push_back({f.topic, f.what, f.formula, inputs_of(f.inputs, x), f.value(x), f.unit});
  return out;
}

std::string volume_text(const std::vector<Volume> &volumes, bool json) {
  return json ? as_json(volumes) : as_text(volumes);
}

} // namespace tutti::tools
