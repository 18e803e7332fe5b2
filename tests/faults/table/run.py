#!/usr/bin/env python3
"""The table of faults: run.py --build DIR [--runs N] [--only PATTERN] [--write PAGE]. See ../README.md.

One process of this program runs each run of a row, in namespaces of its own where they can be had; this one starts them, some at
a time, and adds up."""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import place
import planted
import report
import rows
from job import Job
from judge import Outcome, judge, judge_time

HERE = os.path.abspath(__file__)
CROWDED = 0.3  # share of the cores that others have


def one(row, run, build, isolated):
    """In a process of its own."""
    where, logs = place.Place(isolated, row.hosts, row.shm_bytes), tempfile.mkdtemp(prefix="tutti-faults-logs-")
    job, crowd = Job(where, row, run, os.path.join(build, "tests", "fault_rank"), logs), place.Crowd()
    job.build = build
    try:
        complaints = []
        if row.act:
            complaints = row.act(job) or []
        else:
            job.start()
        ended = job.wait(row.limit())
        outcome = judge(row, job, ended)
        outcome.complaints += complaints
        job.end()
        outcome.others = crowd.share()
        judge_time(row, outcome)
        outcome.left = where.left(job.files)
        outcome.complaints += [f"left behind: {what}" for what in outcome.left]
        return outcome
    finally:
        job.end()
        where.close()
        shutil.rmtree(logs, ignore_errors=True)


def worker(row, run, options, command):
    """Starts that process. It cannot be waited for without a limit either."""
    words = [sys.executable, HERE, "--build", options.build, "--one", row.name, str(run)] + (["--isolated"] if command else [])
    limit = row.limit() + row.seconds + 60
    outcome = Outcome(row.name, run)
    process = subprocess.Popen((command or []) + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        text, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()  # its ranks end with it
        process.communicate()
        outcome.hung, outcome.complaints = 1, ["the run did not end"]
        return outcome.record()
    if process.returncode:
        outcome.complaints, outcome.named = [f"the driver failed: {errors[-600:]}"], False
        return outcome.record()
    return json.loads(text.splitlines()[-1])


def run_all(table, runs, options, command, show):
    done = {row.name: [] for row in table}
    tasks = [(row, run) for run in range(runs) for row in table]
    end = time.monotonic() + 60 * options.within if options.within else None

    def in_time(row, run):
        if end is not None and run > 0 and time.monotonic() >= end:
            return None
        outcome = worker(row, run, options, command)
        for _ in range(2 if options.smoke else 0):  # deadlines of seconds are short where others have the cores
            if outcome["right"] or outcome["others"] < CROWDED:
                break
            outcome = worker(row, run, options, command)
        return outcome

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        futures = [pool.submit(in_time, row, run) for row, run in tasks]
        for (row, run), future in zip(tasks, futures):
            outcome = future.result()
            if outcome is None:
                continue
            done[row.name].append(outcome)
            if show and outcome["complaints"]:
                print(f"{row.name}, run {run}: " + "; ".join(outcome["complaints"]), flush=True)
    return done


def chosen(options, command):
    """Rows, and the names of those that cannot be had here."""
    table = [r for r in rows.TABLE if re.search(options.only or "", r.name)]
    if options.smoke:
        table = [r for r in table if r.seconds <= 3 and not r.known and (r.hosts if options.smoke == "hosts" else not r.hosts)]
    able = [r for r in table if command or not r.needs_isolation()]
    return able, [r.name for r in table if r not in able]


def main():
    parser = argparse.ArgumentParser(description="runs the table of faults")
    parser.add_argument("--build", required=True, help="build folder")
    parser.add_argument("--runs", type=int, default=20, help="of each row")
    parser.add_argument("--only", metavar="PATTERN", help="rows whose name matches this regular expression")
    parser.add_argument("--within", type=float, metavar="MINUTES", help="start no run later, but each row once")
    parser.add_argument("--jobs", type=int, default=3, help="runs at a time")
    parser.add_argument("--write", metavar="PAGE", help="where the table goes")
    parser.add_argument("--smoke", choices=["one-host", "hosts"], help="each short row once")
    parser.add_argument("--self-test", action="store_true", help="mistakes that are planted must be found")
    parser.add_argument("--list", action="store_true", help="names of rows")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--isolated", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    if options.one:
        name, run = options.one
        row = next(r for r in rows.TABLE + [p.row for p in planted.PLANTED] if r.name == name)
        print(json.dumps(one(row, int(run), options.build, options.isolated).record()))
        return 0
    if options.list:
        print(*(row.name for row in rows.TABLE), sep="\n")
        return 0
    command = place.namespaces()
    if options.self_test:
        return planted.check(options, command, run_all)
    table, absent = chosen(options, command)
    if not table:
        print("skipped: no row can be run" + (": no namespaces here" if absent else ""))
        return 77 if absent else 2
    runs = 1 if options.smoke else options.runs
    done = run_all(table, runs, options, command, show=True)
    for name in absent:
        print(f"not run, for there are no namespaces here: {name}")
    summary = report.Summary(table, done)
    print(summary.line())
    if options.write:
        with open(options.write, "w") as f:
            f.write(report.page(table, done, absent, runs))
    else:
        print(report.table(table, done))
    return 0 if summary.good() else 1


if __name__ == "__main__":
    sys.exit(main())
