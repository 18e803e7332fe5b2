#include "tables.h"

using namespace tuner;
namespace fs = std::filesystem;

namespace {

const Rule *rule_for(const Table &t, const tutti_tune_query &q) {
  for (const Rule &r : t.rules)
    if (r.fits(q)) return &r;
  return nullptr;
}
// "ring/ll128" of the first rule that fits; "" = none.
std::string way_for(const Table &t, tutti_coll coll, uint64_t bytes, int nranks, int hosts) {
  const Rule *r = rule_for(t, query_of(coll, bytes, nranks, hosts > 1 ? TUTTI_LINK_CLASS_NET : TUTTI_LINK_CLASS_SHM, hosts));
  return r ? r->ways.front().algo + "/" + r->ways.front().proto : "";
}

} // namespace

TEST_CASE("rows of the field's CSV become rules in their order, the first that fits wins, and -1 leaves a column open") {
  const Table t = table_of(kData / "rules.csv");
  CHECK(way_for(t, TUTTI_COLL_ALL_REDUCE, 65536, 8, 1) == "tree/ll");
  CHECK(way_for(t, TUTTI_COLL_ALL_REDUCE, 65536, 32, 4) == "ring/ll128");
  CHECK(way_for(t, TUTTI_COLL_ALL_REDUCE, 1 << 20, 32, 4) == "ring/simple");
  CHECK(way_for(t, TUTTI_COLL_ALL_REDUCE, 1 << 20, 16, 4) == "ring/ll128");
  CHECK(way_for(t, TUTTI_COLL_ALL_REDUCE, uint64_t(1) << 32, 16, 4) == "");
  CHECK(way_for(t, TUTTI_COLL_ALL_GATHER, 8, 16, 2) == "pat/simple");
  CHECK(way_for(t, TUTTI_COLL_BROADCAST, 8, 8, 1) == "");
  const Rule *first = rule_for(t, query_of(TUTTI_COLL_ALL_REDUCE, 8, 8, TUTTI_LINK_CLASS_SHM));
  REQUIRE(first);
  CHECK((first->note == "rules.csv:3" && first->ways[0].geometry.channels == 2u && !first->ways[0].geometry.slot_bytes));
  REQUIRE(t.warnings.size() == 2);
  CHECK(t.warnings[0] ==
        "rules.csv:6: regBuff 1: nothing is known of buffers when the table is made, write -1 for all; the row is skipped");
  CHECK(t.warnings[1] == "rules.csv:7: pipeOps 4: operations of a group are tuned one by one here; the row is skipped");
}
TEST_CASE("rows that ask for what this library does not have are skipped, each with a warning that names the line") {
  const Table t = table_of(kData / "unsupported.csv");
  REQUIRE(t.warnings.size() == 5);
  for (size_t i = 0; i < 5; i++) CHECK(t.warnings[i].find("unsupported.csv:" + std::to_string(i + 2) + ": algorithm \"") == 0);
  CHECK(holds(t.warnings[4], "\"pat\" runs allgather and reducescatter only, not allreduce"));
  REQUIRE(t.rules.size() == 1);
  CHECK(t.rules[0].note == "unsupported.csv:7");
}
TEST_CASE("a file of measurements ranks the ways of each size by time, and a size speaks for its neighbourhood") {
  const Table t = table_of(kData / "measured.csv");
  CHECK(way_for(t, TUTTI_COLL_ALL_REDUCE, 8, 8, 1) == "ring/simple");
  CHECK(way_for(t, TUTTI_COLL_ALL_REDUCE, 8192, 8, 1) == "ring/simple"); // the geometric mean of 1 K and 64 K
  CHECK(way_for(t, TUTTI_COLL_ALL_REDUCE, 8193, 8, 1) == "ring/ll128");
  CHECK(way_for(t, TUTTI_COLL_ALL_REDUCE, 1 << 30, 8, 1) == "ring/ll128");
  CHECK(way_for(t, TUTTI_COLL_ALL_REDUCE, 1 << 30, 16, 2) == "ring/simple");
  CHECK(way_for(t, TUTTI_COLL_ALL_REDUCE, 8, 16, 1) == "");
  const Rule *r = rule_for(t, query_of(TUTTI_COLL_ALL_REDUCE, 1024, 8, TUTTI_LINK_CLASS_SHM));
  REQUIRE(r);
  CHECK((r->note == "measured.csv:3" && r->ways.size() == 2 && r->ways[1].algo == "tree"));
  const auto time = time_of(*r, r->ways[0], 1024);
  REQUIRE(time);
  CHECK((time->us == 10.8 && time->measured));
  CHECK(!time_of(*r, r->ways[0], 2048));
  REQUIRE(t.warnings.size() == 1);
  CHECK(t.warnings[0].find("measured.csv:5: algorithm \"nvls\"") == 0);
}
TEST_CASE("what cannot be read in a CSV file is an error that names the line, the column and what is allowed") {
  const auto row = [](std::string_view text) { return refused("# comment\n" + std::string(text) + "\n", "t.csv"); };
  CHECK(row("allreduce,0,65536,tree,simple,2,1") ==
        "t.csv:2: 7 columns; 8 to 10 are allowed: "
        "collective,min_bytes,max_bytes,algorithm,protocol,channels,nodes,ranks,pipeOps,regBuff");
  CHECK(holds(row("allreduce,0,1,tree,simple,2,1,1,1,1,1"), "t.csv:2: 11 columns"));
  CHECK(holds(row("alreduce,0,65536,tree,simple,2,1,-1"), "collective \"alreduce\" is not valid"));
  CHECK(holds(row("alreduce,0,65536,tree,simple,2,1,-1"), "did you mean \"allreduce\"?"));
  CHECK(holds(row("allreduce,0,64K,tree,simple,2,1,-1"), "max_bytes \"64K\" is not valid; allowed: a whole number of bytes"));
  CHECK(holds(row("allreduce,9,8,tree,simple,2,1,-1"), "max_bytes \"8\" is not valid; allowed: min_bytes, 9, or more"));
  CHECK(holds(row("allreduce,0,8,tre,simple,2,1,-1"), "algorithm \"tre\""));
  CHECK(holds(row("allreduce,0,8,tree,ll12,2,1,-1"), "did you mean \"ll128\"?"));
  CHECK(holds(row("allreduce,0,8,tree,ll,0,1,-1"), "channels \"0\" is not valid; allowed: 1 to 64, or -1 for any"));
  CHECK(holds(row("allreduce,0,8,tree,ll,,1,-1"), "channels \"\""));
  CHECK(holds(row("allreduce,0,8,tree,ll,1,1,-2"), "ranks \"-2\""));
  CHECK(holds(row("allreduce,0,8,nvls,ll,1,1,x"), "ranks \"x\"")); // a bad value is no less bad in a row that would be skipped
  CHECK(holds(row("allreduce,0,8,tree,ll,1,1,-1,-1,2"), "regBuff \"2\""));
  CHECK(holds(row("collective,size_bytes,algorithm,protocol,channels,nodes,ranks"), "latency_us or cost_metric is missing"));
  CHECK(holds(row("collective,size_bytes,algo"), "unknown column \"algo\""));
  CHECK(holds(row("collective,collective"), "column \"collective\" twice"));
  const std::string head = "collective,size_bytes,algorithm,protocol,channels,nodes,ranks,latency_us\n";
  CHECK(holds(row(head + "allreduce,8,ring,ll,1,1,8,0"), "t.csv:3: latency_us \"0\" is not valid; allowed: a number over 0"));
  CHECK(holds(row(head + "allreduce,8,ring,ll,1,1,8"), "t.csv:3: 7 columns; the header has 8"));
}

