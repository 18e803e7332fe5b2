// The hierarchical algorithm: inside each host, then across hosts, made by the core (tutti.host.plan/1) out of other
// algorithms' plans. h hosts, k ranks on each.
//
// Hosts with equally many ranks, by rails (a rail: the ranks with the same place on every host):
//   all_reduce      reduce_scatter inside, all_reduce of the own k-th part along the rail, all_gather inside. What leaves a
//                   host is what the outer algorithm sends for one copy of the data, spread over all its ranks.
// Else, and for the other collectives, by leaders (one rank per host: the root's rail where there is a root):
//   all_reduce, barrier          reduce to the leader, all_reduce among leaders, broadcast inside
//   broadcast, reduce            among leaders, then inside; the other way round
//   all_gather, gather           gather to the leader, the same collective among leaders; all_gather: broadcast inside
//   reduce_scatter, scatter      all_gather and gather backwards. These four need hosts with equally many ranks that are
//                                neighbours in rank order, for blocks stay in rows.
//
// Rounds: those of the stages one after the other; slices follow one another through them. Across hosts every byte goes once
// per host instead of once per rank. The price is SCRATCH between the stages, and in the last four messages of k or n blocks,
// which need slots that long: they are for many hosts and blocks up to some KiB.
//
// All ranks on one host: the inner algorithm alone.
//
// Options `inner` and `outer` list algorithms: the first ones that serve a collective's stages are taken, the same on all
// ranks. A name that no loaded algorithm has is an error, even where another one serves.
//
// Rounding: each stage's own rule (docs/determinism.md). All ranks get the same bits of an all_reduce.
#include <tutti/plugin/cxx/plugin.hpp>

namespace {
using namespace tutti::plugin;

struct Stage {
  bool inside;
  tutti_coll coll;
  std::vector<int32_t> members;
  int32_t root = -1; // position in members
};

// Ranks by host, as one rank sees them.
class Hosts {
public:
  explicit Hosts(const tutti_algo_request &req) : hosts_(req.node_count), me_(req.rank), root_(req.root) {
    for (int32_t r = 0; r < req.nranks; r++) hosts_[static_cast<size_t>(req.node_of_rank[r])].push_back(r);
    hosts_.erase(std::remove_if(hosts_.begin(), hosts_.end(), [](const auto &host) { return host.empty(); }), hosts_.end());
    largest_ =
        *std::max_element(hosts_.begin(), hosts_.end(), [](const auto &a, const auto &b) { return a.size() < b.size(); });
  }
  bool one() const { return hosts_.size() == 1; }
  bool equal() const {
    return std::all_of(hosts_.begin(), hosts_.end(), [&](const auto &host) { return host.size() == largest_.size(); });
  }
  bool in_rows() const { // the ranks of a host are neighbours, hosts in rank order
    int32_t next = 0;
    for (const auto &host : hosts_)
      for (const int32_t r : host)
        if (r != next++) return false;
    return true;
  }

  // A rank alone on its host names another host's ranks: it passes that stage by, and knows what it cuts.
  const std::vector<int32_t> &inside() const { return host_of(me_).size() > 1 ? host_of(me_) : largest_; }
  std::vector<int32_t> rail() const { return at_place(place_of(me_)); }
  std::vector<int32_t> leaders() const { return at_place(root_ < 0 ? 0 : place_of(root_)); }
  int32_t root_among_leaders() const { // that is the number of its host
    int32_t at = 0;
    while (root_ >= 0 && !has(hosts_[static_cast<size_t>(at)], root_)) at++;
    return at;
  }
  int32_t leader_inside() const {
    const auto all = leaders();
    const auto &host = inside();
    return static_cast<int32_t>(std::find_if(host.begin(), host.end(), [&](int32_t r) { return has(all, r); }) - host.begin());
  }

private:
  static bool has(const std::vector<int32_t> &ranks, int32_t rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  }
  const std::vector<int32_t> &host_of(int32_t rank) const {
    return *std::find_if(hosts_.begin(), hosts_.end(), [rank](const auto &host) { return has(host, rank); });
  }
  size_t place_of(int32_t rank) const {
    const auto &host = host_of(rank);
    return static_cast<size_t>(std::find(host.begin(), host.end(), rank) - host.begin());
  }
  std::vector<int32_t> at_place(size_t place) const {
    std::vector<int32_t> ranks;
    for (const auto &host : hosts_) ranks.push_back(host[std::min(place, host.size() - 1)]);
    return ranks;
  }

