"""Who does not belong: it says nothing, or nonsense, or what somebody else has said before. The job does not mind."""
import contextlib
import os
import random
import select
import socket
import struct
import threading

from place import PORT, listening, sh
from row import Row

PROXY, MARK = 4461, 7
SO_ORIGINAL_DST, SO_MARK = 80, 36
ARGS = ["--tell", "--timeout", "6", "--init-timeout", "12"]
LIVES = dict(expect="right", root=True, victims=())


def dial(port, stack):
    s = stack.enter_context(socket.socket())
    s.settimeout(2)
    s.connect(("127.0.0.1", port))
    return s


def visit(stack, ports, say, each):
    """Some strangers at each listener; those that are sent away are content."""
    for port in ports:
        for _ in range(each):
            with contextlib.suppress(OSError):
                s = dial(port, stack)
                if words := say():
                    s.sendall(words)


def root_is_up(job):
    job.start(0)
    if not job.until(lambda: PORT in listening(), 20):
        raise RuntimeError("the root does not listen")


def strange(say, each=8):
    """Before the others join, and again while they work."""

    def act(job):
        with contextlib.ExitStack() as stack:
            root_is_up(job)
            visit(stack, [PORT], lambda: say(job), each)
            job.start(*range(1, job.row.ranks))
            job.reach("operation")
            visit(stack, listening(), lambda: say(job), each)
            job.tell(0)
            job.wait(job.row.limit())

    return act


def nothing(_job):
    return b""


def garbage(job):
    return random.Random(job.run).randbytes(1 + 37 * job.run % 3000)


def looks_right(job):
    """Begins as what belongs does (the library's first word), and goes on as it likes."""
    return b"TUTT" + random.Random(job.run).randbytes(200)


class Recorder:
    """Carries all connections of the namespace, and keeps what those who dialled have said."""

    def __init__(self):
        self.streams, self.done = [], False  # (port, bytes)
        self.listener = socket.create_server(("127.0.0.1", PROXY), backlog=64)
        self.listener.settimeout(0.1)
        self.thread = threading.Thread(target=self._accept)
        sh("nft", "-f", "-", text=f"table ip faults {{\n chain out {{\n type nat hook output priority -100\n"
           f" meta mark != {MARK} ip daddr 127.0.0.0/8 tcp dport != {PROXY} redirect to :{PROXY}\n }}\n}}\n")
        self.carriers = []
        self.thread.start()

    def _accept(self):
        while not self.done:
            with contextlib.suppress(TimeoutError):
                near, _ = self.listener.accept()
                self.carriers.append(threading.Thread(target=self._carry, args=(near,)))
                self.carriers[-1].start()

    def _carry(self, near):
        to = near.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)
        port = struct.unpack("!H", to[2:4])[0]
        said = bytearray()
        self.streams.append((port, said))
        far = socket.socket()
        far.setsockopt(socket.SOL_SOCKET, SO_MARK, MARK)
        with near, far, contextlib.suppress(OSError):
            far.connect(("127.0.0.1", port))
            while not self.done:
                for s in select.select([near, far], [], [], 0.1)[0]:
                    data = s.recv(65536)
                    if not data:
                        return
                    (far if s is near else near).sendall(data)
                    if s is near and len(said) < 1 << 20:
                        said += data

    def stop(self):
        self.done = True
        self.thread.join()
        for c in self.carriers:
            c.join()
        self.listener.close()
        sh("nft", "delete", "table", "ip", "faults")


def replay(stack, streams, ports):
    """All that was said, to where it was said and to all others that listen."""
    for port, said in streams:
        for to in {port, *ports}:
            with contextlib.suppress(OSError):
                dial(to, stack).sendall(bytes(said))


def of_other_hosts(job):
    return {n: {"TUTTI_HOSTID": f"host-{n}"} for n in range(job.row.ranks)}


def start_all(job, numbers):
    for n, env in of_other_hosts(job).items():
        if n in numbers:
            job.start(n, env=env)


def replayed_to_the_job(job):
    recorder = Recorder()
    try:
        with contextlib.ExitStack() as stack:
            start_all(job, range(job.row.ranks))
            job.reach("operation")
            streams = [(port, bytes(said)) for port, said in recorder.streams if said]
            replay(stack, streams, [p for p in listening() if p != PROXY])
            job.tell(0)
            job.wait(job.row.limit())
            return [] if len(streams) >= job.row.ranks else [f"only {len(streams)} connections were recorded"]
    finally:
        recorder.stop()


def replayed_to_the_next_job(job):
    from job import Job  # the first one, of the same key and address
    first, recorder = Job(job.place, job.row, job.run, job.program, job.logs, "first"), Recorder()
    try:
        start_all(first, range(job.row.ranks))
        first.reach("operation")
        first.tell(0)
        ended = first.wait(job.row.limit())
    finally:
        recorder.stop()
        first.end()
    streams = [(port, bytes(said)) for port, said in recorder.streams if said]
    with contextlib.ExitStack() as stack:
        start_all(job, [0])
        job.until(lambda: PORT in listening(), 20)
        replay(stack, streams, listening())  # rank 1 seems to have come, if that is believed
        start_all(job, range(1, job.row.ranks))
        job.reach("operation")
        replay(stack, streams, listening())
        job.tell(0)
        job.wait(job.row.limit())
    return ([] if ended else ["the first job did not end"]) + ([] if streams else ["nothing was recorded"])


def another_key(job):
    """Rank 1 has another key: the others wait for it in vain, and it is refused."""
    job.start(0, 2)
    job.start(1, env={"TUTTI_JOB_KEY_FILE": job.key("other-key")})


def another_job(job):
    """A rank of another job, with another key, dials ours in the name of rank 1, which comes as well."""
    from job import Job
    other = Job(job.place, job.row, job.run, job.program, job.logs, "other")
    root_is_up(job)
    other.start(1, env={"TUTTI_JOB_KEY_FILE": other.key("other-key")})
    job.files.add("other-key")
    if not other.until(lambda: other.ranks[1].at("bootstrap"), 20):
        return ["the other job's rank did not start"]
    job.start(1, 2)
    job.reach("operation")
    job.tell(0)
    job.wait(job.row.limit())
    ended = other.wait(40)
    last = other.ranks[1].last()
    other.end()
    return [] if ended and last and last["result"] != 0 else ["the other job's rank was let in, or hangs"]


def rows():
    for way, shm in (("shm", "1"), ("socket", "0")):
        args = [*ARGS, "--shm", shm, "--until-told"]
        yield Row(f"strangers who say nothing, {way}", args, act=strange(nothing), **LIVES)
        yield Row(f"strangers who say nonsense, {way}", args, act=strange(garbage), **LIVES)
    args = [*ARGS, "--shm", "0", "--until-told"]
    yield Row("strangers who begin as ranks do", args, act=strange(looks_right), **LIVES)
    yield Row("handshakes are replayed to their job", args, act=replayed_to_the_job, **LIVES)
    yield Row("handshakes are replayed to the next job", args, act=replayed_to_the_next_job, **LIVES, seconds=5)
    yield Row("a rank of another job", args, act=another_job, **LIVES, seconds=8)
    yield Row("another key on one rank", [*ARGS[:-2], "--init-timeout", "6"], act=another_key, root=True, deadline=6, victim_speaks=True,
              says=r"missing: 1", seconds=5)
