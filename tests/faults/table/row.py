"""What a row of the table is."""
from dataclasses import dataclass, field
from typing import Callable, Optional

from judge import SLACK


@dataclass
class Row:
    name: str
    args: list  # of all ranks, see fault_rank --help
    deadline: float = 0  # seconds that may pass from the fault until ranks know
    expect: str = "error"  # error; right: the job goes on and ends well; either: one or the other, the same on all ranks
    says: str = ""  # a regular expression that survivors' errors match
    victim_says: str = ""
    victims: tuple = (1,)
    blame: tuple = ()  # whom survivors must name; else the victims
    victim_speaks: bool = False  # it is a survivor, too
    also_names: str = ""  # what else names the culprit
    ranks: int = 3
    least: int = 4  # rounds of a job that ends well
    env: dict = field(default_factory=dict)  # of all; FOLDER stands for the run's
    odd: dict = field(default_factory=dict)  # of victims
    limits: Optional[Callable] = None  # run -> {resource: most}, of victims
    vary: Optional[Callable] = None  # run -> arguments
    act: Optional[Callable] = None  # what the driver does; starts the ranks itself
    root: bool = False  # ranks meet at an address, with a key
    hosts: bool = False  # two, with half of the ranks each
    isolated: bool = False  # needs namespaces of its own
    shm_bytes: Optional[int] = None
    seconds: float = 3  # about how long it takes
    fair: bool = True  # what other processes had of the cores is not the job's time
    known: str = ""  # fails, and why

    def bound(self):
        return self.deadline + SLACK

    def limit(self):
        """After that a rank that has not spoken hangs."""
        return self.deadline + self.seconds + 40

    def needs_isolation(self):
        return self.isolated or self.hosts or self.root or self.shm_bytes is not None

    def culprits(self, rank):
        """Whom `rank` may name."""
        if self.hosts and not self.blame:  # a cut between hosts has two sides
            half = self.ranks // 2
            return list(range(half, self.ranks)) if rank < half else list(range(half))
        if rank in self.victims:  # what it got wrong, it got wrong together with somebody
            return list(range(self.ranks))
        return list(self.blame or self.victims)