  std::vector<std::vector<int32_t>> hosts_;
  std::vector<int32_t> largest_;
  const int32_t me_, root_;
};

class Hier {
public:
  static constexpr Info info{"algo-hier", "0.1.0", "tutti", "Apache-2.0",
                             "inside a host, then across: other algorithms composed"};
  static constexpr const char *algo_name = "hier";
  static constexpr tutti_option options[] = {{"inner", "direct", "algorithms inside a host: the first that serves a stage",
                                              nullptr, nullptr, 0, 0, TUTTI_OPT_STRING_LIST, 0},
                                             {"outer", "tree,rhd,direct",
                                              "algorithms across hosts: the first that serves a stage", nullptr, nullptr, 0, 0,
                                              TUTTI_OPT_STRING_LIST, 0},
                                             {}};

  explicit Hier(const Host &host)
      : host_(host), compose_(host.need<tutti_host_plan_v1>(TUTTI_HOST_PLAN)), inner_(host.get_list("inner")),
        outer_(host.get_list("outer")) {
    if (inner_.empty()) fail(TUTTI_ERR_INVALID, host.origin("inner"), ": option inner lists no algorithm");
    if (outer_.empty()) fail(TUTTI_ERR_INVALID, host.origin("outer"), ": option outer lists no algorithm");
    refuse_itself("inner", inner_);
    refuse_itself("outer", outer_);
  }

  void supports(const tutti_algo_request &req) const {
    const tutti_plan_builder nowhere{sizeof(tutti_plan_builder), 0, nullptr, begin, lane, step};
    check_names(req, "inner", inner_, nowhere);
    check_names(req, "outer", outer_, nowhere);
    plan(req, nowhere);
  }

  void plan(const tutti_algo_request &req, const tutti_plan_builder &out) const {
    tutti_algo_request q = req;
    if (q.coll == TUTTI_COLL_BARRIER) q.channels = 1; // eight bytes have no shares
    const std::vector<Stage> stages = stages_of(q);
    // UNSUPPORTED comes before the builder got anything, so that the next pair finds it as it was; another error does not.
    for (const std::string &inner : inner_)
      for (const std::string &outer : outer_) {
        const tutti_status status = compose(q, stages, inner, outer, out);
        if (status == TUTTI_OK) return;
        if (status != TUTTI_ERR_UNSUPPORTED) throw Error(status, ""); // compose() has attached the reason
      }
    throw Error(compose(q, stages, inner_[0], outer_[0], out), ""); // the reason to tell is that of the first pair
  }

