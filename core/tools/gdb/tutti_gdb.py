"""gdb: what a process that uses tutti does, live or from a core dump.

    (gdb) source /usr/share/tutti/gdb/tutti_gdb.py      (or let gdb load it by itself: docs/ras.md)
    (gdb) tutti-state                                   communicators, operations in flight, links
    (gdb) print *comm                                   of a tuttiComm_t; also Status, Error, Bound, Ring and steps of a plan

Only memory is read: nothing is called in the process, so that a core dump is as good as the process was."""
import gdb

COLLECTIVES = ["all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "alltoall", "gather", "scatter", "barrier",
               "sendrecv"]
TYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"]
OPERATORS = ["sum", "prod", "max", "min", "avg", "premul_sum"]
REDUCING = ["all_reduce", "reduce", "reduce_scatter"]
MOST_OPERATIONS = 16  # of those that are enqueued
NO_SYMBOLS = ("tutti-state: this process has no libtutti with debug information for its engine: it is not loaded, or was stripped; "
              "a core dump needs the same library file that the process had")


def field(value, name):
    """A member, also of a base class or of an anonymous one, however the standard library wraps it; None where there is none."""
    for f in value.type.strip_typedefs().fields():
        if f.name == name:
            return value[f]
    for f in value.type.strip_typedefs().fields():
        if f.is_base_class:
            found = field(value[f], name)
            if found is not None:
                return found
    return None


def deep(value, name):
    """The first member of that name at any depth of structures."""
    t = value.type.strip_typedefs()
    if t.code not in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
        return None
    direct = field(value, name)
    if direct is not None:
        return direct
    for f in t.fields():
        if not hasattr(f, "bitpos"):  # static
            continue
        found = deep(value[f], name)
        if found is not None:
            return found
    return None


def atomic(value):
    inner = deep(value, "_M_i")
    return inner if inner is not None else deep(value, "_M_p")


def number(value):
    return int(atomic(value))


def pointer(value):
    """What a unique_ptr or shared_ptr holds."""
    t = value.type.strip_typedefs()
    if t.code == gdb.TYPE_CODE_PTR:
        return value
    if t.code == gdb.TYPE_CODE_STRUCT:
        for f in t.fields():
            if not hasattr(f, "bitpos") or not (f.is_base_class or f.name in ("_M_ptr", "_M_t", "_M_head_impl")):
                continue
            found = pointer(value[f])
            if found is not None:
                return found
    return None


def vector(value):
    impl = value["_M_impl"]
    at, end = impl["_M_start"], impl["_M_finish"]
    while at != end:
        yield at.dereference()
        at += 1


def length(value):
    return int(value["_M_impl"]["_M_finish"] - value["_M_impl"]["_M_start"])


def text(value):
    """A std::string, as far as it can be read."""
    try:
        return deep(value, "_M_p").string(errors="replace", length=int(value["_M_string_length"]))
    except (gdb.MemoryError, AttributeError):
        return "(unreadable)"


# ---- what is printed


def name_in(names, index):
    return names[index] if index < len(names) else str(index)


def call_text(kind, count, called):
    """As errors of the library write it."""
    coll = name_in(COLLECTIVES, kind >> 48 & 0xFF)
    if coll in ("barrier", "sendrecv"):
        return "%s #%d" % (coll, called)
    what = "%d %s" % (count, name_in(TYPES, kind >> 40 & 0xFF))
    if coll in REDUCING:
        what += " " + name_in(OPERATORS, kind >> 32 & 0xFF)
    root = kind & 0xFFFFFFFF
    if root != 0xFFFFFFFF:
        what += " root %d" % root
    return "%s #%d (%s)" % (coll, called, what)


def way_text(bound):
    plan = pointer(bound["plan"])
    if int(plan) == 0:
        return "nothing"
    proto = bound["selection"]["proto"]["table"]
    return "%s/%s, %d channels, slots %d x %d bytes" % (
        text(plan["algo"]), proto["name"].string() if int(proto) else "?", int(plan["request"]["channels"]),
        int(bound["selection"]["depth"]), int(bound["selection"]["slot_bytes"]))


def ring_text(ring):
    sent = int(ring["seq"])
    depth, credit = int(ring["depth"]), int(ring["credit"])
    cold = ring["cold"]
    sending = int(cold) != 0 and bool(cold["sending"])
    if int(ring["net"]) or int(ring["group"]):
        return "%d messages, %d bytes, by the network" % (sent, int(ring["bytes"]))
    if sending and depth == 0:
        return "not connected"
    if sending:
        return "%d messages, %d bytes, the peer has taken %d%s" % (
            sent, int(ring["bytes"]), credit, ", all %d slots are full" % depth if sent - credit >= depth else "")
    return "%d messages, %d bytes" % (sent, int(ring["bytes"]))


def error_text(error):
    parts = ["code %d" % int(error["code"])]
    for name in ("rank", "peer"):
        if int(error[name]) >= 0:
            parts.append("%s %d" % (name, int(error[name])))
    return "%s: %s" % (", ".join(parts), text(error["message"]))


def status_text(status):
    error = pointer(status["error_"])
    return "ok" if int(error) == 0 else error_text(error.dereference())


STEP_OPS = ["src", "recv", "reduce", "postop", "store", "send", "preop"]


def step_text(step):
    cold = step["cold"]
    ops = int(cold["step"]["ops"]) if int(cold) else 0
    names = [n for i, n in enumerate(STEP_OPS) if ops >> i & 1]
    peers = []
    if int(step["recv_count"]) and int(step["recv"]):
        peers.append("from rank %d" % int(step["recv"]["peer"]))
    if int(cold) and int(cold["step"]["send_count"]) and int(step["send"]):
        peers.append("to rank %d" % int(step["send"]["peer"]))
    return "%s x %d%s" % ("+".join(names) or "nothing", int(step["repeat"]), " " + ", ".join(peers) if peers else "")


