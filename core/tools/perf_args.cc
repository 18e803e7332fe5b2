#include "tools/cli.h"
#include "tools/help.h"
#include "tools/perf.h"
#include <filesystem>
#include <unistd.h>

namespace tutti::tools::perf {
namespace {

struct TypeName {
  const char *name, *alias;
  size_t bytes;
};
constexpr TypeName kTypes[tuttiNumTypes] = {{"int8", "char", 1},     {"uint8", "uint8", 1},       {"int32", "int", 4},
                                            {"uint32", "uint32", 4}, {"int64", "int64", 8},       {"uint64", "uint64", 8},
                                            {"half", "float16", 2},  {"float", "float32", 4},     {"double", "float64", 8},
                                            {"bfloat16", "bf16", 2}, {"f8e4m3", "float8e4m3", 1}, {"f8e5m2", "float8e5m2", 1}};
constexpr const char *kOps[] = {"sum", "prod", "max", "min", "avg", "mulsum"};

constexpr const char *kAbout =
    "Measures and verifies one operation, with the flags, columns and meanings of the field's performance tests.\n"
    "Ranks are processes x threads: --ranks N starts N processes on this host; under tutti run or mpirun the launcher's\n"
    "processes are used; -t adds threads per process.\n"
    "OP: all_reduce all_gather reduce_scatter broadcast reduce alltoall alltoallv all_gather_v reduce_scatter_v gather\n"
    "scatter sendrecv hypercube barrier\n"
    "Sizes take K, M and G (units of 1024). Bandwidths are in GB/s (1e9 bytes). The size column is the large side of\n"
    "all_gather, reduce_scatter, alltoall, gather and scatter (all ranks' parts); each part is a whole number of elements "
    "and,\n"
    "where it is that large, a multiple of 16 bytes. alltoall, alltoallv and sendrecv have no in-place form: N/A.\n"
    "all_gather_v and reduce_scatter_v have blocks of different sizes.\n"
    "Bus bandwidth = algorithm bandwidth x factor: all_reduce 2(n-1)/n; all_gather, reduce_scatter and their _v forms,\n"
    "alltoall, alltoallv, gather, scatter (n-1)/n; broadcast, reduce, sendrecv, hypercube 1.";
constexpr const char *kEnvironment =
    "Environment:\n"
    "  NCCL_TESTS_SPLIT=\"OP VALUE\"         OP: AND OR MOD DIV or & | % /: ranks with the same (rank OP VALUE) form a group; "
    "all\n"
    "                                      groups run at once, bandwidth is per group\n"
    "  NCCL_TESTS_SPLIT_MASK=VALUE         the same as \"AND VALUE\"\n"
    "  NCCL_TESTS_MIN_BW=GB/S              fail when the average bus bandwidth is below 0.9 times this\n"
    "  NCCL_TESTS_ALLTOALLV_SPREAD=0..1    how far pairs differ (default 0.5); _MATRIX_FILE: a row of relative weights per\n"
    "                                      sender instead; _MATRIX_SCALE: factor on all counts; _PRINT_SUMMARY=1. The\n"
    "                                      diagonal sizes the blocks of all_gather_v and reduce_scatter_v\n"
    "Pass lines, a table each, in TOML: [NAME] with operation (name or list), busbw (\"18 GB/s\") and, if wanted, sizes\n"
    "(\"1M\", \"1K..64K\", \"128M..\") and link (slowest kind in use: local shm socket ib, net for any network, net:NAME)\n"
    "Exit code: 0 right, 1 wrong data or too slow, 2 the test could not run, 64 bad arguments";

Result<std::vector<int>> parse_ops(const std::string &text) {
  std::vector<int> out;
  for (int i = 0; i < 6; i++)
    if (text == "all" || text == kOps[i]) out.push_back(i);
  if (out.empty())
    return fail(Code::invalid_argument, "-o: unknown operator \"{}\"; one of sum prod min max avg mulsum all", text);
  return out;
}
Result<std::vector<tuttiDataType_t>> parse_types(const std::string &text) {
  std::vector<tuttiDataType_t> out;
  std::string names;
  for (int i = 0; i < tuttiNumTypes; i++) {
    if (text == "all" || text == kTypes[i].name || text == kTypes[i].alias) out.push_back(static_cast<tuttiDataType_t>(i));
    names += fmt::format("{} ", kTypes[i].name);
  }
  if (out.empty()) return fail(Code::invalid_argument, "-d: unknown type \"{}\"; one of {}all", text, names);
  return out;
}

Result<uint64_t> size_option(const char *flag, const std::string &text) {
  auto size = parse_size(text);
  if (!size.ok()) return fail(Code::invalid_argument, "{}: {}", flag, size.status().error().message);
  return size;
}

struct Texts {
  std::string min = "32M", max = "32M", step = "1M", op = "sum", type = "float", root = "0";
};
struct GpuOnly {
  int graph = 0, cta_policy = 0, device_impl = 0, device_ctas = 0;
};

void add_options(CLI::App &app, Args &a, Texts &t, GpuOnly &g) {
  const auto flag01 = CLI::Range(0, 1);
  app.add_option("--ranks", a.ranks, "Start this many processes on this host (built-in launch)")->check(CLI::Range(1, 4096));
  app.add_option("--roots", a.roots, "Roots at which the ranks meet: each serves a share of them")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("-t,--nthreads", a.threads, "Ranks per process, each a thread")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("-g,--ngpus", a.gpus, "Devices per thread; ranks of this version have none, so only 1")->capture_default_str();
  app.add_option("-b,--minbytes", t.min, "Smallest size")->capture_default_str();
  app.add_option("-e,--maxbytes", t.max, "Largest size")->capture_default_str();
  app.add_option("-i,--stepbytes", t.step, "Step between sizes")->capture_default_str();
  app.add_option("-f,--stepfactor", a.factor, "Factor between sizes, instead of -i")
      ->check(CLI::Range(uint64_t{2}, uint64_t{1} << 40));
  app.add_option("-n,--iters", a.iters, "Timed iterations")->check(CLI::Range(1, 100000000))->capture_default_str();
  app.add_option("-w,--warmup_iters", a.warmup, "Untimed iterations before them")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("-m,--agg_iters", a.agg, "Operations per iteration, in one group")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("-N,--run_cycles", a.cycles, "Repeat the whole scan; 0 = for ever")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("-o,--op", t.op, "sum prod min max avg mulsum, or all")->capture_default_str();
  app.add_option("-d,--datatype", t.type, "Type name, or all")->capture_default_str();
  app.add_option("-r,--root", t.root, "Rank, or all")->capture_default_str();
  app.add_option("-p,--parallel_init", a.parallel_init, "1: communicators are made by their threads, 0: in one group")
      ->check(flag01)
      ->capture_default_str();
  app.add_option("-c,--check", a.check, "Verified iterations; 0 = none")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("-z,--blocking", a.blocking,
                 "Wait: 0 at the end, 1 after each iteration, with a barrier, 2 after each, 3 as 0, with one")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  app.add_option("-y,--stream_null", a.null_stream, "1: use the communicator's own stream")
      ->check(flag01)
      ->capture_default_str();
  app.add_option("-T,--timeout", a.timeout, "Seconds per row, after which the test is ended; 0 = the library's deadlines only")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("-C,--report_cputime", a.cpu_time, "1: report the time to enqueue instead of the time to complete")
      ->capture_default_str();
  app.add_option("-S,--report_timestamps", a.timestamps, "1: end each row with the time of day")->capture_default_str();
  app.add_option("-M,--memory", a.memory, "1: report the library's memory and descriptors")->capture_default_str();
  app.add_option("-J,--output_file", a.json, "Also write the results to this file, as JSON");
  app.add_option("--expect", a.expect,
                 "Hold bus bandwidths against the pass lines of this file; exit code 1 when one is missed")
      ->type_name("FILE");
  app.add_option("--heatmap", a.heatmap,
                 "Draw what one more operation of each row moves between ranks; into a FILE.json as JSON")
      ->type_name("FILE")
      ->allow_extra_args(false);
  app.add_option("-a,--average", a.average, "Times over ranks: 0 rank 0, 1 average, 2 min, 3 max")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  app.add_option("-R,--local_register", a.local_register, "1: buffers come from tuttiMemAlloc; 2 (windows) is not offered")
      ->check(CLI::Range(0, 2))
      ->capture_default_str();
  app.add_option("-u,--unalign", a.unalign, "Start buffers this many elements past an aligned address")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  app.add_option("-I,--per_iter_timing", a.per_iter,
                 "1: time each iteration, in a loop of its own; adds i_min i_max i_p99 i_cv%")
      ->capture_default_str();
  app.add_option("-K,--per_iter_skip", a.skip, "Leave the first iterations out of -I's statistics")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--explain", a.explain,
               "Below each row: algorithm/protocol, channels, slots, link, percentiles of a loop of its own");
  app.add_flag("--overlap", a.overlap,
               "Adds the operation alone, a computation alone, both at once, and % hidden (docs/overlap.md)");
  app.add_option("--progress-fd", a.progress_fd)->group(""); // for the built-in launch only: not in the help
  app.add_option("-G,--cudagraph", g.graph, "Only 0: host operations cannot be captured")->capture_default_str();
  app.add_option("-x,--cta_policy", g.cta_policy, "Accepted, without effect on hosts")
      ->check(CLI::Range(0, 2))
      ->capture_default_str();
  app.add_option("-D,--device_implementation", g.device_impl, "Only 0: there are no device kernels")->capture_default_str();
  app.add_option("-V,--device_cta_count", g.device_ctas, "Accepted, without effect on hosts")->capture_default_str();
}

Status load_pass_lines(Args &a) {
  if (a.expect.empty()) return {};
  if (a.cpu_time)
    return fail(Code::invalid_argument, "--expect needs -C 0: with -C 1 there is no bandwidth to hold against a pass line");
  TUTTI_ASSIGN(lines, read_pass_lines(a.expect));
  if (std::none_of(lines.begin(), lines.end(), [&](const PassLine &line) { return line.serves(a.op); }))
    return fail(Code::invalid_argument, "--expect {}: no pass line is about {}", a.expect, a.op);
  a.pass_lines = std::move(lines);
  return {};
}

// Told before an hour of measuring, not after.
Status check_writable(const char *flag, const std::string &path) {
  if (access(path.c_str(), W_OK) == 0) return {};
  if (errno == ENOENT && access(std::filesystem::absolute(path).parent_path().c_str(), W_OK) == 0) return {};
  return fail_errno(errno, fmt::format("{}: cannot write {}", flag, path));
}

Status finish(Args &a, const Texts &t, const GpuOnly &g) {
  TUTTI_ASSIGN(min, size_option("-b", t.min));
  TUTTI_ASSIGN(max, size_option("-e", t.max));
  TUTTI_ASSIGN(step, size_option("-i", t.step));
  TUTTI_ASSIGN(ops, parse_ops(t.op));
  TUTTI_ASSIGN(types, parse_types(t.type));
  TUTTI_ASSIGN(least, number_setting("NCCL_TESTS_MIN_BW", -1, 0, 1e9));
  a.min_bandwidth = least;
  a.min_bytes = min, a.max_bytes = max, a.step_bytes = step;
  a.ops = ops, a.types = types;
  if (min > max) return fail(Code::invalid_argument, "-b {} is larger than -e {}", t.min, t.max);
  if (step == 0 && a.factor == 0 && min != max) return fail(Code::invalid_argument, "-i 0 never reaches -e {}", t.max);
  if (a.factor != 0 && min == 0 && max > 0)
    return fail(Code::invalid_argument, "-b 0 times any factor never reaches -e {}; use -i", t.max);
  if (t.root == "all")
    a.root = -1;
  else {
    TUTTI_ASSIGN(root, size_option("-r", t.root));
    a.root = static_cast<int>(root);
  }
  if (a.gpus != 1)
    return fail(Code::invalid_argument, "-g {}: this version has no devices; use -t {} or --ranks {} for more ranks", a.gpus,
                a.gpus, a.gpus);
  if (g.graph != 0) return fail(Code::invalid_argument, "-G {}: host operations cannot be captured in a graph", g.graph);
  if (g.device_impl != 0)
    return fail(Code::invalid_argument, "-D {}: there are no device kernels to choose from", g.device_impl);
  if (a.local_register == 2) return fail(Code::invalid_argument, "-R 2: this version has no symmetric windows; use -R 1");
  if ((a.per_iter || a.explain) && a.skip >= a.iters)
    return fail(Code::invalid_argument, "-K {} leaves nothing of -n {}", a.skip, a.iters);
  if (!a.json.empty()) TUTTI_TRY(check_writable("-J", a.json));
  for (const std::string &path : a.heatmap) TUTTI_TRY(check_writable("--heatmap", path));
  if (a.cpu_time && a.blocking != 0)
    return fail(Code::invalid_argument, "-C 1 needs -z 0: with -z {} the time to enqueue includes waiting", a.blocking);
  return load_pass_lines(a);
}

} // namespace

