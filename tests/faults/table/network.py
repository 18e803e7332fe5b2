"""Two hosts, two ranks in each, and a network between them that fails while they work."""
import time

from place import HOST_A
from row import Row

WAIT = 3  # seconds; socket.dead_after may not be less than 2
ARGS = ["--shm", "0", "--tell", "--init-timeout", "20"]
DATA = (30000, 30999)  # ports of net-socket, so that rules can leave the control plane alone
ENV = {"TUTTI_SOCKET_DEAD_AFTER": "2s", "TUTTI_PLUGIN_NET_SOCKET_PORT_RANGE": f"{DATA[0]}-{DATA[1]}",
       "TUTTI_PLUGIN_NET_SOCKET_SILENCE": "2s"}
BOTH = dict(hosts=True, root=True, ranks=4, victims=(), least=8)


def rules(job, host, *lines):
    """A firewall for what comes in over the interface between the hosts."""
    body = "\n".join(f'    iifname "veth0" {line}' for line in lines)
    job.place.on(host, "nft", "-f", "-", text=f"table inet faults {{\n  chain in {{\n    type filter hook input priority 0\n{body}\n  }}\n}}\n")


def no_rules(job, *hosts):
    for host in hosts:
        job.place.on(host, "nft", "delete", "table", "inet", "faults")


def works(job):
    job.start()
    if not job.reach("operation"):
        raise RuntimeError("the job did not begin")


def rounds_more(job, seconds):
    """Lets the job work for a while: how long is no condition of the result."""
    job.until(lambda: any(r.last() for r in job.ranks.values()), seconds)


def down(job):
    works(job)
    job.strike()
    job.place.on("b", "ip", "link", "set", "veth0", "down")


def dropped(job):
    works(job)
    job.strike()
    rules(job, "b", "drop")
    rules(job, "a", "drop")


def data_is_reset(job):
    works(job)
    ports = f"{DATA[0]}-{DATA[1]}"
    job.strike()
    rules(job, "b", f"tcp dport {ports} tcp flags & syn == 0 reject with tcp reset", f"tcp sport {ports} tcp flags & syn == 0 reject with tcp reset")
    rounds_more(job, 1)
    no_rules(job, "b")
    rounds_more(job, 1)
    job.tell(0)


def all_is_reset(job):
    works(job)
    job.strike()
    rules(job, "b", "tcp flags & syn == 0 reject with tcp reset")
    rounds_more(job, 1)
    no_rules(job, "b")
    rounds_more(job, 1)
    job.tell(0)


def outage(job):
    works(job)
    job.strike()
    rules(job, "a", "drop")
    rules(job, "b", "drop")
    rounds_more(job, 30)
    no_rules(job, "a", "b")
    rounds_more(job, 6)  # an attempt to come back may begin seconds later
    job.tell(0)


def dead_interface(job):
    """Up and with an address, listed first, and nobody is at its other end."""
    for i, host in enumerate("ab"):
        job.place.on(host, "ip", "link", "add", "aaa0", "type", "veth", "peer", "name", "aaa1")
        job.place.on(host, "ip", "addr", "add", f"10.66.{i}.1/24", "dev", "aaa0")
        job.place.on(host, "ip", "link", "set", "aaa0", "up")
    job.start()


def rows():
    cut = dict(BOTH, deadline=WAIT, says=r"10\.78\.0|rank [0-3]", env=ENV)
    args = [*ARGS, "--timeout", str(WAIT)]
    live = dict(BOTH, expect="right", env=dict(ENV, TUTTI_SOCKET_DEAD_AFTER="15s"))
    patient = [*ARGS, "--timeout", "60", "--until-told"]
    yield Row("a dead interface is listed first", [*ARGS, "--timeout", "20", "--rounds", "20"], act=dead_interface,
              **dict(BOTH, expect="right", env={"TUTTI_SOCKET_IFNAME": "aaa0,veth0"}), seconds=8)
    yield Row("an interface goes down", args, act=down, **cut)
    yield Row("a firewall drops everything", args, act=dropped, **cut)
    yield Row("kill -9 of a rank on another host", [*args, "--what", "die"], **dict(cut, victims=(3,), blame=(3,)), seconds=4,
              vary=lambda run: ["--step", str(3 * run % 64)])
    yield Row("data connections are reset", patient, act=data_is_reset, **live)
    yield Row("all connections are reset", patient, act=all_is_reset, **live, seconds=4)
    yield Row("no packets for 30 s", patient, act=outage, **live, seconds=40)