TEST_CASE("the field's own files load as their authors meant them") {
  const fs::path dir = fs::path(TUTTI_SOURCE_DIR) / "../shared/data/tuner";
  if (!fs::exists(dir)) {
    MESSAGE("skipped: ../shared/data/tuner is absent");
    return;
  }
  for (const char *name : {"nccl__nccl_tuner.conf", "torchcomms__nccl_tuner.conf"}) {
    const Table t = table_of(dir / name); // nine rows; four want registered buffers or several operations at once
    CHECK(way_for(t, TUTTI_COLL_ALL_REDUCE, 1 << 20, 32, 4) == "ring/simple");
    CHECK(way_for(t, TUTTI_COLL_ALL_GATHER, 8, 16, 2) == "ring/simple");
    CHECK(way_for(t, TUTTI_COLL_BROADCAST, 1 << 20, 8, 1) == "ring/simple");
    CHECK(way_for(t, TUTTI_COLL_REDUCE, 8, 8, 1) == "tree/simple");
    CHECK(t.rules.size() == 4);
    CHECK(t.warnings.size() == 5);
  }
  const Table samples = table_of(dir / "nccl__sample_performance_data.csv");
  CHECK(way_for(samples, TUTTI_COLL_ALL_REDUCE, 1024, 8, 1) == "ring/simple");
  CHECK(way_for(samples, TUTTI_COLL_BROADCAST, 1024, 8, 1) == "tree/simple");
  CHECK(way_for(samples, TUTTI_COLL_ALL_REDUCE, 1 << 20, 16, 2) == "ring/ll128");
  CHECK(samples.warnings.size() == 2); // nvls
  const Table none = table_of(dir / "torchcomms__no_matching_config.conf");
  CHECK(none.warnings.empty());
  for (tutti_coll c :
       {TUTTI_COLL_ALL_REDUCE, TUTTI_COLL_BROADCAST, TUTTI_COLL_ALL_GATHER, TUTTI_COLL_REDUCE, TUTTI_COLL_REDUCE_SCATTER})
    for (uint64_t bytes = 8; bytes <= 128 << 20; bytes *= 2) CHECK(way_for(none, c, bytes, 8, 1) == "");
  const Table unsupported = table_of(dir / "torchcomms__unsupported_algo_proto_config.conf");
  CHECK(unsupported.rules.size() == 17); // pat, where it runs, and the 15 of collnet
  CHECK(unsupported.warnings.size() == 13);
  CHECK(way_for(unsupported, TUTTI_COLL_ALL_REDUCE, 1024, 8, 1) == "collnet_direct/simple");
  CHECK(unsupported.warnings[0].find("torchcomms__unsupported_algo_proto_config.conf:5: ") == 0);
  const Table valid = table_of(dir / "torchcomms__valid_config_with_wildcards.conf");
  CHECK(valid.warnings.empty());
  CHECK(valid.rules.size() == 15);
  CHECK(way_for(valid, TUTTI_COLL_ALL_REDUCE, 65536, 8, 1) == "tree/ll");
  CHECK(way_for(valid, TUTTI_COLL_REDUCE_SCATTER, 16777216, 4, 1) == "ring/ll128");
}
