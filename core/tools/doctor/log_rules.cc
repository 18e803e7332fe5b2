#include "tools/doctor/log_rules.h"
#include <algorithm>
#include <cctype>

namespace tutti::doctor {
namespace {

using Texts = const std::string_view[];

// ---- killed and out of memory
constexpr Texts kKilledAny = {"was killed by sig", "exited on signal", "received signal*killed",
                              "exitcode: -9",      "exit code: 137",   "srun: error:*killed"};
constexpr Texts kKilledCauses = {"the kernel ended it for lack of memory (SIGKILL): host or container",
                                 "it crashed (SIGSEGV, SIGBUS, SIGABRT): its own output says where",
                                 "somebody, or the batch system, ended it"};
constexpr Texts kKilledCommands = {"dmesg -T | grep -iE 'out of memory|oom|segfault'", "cat /sys/fs/cgroup/memory.events",
                                   "sacct -j JOB --format=State,ExitCode,MaxRSS"};

constexpr Texts kOomAny = {"out of memory: killed process",
                           "oom-kill:",
                           "memory cgroup out of memory",
                           "oom_kill",
                           "detected*oom-kill event",
                           "std::bad_alloc",
                           "memoryerror: "};
constexpr Texts kOomOurs = {
    "out of memory:",         "out of memory (", "error: out of memory", "no memory for ", "cannot map*cannot allocate memory",
    "(memory.cap) are in use"};
constexpr Texts kOomNccl = {"failed to malloc", "call to posix_memalign failed", "could not allocate*cannot allocate memory",
                            "memory allocation failed", "call to mmap failed*cannot allocate memory"};
constexpr Texts kOomCauses = {"the host or the container has too little memory for the ranks on it",
                              "memory.cap is too small for the channels and slots that were asked for",
                              "vm.overcommit_memory is 2"};
constexpr Texts kOomCommands = {"free -g; cat /sys/fs/cgroup/memory.max",
                                "TUTTI_MEMORY_CAP, TUTTI_MAX_CHANNELS, or fewer ranks per host", "tutti doctor --ranks N"};

constexpr Texts kDeviceOomNccl = {"cuda failure*out of memory", "cuda failure 2", "failed to cuda malloc",
                                  "failed to cudahostalloc"};
constexpr Texts kDeviceOomAny = {"cuda out of memory", "outofmemoryerror", "cuda_error_out_of_memory",
                                 "cudaerrormemoryallocation"};
constexpr Texts kDeviceOomCauses = {"the model and its batch fill the device, and nothing is left for the library's buffers",
                                    "another process uses the same device",
                                    "many communicators or channels, each with buffers of its own"};
constexpr Texts kDeviceOomCommands = {"nvidia-smi",
                                      "a smaller batch; NCCL_BUFFSIZE, NCCL_MAX_NCHANNELS; CUDA_VISIBLE_DEVICES=$LOCAL_RANK"};

constexpr Texts kShmOurs = {"cannot create shared memory*no space left", "cannot size shared memory", "/dev/shm*no space left",
                            "/dev/shm*read-only file system"};
constexpr Texts kShmNccl = {"error while creating shared memory segment", "/dev/shm/nccl-*no space left",
                            "call to posix_fallocate failed*no space left", "/dev/shm/nccl-*read-only",
                            "unable to allocate shared memory"};
constexpr Texts kShmAny = {"bus error", "dataloader worker*bus error", "insufficient shared memory (shm)"};
constexpr Texts kShmCauses = {
    "/dev/shm of the container is small: Docker's default is 64 MB, and NCCL takes about 10 MB for each connection",
    "files that killed jobs left there fill it", "it is mounted read-only"};
constexpr Texts kShmCommands = {"df -h /dev/shm; ls -l /dev/shm",
                                "docker run --shm-size=8g or --ipc=host; Kubernetes: an emptyDir of medium Memory at /dev/shm",
                                "rm /dev/shm/nccl-* once no job runs"};

constexpr Texts kMemlockOurs = {"cannot register*cannot allocate memory", "cannot register*ulimit -l",
                                "cannot be opened: cannot allocate memory*ulimit -l",
                                "cannot make a queue pair*cannot allocate memory"};
constexpr Texts kMemlockNccl = {"call to ibv_reg_mr*failed*cannot allocate memory", "ibv_reg_mr*failed*errno 12",
                                "call to ibv_create_cq failed*cannot allocate memory",
                                "call to ibv_create_qp failed*cannot allocate memory", "memlock"};
constexpr Texts kMemlockCauses = {
    "the limit of locked memory (ulimit -l) is too small for RDMA",
    "the limit is right in a shell, but not for the daemon that starts the ranks (slurmd, sshd, container service)"};
constexpr Texts kMemlockCommands = {
    "ulimit -l, in the job itself: srun bash -c 'ulimit -l'",
    "`* - memlock unlimited` in /etc/security/limits.d; LimitMEMLOCK=infinity of the service; --ulimit memlock=-1"};

constexpr Texts kFilesOurs = {"too many open files", "is the limit of open files reached"};
constexpr Texts kFilesNccl = {"too many open files", "errno 24"};
constexpr Texts kFilesAny = {"oserror: [errno 24]", "file table overflow"};
constexpr Texts kFilesCauses = {"ulimit -n is too small for the number of ranks",
                                "data loaders and checkpoints of the program hold many files"};
constexpr Texts kFilesCommands = {"ulimit -n 65536 (LimitNOFILE= of a service, --ulimit nofile= of a container)",
                                  "ls /proc/PID/fd | wc -l", "tutti doctor --ranks N"};

constexpr Texts kThreadsOurs = {"a thread or a lock is not to be had", "cannot start rank*resource temporarily unavailable"};
constexpr Texts kThreadsNccl = {"call to pthread_create failed", "pthread_create*resource temporarily unavailable"};
constexpr Texts kThreadsAny = {"can't start new thread", "fork: resource temporarily unavailable",
                               "fork: retry: resource temporarily unavailable"};
constexpr Texts kThreadsCauses = {"ulimit -u, or pids.max of the container, is reached"};
constexpr Texts kThreadsCommands = {"ulimit -u; cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids.current",
                                    "docker --pids-limit=-1"};

// ---- reaching each other
constexpr Texts kRefusedOurs = {"connection refused", "nobody listens at", "no daemon answers", "the daemon does not listen"};
constexpr Texts kRefusedNccl = {"connection refused", "returned 111", "errno 111"};
constexpr Texts kRefusedAny = {"econnrefused", "connection refused"};
constexpr Texts kRefusedCauses = {
    "the process that should listen there has ended, or not started yet: look at the rank or host of that address first",
    "a firewall rejects the port",
    "the address is one that several hosts have (docker0, virbr0): the wrong interface was chosen",
    "a port or address of an earlier job (TUTTI_COMM_ID, MASTER_PORT)"};
constexpr Texts kRefusedCommands = {"on the host of that address: ss -tlnp",
                                    "tutti doctor --hosts A,B: who reaches whom, by which interface and port",
                                    "TUTTI_SOCKET_IFNAME (NCCL_SOCKET_IFNAME); TUTTI_SOCKET_PORT_RANGE for the firewall"};

constexpr Texts kTimedOutOurs = {"connection timed out", "no complete handshake within", "no connection to*after",
                                 "no answer from the root", "cannot reach*does not answer"};
constexpr Texts kTimedOutNccl = {"connection timed out",        "returned 110",    "socketpollconnect*timeout",
                                 "bootstrapnetconnect timeout", "connect timeout", "socket*timed out"};
constexpr Texts kTimedOutAny = {"etimedout", "tcpstore*timed out", "timed out*connecting to",
                                "the client socket has timed out"};
constexpr Texts kTimedOutCauses = {"a firewall drops packets to that port",
                                   "the address is of an interface that the other host has no way to",
                                   "the host is down, or so loaded that it does not answer",
                                   "MTU: the connection is made, and large packets are lost on the way"};
constexpr Texts kTimedOutCommands = {"tutti doctor --hosts A,B", "ip route get ADDRESS; nc -zv ADDRESS PORT",
                                     "nft list ruleset; TUTTI_SOCKET_PORT_RANGE confines the ports to open"};

constexpr Texts kNoRouteOurs = {"no route to host", "network is unreachable", "no address to connect to is known",
                                "network unreachable"};
constexpr Texts kNoRouteNccl = {"no route to host", "network is unreachable", "errno 113", "errno 101"};
constexpr Texts kNoRouteCauses = {"the interface that was chosen is not on the network of the other host",
                                  "a firewall rejects with host-prohibited",
                                  "cable, switch or host is down (no answer to ARP)"};
constexpr Texts kNoRouteCommands = {"ip route get ADDRESS; ip neigh", "tutti doctor --hosts A,B",
                                    "TUTTI_SOCKET_IFNAME=10.0.0.0/8 picks a network on all hosts"};

constexpr Texts kInterfaceOurs = {"matches no*address of an interface that is up", "no interface is up with an",
                                  "^ stands once, before the first entry"};
constexpr Texts kInterfaceNccl = {"no socket interface found",
                                  "no interface found",
                                  "no ip interface found starting with",
                                  "neither af_inet",
                                  "using lo:127.0.0.1",
                                  "using docker0:",
                                  "using [0]lo:127.0.0.1",
                                  "using [0]docker0:",
                                  "using [0]virbr",
                                  "using [0]veth",
                                  "bootstrap*using veth"};
constexpr Texts kInterfaceCauses = {
    "NCCL_SOCKET_IFNAME or TUTTI_SOCKET_IFNAME names an interface that this host does not have: names differ between hosts",
    "nothing is set, and an interface of containers, or the loopback, came first",
    "the interface is down or has no address of the family"};
constexpr Texts kInterfaceCommands = {
    "ip -br addr, on each host",
    "TUTTI_SOCKET_IFNAME=10.1.0.0/16 (a network, the same on all hosts); NCCL_SOCKET_IFNAME==eth0 or ^docker0,lo",
    "tutti doctor --hosts A,B"};

constexpr Texts kFirewallOurs = {"is a firewall between their hosts", "have not connected to both neighbours",
                                 "is not reached at any pair of interfaces"};
constexpr Texts kFirewallAny = {"administratively prohibited", "operation not permitted*connect", "ufw block",
                                "nft*drop in=", "iptables*dropped"};
constexpr Texts kFirewallCauses = {
    "the ports of listeners are closed between some hosts: each rank takes any free port unless socket.port_range confines it",
    "one direction alone is open", "a network policy of the cluster (Kubernetes) or a security group of the cloud"};
constexpr Texts kFirewallCommands = {"tutti doctor --hosts A,B: each pair in both directions",
                                     "TUTTI_SOCKET_PORT_RANGE=40000-41000 on all ranks, and that range open",
                                     "nft list ruleset"};

constexpr Texts kPortsOurs = {"all ports of*are taken", "no free port in port_range",
                              "cannot listen at*address already in use"};
constexpr Texts kPortsNccl = {"call to bind failed*address already in use", "bind*errno 98"};
constexpr Texts kPortsAny = {"eaddrinuse", "address already in use", "errno: 98"};
constexpr Texts kPortsCauses = {"another job, or what is left of one, listens there",
                                "socket.port_range is too narrow for the ranks of this host"};
constexpr Texts kPortsCommands = {"ss -tlnp | grep PORT",
                                  "another MASTER_PORT or TUTTI_COMM_ID; a wider TUTTI_SOCKET_PORT_RANGE"};

constexpr Texts kNameAny = {"name or service not known",           "temporary failure in name resolution",
                            "could not resolve hostname",          "gaierror",
                            "no address associated with hostname", "cannot be resolved"};
constexpr Texts kNameCauses = {"the host's name is in no DNS and no /etc/hosts of the host that looks it up",
                               "the name server does not answer"};
constexpr Texts kNameCommands = {"getent hosts NAME, on each host",
                                 "an address instead of a name in TUTTI_COMM_ID or MASTER_ADDR"};

// ---- start-up
constexpr Texts kMissingOurs = {
    "ranks checked in after*missing:", "ranks came within*missing:",      "not joined within",
    "has not offered its unique id",   "no usable unique id from rank 0", "which has not named rank"};
constexpr Texts kMissingNccl = {"bootstraproot*timeout", "bootstrap*missing rank", "init timeout"};
constexpr Texts kMissingAny = {"timed out*waiting for clients", "wait timeout after", "rendezvous*timed out",
                               "only*of*ranks joined"};
constexpr Texts kMissingCauses = {"those ranks did not start, or ended: look at their own output first",
                                  "they were told another address, id or number of ranks",
                                  "a firewall, or the wrong interface, keeps them from the root"};
constexpr Texts kMissingCommands = {"the first error of the ranks that are named missing", "tutti doctor --hosts A,B",
                                    "TUTTI_INIT_TIMEOUT is how long the others wait"};

constexpr Texts kRanksOurs = {"was started with*ranks,*with",
                              "is out of range: the communicator has",
                              "checked in twice",
                              "that launcher has started",
                              "contradicts itself",
                              "unique ids,*with"};
constexpr Texts kRanksNccl = {"mismatched nranks",           "mismatch in rank count", "root has nranks", "duplicate rank",
                              "rank*has already checked in", "invalid rank requested", "nranks*mismatch"};
constexpr Texts kRanksAny = {"world_size*mismatch", "world size*does not match"};
constexpr Texts kRanksCauses = {"hosts were started with different numbers of processes (-n, --nproc_per_node, --nnodes)",
                                "two processes got the same rank: --node_rank is the same on two hosts",
                                "ranks of an earlier job still run and use the same address"};
constexpr Texts kRanksCommands = {"print rank and size of each process (tutti info shows what its launcher told)",
                                  "ps aux | grep PROGRAM, on all hosts: end what is left of earlier jobs"};

constexpr Texts kDuplicateNccl = {"duplicate gpu detected"};
constexpr Texts kDuplicateOurs = {"duplicate device", "duplicate gpu"};
constexpr Texts kDuplicateAny = {"multiple ranks*same gpu", "duplicate gpu detected"};
constexpr Texts kDuplicateCauses = {"several ranks of a host use the same device: none chose its own (cudaSetDevice), or all "
                                    "have the same CUDA_VISIBLE_DEVICES",
                                    "more ranks than devices on the host",
                                    "containers of one host see the same device under one name"};
constexpr Texts kDuplicateCommands = {"CUDA_VISIBLE_DEVICES=$LOCAL_RANK, or torch.cuda.set_device(local_rank)",
                                      "nvidia-smi -L, in each container"};

constexpr Texts kVersionOurs = {"ranks disagree: library version", "runs tutti*runs", "speaks version*of the protocol",
                                "net-socket speaks version", "speaks versions"};
constexpr Texts kVersionNccl = {"mismatched nccl version detected", "mismatched nccl version", "version mismatch"};
constexpr Texts kVersionCauses = {"hosts have different installations", "a container image is older on some hosts",
                                  "LD_LIBRARY_PATH finds another library on some ranks"};
constexpr Texts kVersionCommands = {"tutti version on all hosts; tutti doctor --hosts A,B compares",
                                    "ldd PROGRAM | grep -E 'tutti|nccl', in the job"};

constexpr Texts kSettingsOurs = {"ranks disagree: setting",   "ranks disagree: network",  "ranks disagree: tuner",
                                 "ranks disagree: algorithm", "ranks disagree: protocol", "ranks disagree:"};
constexpr Texts kSettingsCauses = {"variables are set on some ranks only: mpirun passes on only what -x names",
                                   "files tutti.toml differ between hosts",
                                   "a plugin, or a device, is there on some hosts only"};
constexpr Texts kSettingsCommands = {"tutti info config, on both ranks that are named",
                                     "mpirun -x TUTTI_..., or the file on all hosts"};

constexpr Texts kUnknownOurs = {"no such variable; did you mean", "unknown key", "is no value of", "unknown algorithm",
                                "unknown protocol"};
constexpr Texts kUnknownCauses = {"a typing mistake in a setting"};
constexpr Texts kUnknownCommands = {"tutti info config lists all"};

constexpr Texts kPluginOurs = {"no plugin offers",           "was skipped: ",
                               " skipped: cannot be loaded", "is loaded; `tutti info` shows what was searched",
                               "is built for plugin abi",    "cannot be loaded: "};
constexpr Texts kPluginNccl = {"net/plugin*failed to initialize", "error: network*not found", "plugin load*failed",
                               "no compatible net plugin", "net/plugin: incompatible"};
constexpr Texts kPluginCauses = {"the plugin is not installed on this host",
                                 "it is built for another version of the plugin interface",
                                 "a library that it needs is not found"};
constexpr Texts kPluginCommands = {"tutti info plugins; tutti check-plugin FILE", "ldd FILE",
                                   "TUTTI_PLUGIN_PATH, NCCL_NET_PLUGIN"};

constexpr Texts kPluginHarmlessNccl = {"could not find: libnccl-net",        "could not find: libnccl-tuner",
                                       "could not find: libnccl-profiler",   "failed to find ncclnetplugin_v",
                                       "failed to find ncclcollnetplugin_v", "no plugin found (libnccl",
                                       "using internal network plugin",      "using internal net plugin"};
constexpr Texts kPluginHarmlessCauses = {"NCCL tries names of plugins one after the other, and goes on with its own: nothing "
                                         "is wrong unless you count on such a plugin"};

constexpr Texts kKeyOurs = {"does not know this job's key",
                            "does not know the job's key",
                            "does not know the secret of the address",
                            "does not know this listener's secret",
                            "has another key: key_file",
                            "refused a connection from*key",
                            "core.security is"};
constexpr Texts kKeyNccl = {"bad magic", "wrong magic", "magic*mismatch"};
constexpr Texts kKeyCauses = {"a process of another job uses the same address",
                              "ranks read different key files (core.job_key_file)", "somebody scans ports"};
constexpr Texts kKeyCommands = {"another port in TUTTI_COMM_ID", "the same TUTTI_JOB_KEY_FILE, mode 0600, on all hosts"};

constexpr Texts kOtherJobOurs = {"it looks for a communicator or rank that is not in this process",
                                 "what answers there is not this library", "what it sent is no greeting of this library",
                                 "is no tutti-aggd"};
constexpr Texts kOtherJobCauses = {"a process of another or an earlier job",
                                   "another service listens at this address, or scans it"};
constexpr Texts kOtherJobCommands = {"ss -tnp, at the address that is named"};

// ---- in operations
constexpr Texts kMismatchOurs = {" calls *, rank*calls", "the ranks disagree about the operation", "sent*bytes for a buffer of",
                                 "all ranks must make the same calls"};
constexpr Texts kMismatchNccl = {"message truncated", "receiving*bytes instead of", "received*bytes instead of",
                                 "mismatch in collective", "collective mismatch"};
constexpr Texts kMismatchAny = {"detected mismatch between collectives", "mismatched collective"};
constexpr Texts kMismatchCauses = {
    "ranks called different collectives, or with other counts, types or roots: a branch that only some ranks take",
    "the last batch is smaller on some ranks", "settings that change message sizes differ between ranks"};
constexpr Texts kMismatchCommands = {"the two calls that are named, in the program",
                                     "TORCH_DISTRIBUTED_DEBUG=DETAIL in PyTorch"};

constexpr Texts kStuckOurs = {"made no progress for", "ranks*not finished after*still running"};
constexpr Texts kStuckNccl = {"watchdog*timeout", "collective operation timeout"};
constexpr Texts kStuckAny = {"watchdog caught collective operation timeout", "ran for*milliseconds before timing out",
                             "last enqueued*last completed"};
constexpr Texts kStuckCauses = {
    "a rank that is waited for has not called the operation: it is busy, stopped, or gone another way",
    "a rank has ended or hangs in its own code (data loading, checkpoint)",
    "the network loses packets, or is blocked (PFC): counters tell"};
constexpr Texts kStuckCommands = {"the ranks that the lines wait for: their stack (py-spy dump, gdb -p)",
                                  "TUTTI_TIMEOUT is how long operations wait",
                                  "tutti info devices, before and after: which counters rise"};

constexpr Texts kClosedOurs = {"closed the connection",
                               "control connection closed",
                               "control connection lost",
                               "not restored in*attempts",
                               "process ended or host unreachable",
                               "the peer has closed the link",
                               ") failed: ",
                               "has failed before",
                               "left the communicator",
                               "gave up joining",
                               "has left the communicator"};
constexpr Texts kClosedNccl = {"connection closed by remote peer", "connection reset by peer",
                               "net/ib*connection closed",         "remote process exited",
                               "bootstrap*closed by peer",         "socket*broken pipe"};
constexpr Texts kClosedAny = {"connection reset by peer", "broken pipe", "remote process exited or there was a network error"};
constexpr Texts kClosedCauses = {"that rank ended: its own last lines say why",
                                 "its host was restarted, or the network to it lost"};
constexpr Texts kClosedCommands = {"the log of the rank that is named, just before this time", "dmesg -T on its host"};

constexpr Texts kExitedAny = {"exited with code", "exited with non-zero", "childfailederror", "exited with exit code",
                              "primary job terminated normally, but"};
constexpr Texts kExitedCauses = {"the program ended with an error of its own: what it printed before says which"};
constexpr Texts kExitedCommands = {"the output of that rank (tutti run --tag-output, torchrun --tee 3)"};

constexpr Texts kUnhandledNccl = {"unhandled system error", "unhandled cuda error", "internal error - please report",
                                  "ncclsystemerror"};
constexpr Texts kUnhandledAny = {"unhandled system error", "unhandled cuda error", "nccl error in:", "ncclremoteerror",
                                 "ncclsystemerror"};
constexpr Texts kUnhandledCauses = {"the line says only that something failed; the WARN line before it says what"};
constexpr Texts kUnhandledCommands = {"NCCL_DEBUG=WARN (or INFO), and run again"};

// ---- RDMA, GPUs
constexpr Texts kRetryOurs = {"status 12", "transport retry counter exceeded"};
constexpr Texts kRetryNccl = {"error 12", "status=12", "transport retry counter exceeded", "status=ibv_wc_retry_exc_err",
                              "vendor err 129"};
constexpr Texts kRetryCauses = {
    "the peer, its port or its cable went down: look for port events and ended ranks at the same time",
    "from the start: GIDs of different subnets (gid_index), an MTU that a switch does not carry, a firewall before UDP 4791",
    "under load: packets are lost, for PFC and ECN do not cover this traffic"};
constexpr Texts kRetryCommands = {"ibstat; rdma link; show_gids, on both hosts",
                                  "tutti info devices: local_ack_timeout_err, out_of_sequence",
                                  "NCCL_IB_TIMEOUT, NCCL_IB_RETRY_CNT only put it off; docs/rdma.md, docs/lossless.md"};

constexpr Texts kRnrOurs = {"status 13", "rnr retry counter exceeded"};
constexpr Texts kRnrNccl = {"error 13", "status=13", "rnr retry counter exceeded"};
constexpr Texts kRnrCauses = {"the peer's process is stopped or hangs and posts nothing to receive with"};
constexpr Texts kRnrCommands = {"state of that process: ps, py-spy dump"};

constexpr Texts kPortOurs = {
    "went down",     "its state is down", "have been down for", "has been down for", "the device reported a fatal error",
    "port lost link"};
constexpr Texts kPortNccl = {"got async*event*port error", "async fatal event",      "port error",
                             "ibv_event_port_err",         "ibv_event_device_fatal", "no active port"};
constexpr Texts kPortAny = {"link is down", "link down", "link became not ready", "mlx5*port module event*unplugged",
                            "nic link is down"};
constexpr Texts kPortCauses = {"cable, transceiver or switch port", "the subnet manager was restarted, or the switch",
                               "the device was reset by its driver"};
constexpr Texts kPortCommands = {"ibstat; ibdiagnet; ip -s link; dmesg -T | grep -iE 'mlx|link'",
                                 "mlxlink -d DEVICE: what the cable says", "docs/rdma.md: link_down_timeout, spare ports"};

constexpr Texts kGidOurs = {"cannot go to rtr", "the gid at this index is gone", "are different networks",
                            "the gids are of different kinds"};
constexpr Texts kGidNccl = {"call to ibv_modify_qp failed", "ibv_modify_qp*failed", "no valid gid", "unable to find gid"};
constexpr Texts kGidCauses = {
    "NCCL_IB_GID_INDEX is another kind of address on one of the hosts: leave it unset, or set it on all",
    "the network interface of the port has lost its address", "no route between the subnets of the two ports (rails)"};
constexpr Texts kGidCommands = {"show_gids, or cat /sys/class/infiniband/*/ports/*/gids/*, on both hosts", "ip -br addr",
                                "tutti doctor --hosts A,B compares GID tables"};

constexpr Texts kPfcOurs = {"rx_prio*_pause +", "tx_prio*_pause +", "rx_pause_ctrl_phy +",
                            "tx_pause_storm",   "pause storm",      "rx_pfc_ena_frames"};
constexpr Texts kPfcAny = {"pause storm", "pfc storm", "pfc watchdog", "pfc deadlock", "pfcwd", "tx_pause_storm_error_events"};
constexpr Texts kPfcCauses = {"a host that takes no data pauses the switch, which pauses others: ranks that never posted "
                              "receives, a slow PCIe, a NUMA node far away",
                              "a loop of pauses (deadlock): routes that go up again after they went down",
                              "ECN thresholds lie above those of PFC, so pauses come first"};
constexpr Texts kPfcCommands = {
    "pause counters of switch ports and NICs: ethtool -S DEVICE | grep -i pause; tutti info devices",
    "the switch's PFC watchdog; ECN below PFC; docs/lossless.md"};

constexpr Texts kGdrOurs = {"nvidia_peermem", "nvidia-peermem",
                            "the kernel or the device's driver cannot do it for this kind of memory"};
constexpr Texts kGdrNccl = {
    "gpu direct rdma disabled", "gpudirect*disabled", "gdr*not available", "ibv_reg_mr*failed*bad address",
    "ibv_reg_dmabuf_mr*failed", "nv_peer_mem",        "nvidia_peermem",    "unable to register*cuda memory"};
constexpr Texts kGdrAny = {"nvidia_peermem:", "nvidia-peermem", "nv_peer_mem"};
constexpr Texts kGdrCauses = {"nvidia_peermem is not loaded, or is of an older driver",
                              "GPU and NIC are not below one PCIe root, or ACS sends their packets over the processor",
                              "the container has no access to the module's interface"};
constexpr Texts kGdrCommands = {"modprobe nvidia_peermem; dmesg | grep -i peermem",
                                "nvidia-smi topo -m; tutti doctor (topics gpus, pci)", "NCCL_NET_GDR_LEVEL=LOC does without"};

constexpr Texts kVerbsOurs = {"its file in /dev/infiniband is missing", "may not use the files in /dev/infiniband",
                              "libibverbs has no driver"};
constexpr Texts kVerbsNccl = {"failed to open libibverbs", "net/ib : no device found", "unable to open device",
                              "call to ibv_open_device failed", "no ib devices found"};
constexpr Texts kVerbsCauses = {"the container was not given /dev/infiniband",
                                "libibverbs or its provider for the card is not installed",
                                "there is no RDMA device: TCP is used, slower by far"};
constexpr Texts kVerbsCommands = {"ls /dev/infiniband; ibv_devinfo",
                                  "docker --device=/dev/infiniband; apt-get install ibverbs-providers",
                                  "TUTTI_NET=ib (NCCL_NET=IB) makes it an error instead of a slow run"};

constexpr Texts kTransportOurs = {"can be reached only over a network, and rank",
                                  "ranks share no memory and no network plugin has a device"};
constexpr Texts kTransportNccl = {"no transport found for rank"};
constexpr Texts kTransportCauses = {
    "shared memory and peer access are switched off, and no network is there",
    "containers of one host do not know that they are on one (NCCL_HOSTID), or believe it wrongly",
    "the network plugin loaded on some ranks only"};
constexpr Texts kTransportCommands = {"tutti info devices, on both",
                                      "TUTTI_SHM_DISABLE, NCCL_P2P_DISABLE, NCCL_SHM_DISABLE: unset them"};

constexpr Texts kXidAny = {"nvrm: xid", "cuda error: an illegal memory access", "uncorrectable ecc error", "fallen off the bus",
                           "cuda failure*ecc"};
constexpr Texts kXidNccl = {"cuda failure*illegal memory access", "cuda failure*ecc", "cuda failure 700",
                            "cuda failure*unspecified launch failure"};
constexpr Texts kXidCauses = {
    "the device failed (Xid 48, 63, 79, 94), or a kernel of the program wrote where it may not (Xid 13, 31)"};
constexpr Texts kXidCommands = {"dmesg -T | grep Xid; nvidia-smi -q -d ECC", "compute-sanitizer for the program's own kernels"};

constexpr Texts kCollnetOurs = {"collnet is not used",
                                "gave neither a result nor a reason",
                                "the daemon says nothing",
                                "is not complete in time; waiting for",
                                "cannot reach*aggd",
                                "coll.collnet is \"required\"",
                                "collnet-aggd"};
constexpr Texts kCollnetNccl = {"sharp*failed",           "sharp_coll_init",     "collnet*cannot",
                                "failed to init*collnet", "sharp*not available", "collnet error"};
constexpr Texts kCollnetCauses = {"a daemon (tutti-aggd, SHARP's sharp_am or sharpd) is gone, or was never there",
                                  "its key, port or version is another", "it has no more room for groups"};
constexpr Texts kCollnetCommands = {"tutti-aggd status, at the address that is named; docs/collnet.md",
                                    "TUTTI_COLLNET_ENABLE=preferred goes on without"};

constexpr Texts kPullOurs = {"process_vm_readv of process", "process_vm_readv: operation not permitted",
                             "cannot read the memory of rank", "cannot read what rank"};
constexpr Texts kPullCauses = {"ptrace_scope or a seccomp filter forbids reading another process's memory",
                               "the other process has ended, or freed a buffer of an operation that goes on"};
constexpr Texts kPullCommands = {"tutti doctor (topic single_copy)", "TUTTI_SHM_PULL=mapped does without"};

constexpr Texts kCoresOurs = {"more ranks than cores", "throttled", "cpu quota"};
constexpr Texts kCoresNccl = {"affinity*no cpu", "could not set affinity", "failed to set affinity", "numa*mismatch",
                              "topology*no numa"};
constexpr Texts kCoresAny = {"cfs_quota", "nr_throttled", "soft lockup", "rcu*self-detected stall"};
constexpr Texts kCoresCauses = {"ranks share cores: fewer cores, or a smaller quota, than ranks",
                                "processes are bound to cores of another NUMA node than their device"};
constexpr Texts kCoresCommands = {"tutti doctor --ranks N (topics cpus, container, numa)",
                                  "mpirun --map-by core --bind-to core; numactl -H"};

constexpr Texts kDiskAny = {"no space left on device", "enospc", "disk quota exceeded"};
constexpr Texts kDiskCauses = {"a file system is full: logs, checkpoints, dumps"};
constexpr Texts kDiskCommands = {"df -h; df -i"};

constexpr LogRule kRules[] = {
    {"device_memory",
     Depth::cause,
     "memory of a GPU ran out",
     {},
     kDeviceOomNccl,
     kDeviceOomAny,
     kDeviceOomCauses,
     kDeviceOomCommands},
    {"oom_kill", Depth::cause, "memory of the host or the container ran out", kOomOurs, kOomNccl, kOomAny, kOomCauses,
     kOomCommands},
    {"shared_memory", Depth::cause, "/dev/shm is full or cannot be written", kShmOurs, kShmNccl, kShmAny, kShmCauses,
     kShmCommands},
    {"memlock",
     Depth::cause,
     "memory for RDMA could not be pinned",
     kMemlockOurs,
     kMemlockNccl,
     {},
     kMemlockCauses,
     kMemlockCommands},
    {"open_files", Depth::cause, "no more files or sockets can be opened", kFilesOurs, kFilesNccl, kFilesAny, kFilesCauses,
     kFilesCommands},
    {"threads", Depth::cause, "no more threads or processes can be started", kThreadsOurs, kThreadsNccl, kThreadsAny,
     kThreadsCauses, kThreadsCommands},
    {"duplicate_gpu", Depth::cause, "two ranks use the same GPU", kDuplicateOurs, kDuplicateNccl, kDuplicateAny,
     kDuplicateCauses, kDuplicateCommands},
    {"rank_count", Depth::cause, "ranks disagree about how many there are, or who is who", kRanksOurs, kRanksNccl, kRanksAny,
     kRanksCauses, kRanksCommands},
    {"version", Depth::cause, "ranks run different versions", kVersionOurs, kVersionNccl, {}, kVersionCauses, kVersionCommands},
    {"mismatch", Depth::cause, "ranks made different calls", kMismatchOurs, kMismatchNccl, kMismatchAny, kMismatchCauses,
     kMismatchCommands},
    {"settings",
     Depth::cause,
     "ranks have different settings or plugins",
     kSettingsOurs,
     {},
     {},
     kSettingsCauses,
     kSettingsCommands},
    {"bad_setting",
     Depth::cause,
     "a setting does not exist or has no such value",
     kUnknownOurs,
     {},
     {},
     kUnknownCauses,
     kUnknownCommands},
    {"interface",
     Depth::cause,
     "a wrong network interface, or none",
     kInterfaceOurs,
     kInterfaceNccl,
     {},
     kInterfaceCauses,
     kInterfaceCommands},
    {"key_refused",
     Depth::cause,
     "a process without the job's key was turned away",
     kKeyOurs,
     kKeyNccl,
     {},
     kKeyCauses,
     kKeyCommands},
    {"plugin",
     Depth::cause,
     "a plugin is missing, or of another interface version",
     kPluginOurs,
     kPluginNccl,
     {},
     kPluginCauses,
     kPluginCommands},
    {"link_down", Depth::cause, "a network port lost its link", kPortOurs, kPortNccl, kPortAny, kPortCauses, kPortCommands},
    {"gpu_failure", Depth::cause, "a GPU failed, or a kernel on it", {}, kXidNccl, kXidAny, kXidCauses, kXidCommands},
    {"verbs",
     Depth::cause,
     "RDMA devices cannot be opened, or there are none",
     kVerbsOurs,
     kVerbsNccl,
     {},
     kVerbsCauses,
     kVerbsCommands},
    {"gid",
     Depth::cause,
     "RDMA addresses of the two ends do not go together",
     kGidOurs,
     kGidNccl,
     {},
     kGidCauses,
     kGidCommands},
    {"gpu_direct", Depth::cause, "the network card cannot reach memory of GPUs", kGdrOurs, kGdrNccl, kGdrAny, kGdrCauses,
     kGdrCommands},
    {"pfc",
     Depth::cause,
     "lossless Ethernet stands still: pauses, perhaps a deadlock",
     kPfcOurs,
     {},
     kPfcAny,
     kPfcCauses,
     kPfcCommands},
    {"ports_taken", Depth::cause, "a port is taken", kPortsOurs, kPortsNccl, kPortsAny, kPortsCauses, kPortsCommands},
    {"name", Depth::cause, "a host name does not resolve", kNameAny, kNameAny, kNameAny, kNameCauses, kNameCommands},
    {"killed", Depth::cause, "a rank was killed", {}, {}, kKilledAny, kKilledCauses, kKilledCommands},
    {"disk", Depth::cause, "a file system is full", {}, {}, kDiskAny, kDiskCauses, kDiskCommands},
    {"collnet",
     Depth::symptom,
     "reduction in the network is not to be had, or failed",
     kCollnetOurs,
     kCollnetNccl,
     {},
     kCollnetCauses,
     kCollnetCommands},
    {"firewall",
     Depth::symptom,
     "a firewall keeps hosts apart",
     kFirewallOurs,
     {},
     kFirewallAny,
     kFirewallCauses,
     kFirewallCommands},
    {"no_route", Depth::symptom, "there is no way to an address", kNoRouteOurs, kNoRouteNccl, kNoRouteNccl, kNoRouteCauses,
     kNoRouteCommands},
    {"transport",
     Depth::symptom,
     "two ranks have no way to each other",
     kTransportOurs,
     kTransportNccl,
     {},
     kTransportCauses,
     kTransportCommands},
    {"pull", Depth::symptom, "another process's memory cannot be read", kPullOurs, {}, {}, kPullCauses, kPullCommands},
    {"timed_out", Depth::symptom, "connections get no answer", kTimedOutOurs, kTimedOutNccl, kTimedOutAny, kTimedOutCauses,
     kTimedOutCommands},
    {"refused", Depth::symptom, "connections are refused", kRefusedOurs, kRefusedNccl, kRefusedAny, kRefusedCauses,
     kRefusedCommands},
    {"ib_retry",
     Depth::symptom,
     "an RDMA device got no acknowledgement (error 12)",
     kRetryOurs,
     kRetryNccl,
     {},
     kRetryCauses,
     kRetryCommands},
    {"ib_rnr",
     Depth::symptom,
     "an RDMA peer had no receive posted (error 13)",
     kRnrOurs,
     kRnrNccl,
     {},
     kRnrCauses,
     kRnrCommands},
    {"other_job",
     Depth::symptom,
     "something that is not of this job answers or asks",
     kOtherJobOurs,
     {},
     {},
     kOtherJobCauses,
     kOtherJobCommands},
    {"cores", Depth::symptom, "too few cores, or the wrong ones", kCoresOurs, kCoresNccl, kCoresAny, kCoresCauses,
     kCoresCommands},
    {"missing", Depth::consequence, "ranks did not come to the start", kMissingOurs, kMissingNccl, kMissingAny, kMissingCauses,
     kMissingCommands},
    {"stuck", Depth::consequence, "an operation did not end in time", kStuckOurs, kStuckNccl, kStuckAny, kStuckCauses,
     kStuckCommands},
    {"exited", Depth::consequence, "a rank ended with an error", {}, {}, kExitedAny, kExitedCauses, kExitedCommands},
    {"peer_gone", Depth::consequence, "a peer was gone in the middle", kClosedOurs, kClosedNccl, kClosedAny, kClosedCauses,
     kClosedCommands},
    {"unhandled",
     Depth::consequence,
     "a call failed, and the line does not say why",
     {},
     kUnhandledNccl,
     kUnhandledAny,
     kUnhandledCauses,
     kUnhandledCommands},
    {"plugin_search",
     Depth::harmless,
     "NCCL looks for plugins that are not there",
     {},
     kPluginHarmlessNccl,
     kPluginHarmlessNccl,
     kPluginHarmlessCauses,
     {}},
};

} // namespace

std::span<const LogRule> log_rules() {
  return kRules;
}

bool log_pattern_matches(std::string_view pattern, std::string_view line) {
  for (size_t at = 0; !pattern.empty();) {
    const std::string_view part = pattern.substr(0, pattern.find('*'));
    pattern.remove_prefix(std::min(pattern.size(), part.size() + 1));
    const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
    do { // "error 12" is not in "error 128"
      at = line.find(part, at);
      if (at == line.npos) return false;
      at += part.size();
    } while (!part.empty() && digit(part.back()) && at < line.size() && digit(line[at]));
  }
  return true;
}

} // namespace tutti::doctor