  void estimate(const tutti_algo_request &req, double &rounds, double &bytes_per_byte) const {
    const std::vector<Stage> stages = stages_of(req);
    rounds = bytes_per_byte = 0;
    double part = 1; // of the data that a stage works on
    for (const Stage &s : stages) {
      const auto n = static_cast<double>(s.members.size());
      if (n < 2) continue;
      const bool log_rounds = !s.inside;
      for (int reached = 1; log_rounds && reached < static_cast<int>(n); reached *= 2) rounds++;
      if (!log_rounds) rounds++;
      const bool whole = s.coll == TUTTI_COLL_ALL_REDUCE;
      bytes_per_byte += part * (whole ? 2 : 1) * (n - 1) / n;
      if (s.coll == TUTTI_COLL_REDUCE_SCATTER) part /= n;
    }
  }

private:
  // Registry names are those of the algorithm or of its plugin, in upper or lower case.
  void refuse_itself(const char *option, const std::vector<std::string> &names) const {
    for (std::string name : names) {
      std::transform(name.begin(), name.end(), name.begin(),
                     [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
      if (name == algo_name || name == info.name)
        fail(TUTTI_ERR_INVALID, host_.origin(option), ": option ", option, " lists ", name,
             ", which would compose itself for ever");
    }
  }
  // A stage of one rank does nothing, but its algorithm is looked up.
  void check_names(const tutti_algo_request &req, const char *option, const std::vector<std::string> &names,
                   const tutti_plan_builder &nowhere) const {
    for (const std::string &name : names) {
      const tutti_stage alone{name.c_str(), &req.rank, 1, -1, TUTTI_COLL_ALL_REDUCE, 0};
      if (compose_.compose(host_.c(), &req, &alone, 1, sizeof alone, &nowhere) == TUTTI_ERR_INVALID)
        fail(TUTTI_ERR_INVALID, host_.origin(option), ": option ", option, " lists \"", name,
             "\", which no loaded algorithm is called; `tutti info plugins` lists them");
    }
  }

  static tutti_status begin(void *, const tutti_plan_shape *) noexcept { return TUTTI_OK; }
  static tutti_status lane(void *, uint32_t, const tutti_link *, uint32_t, const tutti_link *, uint32_t) noexcept {
    return TUTTI_OK;
  }
  static tutti_status step(void *, const tutti_step *, const tutti_dep *) noexcept { return TUTTI_OK; }

  static std::vector<Stage> stages_of(const tutti_algo_request &req) {
    const Hosts hosts(req);
    if (req.coll > TUTTI_COLL_BARRIER || req.coll == TUTTI_COLL_ALL_TO_ALL)
      unsupported("hier serves every collective but alltoall, whose blocks have no part of the way in common");
    if (hosts.one()) return {alone(req, hosts)};
    const auto inside = [&](tutti_coll coll) {
      const bool rooted = coll != TUTTI_COLL_REDUCE_SCATTER && coll != TUTTI_COLL_ALL_GATHER;
      return Stage{true, coll, hosts.inside(), rooted ? hosts.leader_inside() : -1};
    };
    const auto across = [&](tutti_coll coll) {
      return Stage{false, coll, hosts.leaders(), req.root < 0 ? -1 : hosts.root_among_leaders()};
    };
    switch (req.coll) {
    case TUTTI_COLL_ALL_REDUCE:
      if (hosts.equal())
        return {inside(TUTTI_COLL_REDUCE_SCATTER), {false, TUTTI_COLL_ALL_REDUCE, hosts.rail()}, inside(TUTTI_COLL_ALL_GATHER)};
      [[fallthrough]];
    case TUTTI_COLL_BARRIER:
      return {inside(TUTTI_COLL_REDUCE), across(TUTTI_COLL_ALL_REDUCE), inside(TUTTI_COLL_BROADCAST)};
    case TUTTI_COLL_BROADCAST:
      return {across(TUTTI_COLL_BROADCAST), inside(TUTTI_COLL_BROADCAST)};
    case TUTTI_COLL_REDUCE:
      return {inside(TUTTI_COLL_REDUCE), across(TUTTI_COLL_REDUCE)};
    default:
      if (!hosts.equal() || !hosts.in_rows())
        unsupported("hier moves blocks in rows only: hosts must have equally many ranks, neighbours in rank order");
      return rows(req.coll, inside, across);
    }
  }

  static Stage alone(const tutti_algo_request &req, const Hosts &hosts) {
    const tutti_coll coll = req.coll == TUTTI_COLL_BARRIER ? tutti_coll{TUTTI_COLL_ALL_REDUCE} : req.coll;
    return {true, coll, hosts.inside(), req.root}; // one host: places are ranks
  }

  template <class Inside, class Across> static std::vector<Stage> rows(tutti_coll coll, Inside inside, Across across) {
    switch (coll) {
    case TUTTI_COLL_ALL_GATHER:
      return {inside(TUTTI_COLL_GATHER), across(coll), inside(TUTTI_COLL_BROADCAST)};
    case TUTTI_COLL_GATHER:
      return {inside(coll), across(coll)};
    case TUTTI_COLL_REDUCE_SCATTER:
      return {inside(TUTTI_COLL_REDUCE), across(coll), inside(TUTTI_COLL_SCATTER)};
    default:
      return {across(coll), inside(coll)};
    }
  }

  tutti_status compose(const tutti_algo_request &req, const std::vector<Stage> &stages, const std::string &inner,
                       const std::string &outer, const tutti_plan_builder &out) const {
    std::vector<tutti_stage> list;
    for (const Stage &s : stages)
      list.push_back(
          {(s.inside ? inner : outer).c_str(), s.members.data(), static_cast<int32_t>(s.members.size()), s.root, s.coll, 0});
    return compose_.compose(host_.c(), &req, list.data(), static_cast<uint32_t>(list.size()), sizeof list[0], &out);
  }

  Host host_;
  const tutti_host_plan_v1 &compose_;
  std::vector<std::string> inner_, outer_;
};

} // namespace

TUTTI_CXX_PLUGIN(Hier)
