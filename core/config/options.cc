// The table of all options. docs/configuration.md is generated from it: `./dev docs` after a change.
#include "config/config.h"

namespace tutti {
namespace {

constexpr int64_t kMiB = 1 << 20, kGiB = 1 << 30;
constexpr int64_t kMs = 1'000'000, kSecond = 1000 * kMs, kDay = 86'400 * kSecond;

// clang-format off
const std::vector<Option> &table() {
  static const auto *options = new std::vector<Option>{
    // ---- core
    {.key = "core.timeout", .type = TUTTI_OPT_DURATION, .default_value = "10min",
     .help = "longest wait for another rank inside an operation; what expires names the ranks that are missing",
     .env = "TUTTI_TIMEOUT", .min = kMs, .max = 30 * kDay, .scope = Scope::communicator},
    {.key = "core.init_timeout", .type = TUTTI_OPT_DURATION, .default_value = "2min",
     .help = "longest wait for all ranks to join a communicator",
     .env = "TUTTI_INIT_TIMEOUT", .min = kMs, .max = 30 * kDay, .scope = Scope::communicator},
    {.key = "core.connect_timeout", .type = TUTTI_OPT_DURATION, .default_value = "1min",
     .help = "longest wait for a connection that is made when it is first needed, of the control plane or of a network",
     .env = "TUTTI_CONNECT_TIMEOUT", .min = kMs, .max = 30 * kDay, .scope = Scope::communicator},
    {.key = "core.finalize_timeout", .type = TUTTI_OPT_DURATION, .default_value = "10min",
     .help = "longest wait for all ranks to finalize, once this rank's own operations are done",
     .env = "TUTTI_FINALIZE_TIMEOUT", .min = kMs, .max = 30 * kDay, .scope = Scope::communicator},
    {.key = "core.shrink_timeout", .type = TUTTI_OPT_DURATION, .default_value = "30s",
     .help = "longest wait for other ranks to call tuttiCommShrink; without a list of excluded ranks the others go on without "
             "those that have not, and without those whose process has not answered for a quarter of it",
     .env = "TUTTI_SHRINK_TIMEOUT", .min = kMs, .max = 30 * kDay, .scope = Scope::communicator},
    {.key = "core.comm_id", .help = "where ranks meet: HOST:PORT, [V6]:PORT or file:PATH, the same for all ranks",
     .env = "TUTTI_COMM_ID", .aliases = {"NCCL_COMM_ID"}},
    {.key = "core.rendezvous",
     .help = "store where ranks meet when core.comm_id names no place: redis://HOST, etcd://HOST, what `tutti info` lists",
     .env = "TUTTI_RENDEZVOUS"},
    {.key = "core.job_name", .help = "name of the job in that store, the same for all ranks and no other job's (empty = the launcher's)",
     .env = "TUTTI_JOB_NAME"},
    {.key = "core.host_id", .help = "identity of this host; ranks with the same one use shared memory (empty = found out)",
     .env = "TUTTI_HOSTID", .aliases = {"NCCL_HOSTID"}},
    {.key = "core.job_key_file", .help = "file with the job's secret, mode 0600, for launchers that hand out none",
     .env = "TUTTI_JOB_KEY_FILE"},
    {.key = "core.security", .default_value = "authenticated",
     .help = "authenticated: connections prove that they know the job's key, a job without one warns once; required: refuse to start "
             "without a job key; encrypted: this, and all that goes from host to host is encrypted, by TLS 1.3 under the job's key",
     .env = "TUTTI_SECURITY", .choices = "authenticated|required|encrypted", .synonyms = "preferred=authenticated", .agree = true},
    {.key = "core.blocking", .type = TUTTI_OPT_BOOL, .default_value = "true",
     .help = "whether calls that set up or end a communicator return only when done",
     .env = "TUTTI_BLOCKING", .aliases = {"NCCL_COMM_BLOCKING"}, .scope = Scope::communicator},

    // ---- log
    {.key = "log.level", .default_value = "warn", .help = "least important kind of line that is written",
     .env = "TUTTI_DEBUG", .aliases = {"NCCL_DEBUG"}, .choices = "trace|debug|info|warn|error|off",
     .synonyms = "version=warn|abort=debug|none=off", .grammar = Grammar::level},
    {.key = "log.subsys", .type = TUTTI_OPT_STRING_LIST, .default_value = "ALL",
     .help = "subsystems whose info, debug and trace lines are written; ^ in front of the list excludes instead",
     .env = "TUTTI_DEBUG_SUBSYS", .aliases = {"NCCL_DEBUG_SUBSYS"}, .grammar = Grammar::subsystems},
    {.key = "log.file", .help = "file for log lines, %h is the host and %p the process (empty = stderr)",
     .env = "TUTTI_DEBUG_FILE", .aliases = {"NCCL_DEBUG_FILE"}},
    {.key = "log.timestamp_format", .default_value = "%F %T",
     .help = "time in front of a line as for strftime, %3f adds milliseconds (empty = none)",
     .env = "TUTTI_DEBUG_TIMESTAMP_FORMAT", .aliases = {"NCCL_DEBUG_TIMESTAMP_FORMAT"}, .grammar = Grammar::timestamp},

    // ---- plugins
    {.key = "plugins.path", .type = TUTTI_OPT_STRING_LIST,
     .help = "directories searched for plugins before the installation's own",
     .env = "TUTTI_PLUGIN_PATH", .separator = ':'},
    {.key = "plugins.net", .type = TUTTI_OPT_STRING_LIST,
     .help = "network plugins that must load, by name or path, the preferred one first; none = only those found",
     .env = "TUTTI_NET_PLUGIN"},
    {.key = "plugins.tuner", .help = "tuner plugin by name or path (empty = the built-in table)",
     .env = "TUTTI_TUNER_PLUGIN", .scope = Scope::communicator, .agree = true},
    {.key = "plugins.disable", .type = TUTTI_OPT_STRING_LIST, .help = "plugins that are not loaded, by name",
     .env = "TUTTI_PLUGIN_DISABLE", .agree = true},
    {.key = "plugins.allow_unsafe", .type = TUTTI_OPT_BOOL, .default_value = "false",
     .help = "also use plugin files and folders that others than root and this user can change",
     .env = "TUTTI_PLUGIN_ALLOW_UNSAFE"},

    // ---- net
    {.key = "net.name", .help = "network to use, by name, any case (empty = the fastest that works)",
     .env = "TUTTI_NET", .aliases = {"NCCL_NET"}, .scope = Scope::communicator, .agree = true},
    {.key = "net.disable_intra", .type = TUTTI_OPT_BOOL, .default_value = "false",
     .help = "never use a network between ranks of one host",
     .env = "TUTTI_NET_DISABLE_INTRA", .aliases = {"NCCL_NET_DISABLE_INTRA"}, .scope = Scope::communicator, .agree = true},

    {.key = "net.cross_nic", .type = TUTTI_OPT_INT, .default_value = "2",
     .help = "NICs of a ring over hosts: 0 = it leaves a host by the NIC it came in by, so on one rail; 1 = by any; 2 = as 0, unless "
             "1 is better by more than 5 %",
     .env = "TUTTI_CROSS_NIC", .aliases = {"NCCL_CROSS_NIC"}, .min = 0, .max = 2, .scope = Scope::communicator, .agree = true},
    {.key = "net.merge_level", .default_value = "LOC",
     .help = "ports that count as one NIC when channels are dealt: those of one card (PORT), or as close as PIX, PXB, ... "
             "(LOC = none)",
     .env = "TUTTI_NET_MERGE_LEVEL", .aliases = {"NCCL_NET_MERGE_LEVEL"}, .choices = "LOC|PORT|PIX|PXB|P2C|PXN|PHB|SYS",
     .scope = Scope::communicator, .agree = true},

    {.key = "net.checksum", .type = TUTTI_OPT_BOOL, .default_value = "false",
     .help = "messages over networks carry a CRC32C of header and payload, which the receiver checks: for networks that are not "
             "trusted to find damage themselves",
     .env = "TUTTI_NET_CHECKSUM", .scope = Scope::communicator, .agree = true},
    {.key = "net.registrations", .type = TUTTI_OPT_INT, .default_value = "1024",
     .help = "pieces of users' memory that stay registered with each device of a network that needs that (0 = none: messages from "
             "and to them are copied)",
     .env = "TUTTI_NET_REGISTRATIONS", .max = 1 << 20, .scope = Scope::communicator},
    {.key = "net.registered_bytes", .type = TUTTI_OPT_BYTES, .default_value = "0",
     .help = "most bytes of them for each device and communicator (0 = as much as the system lets be pinned)",
     .env = "TUTTI_NET_REGISTERED_BYTES", .max = INT64_MAX, .scope = Scope::communicator},

    {.key = "net.traffic_class", .type = TUTTI_OPT_INT, .default_value = "-1",
     .help = "traffic class of the network's packets; sockets: the whole byte, DSCP << 2 (-1 = the system's)",
     .env = "TUTTI_TRAFFIC_CLASS", .min = -1, .max = 255, .scope = Scope::communicator},

    // ---- socket: the control plane and the socket network
    {.key = "socket.ifname",
     .help = "interfaces to reach others by and to listen at: eth,ib are prefixes, =eth0 is exact, ^docker,lo excludes, "
             "10.0.0.0/8 is a subnet (empty = any)",
     .env = "TUTTI_SOCKET_IFNAME", .aliases = {"NCCL_SOCKET_IFNAME"}},
    {.key = "socket.family", .default_value = "auto", .help = "IP family",
     .env = "TUTTI_SOCKET_FAMILY", .aliases = {"NCCL_SOCKET_FAMILY"}, .choices = "auto|AF_INET|AF_INET6"},
    {.key = "socket.port_range", .default_value = "0", .help = "ports that listeners may use, LOW-HIGH (0 = any)",
     .env = "TUTTI_SOCKET_PORT_RANGE", .grammar = Grammar::ports},
    {.key = "socket.retry_count", .type = TUTTI_OPT_INT, .default_value = "34",
     .help = "attempts to connect to a peer that refuses or cannot be reached",
     .env = "TUTTI_SOCKET_RETRY_COUNT", .aliases = {"NCCL_SOCKET_RETRY_CNT"}, .min = 0, .max = 100'000},
    {.key = "socket.retry_sleep", .type = TUTTI_OPT_DURATION, .default_value = "100ms",
     .help = "pause after the n-th failed attempt is n times this",
     .env = "TUTTI_SOCKET_RETRY_SLEEP", .aliases = {"NCCL_SOCKET_RETRY_SLEEP_MSEC"}, .min = 0, .max = 60 * kSecond},
    {.key = "socket.dead_after", .type = TUTTI_OPT_DURATION, .default_value = "15s",
     .help = "silence of another host after which a connection to it counts as lost on the control plane",
     .env = "TUTTI_SOCKET_DEAD_AFTER", .min = 2 * kSecond, .max = 3600 * kSecond},
    {.key = "socket.reconnect_timeout", .type = TUTTI_OPT_DURATION, .default_value = "60s",
     .help = "how long restoring a lost connection of the control plane between hosts may take (0 = a lost one is an error at once)",
     .env = "TUTTI_SOCKET_RECONNECT_TIMEOUT", .min = 0, .max = 24 * 3600 * kSecond},
    {.key = "socket.handshake_timeout", .type = TUTTI_OPT_DURATION, .default_value = "0s",
     .help = "longest wait for another process to prove itself, or to know the rank that is looked for, on the control plane "
             "(0 = a quarter of core.init_timeout, at least 5 s)",
     .env = "TUTTI_SOCKET_HANDSHAKE_TIMEOUT", .min = 0, .max = 3600 * kSecond},
    {.key = "socket.stagger_threshold", .type = TUTTI_OPT_INT, .default_value = "256",
     .help = "ranks per root above which they check in one after the other",
     .env = "TUTTI_SOCKET_STAGGER_THRESHOLD", .aliases = {"NCCL_UID_STAGGER_THRESHOLD"}, .min = 1, .max = 1 << 30},
    {.key = "socket.stagger_rate", .type = TUTTI_OPT_INT, .default_value = "7000",
     .help = "check-ins per second and root when staggered",
     .env = "TUTTI_SOCKET_STAGGER_RATE", .aliases = {"NCCL_UID_STAGGER_RATE"}, .min = 1, .max = 1 << 30},

    // ---- shm
    {.key = "shm.disable", .type = TUTTI_OPT_BOOL, .default_value = "false",
     .help = "use a network even between processes of one host; ranks that are threads of one process stay local",
     .env = "TUTTI_SHM_DISABLE", .aliases = {"NCCL_SHM_DISABLE"}, .scope = Scope::communicator, .agree = true},
    {.key = "shm.huge_pages", .type = TUTTI_OPT_BOOL, .default_value = "false",
     .help = "ask for huge pages for shared memory; falls back when there are none",
     .env = "TUTTI_SHM_HUGE_PAGES", .scope = Scope::communicator},
    {.key = "shm.pull", .default_value = "auto",
     .help = "what protocol pull reads in other processes: auto: all memory, where the system lets it; mapped: only what "
             "tuttiMemAlloc gave",
     .env = "TUTTI_SHM_PULL", .choices = "auto|mapped", .scope = Scope::communicator, .agree = true},

    // ---- coll
    {.key = "coll.algo", .help = "algorithms allowed: [COLL:]a,b;COLL:^c; a list without COLL holds for every collective that "
                                 "one of its algorithms can do (empty = the tuner decides among all)",
     .env = "TUTTI_ALGO", .aliases = {"NCCL_ALGO"}, .scope = Scope::communicator, .agree = true, .per_class = true},
    {.key = "coll.proto", .help = "protocols allowed, same grammar as coll.algo",
     .env = "TUTTI_PROTO", .aliases = {"NCCL_PROTO"}, .scope = Scope::communicator, .agree = true, .per_class = true},
    {.key = "coll.choice", .default_value = "required",
     .help = "what coll.algo and coll.proto ask for and cannot be had: required: an error that says why; preferred: one log line, "
             "and the best other way runs",
     .env = "TUTTI_COLL_CHOICE", .choices = "required|preferred", .scope = Scope::communicator, .agree = true, .per_class = true},
    {.key = "coll.collnet", .default_value = "off",
     .help = "reduction in the network, by a collnet plugin: preferred: where all ranks can have it and it pays; required: for all "
             "that it serves, and no communicator without it",
     .env = "TUTTI_COLLNET_ENABLE", .aliases = {"NCCL_COLLNET_ENABLE"}, .choices = "off|preferred|required",
     .synonyms = "0=off|1=preferred", .scope = Scope::communicator, .agree = true},
    {.key = "coll.collnet_min_hosts", .type = TUTTI_OPT_INT, .default_value = "2",
     .help = "fewest hosts of a communicator that reduces in the network",
     .env = "TUTTI_COLLNET_NODE_THRESHOLD", .aliases = {"NCCL_COLLNET_NODE_THRESHOLD"}, .min = 1, .max = 1 << 20,
     .scope = Scope::communicator, .agree = true},
    {.key = "coll.min_channels", .type = TUTTI_OPT_INT, .default_value = "1", .help = "fewest channels of a collective",
     .env = "TUTTI_MIN_CHANNELS", .aliases = {"NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_NCHANNELS"},
     .min = 1, .max = 64, .scope = Scope::communicator, .agree = true, .per_class = true},
    {.key = "coll.max_channels", .type = TUTTI_OPT_INT, .default_value = "64", .help = "most channels of a collective",
     .env = "TUTTI_MAX_CHANNELS", .aliases = {"NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS", "NCCL_NCHANNELS"},
     .min = 1, .max = 64, .scope = Scope::communicator, .agree = true, .per_class = true},
    {.key = "coll.slot_bytes", .type = TUTTI_OPT_BYTES, .default_value = "0",
     .help = "payload of one slot of a link (0 = the tuner decides)",
     .env = "TUTTI_SLOT_BYTES", .min = 0, .max = kGiB, .scope = Scope::communicator, .agree = true, .per_class = true},
    {.key = "coll.depth", .type = TUTTI_OPT_INT, .default_value = "0", .help = "slots of a link (0 = the tuner decides)",
     .env = "TUTTI_DEPTH", .min = 0, .max = 1024, .scope = Scope::communicator, .agree = true, .per_class = true},
    {.key = "coll.buffer", .type = TUTTI_OPT_BYTES, .default_value = "0",
     .help = "buffer of a link, slot size times depth (0 = the tuner decides)",
     .env = "TUTTI_BUFFSIZE", .aliases = {"NCCL_BUFFSIZE"}, .min = 0, .max = 16 * kGiB, .scope = Scope::communicator, .agree = true, .per_class = true},
    {.key = "coll.deterministic", .default_value = "off",
     .help = "run: the same bits of sums in every run with the same ranks and settings; size: an element's bits depend on its "
             "operands, the number of ranks and their order alone, not on sizes, channels, protocols or hosts",
     .env = "TUTTI_DETERMINISTIC", .choices = "off|run|size", .scope = Scope::communicator, .agree = true, .per_class = true},
    {.key = "coll.class",
     .help = "what options of this table say for some collectives and sizes: [[coll.class]] tables, or ops=all_reduce,reduce "
             "max_bytes=64K algo=direct, with ; between two (see Scopes)",
     .env = "TUTTI_COLL_CLASS", .scope = Scope::communicator, .agree = true},

    // ---- collnet
    {.key = "collnet.name", .help = "collnet plugin to use, by name, any case (empty = the first that has a device)",
     .env = "TUTTI_COLLNET", .scope = Scope::communicator, .agree = true},

    // ---- tuner: what is known better than measured
    {.key = "tuner.p2p_bandwidth", .type = TUTTI_OPT_INT, .default_value = "0",
     .help = "GB/s that two ranks of one host exchange, for the cost model (0 = measured)",
     .env = "TUTTI_P2P_BANDWIDTH", .aliases = {"NCCL_P2P_BANDWIDTH"}, .min = 0, .max = 1'000'000,
     .scope = Scope::communicator, .agree = true},
    {.key = "tuner.net_bandwidth", .type = TUTTI_OPT_INT, .default_value = "0",
     .help = "GB/s of a host's network, for the cost model (0 = measured)",
     .env = "TUTTI_NET_BANDWIDTH", .aliases = {"NCCL_NET_BANDWIDTH"}, .min = 0, .max = 1'000'000,
     .scope = Scope::communicator, .agree = true},

    // ---- tuner: the core's own cost model
    {.key = "tuner.calibrate", .default_value = "auto",
     .help = "where the cost model has this machine's constants from: auto: measured once and kept in tuner.cache_dir; off: built "
             "in; always: measured for every communicator",
     .env = "TUTTI_CALIBRATE", .choices = "auto|off|always", .scope = Scope::communicator},
    {.key = "tuner.cache_dir", .help = "directory for what was measured of this machine (empty = tutti in $XDG_CACHE_HOME or ~/.cache)",
     .env = "TUTTI_CACHE_DIR"},

    // ---- p2p: links of send and receive
    {.key = "p2p.slot_bytes", .type = TUTTI_OPT_BYTES, .default_value = "0",
     .help = "payload of one slot of a send/receive link (0 = 8, 32 or 64 KiB, by the number of ranks)",
     .env = "TUTTI_P2P_SLOT_BYTES", .aliases = {"NCCL_P2P_NET_CHUNKSIZE"}, .min = 0, .max = kGiB,
     .scope = Scope::communicator, .agree = true},
    {.key = "p2p.depth", .type = TUTTI_OPT_INT, .default_value = "4", .help = "slots of a send/receive link",
     .env = "TUTTI_P2P_DEPTH", .min = 1, .max = 1024, .scope = Scope::communicator, .agree = true},

    // ---- plan
    {.key = "plan.check", .type = TUTTI_OPT_BOOL, .default_value = "true",
     .help = "prove the plans of an algorithm right before their first use, with up to 64 ranks",
     .env = "TUTTI_PLAN_CHECK", .scope = Scope::communicator},

    // ---- comm
    {.key = "comm.map_file",
     .help = "each rank writes here what it has sent and received, for `tutti map`, when its communicator ends: %h is the host, "
             "%p the process, %r the rank, %c the communicator; %c and %r are added where they lack (empty = nowhere)",
     .env = "TUTTI_COMM_MAP_FILE", .scope = Scope::communicator},

    // ---- record: the flight recorder
    {.key = "record.operations", .type = TUTTI_OPT_INT, .default_value = "256",
     .help = "operations of each communicator that the flight recorder remembers, rounded up to a power of two",
     .env = "TUTTI_RECORD_OPERATIONS", .min = 256, .max = 1 << 16, .scope = Scope::communicator},
    {.key = "record.file",
     .help = "file that each rank writes its flight recorder to when a communicator fails, on record.signal and by tuttiCommDump: %h "
             "is the host, %p the process, %r the rank, %c the communicator; %c and %r are added where they lack (empty = nowhere)",
     .env = "TUTTI_RECORD_FILE", .scope = Scope::communicator},
    {.key = "record.signal", .default_value = "off",
     .help = "signal upon which a process writes the flight recorders of all its communicators; a handler that the application has "
             "installed before its first communicator is called, too",
     .env = "TUTTI_RECORD_SIGNAL", .choices = "off|USR1|USR2|HUP|QUIT|URG|WINCH",
     .synonyms = "none=off|sigusr1=USR1|sigusr2=USR2|sighup=HUP|sigquit=QUIT|sigurg=URG|sigwinch=WINCH"},
    {.key = "record.most_files", .type = TUTTI_OPT_INT, .default_value = "64",
     .help = "flight-recorder files that a process makes without being asked by tuttiCommDump; later ones are written only where a "
             "file of the same name is replaced",
     .env = "TUTTI_RECORD_MOST_FILES", .min = 1, .max = 1 << 20},

    // ---- ras: questions to a running job
    {.key = "ras.enable", .type = TUTTI_OPT_BOOL, .default_value = "true",
     .help = "answer `tutti ras`: this user on this host, and who has the job's key, at the control plane's own listeners",
     .env = "TUTTI_RAS_ENABLE", .aliases = {"NCCL_RAS_ENABLE"}},
    {.key = "ras.address",
     .help = "one more place where questions are answered: IP:PORT, [IPV6]:PORT or localhost:PORT; of a host's processes the first one "
             "gets it (empty = none)",
     .env = "TUTTI_RAS_ADDR", .aliases = {"NCCL_RAS_ADDR"}},
    {.key = "ras.metrics",
     .help = "where each process serves its metrics over HTTP, for Prometheus, to anybody who can connect: IP:PORT, [IPV6]:PORT, "
             "localhost:PORT or :PORT for all addresses; PORT may be LOW-HIGH, of which the first free one is taken (empty = nowhere)",
     .env = "TUTTI_METRICS"},

    // ---- topology
    {.key = "topology.file", .help = "XML file that describes this host, completed by what is found (empty = found out)",
     .env = "TUTTI_TOPO_FILE", .aliases = {"NCCL_TOPO_FILE"}},
    {.key = "topology.dump_file", .help = "where the lowest rank of each host writes its description, completed; %h is the host and %p the process",
     .env = "TUTTI_TOPO_DUMP_FILE", .aliases = {"NCCL_TOPO_DUMP_FILE"}},
    {.key = "topology.graph_file", .help = "graph file, read by rank 0, with rings and chains to use on every host instead of a search",
     .env = "TUTTI_GRAPH_FILE", .aliases = {"NCCL_GRAPH_FILE"}},
    {.key = "topology.graph_dump_file", .help = "where rank 0 writes the rings and chains of its host; %h is the host and %p the process",
     .env = "TUTTI_GRAPH_DUMP_FILE", .aliases = {"NCCL_GRAPH_DUMP_FILE"}},

    {.key = "topology.p2p_level", .default_value = "SYS",
     .help = "GPUs farther apart than this exchange through host memory, when channels are searched",
     .env = "TUTTI_P2P_LEVEL", .aliases = {"NCCL_P2P_LEVEL"}, .choices = "LOC|NVL|PIX|PXB|PHB|SYS",
     .synonyms = "0=LOC|1=PIX|2=PXB|3=PHB|4=SYS|5=SYS", .scope = Scope::communicator, .agree = true},
    {.key = "topology.gdr_level", .default_value = "SYS",
     .help = "GPUs farther from a NIC than this reach it through host memory, when channels are searched",
     .env = "TUTTI_NET_GDR_LEVEL", .aliases = {"NCCL_NET_GDR_LEVEL"}, .choices = "LOC|PIX|PXB|P2C|PXN|PHB|SYS",
     .synonyms = "0=LOC|1=PIX|2=PXB|3=PHB|4=SYS|5=SYS", .scope = Scope::communicator, .agree = true},
    {.key = "topology.pxn_disable", .type = TUTTI_OPT_BOOL, .default_value = "false",
     .help = "no way out of a GPU over an NVLink to another that is close to the NIC, when channels are searched",
     .env = "TUTTI_PXN_DISABLE", .aliases = {"NCCL_PXN_DISABLE"}, .scope = Scope::communicator, .agree = true},

    // ---- memory
    {.key = "memory.cap", .type = TUTTI_OPT_BYTES, .default_value = "256MiB",
     .help = "most library memory of one communicator in one process",
     .env = "TUTTI_MEMORY_CAP", .min = kMiB, .max = 1024 * kGiB, .scope = Scope::communicator, .agree = true},

    // ---- exec
    {.key = "exec.spin", .type = TUTTI_OPT_INT, .default_value = "0",
     .help = "polls without progress before a waiting thread yields (0 = by the number of ranks per core)",
     .env = "TUTTI_SPIN", .min = 0, .max = 1 << 30},
    {.key = "exec.yield", .type = TUTTI_OPT_INT, .default_value = "0",
     .help = "yields without progress before a waiting thread sleeps (0 = by the number of ranks per core)",
     .env = "TUTTI_YIELD", .min = 0, .max = 1 << 30},
    {.key = "exec.progress_thread", .type = TUTTI_OPT_BOOL, .default_value = "true",
     .help = "let a thread of the library drive operations nobody waits for",
     .env = "TUTTI_PROGRESS_THREAD"},

    // ---- launch: `tutti run` and the built-in launch of `tutti perf`
    {.key = "launch.kill_after", .type = TUTTI_OPT_DURATION, .default_value = "5s",
     .help = "time between asking ranks to end and killing them once one has failed",
     .env = "TUTTI_LAUNCH_KILL_AFTER", .min = 0, .max = 3600 * kSecond},
  };
  return *options;
}
// clang-format on

} // namespace

std::span<const Option> core_options() {
  return table();
}

std::string Option::env_name() const {
  if (!env.empty()) return env;
  std::string out = "TUTTI_";
  for (char c : key) out += c == '.' || c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return out;
}

} // namespace tutti
