"""The table: which fault, where, and what every survivor must say of it."""
import os
import resource
import shutil

import network
import strangers
from place import connected
from row import Row

WAIT, JOIN = 3, 6  # seconds: deadlines of an operation and of joining
SHM, SOCKET = ["--shm", "1"], ["--shm", "0"]
WAYS = (("shm", SHM), ("socket", SOCKET))
TIMES = ["--timeout", str(WAIT), "--init-timeout", str(JOIN)]
LONG = ["--count", str(1 << 20)]  # 8 MiB: there is a middle

GONE = r"control connection closed: process ended|has gone|missing: 1|process ended|rank 1 .*(ended|left|closed)"
SILENT = r"does not answer|missing: (0, )?1|waits for rank 1|no connection with rank 1"


def others_first(job):
    """Who comes late to a job that has ended hears only that it is not there: so the others come before the victim does."""
    job.start(*(n for n in range(job.row.ranks) if n not in job.row.victims))
    job.until(lambda: connected() >= 2 if job.place.isolated else job.ranks[0].at("bootstrap"), 20)
    job.start(*job.row.victims)


def steps(phase, what="die"):
    """Every run strikes elsewhere in the phase. Who exits or throws does so at leisure: after the first word of a finalize it would be
    too late."""
    if phase == "finalize" and what in ("exit", "throw"):
        return None
    return {"bootstrap": lambda run: ["--step", str(run)], "connect": lambda run: ["--step", str(run)],
            "operation": lambda run: ["--step", str(3 * run % 64)], "finalize": lambda run: ["--step", str(run % 2)]}[phase]


def process_faults():
    kinds = (("kill -9", "die", GONE), ("SIGSTOP", "stop", SILENT), ("exit(3)", "exit", GONE), ("exception", "throw", GONE))
    phases = (("at bootstrap", "bootstrap", JOIN), ("at connect", "connect", WAIT), ("in an operation", "operation", WAIT),
              ("at finalize", "finalize", WAIT))
    for name, what, says in kinds:
        for where, phase, deadline in phases:
            for way, args in WAYS:
                yield Row(f"{name} {where}, {way}",
                          ["--tell", "--what", what, "--when", phase, *args, *TIMES, *(LONG if phase == "operation" else [])],
                          deadline=deadline, says=says, vary=steps(phase, what),
                          act=others_first if phase == "bootstrap" else None)
    for where, phase, deadline in phases[:3]:
        yield Row(f"kill -9 of rank 0 {where}, shm", ["--what", "die", "--when", phase, *SHM, *TIMES, *(LONG if phase == "operation" else [])],
                  deadline=deadline, victims=(0,), vary=steps(phase), says=r"rank 0|root|missing: 0|made the unique id",
                  also_names=r"\broot\b|made the unique id")


def misunderstandings():
    both = r"calls .* calls "
    for what in ("count", "type", "op", "root", "order", "collective", "communicator"):
        says = both if what != "communicator" else r"has not called it|rank 1"
        for way, args in WAYS:
            yield Row(f"another {what}, {way}", ["--what", what, *args, *TIMES], deadline=WAIT, says=says, victim_says=says,
                      victim_speaks=True)


def differences():
    once = [*SHM, *TIMES, "--rounds", "1"]

    def other_build(job):
        folder = os.path.join(job.place.folder, "plugins")
        os.mkdir(folder, 0o755)
        job.files.add("plugins")
        copy = shutil.copy(os.path.join(job.build, "lib", "tutti", "plugins", "libtutti-algo-tree.so"), folder)
        with open(copy, "ab") as f:
            f.write(b"\0")  # a byte more, behind all that is looked at
        job.start()

    told = dict(deadline=JOIN, victim_speaks=True)
    for name, odd, says, act in (
            ("a plugin is missing on one rank", {"TUTTI_PLUGIN_DISABLE": "algo-tree"}, r'algorithm "tree" \(absent and algo-tree ', None),
            ("another build of a plugin on one rank", {"TUTTI_PLUGIN_PATH": "FOLDER/plugins"},
             r'algorithm "tree" of rank 1 is algo-tree .*\(build .* of rank 0 it is algo-tree ', other_build),
            ("another setting on one rank", {"TUTTI_MEMORY_CAP": "64MiB"},
             r'setting memory\.cap of rank 1 is "67108864".* of rank 0 it is "268435456"', None)):
        yield Row(name, once, odd=odd, says="ranks disagree: .*" + says, victim_says=says, act=act, **told)


def shortages():
    yield Row("/dev/shm of 64 KiB", [*SHM, *TIMES, "--rounds", "20", *LONG], expect="right", victims=(), shm_bytes=65536)

    def dump_to_full_disk(job):
        disk = job.place.small_disk("disk", 65536)
        filler = os.open(os.path.join(disk, "filler"), os.O_WRONLY | os.O_CREAT)
        try:
            while os.write(filler, bytes(4096)):
                pass
        except OSError:
            os.close(filler)
        job.files.add("disk")
        job.start()
        job.until(lambda: all(not r.open for r in job.survivors()), job.row.limit())
        part = [n for n in os.listdir(disk) if n != "filler" and os.path.getsize(os.path.join(disk, n))]
        complaints = [f"a part of a dump is left: {n}" for n in part]
        told = [r.number for r in job.survivors() if "No space left on device" not in job.words(r)]
        return complaints + [f"rank {n} does not say that its dump failed" for n in told]

    yield Row("the disk for dumps is full", ["--what", "die", *SHM, *TIMES, *LONG], deadline=WAIT, says=GONE, vary=steps("operation"),
              env={"TUTTI_RECORD_FILE": "FOLDER/disk/flight.json"}, act=dump_to_full_disk, isolated=True)
    few = {"shm": 8, "socket": 8}
    for way, args in WAYS:
        yield Row(f"no file descriptors on one rank, {way}", [*args, *TIMES, "--rounds", "3"], deadline=2 * JOIN, expect="either",
                  victim_speaks=True, limits=lambda run, least=few[way]: {resource.RLIMIT_NOFILE: least + run})
        yield Row(f"no memory on one rank, {way}", [*args, *TIMES, "--rounds", "3"], deadline=2 * JOIN, expect="either",
                  victim_speaks=True, limits=lambda run: {}, vary=lambda run: ["--memory", str(2 + run)],
                  victim_says="memory|thread")
    yield Row("a cap that is too small for a communicator", [*SHM, *TIMES, "--rounds", "3"], deadline=JOIN, expect="either", victims=(),
              env={"TUTTI_MEMORY_CAP": "1MiB", "TUTTI_MIN_CHANNELS": "16", "TUTTI_BUFFSIZE": "4MiB"}, seconds=2)


TABLE = [*process_faults(), *misunderstandings(), *differences(), *shortages(), *network.rows(), *strangers.rows()]
