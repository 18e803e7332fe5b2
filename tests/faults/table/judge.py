"""What a run was worth: every survivor's verdict against what its row asks for. A run is right when there is nothing to say."""
import re
import socket
from dataclasses import asdict, dataclass, field

SLACK = 1.0  # seconds between a deadline and the verdict


@dataclass
class Outcome:
    row: str
    run: int
    complaints: list = field(default_factory=list)
    named: bool = True  # the culprit, by all survivors; where there is one
    wrong: int = 0
    hung: int = 0
    crashed: int = 0
    late: bool = False
    left: list = field(default_factory=list)
    seconds: float = -1  # from the fault to the last verdict; -1: there is none
    others: float = 0  # share of the cores that other processes took meanwhile
    said: str = ""

    def right(self):
        return not self.complaints

    def record(self):
        return dict(asdict(self), right=self.right())


def plain(text):
    """A line without what differs from run to run."""
    text = re.sub(r"\bpid \d+", "pid N", text.replace(socket.gethostname(), "host"))
    text = re.sub(r"/tmp/tutti-faults-\w+", "FOLDER", text)
    return re.sub(r"\b((?:127|10)\.\d+\.\d+\.\d+):\d+", r"\1:PORT", text)


def names(text, ranks):
    return any(re.search(rf"\branks? (?:\d+(?:-\d+)?, )*{r}\b|missing: (?:\d+(?:-\d+)?, )*{r}\b", text) for r in ranks)


def judge(row, job, ended):
    """ended: all had their say in time."""
    out = Outcome(row.name, job.run)
    for rank in job.survivors():
        who = f"rank {rank.number}"
        last = rank.last()
        words = job.words(rank)
        if rank.code is None or (last is None and rank.code == 0):
            out.hung += rank.code is None
            out.complaints.append(f"{who} " + ("hangs" if rank.code is None else "ended without a word"))
        elif rank.code != 0 or last is None:
            out.crashed += 1
            out.complaints.append(f"{who} crashed (code {rank.code}): {words[-200:]}")
        if last is None:
            out.named = False
            continue
        if not last["right"]:
            out.wrong += 1
            out.complaints.append(f"{who} has a wrong result")
        _judge_verdict(row, job, rank, last, out)
    if not ended and not out.hung:
        out.hung += 1
        out.complaints.append("not over in time")
    return out


def judge_time(row, out):
    """When it is known what others took of the machine: that is no time of the job's."""
    if row.expect != "right" and row.bound() < out.seconds * (1 - out.others if row.fair else 1):
        out.late = True
        out.complaints.append(f"{out.seconds:.2f} s from the fault to the verdict, {row.bound():g} s are allowed")


def _judge_verdict(row, job, rank, last, out):
    who, failed = f"rank {rank.number}", last["result"] != 0
    text = plain(last["error"])
    if failed and last.get("verdict_at"):  # what is wrong from the beginning has no other time
        out.seconds = max(out.seconds, last["verdict_at"] - (job.fault_at or job.began))
    if row.expect == "right" or (row.expect == "either" and not failed):
        if failed:
            out.complaints.append(f"{who} failed: {text}")
        elif last["phase"] != "done" or last["rounds"] < row.least:
            out.complaints.append(f"{who} got to {last['phase']} only, {last['rounds']} rounds")
        return
    if not failed:
        out.named = False
        out.complaints.append(f"{who} has no error")
        return
    out.said = out.said or text
    culprits = row.culprits(rank.number)
    itself = row.limits and rank.number in row.victims  # what it lacks is its own affair, and says so
    if not (itself or last["peer"] in culprits or names(text, culprits) or (row.also_names and re.search(row.also_names, text))):
        out.named = False
        out.complaints.append(f"{who} does not name rank {' or '.join(map(str, culprits))}: {text}")
    says = row.victim_says if rank.number in row.victims else row.says
    if says and not re.search(says, text):
        out.complaints.append(f"{who} does not say /{says}/: {text}")
