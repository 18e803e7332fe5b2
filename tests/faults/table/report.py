"""The table as Markdown, and its sum."""
import statistics

from judge import SLACK

HEAD = """# The table of faults

Written by `./dev faults`, not by hand. Each row is a fault, put into jobs of its own so often; [faults](faults.md#the-table-of-faults)
says how, and what the columns mean. A run counts as right when every rank that is left says what it should, in time, and nothing is
left behind.

"""


class Summary:
    def __init__(self, table, done):
        self.rows, self.runs = 0, 0
        self.right, self.named, self.to_name, self.wrong, self.hung, self.crashed, self.left, self.late = (0,) * 8
        self.known = [r for r in table if r.known]
        for row in table:
            if row.known:
                continue
            runs = done[row.name]
            self.rows += 1
            self.runs += len(runs)
            self.right += sum(r["right"] for r in runs)
            for name, count in (("wrong", "wrong"), ("hung", "hung"), ("crashed", "crashed")):
                setattr(self, count, getattr(self, count) + sum(r[name] for r in runs))
            self.left += sum(bool(r["left"]) for r in runs)
            self.late += sum(r["late"] for r in runs)
            if row.expect != "right":
                self.to_name += len(runs)
                self.named += sum(r["named"] for r in runs)

    def good(self):
        return self.right == self.runs or (not (self.wrong or self.hung or self.crashed or self.left or self.late) and
                                           self.named >= 0.99 * self.to_name and self.right >= 0.99 * self.runs)

    def line(self):
        share = f"{100 * self.named / self.to_name:.2f} %" if self.to_name else "none"
        out = (f"{self.rows} rows, {self.runs} runs, {self.right} right; culprit named in {self.named} of {self.to_name} ({share}); "
               f"wrong results {self.wrong}, hangs {self.hung}, crashes {self.crashed}, left behind {self.left}, late {self.late}")
        return out + (f"; beside them {len(self.known)} rows that are known to fail" if self.known else "")


def seconds(runs, row):
    times = [r["seconds"] for r in runs if r["seconds"] >= 0]
    if row.expect == "right" or not times:
        return ""
    return f"{statistics.median(times):.2f} / {max(times):.2f} ({row.bound():g})"


def cells(row, runs):
    said = next((r["said"] for r in runs if r["said"]), "")
    if not said and row.expect != "error":
        said = next((r["complaints"][0] for r in runs if r["complaints"]), "all ranks went on, with right results")
    said = said.replace("|", "\\|")
    return [row.name, len(runs), sum(r["right"] for r in runs), sum(r["named"] for r in runs) if row.expect != "right" else "",
            sum(r["wrong"] for r in runs), sum(r["hung"] for r in runs), sum(r["crashed"] for r in runs), sum(bool(r["left"]) for r in runs),
            seconds(runs, row), f"`{said[:300]}`" if said else ""]


def table(rows, done):
    names = ["fault", "runs", "right", "culprit named", "wrong results", "hangs", "crashes", "left behind",
             "s to the verdict: median / most (bound)", "what a rank said"]
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    lines += ["| " + " | ".join(map(str, cells(row, done[row.name]))) + " |" for row in rows]
    return "\n".join(lines)


def page(rows, done, absent, runs):
    summary = Summary(rows, done)
    out = HEAD + f"**{summary.line()}.** Bounds are the row's deadline and {SLACK:g} s. Other processes took "
    everything = [r for runs_of in done.values() for r in runs_of]
    out += f"{100 * statistics.mean(r['others'] for r in everything):.0f} % of the cores meanwhile.\n\n"
    out += table([r for r in rows if not r.known], done) + "\n"
    if summary.known:
        out += "\n## Known to fail\n\nNot in the sum above.\n\n" + table(summary.known, done) + "\n\n"
        out += "".join(f"- {r.name}: {r.known}.\n" for r in summary.known)
    if absent:
        out += "\nNot run, for there were no namespaces: " + ", ".join(absent) + ".\n"
    return out