def lines(recorder):
    return pointer(recorder["lines_"]), int(recorder["mask_"])


def operation(recorder, seq):
    """(text, started, done) of the operation with this sequence number."""
    at, mask = lines(recorder)
    line = at[seq & mask]
    if number(line["seq"]) != seq:
        return "an operation that is just being written", False, False
    said = call_text(number(line["kind"]), number(line["count"]), number(line["number"]))
    return said, number(line["started"]) != 0, number(line["done"]) != 0


def engine_lines(engine):
    tail, done, started = number(engine["tail_"]), number(engine["completed_"]), number(engine["started_"])
    failed = bool(atomic(engine["failed_"]))
    recorder = engine["recorder_"]
    head = "communicator %016x: rank %d of %d, %d operations enqueued, %d completed%s" % (
        int(engine["comm_"]), int(engine["rank_"]), int(recorder["nranks_"]), tail, done, ", failed" if failed else "")
    out = [head]
    if failed:
        out.append("  it failed: " + status_text(engine["error_"]))
    for seq in range(done + 1, min(tail, done + MOST_OPERATIONS) + 1):
        said, _, _ = operation(recorder, seq)
        out.append("  %s %s" % ("runs" if seq <= started else "has not started", said))
    if tail - done > MOST_OPERATIONS:
        out.append("  and %d more" % (tail - done - MOST_OPERATIONS))
    if tail == done and done:
        out.append("  idle after " + operation(recorder, done)[0])
    count = int(engine["waits_count_"])
    if started > done and int(engine["waits_seq_"]) == started:
        for i in range(count):
            w = engine["waits_"]["_M_elems"][i]
            out.append("  waits for rank %d (%s, slice %d of %d)" % (
                int(w["peer"]), "recv" if w["receiving"] else "send", int(w["slice"]) + 1, int(engine["waits_slices_"])))
    active = engine["active_"]
    if int(active):
        out += bound_lines(active.dereference())
    return out


def bound_lines(bound):
    out = ["  by " + way_text(bound)]
    for i, lane in enumerate(vector(bound["lanes"])):
        pc, count = int(lane["pc"]), int(lane["step_count"])
        at = "finished" if lane["finished"] else "step %d of %d, slice %d" % (pc + 1, count, int(lane["slice"]) + 1)
        if not lane["finished"] and int(lane["steps"]) and pc < count:
            at += ": " + step_text(lane["steps"][pc])
        out.append("  lane %d: %s" % (i, at))
        for direction, name in (("recv", "from"), ("send", "to")):
            for link in vector(lane[direction]):
                out.append("    %s rank %d: %d messages in this operation; ever: %s" % (
                    name, int(link["peer"]), int(link["ring"]["seq"]) - int(link["began"]), ring_text(link["ring"].dereference())))
    return out


def driver_state():
    """The list of this process's engines; None without symbols."""
    try:
        return gdb.parse_and_eval("'tutti::driver::(anonymous namespace)::current'")
    except gdb.error:
        return None


class State(gdb.Command):
    """Shows the communicators of this process: operations in flight, whom they wait for, links. tutti-state"""

    def __init__(self):
        super().__init__("tutti-state", gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        current = driver_state()
        if current is None:
            raise gdb.GdbError(NO_SYMBOLS)
        try:
            if int(current) == 0:
                print("no communicator has been made in this process")
                return
            engines = list(vector(current["engines"]))
        except (gdb.error, KeyError) as problem:
            raise gdb.GdbError("%s (%s)" % (NO_SYMBOLS, problem))
        if not engines:
            print("no communicator is open in this process")
        for engine in engines:
            try:
                print("\n".join(engine_lines(engine.dereference())))
            except gdb.error as problem:  # being made or unmade, or not in the core dump
                print("communicator at %s: unreadable: %s" % (engine, problem))


def comm_text(comm):
    c = pointer(comm["c"])
    if int(c) == 0:
        return "tuttiComm: destroyed"
    core = pointer(c["core_"])
    states = ["ready", "working", "finalized", "failed", "closed"]
    state = number(c["state_"])
    said = "tuttiComm: rank %d of %d, %s" % (int(c["rank_"]), int(c["nranks_"]), states[state] if state < len(states) else "?")
    name = text(c["options_"]["name"])
    if name:
        said += ', "%s"' % name
    return said if int(core) else said + ", not joined"


class Printer:
    def __init__(self, value, show):
        self.value, self.show = value, show

    def to_string(self):
        try:
            return self.show(self.value)
        except (gdb.error, TypeError, AttributeError) as problem:
            return "(unreadable: %s)" % problem


PRINTERS = {
    "tuttiComm": comm_text,
    "tutti::Status": status_text,
    "tutti::Error": error_text,
    "tutti::Bound": lambda b: "plan by " + way_text(b),
    "tutti::Ring": ring_text,
    "tutti::BoundStep": step_text,
}


def name_of(of_type):
    return str(of_type.strip_typedefs().unqualified()).removeprefix("struct ").removeprefix("class ")


def look_up(value):
    t = value.type.strip_typedefs().unqualified()
    if t.code == gdb.TYPE_CODE_PTR:  # of a handle what it stands for is wanted
        if name_of(t.target()) != "tuttiComm" or int(value) == 0:
            return None
        return Printer(value.dereference(), comm_text)
    show = PRINTERS.get(name_of(t))
    return Printer(value, show) if show else None


State()
gdb.pretty_printers.insert(0, look_up)
