"""Where a run takes place: namespaces of its own for the network and for mounts, a folder, an empty /dev/shm, and for some rows a
second host. What is left in them afterwards was left by the job, for nobody else could."""
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PORT = 4460  # of the root, where the row wants one
HOST_A, HOST_B = "10.78.0.1", "10.78.0.2"


def namespaces():
    """The command that gives its program namespaces of its own, or None where that is not allowed."""
    for command in (["unshare", "--mount", "--net", "--propagation", "private"],
                    ["unshare", "--user", "--map-root-user", "--mount", "--net", "--propagation", "private"]):
        try:
            trial = "mount -t sysfs none /sys && mount -t tmpfs none /dev/shm && ip link set lo up"
            if subprocess.run(command + ["sh", "-c", trial], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
                return command
        except OSError:
            pass
    return None


def sh(*command, text=None, check=True):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done


def children():
    """Of this process, adopted ones too."""
    out = []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children") as f:
            out += [int(p) for p in f.read().split()]
    return out


def inet_sockets():
    """Of this network namespace: those that listen or are connected."""
    out = []
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/self/net/{name}") as f:
                rows = [line.split() for line in f.readlines()[1:]]
        except OSError:
            continue
        for row in rows:
            if row[3] in ("01", "0A"):  # ESTABLISHED, LISTEN
                out.append((row[3], int(row[1].rsplit(":", 1)[1], 16)))
    return out


def connected():
    """Ends of connections of this network namespace, over TCP or by name."""
    with open("/proc/self/net/unix") as f:
        unix = sum(line.split()[4:6] == ["0001", "03"] for line in f.readlines()[1:])
    return unix + sum(state == "01" for state, _ in inet_sockets())


class Crowd:
    """What other processes take of the cores from now on."""

    def __init__(self):
        self.since, self.at = time.monotonic(), self.taken()

    @staticmethod
    def taken():
        """Seconds of all cores that went to others since the machine started; children count as soon as they have been waited for."""
        with open("/proc/stat") as f:
            words = f.readline().split()
        ticks = [int(words[i]) for i in (1, 2, 3, 6, 7, 8)]  # without idle and iowait
        return sum(ticks) / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])

    def share(self):
        spent = max(0.0, self.taken() - self.at) / os.cpu_count()
        return min(1.0, spent / max(0.01, time.monotonic() - self.since))


def listening():
    return sorted({port for state, port in inet_sockets() if state == "0A"})


class Place:
    def __init__(self, isolated, hosts=False, shm_bytes=None):
        self.isolated, self.second = isolated, None
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.folder = tempfile.mkdtemp(prefix="tutti-faults-")
        self.before = set(children())
        if isolated:
            sh("mount", "-t", "sysfs", "none", "/sys")
            sh("mount", "-t", "tmpfs", "-o", f"size={shm_bytes or 1 << 30}", "none", "/dev/shm")
            sh("ip", "link", "set", "lo", "up")
        self.shm_before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
        self.mounted = []
        if hosts:
            self.join_hosts()

    def join_hosts(self):
        made, hold = os.pipe()
        go, stop = os.pipe()
        pid = os.fork()
        if pid == 0:  # makes a namespace, and is gone as soon as there is a descriptor of it
            ok = LIBC.unshare(CLONE_NEWNET) == 0
            os.write(hold, b"y" if ok else b"n")
            os.read(go, 1)
            os._exit(0)
        if os.read(made, 1) != b"y":
            raise RuntimeError("cannot make a network namespace")
        self.second = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        os.write(stop, b".")
        os.waitpid(pid, 0)
        for fd in (made, hold, go, stop):
            os.close(fd)
        path = f"/proc/{os.getpid()}/fd/{self.second}"
        sh("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
        sh("ip", "link", "set", "veth1", "netns", path)
        self.on("a", "ip", "addr", "add", f"{HOST_A}/24", "dev", "veth0")
        self.on("a", "ip", "link", "set", "veth0", "up")
        self.on("b", "ip", "link", "set", "lo", "up")
        self.on("b", "ip", "link", "set", "veth1", "name", "veth0")
        self.on("b", "ip", "addr", "add", f"{HOST_B}/24", "dev", "veth0")
        self.on("b", "ip", "link", "set", "veth0", "up")

    def on(self, host, *command, text=None, check=True):
        at = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{self.second}"] if host == "b" else []
        return sh(*at, *command, text=text, check=check)

    def enter(self, host):
        """In a child, before it becomes a rank."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if host == "b":
            LIBC.setns(self.second, CLONE_NEWNET)
            LIBC.unshare(CLONE_NEWNS)
            LIBC.mount(b"none", b"/sys", b"sysfs", 0, None)

    def small_disk(self, name, size):
        """A folder on a file system of so many bytes."""
        path = os.path.join(self.folder, name)
        os.mkdir(path)
        sh("mount", "-t", "tmpfs", "-o", f"size={size}", "none", path)
        self.mounted.append(path)
        return path

    def env(self):
        out = {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", "NCCL_"))}
        for name in ("TMPDIR", "HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
            out[name] = self.folder
        out.update(TUTTI_CALIBRATE="off", MALLOC_ARENA_MAX="2")
        return out

    def left(self, ours):
        """What the job has left behind, in words; `ours` are names in the folder that the driver has made."""
        while True:  # what was adopted and has ended is nobody's fault
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break
        out = [f"process {p}: {_command(p)}" for p in children() if p not in self.before]
        for path in self.mounted:
            sh("umount", path, check=False)
        out += [f"file {n}" for n in sorted(os.listdir(self.folder)) if n not in ours]
        if os.path.isdir("/dev/shm"):
            out += [f"/dev/shm/{n}" for n in sorted(set(os.listdir("/dev/shm")) - self.shm_before) if self.isolated or "tutti" in n]
        if self.isolated:
            out += [f"a listener at port {p}" for p in listening()]
            with open("/proc/self/net/unix") as f:
                out += [f"socket {n}" for n in sorted({line.split()[7] for line in f.readlines()[1:] if len(line.split()) > 7})]
        return out

    def close(self):
        for p in children():
            if p not in self.before:
                os.kill(p, signal.SIGKILL)
                os.waitpid(p, 0)
        if self.second is not None:
            os.close(self.second)
        shutil.rmtree(self.folder, ignore_errors=True)


def _command(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as f:
            return f.read().replace("\0", " ").strip() or "(ended)"
    except OSError:
        return "(ended)"
