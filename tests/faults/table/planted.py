"""What the judge must find: mistakes of ranks and of rows, made on purpose."""
from dataclasses import dataclass

from row import Row

KILL = ["--what", "die", "--when", "operation", "--timeout", "2", "--init-timeout", "60"]


def litter(job):
    with open(f"{job.place.folder}/litter", "w") as f:
        f.write("left behind\n")
    job.start()


def litter_in_memory(job):
    with open("/dev/shm/tutti-litter", "w") as f:
        f.write("left behind\n")
    job.start()


@dataclass
class Plant:
    row: Row
    finds: str  # a member of the outcome that must be set
    words: str  # what a complaint says


PLANTED = [
    Plant(Row("planted: nothing is wrong", KILL, deadline=2), "", ""),
    Plant(Row("planted: the wrong rank is asked for", KILL, deadline=2, blame=(2,)), "", "does not name rank 2"),
    Plant(Row("planted: other words are asked for", KILL, deadline=2, says="moonlight"), "", "does not say /moonlight/"),
    Plant(Row("planted: there is no fault", ["--rounds", "2"], deadline=2, victims=()), "", "has no error"),
    Plant(Row("planted: there is a fault", KILL, expect="right"), "", "failed: "),
    Plant(Row("planted: a rank hangs", [*KILL, "--plant", "hang"], deadline=2, seconds=-37), "hung", "hangs"),
    Plant(Row("planted: a rank crashes", [*KILL, "--plant", "crash"], deadline=2), "crashed", "crashed"),
    Plant(Row("planted: a wrong result", ["--rounds", "2", "--plant", "wrong"], expect="right", victims=()), "wrong", "wrong result"),
    Plant(Row("planted: a verdict that is late", ["--what", "stop", "--when", "operation", "--timeout", "4"], deadline=0.5, seconds=6, fair=False),
          "late", "are allowed"),
    Plant(Row("planted: a process is left", [*KILL, "--plant", "child"], deadline=2), "left", "left behind: process"),
    Plant(Row("planted: a file is left", KILL, deadline=2, act=litter), "left", "left behind: file litter"),
    Plant(Row("planted: shared memory is left", KILL, deadline=2, act=litter_in_memory, isolated=True), "left", "left behind: /dev/shm"),
    Plant(Row("planted: too few rounds", ["--rounds", "2"], expect="right", victims=(), least=100), "", "rounds"),
]


def check(options, command, run_all):
    able = [p for p in PLANTED if command or not p.row.needs_isolation()]
    done = run_all([p.row for p in able], 1, options, command, show=False)
    bad = 0
    for p in able:
        outcome = done[p.row.name][0]
        said = "; ".join(outcome["complaints"])
        if p.words:
            found = p.words in said and (not p.finds or outcome[p.finds])
        else:
            found = not said
        print(f"{'found' if found else 'NOT FOUND'}: {p.row.name}: {said or 'no complaint'}")
        bad += not found
    print(f"{len(able) - bad} of {len(able)} as planted")
    return 1 if bad else 0
