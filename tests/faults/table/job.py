"""The ranks of one run: started as a row says, listened to until all have said their last word, and ended."""
import contextlib
import json
import os
import resource
import selectors
import signal
import subprocess
import time

from place import HOST_A, PORT


class Rank:
    def __init__(self, number, process, log):
        self.number, self.process, self.log = number, process, log
        self.text, self.lines, self.open, self.code = b"", [], True, None

    def last(self):
        """Its verdict, or None."""
        return next((line for line in reversed(self.lines) if "result" in line), None)

    def at(self, phase):
        return any(line.get("at") == phase for line in self.lines)


class Job:
    def __init__(self, place, row, run, program, logs, name="job"):
        self.place, self.row, self.run, self.program, self.logs = place, row, run, program, logs
        self.ranks, self.fault_at, self.began, self.name = {}, None, None, name
        self.selector = selectors.DefaultSelector()
        self.files = {"id", "key"}  # in the place's folder, made by us
        self.env = dict(place.env(), **{k: str(v).replace("FOLDER", place.folder) for k, v in row.env.items()})
        self.address = f"file:{place.folder}/id"
        if row.root:  # ranks meet at an address
            self.address = f"{HOST_A if row.hosts else '127.0.0.1'}:{PORT}"
            self.env["TUTTI_JOB_KEY_FILE"] = self.key("key")

    def key(self, name):
        path = os.path.join(self.place.folder, name)
        self.files.add(name)
        if not os.path.exists(path):
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
                f.write(os.urandom(32))
        return path

    def host(self, number):
        return "b" if self.row.hosts and number >= self.row.ranks // 2 else "a"

    def start(self, *numbers, env=None, args=()):
        self.began = self.began or time.time()
        for number in numbers or range(self.row.ranks):
            self._start(number, env or {}, args)

    def _start(self, number, more, args):
        row = self.row
        env = dict(self.env, TUTTI_RANK=str(number), TUTTI_NRANKS=str(row.ranks), TUTTI_COMM_ID=self.address)
        odd = number in row.victims
        if odd:
            env.update({k: str(v).replace("FOLDER", self.place.folder) for k, v in row.odd.items()})
        env.update(more)
        limits = row.limits(self.run) if odd and row.limits else {}

        def prepare():
            self.place.enter(self.host(number))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            for what, most in limits.items():
                resource.setrlimit(what, (most, most))

        who = ["--who", ",".join(map(str, row.victims))] if row.victims else []
        words = [self.program, *who, *row.args, *(row.vary(self.run) if row.vary else []), *args]
        log = open(os.path.join(self.logs, f"{self.name}.{number}"), "wb")
        process = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, preexec_fn=prepare,
                                   cwd=self.place.folder)
        rank = self.ranks[number] = Rank(number, process, log.name)
        log.close()
        os.set_blocking(process.stdout.fileno(), False)
        self.selector.register(process.stdout, selectors.EVENT_READ, rank)

    def listen(self, seconds):
        for key, _ in self.selector.select(max(0, seconds)):
            rank = key.data
            data = rank.process.stdout.read(65536)
            if not data:
                self.selector.unregister(rank.process.stdout)
                rank.open = False
                continue
            *whole, rank.text = (rank.text + data).split(b"\n")
            for line in whole:
                said = json.loads(line)
                rank.lines.append(said)
                if "fault_at" in said and self.fault_at is None:
                    self.fault_at = said["fault_at"]

    def until(self, done, seconds):
        """True when done() became so in time."""
        end = time.monotonic() + seconds
        while not done():
            left = end - time.monotonic()
            if left <= 0:
                return False
            self.listen(min(left, 0.05))
        return True

    def reach(self, phase, numbers=None, seconds=20):
        """All (of these) ranks are there, or have failed before."""
        wanted = [self.ranks[n] for n in (self.ranks if numbers is None else numbers)]
        return self.until(lambda: all(r.at(phase) or r.last() or not r.open for r in wanted), seconds)

    def strike(self):
        """What the driver does now is the fault."""
        self.fault_at = time.time()

    def tell(self, *numbers):
        for n in numbers:
            try:
                self.ranks[n].process.stdin.write(b".")
                self.ranks[n].process.stdin.flush()
            except OSError:
                pass  # it has ended, and said why

    def survivors(self):
        return [self.ranks[n] for n in sorted(self.ranks) if n not in self.row.victims or self.row.victim_speaks]

    def wait(self, seconds):
        """Until all who have to speak have spoken and ended. False: somebody has not."""
        ok = self.until(lambda: not any(r.open for r in self.survivors()), seconds)
        ok = self.until(lambda: all(r.process.poll() is not None for r in self.survivors()), 5 if ok else 0) and ok
        for rank in self.ranks.values():
            rank.code = rank.process.poll()
        return ok

    def end(self):
        for rank in self.ranks.values():
            if rank.process.poll() is None:
                rank.process.send_signal(signal.SIGKILL)
            rank.process.wait()
            for pipe in (rank.process.stdin, rank.process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()
        self.selector.close()

    def words(self, rank):
        with open(rank.log, errors="replace") as f:
            return f.read()