const char *type_name(tuttiDataType_t type) {
  return kTypes[type].name;
}
size_t type_bytes(tuttiDataType_t type) {
  return kTypes[type].bytes;
}
const char *op_name(int op) {
  return op < 0 ? "none" : kOps[op];
}

Parsed parse_args(int argc, char **argv, Args *args) {
  CLI::App app{kAbout, "tutti perf"};
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.footer(kEnvironment);
  app.formatter(std::make_shared<HelpText>());
  Texts texts;
  GpuOnly gpu;
  app.add_option("OP", args->op, "Operation to test")->required();
  add_options(app, *args, texts, gpu);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &e) {
    return {false, e.get_exit_code() == 0 ? app.exit(e) : (app.exit(e), kUsage)};
  }
  args->words.assign(argv, argv + argc);
  std::erase_if(args->words, [](const std::string &w) { return w.starts_with("--progress-fd"); }); // not the user's
  std::string op = args->op;
  if (op.ends_with("_perf")) op.resize(op.size() - 5);
  args->op = op;
  if (!find_operation(op)) {
    std::string names;
    for (const Operation *o : all_operations()) names += fmt::format(" {}", o->name);
    print_error(fmt::format("unknown operation \"{}\"; one of{}", args->op, names));
    return {false, kUsage};
  }
  if (Status s = finish(*args, texts, gpu); !s.ok()) {
    print_error(s.error().line());
    return {false, kUsage};
  }
  return {true, 0};
}

} // namespace tutti::tools::perf
