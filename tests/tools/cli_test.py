#!/usr/bin/env python3
"""Runs the command line tools as a user does: cli_test.py BIN [CLASS ...]."""
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

BIN = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release/bin")
TUTTI = os.path.join(BIN, "tutti")
LIMIT = 90  # seconds for one command; a hang is a failure, not a hang of the test

REDUCING = ["all_reduce", "reduce", "reduce_scatter", "reduce_scatter_v"]
WITH_ROOT = ["broadcast", "reduce", "gather", "scatter"]
NOT_IN_PLACE = ["alltoall", "alltoallv", "sendrecv", "barrier"]
OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "alltoallv", "all_gather_v",
              "reduce_scatter_v", "gather", "scatter", "sendrecv", "hypercube", "barrier"]
FACTOR = {"all_reduce": lambda n: 2 * (n - 1) / n, "all_gather": lambda n: (n - 1) / n, "reduce_scatter": lambda n: (n - 1) / n,
          "alltoall": lambda n: (n - 1) / n, "alltoallv": lambda n: (n - 1) / n, "gather": lambda n: (n - 1) / n,
          "scatter": lambda n: (n - 1) / n, "all_gather_v": lambda n: (n - 1) / n, "reduce_scatter_v": lambda n: (n - 1) / n}


def clean_env(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", "NCCL_", "OMPI_", "PMIX_", "PMI_", "SLURM_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "MASTER_"))}
    env["TUTTI_CALIBRATE"] = "off"  # a test measures nothing and keeps nothing in the user's cache
    env.update({k: str(v) for k, v in more.items()})
    return env


def run(*words, limit=LIMIT, cwd=None, **env):
    words = [str(w) for w in words]
    result = subprocess.run(words, env=clean_env(**env), capture_output=True, text=True, timeout=limit, cwd=cwd,
                            stdin=subprocess.DEVNULL)
    result.all = result.stdout + result.stderr
    return result


def perf(op, *words, **env):
    return run(TUTTI, "perf", op, *words, **env)


def rows_of(text):
    """The rows of a table: lists of columns."""
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


class Tools(unittest.TestCase):
    maxDiff = None

    def good(self, result):
        self.assertEqual(result.returncode, 0, result.all)
        return result

    def table(self, op, result, ranks=None):
        """Checks every row of a perf table and returns the rows."""
        self.good(result)
        rows = rows_of(result.stdout)
        self.assertTrue(rows, result.all)
        for row in rows:
            self.assertGreaterEqual(len(row), 13, row)
            size, count, _, redop, root = int(row[0]), int(row[1]), row[2], row[3], int(row[4])
            self.assertGreaterEqual(size, count)
            self.assertEqual(redop == "none", op not in REDUCING)
            self.assertEqual(root >= 0, op in WITH_ROOT)
            out, inside = row[5:9], row[9:13]
            placements = [out] if op in NOT_IN_PLACE else [out, inside]
            if op in NOT_IN_PLACE:
                self.assertEqual(inside, ["N/A"] * 4)
            for seconds, alg, bus, wrong in placements:
                self.assertGreater(float(seconds), 0)
                if op != "barrier":
                    self.assertEqual(wrong, "0", row)
                if ranks and float(alg) >= 0.5:
                    self.assertAlmostEqual(float(bus) / float(alg), FACTOR.get(op, lambda n: 1)(ranks), delta=0.05)
        self.assertIn("# Out of bounds values : 0 OK", result.stdout)
        self.assertRegex(result.stdout, r"# Avg bus bandwidth    : \d+\.\d{4}")
        return rows

    def curve(self, *words, options=()):
        return self.curve_in(self.good(run(*words, os.path.join(BIN, "examples", "train"), *options)))

    def curve_in(self, r):
        found = re.findall(r"epoch +\d+  loss ([\d.]+)  test accuracy ([\d.]+) %", r.stdout)
        self.assertEqual(len(found), 25, r.all)
        return [(float(loss), float(right)) for loss, right in found]

    def same_curve(self, one, many):
        for (loss1, right1), (loss, right) in zip(one, many):
            # Floats are added in another order, and 25 epochs amplify it.
            self.assertAlmostEqual(loss, loss1, delta=2e-3 * max(loss1, 0.05))
            self.assertAlmostEqual(right, right1, delta=0.9)  # three of 359 images


class Run(Tools):
    def test_ranks_get_rank_size_and_id(self):
        r = self.good(run(TUTTI, "run", "-n", 3, "--", "sh", "-c",
                          'echo "$TUTTI_RANK/$TUTTI_NRANKS/$TUTTI_LOCAL_RANK/$TUTTI_LOCAL_SIZE" $(wc -c < "${TUTTI_COMM_ID#file:}")'))
        self.assertEqual(sorted(r.stdout.splitlines()), ["0/3/0/3 128", "1/3/1/3 128", "2/3/2/3 128"])

    def test_arguments_after_the_dashes_are_the_programs(self):
        r = self.good(run(TUTTI, "run", "-n", 1, "--", "echo", "-n", "--timeout", "x y"))
        self.assertEqual(r.stdout, "--timeout x y")

    def test_the_first_rank_that_fails_is_named_and_its_code_returned(self):
        start = time.monotonic()
        r = run(TUTTI, "run", "-n", 3, "--", "sh", "-c", "[ $TUTTI_RANK = 1 ] && exit 3; sleep 60")
        self.assertEqual(r.returncode, 3, r.all)
        self.assertRegex(r.stderr, r"tutti run: rank 1 \(pid \d+\) exited with code 3; ending the other ranks \(0, 2\)")
        self.assertLess(time.monotonic() - start, 20)

    def test_a_killed_rank_is_named_with_its_signal(self):
        r = run(TUTTI, "run", "-n", 2, "--grace", 0, "--", "sh", "-c", "[ $TUTTI_RANK = 1 ] && kill -9 $$; sleep 60")
        self.assertEqual(r.returncode, 137, r.all)
        self.assertRegex(r.stderr, r"rank 1 \(pid \d+\) was killed by SIGKILL")

    def test_ranks_that_ignore_sigterm_are_killed(self):
        with tempfile.TemporaryDirectory() as folder: # rank 1 fails once rank 0 ignores the signal
            r = run(TUTTI, "run", "-n", 2, "--grace", 0, "--kill-after", 0.3, "--", "sh", "-c",
                    "trap '' TERM; [ $TUTTI_RANK = 0 ] && : > ready; while [ ! -e ready ]; do sleep 0.01; done; "
                    "[ $TUTTI_RANK = 1 ] && exit 5; while :; do sleep 0.05; done", cwd=folder)
        self.assertEqual(r.returncode, 5, r.all)
        self.assertIn("ranks 0 did not end within 0.3 s of SIGTERM; killed", r.stderr)

    def test_what_ranks_leave_behind_is_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "pid")
            self.good(run(TUTTI, "run", "-n", 1, "--", "sh", "-c", f"setsid sleep 300 & echo $! > {path}"))
            with open(path) as f:
                pid = int(f.read())
            with self.assertRaises(ProcessLookupError):
                os.kill(pid, 0)

    def test_children_from_before_the_job_are_spared(self):
        r = self.good(run("sh", "-c", f'sleep 300 >&- 2>&- & echo $!; exec "{TUTTI}" run -n 1 -- true'))
        pid = int(r.stdout)
        os.kill(pid, 0)  # raises when it is gone
        os.kill(pid, signal.SIGKILL)

    def test_ranks_end_when_the_launcher_is_killed(self):
        p = subprocess.Popen([TUTTI, "run", "-n", "2", "--", "sh", "-c", "echo $$; exec sleep 300"], env=clean_env(),
                             stdout=subprocess.PIPE, text=True)
        ranks = [os.pidfd_open(int(p.stdout.readline())) for _ in range(2)]
        p.kill()
        p.wait(timeout=LIMIT)
        p.stdout.close()
        for rank in ranks:
            ended, _, _ = select.select([rank], [], [], LIMIT)  # readable once the process has ended
            os.close(rank)
            self.assertTrue(ended)

    def test_a_missing_program_is_one_clear_line(self):
        r = run(TUTTI, "run", "-n", 4, "--", "/nonexistent/program")
        self.assertEqual(r.returncode, 127)
        self.assertEqual(r.stderr.strip(), 'tutti run: cannot run "/nonexistent/program": No such file or directory')

    def test_a_job_that_takes_too_long_is_ended(self):
        r = run(TUTTI, "run", "-n", 2, "--timeout", 0.3, "--", "sleep", 300)
        self.assertEqual(r.returncode, 124, r.all)
        self.assertIn("not finished after 0.3 s; still running: 0, 1", r.stderr)

    def test_sigterm_reaches_the_ranks(self):
        p = subprocess.Popen([TUTTI, "run", "-n", "2", "--", "sh", "-c",
                              "trap 'echo ended; exit 0' TERM; echo ready; while :; do sleep 0.05; done"], env=clean_env(),
                             stdout=subprocess.PIPE, text=True)
        self.assertEqual([p.stdout.readline() for _ in range(2)], ["ready\n"] * 2)
        p.send_signal(signal.SIGTERM)
        out, _ = p.communicate(timeout=LIMIT)
        self.assertEqual(out, "ended\nended\n")
        self.assertEqual(p.returncode, 128 + signal.SIGTERM)

    def test_tagged_output_names_the_rank_of_each_line(self):
        r = self.good(run(TUTTI, "run", "-n", 2, "--tag-output", "--", "sh", "-c", "echo out; echo err >&2; printf end"))
        self.assertEqual(sorted(r.stdout.splitlines()), ["[0] end", "[0] out", "[1] end", "[1] out"])
        self.assertEqual(sorted(r.stderr.splitlines()), ["[0] err", "[1] err"])

    def test_lines_of_different_ranks_do_not_mix(self):
        # stdio writes 4096-byte blocks into a pipe, which end anywhere in a line
        program = "import sys, os\nfor i in range(2000): print(os.environ['TUTTI_RANK'] * 37)"
        r = self.good(run(TUTTI, "run", "-n", 3, "--", sys.executable, "-c", program))
        self.assertEqual(sorted(r.stdout.splitlines()), sorted(str(i) * 37 for i in range(3) for _ in range(2000)))

    def test_a_second_signal_kills_at_once(self):
        p = subprocess.Popen([TUTTI, "run", "-n", "2", "--kill-after", "60", "--", "sh", "-c",
                              "trap 'echo told' TERM; echo ready; while :; do sleep 0.05; done"], env=clean_env(),
                             stdout=subprocess.PIPE, text=True)
        self.assertEqual([p.stdout.readline() for _ in range(2)], ["ready\n"] * 2)
        p.send_signal(signal.SIGTERM)
        self.assertEqual([p.stdout.readline() for _ in range(2)], ["told\n"] * 2)
        start = time.monotonic()
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=LIMIT)
        self.assertEqual(p.returncode, 128 + signal.SIGTERM)
        self.assertLess(time.monotonic() - start, 20)

    def test_rank_0_gets_the_input(self):
        r = subprocess.run([TUTTI, "run", "-n", "3", "--", "sh", "-c", 'echo "$TUTTI_RANK:$(cat)"'], env=clean_env(), input="hello",
                           capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(sorted(r.stdout.splitlines()), ["0:hello", "1:", "2:"])

    def test_inside_another_launcher_it_becomes_the_program(self):
        inside = dict(OMPI_COMM_WORLD_RANK=0, OMPI_COMM_WORLD_SIZE=2)
        for words in ([], ["-n", 2]):
            r = self.good(run(TUTTI, "run", *words, "--", "sh", "-c", "echo $OMPI_COMM_WORLD_RANK $TUTTI_RANK", **inside))
            self.assertEqual(r.stdout.strip(), "0")
        r = run(TUTTI, "run", "--timeout", 5, "--", "false", **inside)
        self.assertEqual(r.returncode, 1)
        self.assertIn("note: --timeout has no effect inside a job of Open MPI", r.stderr)
        r = run(TUTTI, "run", "-n", 3, "--", "true", **inside)
        self.assertEqual(r.returncode, 64)
        self.assertIn("tutti run -n 3 inside a job of Open MPI (OMPI_COMM_WORLD_RANK=0, OMPI_COMM_WORLD_SIZE=2)", r.stderr)
        self.assertEqual(run(TUTTI, "run", "--", "/nonexistent", **inside).returncode, 127)
        r = run(TUTTI, "run", "--", "true", OMPI_COMM_WORLD_RANK=2, OMPI_COMM_WORLD_SIZE=2)
        self.assertEqual(r.returncode, 2)
        self.assertIn("contradicts itself", r.stderr)

    def test_a_shell_that_is_a_slurm_step_of_one_task_can_start_ranks(self):
        self.good(run(TUTTI, "run", "-n", 2, "--", "true", SLURM_STEP_ID=4294967290, SLURM_PROCID=0, SLURM_STEP_NUM_TASKS=1))

    def test_bad_arguments(self):
        for words, text in [(["-n", "0", "--", "true"], "not in range"), (["-n", "2"], "no program to run"),
                            (["-n", "2", "--frob", "--", "true"], "put -- before the program"), (["--", "true"], "required")]:
            r = run(TUTTI, "run", *words)
            self.assertEqual(r.returncode, 64, r.all)
            self.assertIn(text, r.all)

    def test_the_hello_example(self):
        r = self.good(run(TUTTI, "run", "-n", 4, "--", os.path.join(BIN, "examples", "hello_all_reduce_c")))
        self.assertEqual(sorted(r.stdout.splitlines()), [f"rank {i} of 4: 10" for i in range(4)])

    def test_the_size_asked_for_beats_one_that_was_inherited(self):
        self.good(perf("barrier", "--ranks", 2, "-n", 1, TUTTI_NRANKS=3, TUTTI_LOCAL_SIZE=3))


class Perf(Tools):
    def test_every_operation_is_right_over_processes(self):
        for op in OPERATIONS:
            with self.subTest(op):
                self.table(op, perf(op, "--ranks", 4, "-b", 8, "-e", "256K", "-f", 8, "-n", 3), ranks=4)

    def test_every_operation_is_right_over_threads_and_processes_together(self):
        for op in OPERATIONS:
            with self.subTest(op):
                self.table(op, perf(op, "--ranks", 2, "-t", 2, "-b", 8, "-e", "64K", "-f", 16, "-n", 2), ranks=4)

    def test_every_operation_is_right_over_sockets(self):
        for op in OPERATIONS:
            with self.subTest(op):
                self.table(op, perf(op, "--ranks", 2, "-b", 8, "-e", "256K", "-f", 16, "-n", 2, TUTTI_SHM_DISABLE=1))

    def test_all_types_and_operators(self):
        rows = self.table("all_reduce", perf("all_reduce", "--ranks", 3, "-b", 1000, "-e", 1000, "-d", "all", "-o", "all", "-n", 2))
        self.assertEqual(len(rows), 72)
        self.assertEqual(len({(r[2], r[3]) for r in rows}), 72)

    def test_every_root(self):
        rows = self.table("broadcast", perf("broadcast", "--ranks", 3, "-b", "1K", "-e", "1K", "-r", "all", "-n", 2))
        self.assertEqual([r[4] for r in rows], ["0", "1", "2"])

    def test_the_fields_names_work(self):
        r = run(os.path.join(BIN, "all_gather_perf"), "-t", 2, "-b", 64, "-e", 64, "-n", 2)
        self.table("all_gather", r)
        self.assertIn("# Collective test starting: all_gather_perf", r.stdout)

    def test_groups_run_side_by_side(self):
        r = perf("all_reduce", "--ranks", 4, "-b", "1K", "-e", "1K", "-n", 2, NCCL_TESTS_SPLIT="MOD 2")
        self.table("all_reduce", r, ranks=2)
        self.assertEqual(re.findall(r"Rank +\d+ Group +(\d+)", r.stdout), ["0", "1", "0", "1"])
        r = perf("all_reduce", "--ranks", 4, "-b", "1K", "-e", "1K", "-n", 2, NCCL_TESTS_SPLIT_MASK="0b10")
        self.assertEqual(re.findall(r"Rank +\d+ Group +(\d+)", self.good(r).stdout), ["0", "0", "2", "2"])

    def test_under_tutti_run(self):
        r = run(TUTTI, "run", "-n", 3, "--", TUTTI, "perf", "reduce_scatter", "-b", "3K", "-e", "3K", "-n", 2)
        self.table("reduce_scatter", r)
        self.assertEqual(r.stdout.count("# Collective test starting"), 1)


class PerfFlags(Tools):
    def test_flags_that_change_how_it_runs_keep_the_result_right(self):
        for words in (["-u", 1], ["-m", 4], ["-z", 1], ["-z", 2], ["-z", 3], ["-y", 1], ["-p", 1, "-t", 2], ["-R", 1], ["-c", 3],
                      ["-a", 0], ["-a", 2], ["-a", 3], ["-C", 1], ["-x", 2], ["-g", 1], ["-N", 2], ["-T", 60]):
            with self.subTest(words):
                rows = self.table("all_reduce", perf("all_reduce", "--ranks", 2, "-b", 4000, "-e", 4000, "-n", 3, *words))
                self.assertEqual(len(rows), 2 if words[0] == "-N" else 1)

    def test_steps_of_sizes(self):
        sizes = [int(r[0]) for r in self.table("all_reduce", perf("all_reduce", "-t", 2, "-b", 8, "-e", 100, "-f", 2, "-n", 1))]
        self.assertEqual(sizes, [8, 16, 32, 64])
        sizes = [int(r[0]) for r in self.table("all_reduce", perf("all_reduce", "-t", 2, "-b", "1K", "-e", "3K", "-i", "1K", "-n", 1))]
        self.assertEqual(sizes, [1024, 2048, 3072])

    def test_no_check_prints_not_applicable(self):
        rows = rows_of(self.good(perf("all_reduce", "-t", 2, "-b", 8, "-e", 8, "-c", 0, "-n", 1)).stdout)
        self.assertEqual((rows[0][8], rows[0][12]), ("N/A", "N/A"))

    def test_overlap_adds_what_was_hidden_beside_a_computation(self):
        for op in ("all_reduce", "alltoallv", "sendrecv", "barrier"):
            with self.subTest(op), tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "out.json")
                r = self.good(perf(op, "--ranks", 2, "-b", "64K", "-e", "64K", "-n", 5, "--overlap", "-J", path))
                self.assertRegex(r.stdout, r"o_comm +o_comp +o_both +hidden")
                comm, compute, both, hidden = map(float, rows_of(r.stdout)[0][-4:])
                want = 100 * min(max((comm + compute - both) / min(comm, compute), 0), 1)
                self.assertAlmostEqual(hidden, want, delta=1 + 2 / min(comm, compute))
                with open(path) as file:
                    o = json.load(file)["results"][0]["overlap"]
                self.assertAlmostEqual(o["both_us"], both, delta=0.02 * both + 0.01)
                self.assertAlmostEqual(o["hidden_pct"], hidden, delta=0.1)

    def test_explain_says_what_determinism_excludes(self):
        r = self.good(perf("all_reduce", "--ranks", 3, "-b", "1K", "-e", "1K", "--explain", "-n", 5, TUTTI_DETERMINISTIC="size"))
        self.assertRegex(r.stdout, r"# +deterministic = size: excluded are .*ring: it combines in another order from chunk to chunk")

    def test_explain_names_algorithm_protocol_and_link(self):
        r = perf("all_reduce", "--ranks", 2, "-b", 8, "-e", "1M", "-f", 1024, "--explain", "-n", 5)
        rows = self.table("all_reduce", r)
        found = re.findall(r"^# +([a-z0-9_-]+)/([a-z0-9_-]+), ([1-9]\d*) channels?, slots ([1-9]\d*) x ([1-9]\d*[KMG]?), (\S+) +"
                           r"p50/p95/p99 us  ([\d.]+)/([\d.]+)/([\d.]+)  [\d.]+/[\d.]+/[\d.]+$", r.stdout, re.M)
        self.assertEqual(len(found), len(rows), r.stdout)
        for line in found:
            self.assertEqual(line[5], "shm")
            self.assertEqual(sorted(line[6:], key=float), list(line[6:]))
        # the second line of the header is the field's, as long as it is
        self.assertLessEqual(max(len(row) for row in r.stdout.splitlines() if not row.startswith("# nThread")), 130)

    def test_sizes_below_one_element_per_rank_are_no_rows(self):
        for op in ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter"):
            rows = self.table(op, perf(op, "-t", 4, "-b", 8, "-e", 32, "-f", 2, "-n", 1))
            self.assertEqual([int(row[0]) for row in rows], [16, 32])
        r = perf("all_gather", "-t", 4, "-b", 8, "-e", 8, "-n", 1)
        self.assertEqual(r.returncode, 2)
        self.assertEqual(r.stderr, "error: -e 8: less than one element for each of 4 ranks\n")

    def test_iteration_columns_timestamps_and_memory(self):
        r = perf("all_reduce", "--ranks", 2, "-b", 64, "-e", 64, "-I", 1, "-K", 1, "-S", 1, "-M", 1, "-n", 4)
        row = self.table("all_reduce", r)[0]
        least, most, p99, _ = map(float, row[13:17])
        self.assertTrue(least <= p99 <= most, row)
        self.assertRegex(row[-1], r"^\d\d:\d\d:\d\d$")
        self.assertRegex(r.stdout, r"# Library memory       : \d+\.\d MiB in 2 ranks, \d+ file descriptors")

    def test_too_slow_is_a_failure(self):
        r = perf("all_reduce", "--ranks", 2, "-b", "1K", "-e", "1K", "-n", 2, NCCL_TESTS_MIN_BW=1000000)
        self.assertEqual(r.returncode, 1, r.all)
        self.assertRegex(r.stdout, r"# Avg bus bandwidth    : \d+\.\d{4} FAILED")
        r = perf("all_reduce", "--ranks", 2, "-b", "1M", "-e", "1M", "-n", 2, NCCL_TESTS_MIN_BW=0.000001)
        self.assertIn(" OK", self.good(r).stdout.split("Avg bus bandwidth")[1])
        r = perf("all_reduce", "--ranks", 2, "-b", "1K", "-e", "1K", NCCL_TESTS_MIN_BW="fast")
        self.assertEqual(r.returncode, 64)
        self.assertIn('NCCL_TESTS_MIN_BW="fast"', r.stderr)

    def test_pass_lines(self):
        def expect(text, op="all_reduce", words=("--ranks", 2), **env):
            with tempfile.TemporaryDirectory() as folder:
                path, out = os.path.join(folder, "expect.toml"), os.path.join(folder, "out.json")
                with open(path, "w") as f:
                    f.write(text)
                r = perf(op, *words, "-b", "1K", "-e", "4K", "-f", 4, "-n", 2, "-J", out, "--expect", path, **env)
                if os.path.exists(out):
                    with open(out) as f:
                        r.json = json.load(f)
                return r
        line = '[{}]\noperation = ["all_reduce", "sendrecv"]\nlink = "{}"\nsizes = "{}"\nbusbw = "{}"\n'
        easy, hard = line.format("easy", "shm", "1K..4K", "0.001 MB/s"), line.format("hard", "shm", "4K..", "1e6 GB/s")
        r = self.good(expect(easy))
        self.assertRegex(r.stdout, r"(?m)^# Pass line easy \(\S+expect\.toml:1\): 0\.00 GB/s over shm, 1K\.\.4K: 4 results, the least .* OK$")
        self.assertTrue(r.json["pass_lines"][0]["okay"])
        r = expect(easy + hard)
        self.assertEqual(r.returncode, 1, r.all)
        self.assertRegex(r.stdout, r"(?m)^# Pass line hard \(\S+expect\.toml:6\): .*: 2 of 2 results below, the least \d+\.\d\d GB/s at 4096"
                                   r"( in place)?: \d+\.\d\d GB/s \((100\.0|99\.\d) %\) short FAILED$")
        self.assertEqual([(p["name"], p["okay"]) for p in r.json["pass_lines"]], [("easy", True), ("hard", False)])
        self.assertIn("bus bandwidth is below a pass line", r.json["errors"])
        self.assertEqual(expect(hard, "sendrecv").returncode, 1)
        # The kind of link is the slowest in use.
        self.good(expect(easy + line.format("hard", "socket", "1K", "1e6 GB/s")))
        self.assertEqual(expect(easy + line.format("hard", "socket", "1K", "1e6 GB/s"), TUTTI_SHM_DISABLE=1).returncode, 1)
        self.assertEqual(expect(line.format("hard", "net", "1K", "1e6 GB/s"), TUTTI_SHM_DISABLE=1).returncode, 1)
        self.assertEqual(expect(line.format("hard", "local", "1K", "1e6 GB/s"), words=("-t", 2)).returncode, 1)
        # Nothing measured is no success.
        r = expect(line.format("far", "ib", "1K..", "18 GB/s"))
        self.assertEqual(r.returncode, 2, r.all)
        self.assertIn("not measured: the link is shm", r.stdout)
        self.assertIn("none of its pass lines for all_reduce was measured", r.all)
        self.assertEqual([p["okay"] for p in r.json["pass_lines"]], [None])
        self.assertEqual(r.json["errors"], ["no pass line was measured"])
        self.assertIn("not measured: there are no links", expect(line.format("far", "ib", "1K..", "18 GB/s"), words=("--ranks", 1)).stdout)
        r = self.good(expect(easy + line.format("far", "ib", "1K..", "18 GB/s")))
        self.assertEqual(([p["okay"] for p in r.json["pass_lines"]], r.json["errors"]), ([True, None], []))
        for text, op, what in ((easy, "alltoall", "no pass line is about alltoall"), ("", "all_reduce", "expect.toml: no pass line"), ("[a]\nbusbw = 18\n", "all_reduce", ":2: busbw \"18\""),
                               (easy + "color = 1\n", "all_reduce", ':6: [easy] unknown key "color"')):
            r = expect(text, op)
            self.assertEqual(r.returncode, 64, r.all)
            self.assertIn(what, r.stderr)

    def test_one_rank_is_noted(self):
        r = self.good(perf("all_reduce", "-b", 8, "-e", 8, "-n", 1))
        self.assertIn("note: one rank only", r.stderr)

    def test_bad_flags_have_clear_messages(self):
        cases = [(["nosuch"], 'unknown operation "nosuch"; one of all_reduce'), (["all_reduce", "-b", "4X"], '-b: "4X" is no size'),
                 (["all_reduce", "-d", "foo"], 'unknown type "foo"; one of int8'),
                 (["all_reduce", "-o", "foo"], 'unknown operator "foo"; one of sum'), (["all_reduce", "-g", "2"], "no devices; use -t 2"),
                 (["all_reduce", "-G", "1"], "cannot be captured"), (["all_reduce", "-R", "2"], "no symmetric windows"),
                 (["all_reduce", "-D", "1"], "no device kernels"), (["all_reduce", "-n", "0"], "not in range"),
                 (["all_reduce", "-b", "8", "-e", "4"], "-b 8 is larger than -e 4"), (["all_reduce", "--frob"], "--frob"),
                 (["all_reduce", "-I", "1", "-K", "20"], "-K 20 leaves nothing of -n 20"), ([], "OP is required")]
        for words, text in cases:
            with self.subTest(words):
                r = run(TUTTI, "perf", *words)
                self.assertEqual(r.returncode, 64, r.all)
                self.assertIn(text, r.all)
        for words, text in [(["broadcast", "-t", "2", "-r", "9", "-b", "8", "-e", "8"], "only 2 ranks"),
                            (["hypercube", "-t", "3", "-b", "8", "-e", "8"], "power of two")]:
            r = run(TUTTI, "perf", *words)
            self.assertEqual(r.returncode, 2, r.all)
            self.assertEqual(r.stderr.count("error:"), 1, r.stderr)
            self.assertIn(text, r.stderr)

    def test_built_in_launch_inside_a_launcher_is_refused(self):
        r = perf("all_reduce", "--ranks", 2, OMPI_COMM_WORLD_RANK=0, OMPI_COMM_WORLD_SIZE=2)
        self.assertEqual(r.returncode, 64)
        self.assertIn("the launcher's processes are the ranks", r.stderr)

    def test_processes_of_a_launcher_that_cannot_be_joined_do_not_run_alone(self):
        r = perf("all_reduce", "-b", 8, "-e", 8, PMI_RANK=0, PMI_SIZE=4)
        self.assertEqual(r.returncode, 2, r.all)
        self.assertEqual(rows_of(r.stdout), [])
        self.assertIn("PMI_RANK", r.stderr)


    def test_ranks_meet_through_several_roots(self):
        for words in (["--ranks", 3, "--roots", 3], ["--ranks", 2, "-t", 2, "--roots", 3], ["-t", 4, "--roots", 2]):
            with self.subTest(words):
                self.table("all_reduce", perf("all_reduce", *words, "-b", 8, "-e", "1K", "-f", 8, "-n", 2))
        r = perf("all_reduce", "--ranks", 2, "--roots", 3, "-b", 8, "-e", 8)
        self.assertEqual(r.returncode, 2, r.all)
        self.assertIn("--roots 3: only 2 ranks", r.stderr)


class PerfJson(Tools):
    KEYS = {"version", "start_time", "end_time", "args", "env", "nccl_version", "config", "devices", "results", "out_of_bounds",
            "average_bus_bandwidth", "errors"}
    CONFIG = {"nthreads", "ngpus", "minimum_bytes", "maximum_bytes", "step_factor", "warmup_iters", "iterations",
              "aggregated_iterations", "validation", "graph", "blocking_collectives", "per_iter_timing", "per_iter_skip",
              "parallel_init"}

    def test_the_file_has_the_fields_keys_and_agrees_with_the_table(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            r = perf("all_reduce", "--ranks", 2, "-b", 8, "-e", "32K", "-f", 64, "-n", 4, "-I", 1, "-J", path)
            rows = self.table("all_reduce", r)
            with open(path) as f:
                data = json.load(f)
        self.assertLessEqual(self.KEYS, set(data))
        self.assertLessEqual(self.CONFIG, set(data["config"]))
        self.assertEqual([d["rank"] for d in data["devices"]], [0, 1])
        self.assertEqual([str(x["size"]) for x in data["results"]], [row[0] for row in rows])
        for result in data["results"]:
            self.assertEqual((result["type"], result["redop"], result["root"]), ("float", "sum", -1))
            for place in ("out_of_place", "in_place"):
                self.assertEqual(result[place]["nwrong"], 0)
                self.assertGreater(result[place]["time"], 0)
                each = result[place + "_per_iter"]
                self.assertEqual(len(each["times_us"]), 4)
                self.assertEqual([len(p) for p in each["per_process_max_times_us"]], [4, 4])
                self.assertLessEqual(each["min_us"], each["p50_us"])
                self.assertLessEqual(each["p99_us"], each["max_us"])
        self.assertTrue(data["out_of_bounds"]["okay"])

    def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(self):
        r = perf("all_reduce", "-t", 2, "-b", 8, "-e", 8, "-n", 1, "-J", "/nonexistent/out.json")
        self.assertEqual((r.returncode, r.stdout), (64, ""))
        self.assertIn("cannot write /nonexistent/out.json", r.stderr)


class PerfFailure(Tools):
    def killed(self, **env):
        """Kills rank 1 of 3 in the middle of the test; returns stderr, exit code, seconds."""
        p = subprocess.Popen([TUTTI, "perf", "all_reduce", "--ranks", "3", "-b", "1M", "-e", "1M", "-N", "0", "-n", "5"],
                             env=clean_env(**env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        pids, rows = {}, 0
        while rows < 2:
            line = p.stdout.readline()
            self.assertTrue(line, "ended too early")
            found = re.match(r"# +Rank +(\d+) .* Pid +(\d+) ", line)
            if found:
                pids[int(found[1])] = int(found[2])
            rows += not line.startswith("#")
        os.kill(pids[1], signal.SIGKILL)
        start = time.monotonic()
        _, err = p.communicate(timeout=LIMIT)
        return err, p.returncode, time.monotonic() - start, pids

    def check_killed(self, **env):
        err, code, took, pids = self.killed(**env)
        self.assertEqual(code, 137, err)
        self.assertLess(took, 15)
        self.assertIn("was killed by SIGKILL", err)
        self.assertGreaterEqual(len(re.findall(r"^error: .*rank 1", err, re.M)), 1, err)
        for pid in pids.values():
            with self.assertRaises(ProcessLookupError):
                os.kill(pid, 0)

    def test_a_killed_rank_ends_the_test_and_is_named_by_the_others(self):
        self.check_killed()

    def test_the_same_over_sockets(self):
        self.check_killed(TUTTI_SHM_DISABLE=1)

    def test_an_error_of_all_ranks_is_told_once(self):
        r = perf("all_reduce", "--ranks", 3, "-b", 8, "-e", 8, "-n", 1, TUTTI_NET="nosuch")
        self.assertEqual(r.returncode, 2, r.all)
        self.assertEqual(r.stderr.count('no plugin offers tutti.net "nosuch"'), 1, r.stderr)
        self.assertNotIn("note:", r.stderr)

    def test_a_table_that_a_plugin_cannot_read_is_an_error(self):
        for file, why in (("/nowhere/table", "cannot be read: No such file"), ("/dev/zero", "is no regular file"), ("/etc", "is no regular file")):
            with self.subTest(file):
                r = perf("barrier", "--ranks", 2, "-n", 1, TUTTI_PLUGIN_TUNER_FILE=file)
                self.assertEqual(r.returncode, 2, r.all)
                self.assertIn(f'TUTTI_PLUGIN_TUNER_FILE: option file: "{file}" {why}', r.stderr)

    def test_a_file_that_is_no_unique_id_is_left_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            precious = os.path.join(folder, "precious")
            with open(precious, "w") as f:
                f.write("precious")
            r = run(TUTTI, "perf", "barrier", "-n", 1, TUTTI_COMM_ID=f"file:{precious}", TUTTI_RANK=0, TUTTI_NRANKS=2)
            self.assertEqual(r.returncode, 2, r.all)
            self.assertIn(f"{precious} exists and holds no unique id", r.stderr)
            with open(precious) as f:
                self.assertEqual(f.read(), "precious")

    def test_output_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "w") as full:
            r = subprocess.run([TUTTI, "info"], env=clean_env(), stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
        self.assertEqual(r.returncode, 2, r.stderr)
        self.assertIn("the output could not be written", r.stderr)

    def test_a_row_that_takes_too_long_ends_the_test(self):
        start = time.monotonic()
        r = perf("all_reduce", "--ranks", 2, "-b", "64K", "-e", "64K", "-n", 100000000, "-T", 1)
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("not finished after 1 s (-T)", r.stderr)
        self.assertLess(time.monotonic() - start, 20)


class Surroundings(Tools):
    """What a container may lack, in a mount namespace of the command's own."""
    WAYS = (["unshare", "-m"], ["unshare", "-rm"])

    def setUp(self):
        if not way_to_mount():
            self.skipTest("mount namespaces are not allowed here")

    def eight(self, mounts):
        command = f"{mounts} && exec \"$@\""
        return run(*way_to_mount(), "sh", "-c", command, "sh", TUTTI, "perf", "all_reduce", "--ranks", 8, "-b", 8, "-e", "1M",
                   "-f", 16, "-n", 3)

    def test_eight_ranks_with_64_KiB_of_shared_memory_files(self):
        self.table("all_reduce", self.eight("mount -t tmpfs -o size=64k none /dev/shm"), ranks=8)

    def test_eight_ranks_with_shared_memory_files_that_cannot_be_written(self):
        self.table("all_reduce", self.eight("mount -t tmpfs -o ro none /dev/shm"), ranks=8)

    def test_eight_ranks_without_sys(self):
        self.table("all_reduce", self.eight("mount -t tmpfs -o ro none /sys"), ranks=8)


def way_to_mount():
    """The command before another one that may then mount as it likes; None where nothing allows that."""
    for way in Surroundings.WAYS:
        if shutil.which("unshare") and run(*way, "mount", "-t", "tmpfs", "none", "/sys").returncode == 0:
            return way
    return None


def read(path):
    with open(path) as file:
        return file.read()


class Map(Tools):
    """Communication maps."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def read(self, name):
        with open(self.path(name)) as f:
            return f.read()

    def pairs(self, name):
        (comm,) = json.loads(self.read(name))["communicators"]
        return {(p["from"], p["to"]): p["bytes"] for p in comm["pairs"]}

    def test_what_ranks_count_is_what_the_simulator_counts(self):
        rooted = ["broadcast", "reduce", "gather", "scatter"]
        algorithms = {"ring": ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"],
                      "tree": ["all_reduce", "broadcast", "reduce"],
                      "direct": ["all_reduce", "all_gather", "reduce_scatter", "alltoall", *rooted],
                      "rhd": ["all_reduce", "all_gather", "reduce_scatter"],
                      "pat": ["all_gather", "reduce_scatter"],
                      "binomial": rooted, "bruck": ["alltoall"], "pairwise": ["alltoall"]}
        n, size = 5, 5 << 14
        for algorithm, operations in algorithms.items():
            for op in operations:
                with self.subTest(f"{algorithm} {op}"):
                    self.good(perf(op, "-t", n, "-b", size, "-e", size, "-n", 1, "-w", 0, "-c", 0, "--heatmap", self.path("m.json"),
                                   TUTTI_ALGO=algorithm, TUTTI_SLOT_BYTES="128K", TUTTI_MAX_CHANNELS=1))
                    words = [TUTTI, "plan", "simulate", algorithm, op, "-n", n, "-b", size, "--multicast", "--json"]
                    simulated = {}
                    for link in json.loads(self.good(run(*words)).stdout)["links"]:
                        pair = (link["from"], link["to"])
                        simulated[pair] = simulated.get(pair, 0) + link["bytes"]
                    self.assertEqual(self.pairs("m.json"), {p: b for p, b in simulated.items() if b})

    def test_a_heat_map_of_what_one_operation_of_each_size_moves(self):
        words = ["all_reduce", "--ranks", 3, "-b", "48K", "-e", "96K", "-f", 2, "-n", 2, "-w", 1]
        r = self.good(perf(*words, "--heatmap", self.path("m.svg"), "--heatmap", self.path("m.json"), TUTTI_ALGO="ring"))
        self.assertIn(f"# Communication map    : {self.path('m.svg')}\n", r.stdout)
        sent = 4 * (48 + 96) * 1024 // 3
        self.assertEqual(self.pairs("m.json"), {(0, 1): sent, (1, 2): sent, (2, 0): sent})
        svg = xml.etree.ElementTree.fromstring(self.read("m.svg"))
        texts = [e.text or "" for e in svg.iter()]
        self.assertIn("all_reduce, one of each size from 48KB to 96KB, 3 ranks", texts)
        self.assertEqual(sum(f": {sent} bytes" in t for t in texts), 3)
        bad = perf("all_reduce", "-t", 2, "--heatmap", self.path("none", "m.svg"))
        self.assertEqual(bad.returncode, 64)
        self.assertIn("--heatmap: cannot write", bad.stderr)

    def test_groups_have_a_map_each(self):
        self.good(perf("alltoall", "-t", 4, "-b", "16K", "-e", "16K", "-n", 1, "--heatmap", self.path("m.json"), "--heatmap", self.path("m.svg"),
                       NCCL_TESTS_SPLIT="MOD 2"))
        comms = json.loads(self.read("m.json"))["communicators"]
        self.assertEqual([c["nranks"] for c in comms], [2, 2])
        self.assertEqual([{(p["from"], p["to"]): p["bytes"] for p in c["pairs"]} for c in comms], [{(0, 1): 8192, (1, 0): 8192}] * 2)
        self.assertEqual(self.read("m.svg").count("communicator "), 2)

    def test_files_of_ranks_become_one_map(self):
        os.mkdir(self.path("ranks"))
        self.good(perf("alltoall", "--ranks", 3, "-b", "48K", "-e", "48K", "-n", 2, TUTTI_COMM_MAP_FILE=self.path("ranks", "m-%h-%p.json")))
        files = sorted(self.path("ranks", f) for f in os.listdir(self.path("ranks")))
        self.assertEqual(len(files), 3, files)
        out = self.good(run(TUTTI, "map", *files)).stdout
        self.assertRegex(out, r"(?m)^communicator [0-9a-f]{16}: 3 ranks on 1 host$")
        self.assertRegex(out, r"(?m)^  largest over mean: sent 1\.00 ")
        self.assertRegex(out, r"(?m)^  shm: simple +\d+ bytes +\d+ messages +\d+ on the wire$")
        self.good(run(TUTTI, "map", *files, "--json", self.path("all.json"), "--svg", self.path("all.svg")))
        self.good(run(TUTTI, "map", *reversed(files), "--json", self.path("again.json"), "--svg", self.path("again.svg")))
        self.assertEqual(self.read("all.json"), self.read("again.json"))
        self.assertEqual(self.read("all.svg"), self.read("again.svg"))
        self.assertEqual(self.good(run(TUTTI, "map", self.path("all.json"), files[0])).stdout, out)
        self.assertIn("no file of rank", self.good(run(TUTTI, "map", files[0])).stdout)

    def test_files_that_are_no_maps_are_named(self):
        with open(self.path("x.json"), "w") as f:
            f.write('{"format": "tutti-map"')
        for words, code, text in (([self.path("x.json")], 2, "x.json: is no JSON, or cut off"), ([self.path("none")], 2, "none: No such file"),
                                  ([], 64, "FILES is required")):
            r = run(TUTTI, "map", *words)
            self.assertEqual(r.returncode, code, r.all)
            self.assertIn(text, r.stderr)

    def test_a_full_disk_is_one_warning_and_no_failure(self):
        r = self.good(perf("all_reduce", "-t", 2, "-b", 8, "-e", 8, "-n", 1, TUTTI_COMM_MAP_FILE=self.path("none", "m.json")))
        self.assertEqual(r.stderr.count("no communication map: cannot write"), 1, r.stderr)


class Topo(Tools):
    DATA = os.path.join(os.path.dirname(__file__), "../data/topology")

    def file(self, name):
        return os.path.join(self.DATA, name)

    def test_this_machine_has_a_processor_and_says_what_it_assumes(self):
        out = self.good(run(TUTTI, "topo", "--time"))
        self.assertRegex(out.stdout, r"(?m)^this machine\nCPU/\d+ ")
        self.assertIn("Legend:", out.stdout)
        self.assertRegex(out.stderr, r"time: read [\d.]+ ms, paths [\d.]+ ms, search [\d.]+ ms")
        self.assertIn("<cpu ", self.good(run(TUTTI, "topo", "--format", "xml")).stdout)

    def test_a_file_is_shown_as_tree_matrix_and_channels(self):
        out = self.good(run(TUTTI, "topo", "--file", self.file("two_switches.xml"), "--bandwidth")).stdout
        self.assertRegex(out, r"(?m)^    GPU/0 0000:11:00.0 rank 0  PCI 24 GB/s")
        self.assertRegex(out, r"(?m)^GPU0 +X +NV2 +NV2 +NVB +PIX +SYS +0  0-3$")
        self.assertRegex(out, r"(?m)^GPU0 +X +40 +40 +40 +24 +16$")
        self.assertIn("rings: 2 channels x 40 GB/s = 80 GB/s", out)
        self.assertIn("head of NET/mlx5_1: GPU/2", out)

    def test_the_environment_names_files_as_in_other_libraries(self):
        with tempfile.TemporaryDirectory() as folder:
            graph, dump = os.path.join(folder, "graph.xml"), os.path.join(folder, "dump.xml")
            self.good(run(TUTTI, "topo", NCCL_TOPO_FILE=self.file("two_switches.xml"), NCCL_GRAPH_DUMP_FILE=graph, TUTTI_TOPO_DUMP_FILE=dump))
            self.assertIn('colour="blue"', read(dump))
            self.assertIn('<graph id="0" pattern="4"', read(graph))
            text = read(graph).replace('<gpu dev="1" />', '<gpu dev="0" />')
            again = self.good(run(TUTTI, "topo", "--file", self.file("two_switches.xml"), TUTTI_GRAPH_FILE=graph)).stdout
            self.assertIn("rings: 2 channels x 40 GB/s = 80 GB/s", again)
            with open(graph, "w") as out:
                out.write(text)
            bad = run(TUTTI, "topo", "--file", self.file("two_switches.xml"), "--graph", graph)
            self.assertEqual(bad.returncode, 2)
            self.assertIn("graph 0 channel 0: 0 twice", bad.stderr)

    def test_other_formats_are_for_programs(self):
        out = json.loads(self.good(run(TUTTI, "topo", "--file", self.file("nvswitch.xml"), "--format", "json")).stdout)
        self.assertEqual(len(out["places"]), 8)
        self.assertAlmostEqual(out["rings"]["total_gbps"], 370.8)
        dot = self.good(run(TUTTI, "topo", "--file", self.file("nvswitch.xml"), "--format", "dot")).stdout
        self.assertEqual(dot.count(" -- "), 16)

    def test_bad_files_are_named_with_the_line(self):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as bad:
            bad.write('<system version="1">\n<cpu/>\n</system>\n')
            bad.flush()
            out = run(TUTTI, "topo", "--file", bad.name)
            self.assertEqual(out.returncode, 2)
            self.assertIn(f"error: topo: {bad.name}:2: <cpu>: numaid is missing", out.stderr)
        self.assertEqual(run(TUTTI, "topo", "--format", "svg").returncode, 64)


class Info(Tools):
    def test_info_lists_version_host_plugins_and_devices(self):
        out = self.good(run(TUTTI, "info")).stdout
        for text in ("plugin ABI 0.9", "kernels", "processor", "memory", "plugins loaded", "plugin directories", "network devices"):
            self.assertIn(text, out)
        for plugin in ("net-socket", "proto-simple", "algo-ring", "algo-direct", "tuner"):
            self.assertRegex(out, rf"(?m)^  {plugin} ")
        self.assertRegex(out, r"(?m)^  socket +\S+ +.*")

    def test_config_shows_every_setting_with_its_origin(self):
        out = self.good(run(TUTTI, "info", "config", TUTTI_TIMEOUT="45s")).stdout
        self.assertRegex(out, r"(?m)^  core\.timeout +45s +TUTTI_TIMEOUT$")
        self.assertGreater(out.count(" default"), 10)

    def test_json_for_programs(self):
        config = json.loads(self.good(run(TUTTI, "info", "config", "--json", TUTTI_TIMEOUT="45s")).stdout)
        self.assertEqual(config["core.timeout"], {"value": "45s", "origin": "TUTTI_TIMEOUT", "default": "10min"})
        plugins = json.loads(self.good(run(TUTTI, "info", "plugins", "--json", NCCL_SOCKET_NTHREADS=2)).stdout)
        threads = next(p for p in plugins["loaded"] if p["name"] == "net-socket")["options"]["threads"]
        self.assertEqual(threads, {"value": "2", "origin": "NCCL_SOCKET_NTHREADS"})
        self.assertEqual(run(TUTTI, "info", "host", "--json").returncode, 64)

    def test_channels_of_a_job_are_told_with_the_reason(self):
        out = self.good(run(TUTTI, "info", "channels", "--ranks", "2")).stdout
        self.assertIn("channels of a job of 2 ranks on 1 host like this", out)
        self.assertIn("two ranks of one host have one order", out)
        self.assertIn("proposed: 1, as ranks of one host share its memory", out)
        nodes = os.path.join(os.path.dirname(__file__), "../data/topology/two_nodes.xml")
        out = self.good(run(TUTTI, "info", "channels", "--ranks", "4", TUTTI_TOPO_FILE=nodes)).stdout
        self.assertIn("rings: 1 channels x 10 GB/s", out)
        self.assertRegex(out, r"(?m)^ +0: ring 0 1 2 3$")
        found = json.loads(self.good(run(TUTTI, "info", "channels", "--ranks", "8", "--json", TUTTI_TOPO_FILE=nodes, TUTTI_MIN_CHANNELS=2)).stdout)
        self.assertEqual(found["channels"], {"least": 2, "proposed": 2, "most": 64, "most_measured": 64})
        self.assertEqual(len(found["searched"]["channels"]), 2)
        r = run(TUTTI, "info", "channels", "--ranks", "2", "--hosts", "3")
        self.assertEqual(r.returncode, 2)
        self.assertIn("2 ranks are too few for 3 hosts", r.stderr)
        self.assertEqual(run(TUTTI, "info", "--ranks", "2").returncode, 64)

    def test_nothing_is_wider_than_130_columns(self):
        for words in (["info"], ["info", "plugins"], ["info", "config"], ["perf", "--help"], ["run", "--help"], ["--help"], ["topo", "--help"],
                      ["plan", "--help"], ["plan", "check", "--help"], ["plan", "show", "--help"], ["plan", "simulate", "--help"],
                      ["tune", "--help"], ["explain", "--help"], ["map", "--help"], ["plan", "volume", "--help"], ["plan", "volume"], ["plan", "simulate"],
                      ["plan", "check", "--coll", "all", "--ranks", "2..4", "--in-place", "both"]):
            wide = [line for line in self.good(run(TUTTI, *words)).stdout.splitlines() if len(line) > 130 and "/" not in line]
            self.assertEqual(wide, [], words)

    def test_a_bad_setting_is_an_error_that_names_it(self):
        r = run(TUTTI, "info", TUTTI_TIMEOUT="soon")
        self.assertEqual(r.returncode, 2)
        self.assertRegex(r.stderr, r'error: .*TUTTI_TIMEOUT.*soon')
        r = run(TUTTI, "info", TUTTI_TIMEUOT="1s")
        self.assertEqual(r.returncode, 2)
        self.assertIn("TUTTI_TIMEOUT", r.stderr)

    def test_a_file_that_is_no_plugin_is_listed_with_the_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "libtutti-broken.so")
            with open(path, "w") as f:
                f.write("not an ELF file")
            out = self.good(run(TUTTI, "info", TUTTI_PLUGIN_PATH=folder)).stdout
            self.assertIn("files not loaded", out)
            self.assertIn("libtutti-broken.so: ", out)

    def test_version_and_help(self):
        self.assertRegex(self.good(run(TUTTI, "version")).stdout, r"^tutti \d+\.\d+\.\d+ \(library \d+\.\d+\.\d+\)\n$")
        out = self.good(run(TUTTI, "--help")).stdout
        for command in ("run", "perf", "tune", "explain", "info", "plan", "check-plugin", "version"):
            self.assertIn(command, out)
            self.good(run(TUTTI, command, "--help"))
        self.assertEqual(run(TUTTI).returncode, 64)
        r = run(TUTTI, "bogus")
        self.assertEqual(r.returncode, 64)
        self.assertIn('unknown command "bogus"; one of run', r.stderr)

    def test_plan_check_accepts_the_ring(self):
        self.good(run(TUTTI, "plan", "check", "--algo", "ring", "--coll", "all_reduce", "--ranks", "2..16"))
        out = self.good(run(TUTTI, "plan", "check", "ring", "all_reduce", "1..8,12", "--in-place", "both")).stdout
        self.assertIn("ring: 16 checked, 0 wrong", out)
        self.assertRegex(out, r"(?m)^all_reduce +8 ranks +right +14 rounds +1\.750 bytes/byte .* by chunk ")
        for ranks in ("0", "2..", "4..2", "2,x", ""):
            self.assertEqual(run(TUTTI, "plan", "check", "ring", "all_reduce", "--ranks", ranks).returncode, 64, ranks)

    def test_plan_check_tells_what_is_not_offered_from_what_is_wrong(self):
        out = self.good(run(TUTTI, "plan", "check", "ring", "all", "2..12")).stdout
        self.assertIn("alltoall       not offered with 2, 3, 4, 5, 6, 7, 8, 9 and 3 more ranks\n", out)
        self.assertIn("ring: 66 checked, 0 wrong", out)
        none = run(TUTTI, "plan", "check", "ring", "alltoall", "2..4")
        self.assertEqual(none.returncode, 2, none.all)
        self.assertIn("not offered with 2, 3, 4 ranks", none.stdout)
        self.assertIn("nothing was checked", none.stderr)
        self.assertEqual(run(TUTTI, "plan", "check", "ring", "all_reduce", "1").returncode, 2)
        broken = run(TUTTI, "plan", "check", "hier", "all", "2,4", TUTTI_PLUGIN_ALGO_HIER_OUTER="direct,tre")
        self.assertEqual(broken.returncode, 1, broken.all)
        self.assertRegex(broken.stdout, r"(?m)^all_reduce +4 ranks +WRONG no plan$")
        self.assertIn('TUTTI_PLUGIN_ALGO_HIER_OUTER: option outer lists "tre", which no loaded algorithm is called', broken.stdout)

    def test_the_hierarchical_algorithm_refuses_itself(self):
        for key in ("INNER", "OUTER"):
            for name in ("hier", "direct,ALGO-Hier"):
                r = run(TUTTI, "plan", "check", "hier", "all_reduce", 4, **{"TUTTI_PLUGIN_ALGO_HIER_" + key: name})
                self.assertEqual(r.returncode, 2, r.all)
                self.assertIn("would compose itself for ever", r.stderr)

    def test_the_hierarchical_algorithm_takes_the_first_pair_that_fits(self):
        words = ["plan", "check", "hier", "all_reduce", 4, "--per-host", 2]
        self.good(run(TUTTI, *words, TUTTI_PLUGIN_ALGO_HIER_OUTER="bruck,rhd"))
        r = run(TUTTI, *words, TUTTI_PLUGIN_ALGO_HIER_OUTER="bruck,pairwise")
        self.assertEqual(r.returncode, 2, r.all)
        self.assertIn("bruck", r.stdout)  # the first reason
        self.assertNotIn("pairwise", r.stdout)

    def test_a_plan_is_drawn_as_svg(self):
        words = ["plan", "show", "ring", "all_reduce", "-n", 4, "--channels", 2, "-b", "64K", "--svg"]
        svg = self.good(run(TUTTI, *words, "-")).stdout
        root = xml.etree.ElementTree.fromstring(svg.encode())
        space = "{http://www.w3.org/2000/svg}"
        self.assertEqual(root.tag, space + "svg")
        texts = [t.text for t in root.iter(space + "text")]
        for text in ("all_reduce by ring, 4 ranks", "rank 3", "chunk 1.3", "on the critical path"):
            self.assertIn(text, texts)
        boxes = [g for g in root.iter(space + "g") if g.find(space + "title") is not None]
        self.assertEqual(len(boxes), 2 * 4 * 7)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.svg")
            self.good(run(TUTTI, *words, path))
            with open(path) as f:
                self.assertEqual(f.read(), svg)
            r = run(TUTTI, *words, os.path.join(folder, "missing", "plan.svg"))
            self.assertEqual(r.returncode, 2)
            self.assertIn("cannot write", r.stderr)
        for more in (["--rank", 1], ["--format", "dot"]):
            self.assertEqual(run(TUTTI, *words, "-", *more).returncode, 64, more)
        r = run(TUTTI, "plan", "show", "ring", "all_reduce", "-n", 4, "-b", "1G", "--slice", 64, "--svg", "-")
        self.assertEqual(r.returncode, 2)
        self.assertIn("limit 4000", r.stderr)

    def test_plans_are_simulated(self):
        words = ["plan", "simulate", "ring", "all_reduce", "-n", 4, "-b", "64K", "--alpha", 2, "--beta", 1]
        self.assertRegex(self.good(run(TUTTI, *words)).stdout, r"(?m)^time  110\.304 us ")
        j = json.loads(self.good(run(TUTTI, *words, "--json")).stdout)
        self.assertAlmostEqual(j["seconds"], 6 * (2e-6 + 16384 / 1e9), 12)
        self.assertEqual([l["bytes"] for l in j["links"]], [98304] * 4)
        self.assertEqual(len(j["critical_path"]), 13)
        far = ["--alpha", "2,20", "--beta", "1,0.5", "--per-host", 2, "--json"]
        hosts = json.loads(self.good(run(TUTTI, *words[:-4], *far)).stdout)
        self.assertGreater(hosts["seconds"], j["seconds"])
        for bad in (["--alpha", "x"], ["--alpha", "nan"], ["--alpha", "inf"], ["--beta", "1,inf"], ["--beta", "0"], ["-b", "many"], ["-n", "2..4"]):
            self.assertEqual(run(TUTTI, "plan", "simulate", "ring", "all_reduce", *bad).returncode, 64, bad)

    def test_volumes_come_with_formula_and_inputs(self):
        out = self.good(run(TUTTI, "plan", "volume", "ring", "-n", 4, "-b", "64K")).stdout
        self.assertRegex(out, r"(?m)^  all_reduce, sent per rank\n    2 \(n - 1\) / n \* S += 98304 bytes +with n = 4, S = 65536$")
        simulated = json.loads(self.good(run(TUTTI, "plan", "simulate", "ring", "all_reduce", "-n", 4, "-b", "64K", "--json")).stdout)
        self.assertEqual({l["bytes"] for l in simulated["links"]}, {98304})
        ddp = json.loads(self.good(run(TUTTI, "plan", "volume", "ddp", "-n", 1024, "--parameters", "175e9", "--json")).stdout)
        self.assertEqual(ddp[0]["inputs"], {"n": 1024, "P": 175e9, "e": 2})
        self.assertAlmostEqual(ddp[0]["value"], 2 * 1023 / 1024 * 350e9, 0)
        tree = json.loads(self.good(run(TUTTI, "plan", "volume", "fat-tree", "--ports", 64, "--json")).stdout)
        self.assertEqual([v["value"] for v in tree[:2]], [65536, 5120])
        topics = {v["topic"] for v in json.loads(self.good(run(TUTTI, "plan", "volume", "--json")).stdout)}
        self.assertLessEqual({"busbw", "ring", "tree", "collnet", "ddp", "zero1", "zero2", "zero3", "tensor", "pipeline", "fat-tree"}, topics)
        for bad in (["rings"], ["fat-tree", "--ports", 7], ["ring", "-n", 1], ["ring", "-b", "many"], ["ddp", "--parameters", "nan"]):
            self.assertEqual(run(TUTTI, "plan", "volume", *bad).returncode, 64, bad)

    def test_slices_shorter_than_chunks_imply_the_plan_for_many(self):
        def links(*words):
            j = json.loads(self.good(run(TUTTI, "plan", "simulate", "direct", "all_reduce", "-n", 4, "-b", "1M", *words, "--json")).stdout)
            return [l["bytes"] for l in j["links"]]
        short, long = links(), links("--many-slices")
        self.assertNotEqual(short, long)
        self.assertEqual(links("--slice", "64K"), long)
        self.assertEqual(links("--slice", "1M"), short)

    def test_plans_of_ranks_that_share_memory_have_links_with_several_readers(self):
        show = ["plan", "show", "direct", "all_gather", "-n", 4, "--format", "json"]
        def several(*words):
            plans = json.loads(self.good(run(TUTTI, *show, *words)).stdout)["plans"]
            return [sum(l["multicast"] for lane in p["lanes"] for l in lane["send"]) for p in plans]
        self.assertEqual(several(), [0] * 4)
        self.assertEqual(several("--multicast"), [1] * 4)
        self.assertEqual(several("--multicast", "--per-host", 4), [1] * 4)
        r = run(TUTTI, *show, "--multicast", "--per-host", 2)
        self.assertEqual(r.returncode, 64, r.all)
        self.assertIn("--multicast with --per-host 2", r.stderr)
        once = run(TUTTI, "plan", "simulate", "direct", "broadcast", "-n", 4, "--multicast")
        self.good(once)
        self.assertIn("time  105.358 us", once.stdout)  # 0.5 us + 1M / 10 GB/s: written once, not three times
        self.good(run(TUTTI, "plan", "show", "direct", "all_gather", "-n", 4, "--multicast", "--svg", "-"))
        out = self.good(run(TUTTI, "plan", "check", "direct", "all_gather", "2..4")).stdout
        self.assertIn("direct: 5 checked, 0 wrong", out)  # with two ranks there are no such links
        self.assertRegex(out, r"(?m)^all_gather +4 ranks +right +1 rounds +0\.750 bytes/byte ")
        self.assertRegex(out, r"(?m)^all_gather +4 ranks +multicast +right +1 rounds +0\.250 bytes/byte ")
        out = self.good(run(TUTTI, "plan", "check", "direct", "all_gather", 4, "--per-host", 2)).stdout
        self.assertIn("direct: 1 checked, 0 wrong", out)

    def test_plans_can_be_read_by_programs(self):
        words = ["plan", "show", "--algo", "ring", "--ranks", 3]
        plan = json.loads(self.good(run(TUTTI, *words, "--format", "json")).stdout)
        self.assertEqual([p["rank"] for p in plan["plans"]], [0, 1, 2])
        dot = self.good(run(TUTTI, *words, "--format", "dot")).stdout
        self.assertEqual(re.findall(r"(\d) -> (\d)", dot), [("0", "1"), ("1", "2"), ("2", "0")])
        if shutil.which("dot"):
            subprocess.run(["dot", "-Tsvg"], input=dot, check=True, capture_output=True, text=True, timeout=LIMIT)
        else:
            self.assertRegex(dot, r"^digraph \w+ \{\n(?:  .*;\n)+\}\n$")


class Doctor(Tools):
    DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "doctor")

    def test_this_host_is_looked_at_for_people_and_for_programs(self):
        r = run(TUTTI, "doctor", "--ranks", 2, "--all")
        self.assertIn(r.returncode, (0, 1), r.all)
        for word in ["limits\n", "network\n", "ranks", " ok"]:
            self.assertIn(word, r.stdout)
        r = run(TUTTI, "doctor", "--json")
        report = json.loads(r.stdout)
        self.assertEqual(r.returncode, int(any(f["level"] == "error" for f in report["findings"])))
        self.assertTrue(all({"level", "topic", "id", "seen"} <= f.keys() for f in report["findings"]))
        self.assertGreater(len(report["findings"]), 10)

    def test_a_limit_that_is_too_low_is_an_error(self):
        r = run("bash", "-c", f"ulimit -n 100; exec {TUTTI} doctor --ranks 1000")
        self.assertEqual(r.returncode, 1, r.all)
        self.assertIn("open files (ulimit -n): 100 soft, 100 hard", r.stdout)

    def test_logs_are_explained_from_a_file_and_from_standard_input(self):
        r = run(TUTTI, "doctor", "--log", os.path.join(self.DATA, "killed.log"))
        self.assertEqual(r.returncode, 1, r.all)
        self.assertIn("most lines name rank 2", r.stdout)
        r = self.good(run(TUTTI, "doctor", "--log", os.path.join(self.DATA, "clean.log")))
        self.assertIn("nothing known to be wrong", r.stdout)
        r = run("bash", "-c", f"head -1 {self.DATA}/killed.log | {TUTTI} doctor --log - --json")
        self.assertEqual(json.loads(self.good(r).stdout)["symptoms"], [])

    def test_an_error_of_a_real_job_is_recognised(self):
        failed = run(TUTTI, "perf", "all_reduce", "--ranks", 2, "-b", 8, "-e", 8, TUTTI_SOCKET_IFNAME="=nosuch0")
        self.assertNotEqual(failed.returncode, 0)
        r = subprocess.run([TUTTI, "doctor", "--json", "--log", "-"], input=failed.all, capture_output=True, text=True, timeout=LIMIT, env=clean_env())
        self.assertEqual(json.loads(r.stdout)["symptoms"][0]["id"], "interface", failed.all)

    def test_pairs_of_a_job_on_one_host(self):
        r = self.good(run(TUTTI, "run", "-n", 3, "--", TUTTI, "doctor", "--job", "--json"))
        report = json.loads(r.stdout)
        self.assertEqual([h["ranks"] for h in report["hosts"]], [[0, 1, 2]])
        self.assertEqual(sorted((p["a"], p["b"]) for p in report["same_host"]), [(0, 1), (0, 2), (1, 2)])
        self.assertTrue(all(p["problem"] == "" and p["latency_us"] > 0 for p in report["same_host"]), report["same_host"])

    def test_what_cannot_be_asked_for_is_refused(self):
        for words, text in [(["--job"], "no launcher"), (["--hosts", "a"], "pairs need two"), (["--log", "x", "--job"], "excludes"),
                            (["--hosts", "a,b;c"], "is no host name"), (["--ranks", "-1"], "--ranks")]:
            r = run(TUTTI, "doctor", *words)
            self.assertEqual(r.returncode, 64, r.all)
            self.assertIn(text, r.all)
        r = run(TUTTI, "doctor", "--log", "/nonexistent")
        self.assertEqual(r.returncode, 2, r.all)

    def test_hosts_that_cannot_be_started_end_it_with_the_reason(self):
        r = run(TUTTI, "doctor", "--hosts", "a,b", "--ssh", "/bin/false", "--timeout", 20)
        self.assertEqual(r.returncode, 2, r.all)
        self.assertIn("a: it ended", r.stdout)


class Tune(Tools):
    DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/tuner")

    def tune(self, folder, *words, **env):
        return run(TUTTI, "tune", *words, cwd=folder, **env)

    def explanation(self, op, size, ranks=3, **env):
        return json.loads(self.good(run(TUTTI, "explain", op, size, "--ranks", ranks, "--json", **env)).stdout)

    def test_a_table_is_measured_and_then_decides(self):
        with tempfile.TemporaryDirectory() as folder:
            r = self.good(self.tune(folder, "all_reduce", "barrier", "--ranks", 3, "-b", 64, "-e", "4K", "-f", 64, "-s", 2))
            self.assertRegex(r.stdout, r"(?m)^all_reduce 4K +[\d.]+ us  \w+/\w+, \d+ channels?, slots ")
            path = os.path.join(folder, "tuned.toml")
            text = read(path)
            self.assertEqual(os.listdir(folder), ["tuned.toml"])
            for part in ('written_by = "tutti tune"', "ranks = 3", 'links = "shm"', 'coll = "barrier"', "time_us = ["):
                self.assertIn(part, text)
            e = self.explanation("all_reduce", "4K", TUTTI_PLUGIN_TUNER_FILE=path)
            way = next(w for w in e["ways"] if w.get("chosen"))
            self.assertRegex(way["note"], re.escape(path) + r":\d+$")
            self.assertGreater(way["measured_us"], 0)
            other = self.explanation("all_reduce", "4K", ranks=2, TUTTI_PLUGIN_TUNER_FILE=path)  # the table knows three ranks
            self.assertFalse([w for w in other["ways"] if "note" in w])
            self.good(self.tune(folder, "barrier", "--ranks", 2, "-s", 1))  # its own file is written again
            self.assertIn("ranks = 2", read(path))

    def test_a_file_of_somebody_else_is_not_overwritten(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "mine.toml")
            with open(path, "w") as f:
                f.write("# mine\n")
            r = self.tune(folder, "barrier", "--ranks", 2, "-s", 1, "-o", path)
            self.assertEqual(r.returncode, 64, r.all)
            self.assertIn("was not written by tutti tune", r.stderr)
            self.assertEqual(read(path), "# mine\n")
            self.good(self.tune(folder, "barrier", "--ranks", 2, "-s", 1, "-o", path, "--force"))
            self.assertIn("[[rule]]", read(path))

    def test_a_table_is_judged_by_a_fresh_run(self):
        with tempfile.TemporaryDirectory() as folder:
            r = self.good(self.tune(folder, "all_reduce", "--ranks", 2, "-b", 64, "-e", "4K", "-f", 64, "-s", 2, "--judge", "built-in",
                                    "--json", "verdict.json"))
            self.assertRegex(r.stdout, r"# within 10 % of the best: \d of \d points \([\d.]+ %\) by the table built-in\n")
            self.assertIn("by the model alone, without a table", r.stdout)
            verdict = json.loads(read(os.path.join(folder, "verdict.json")))
            self.assertEqual([p["bytes"] for p in verdict["points"]], [64, 4096])
            for p in verdict["points"]:
                self.assertGreater(p["best"]["time_us"], 0)
                self.assertEqual(p["table"]["within_10_percent"], p["table"]["ratio"] <= 1.1)
            self.assertEqual(os.listdir(folder), ["verdict.json"])

    def test_an_interrupt_writes_what_is_known(self):
        with tempfile.TemporaryDirectory() as folder:
            words = [TUTTI, "tune", "--ranks", "2", "-s", "80"]
            job = subprocess.Popen(words, env=clean_env(), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   stdin=subprocess.DEVNULL)
            while not job.stdout.readline().startswith("all_gather"):
                pass
            job.send_signal(signal.SIGINT)
            out, err = job.communicate(timeout=LIMIT)
            self.assertEqual(job.returncode, 130, out + err)
            text = read(os.path.join(folder, "tuned.toml"))
            self.assertIn("interrupted = true", text)
            self.assertIn('coll = "all_gather"', text)

    def test_bad_arguments_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for words, part in ((["bogus"], "no operation that is tuned"), (["-b", "many"], '-b: "many"'), (["-b", "0"], "-b 0"),
                                (["-b", "4K", "-e", "1K"], "larger than"), (["-f", "1"], "stepfactor"), (["-s", "0"], "seconds"),
                                (["--judge", "none.toml"], "there is no such file"), (["--json", "x"], "needs --judge"),
                                (["-o", "no/such/t.toml"], "cannot write"), (["--ranks", "1"], "ranks"), ([], "one rank has nothing to tune")):
                r = self.tune(folder, *words)
                self.assertEqual(r.returncode, 64, r.all)
                self.assertIn(part, r.stderr)
            self.assertEqual(os.listdir(folder), [])
        for words in (["bogus", "1K"], ["all_reduce"], ["all_reduce", "many"], ["hypercube", "1K"], ["all_reduce", "1K"]):
            self.assertEqual(run(TUTTI, "explain", *words).returncode, 64, words)

    def test_explain_shows_the_choice_who_decided_and_what_is_against_the_rest(self):
        out = self.good(run(TUTTI, "explain", "all_reduce", "64K", "--ranks", 4)).stdout
        self.assertIn("all_reduce of 65536 bytes with 4 ranks on 1 host", out)
        self.assertRegex(out, r"(?m)^size class: over 32768 up to 65536 bytes$")
        self.assertRegex(out, r"(?m)^decided by tuner: .*built-in table:\d+$")
        self.assertRegex(out, r"(?m)^\* \w+/\w+ +\d+ +\d+ x \d+K? ")
        self.assertRegex(out, r"(?m)^  bruck: .*alltoall only$")
        forced = self.good(run(TUTTI, "explain", "all_reduce", "64K", "--ranks", 3, NCCL_ALGO="tree")).stdout
        self.assertIn('"tree" (NCCL_ALGO)', forced)
        self.assertRegex(forced, r"(?m)^  ring: excluded by ")
        self.good(run(TUTTI, "explain", "barrier", 0, "--ranks", 2))
        self.good(run(TUTTI, "explain", "alltoallv", "64K", "--ranks", 3))
        self.good(run(TUTTI, "explain", "sendrecv", "64K", "--ranks", 2))
        r = run(TUTTI, "explain", "all_reduce", "64K", "--ranks", 3, TUTTI_ALGO="all_reduce:pat")
        self.assertEqual(r.returncode, 2)
        self.assertIn("pat serves all_gather and reduce_scatter only", r.stderr)

    def test_tables_of_the_field_are_read_and_say_what_they_cannot_give(self):
        path = os.path.join(self.DATA, "unsupported.csv")
        r = self.good(run(TUTTI, "explain", "all_gather", "64M", "--ranks", 3, NCCL_TUNER_CONFIG_FILE=path))
        self.assertEqual(len(re.findall(r"unsupported.csv:\d+: algorithm .* the row is skipped", r.stderr)), 5)
        self.assertIn("unsupported.csv:7", run(TUTTI, "explain", "all_gather", "128M", "--ranks", 3, TUTTI_PLUGIN_TUNER_FILE=path).stdout)

    def test_a_bad_table_is_an_error_with_line_and_column(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "t.toml")
            with open(path, "w") as f:
                f.write('[[rule]]\nways = ["ring"]\nslots = 4\n')
            r = run(TUTTI, "explain", "all_reduce", "1K", "--ranks", 2, TUTTI_PLUGIN_TUNER_FILE=path)
            self.assertEqual(r.returncode, 2, r.all)
            self.assertIn(f'{path}:3:1: unknown key "slots" in a rule; did you mean "slot"?', r.stderr)
            r = run(TUTTI, "explain", "all_reduce", "1K", "--ranks", 2, TUTTI_PLUGIN_TUNER_FILE=os.path.join(folder, "none"))
            self.assertIn("cannot be read", r.stderr)


@unittest.skipUnless(shutil.which("mpirun"), "no mpirun")
class Mpirun(Tools):
    MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np"]

    def test_perf_uses_mpiruns_ranks(self):
        r = run(*self.MPIRUN, 4, TUTTI, "perf", "all_reduce", "-b", 8, "-e", "256K", "-f", 8, "-n", 3)
        self.table("all_reduce", r, ranks=4)
        self.assertEqual(r.stdout.count("# Collective test starting"), 1)
        self.assertEqual(len(re.findall(r"# +Rank ", r.stdout)), 4)

    def test_run_becomes_the_program(self):
        hello = os.path.join(BIN, "examples", "hello_all_reduce_c")
        r = self.good(run(*self.MPIRUN, 2, TUTTI, "run", "--", hello))
        self.assertEqual(sorted(r.stdout.splitlines()), ["rank 0 of 2: 3", "rank 1 of 2: 3"])

    def test_tune_and_explain_use_mpiruns_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "t.toml")
            r = self.good(run(*self.MPIRUN, 2, TUTTI, "tune", "all_reduce", "-b", "1K", "-e", "1K", "-s", 1, "-o", path))
            lines = [line for line in r.stdout.splitlines() if line.startswith("all_reduce 1K")]
            self.assertEqual(len([line for line in lines if "after the second visit" not in line]), 1, lines)  # of rank 0 alone
            out = self.good(run(*self.MPIRUN, 2, "-x", f"TUTTI_PLUGIN_TUNER_FILE={path}", TUTTI, "explain", "all_reduce", "1K")).stdout
            self.assertIn(f"{path}:", out)

    def test_run_refuses_another_number(self):
        r = run(*self.MPIRUN, 1, TUTTI, "run", "-n", 2, "--", "true")
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("tutti run -n 2 inside a job of Open MPI", r.all)

    def test_the_training_example(self):
        self.same_curve(self.curve(), self.curve(*self.MPIRUN, 2))


@unittest.skipUnless(shutil.which("mpiexec.hydra"), "no mpiexec of MPICH")
class Mpiexec(Tools):
    MPIEXEC = ["mpiexec.hydra", "-n"]

    def test_perf_uses_mpiexecs_ranks(self):
        r = run(*self.MPIEXEC, 4, TUTTI, "perf", "all_reduce", "-b", 8, "-e", "256K", "-f", 8, "-n", 3)
        self.table("all_reduce", r, ranks=4)
        self.assertEqual(len(re.findall(r"# +Rank ", r.stdout)), 4)

    def test_a_program_and_run_find_each_other_over_pmi(self):
        hello = os.path.join(BIN, "examples", "hello_all_reduce_c")
        for words in ([hello], [TUTTI, "run", "--", hello]):
            r = self.good(run(*self.MPIEXEC, 3, *words))
            self.assertEqual(sorted(r.stdout.splitlines()), [f"rank {i} of 3: 6" for i in range(3)])

    def test_the_log_says_who_started_it(self):
        r = self.good(run(*self.MPIEXEC, 2, TUTTI, "perf", "barrier", "-n", 1, TUTTI_DEBUG="info", TUTTI_DEBUG_SUBSYS="BOOTSTRAP"))
        self.assertIn("started by PMI (PMI_RANK=1, PMI_SIZE=2, MPI_LOCALRANKID=1, MPI_LOCALNRANKS=2): rank 1 of 2, 1 of 2 on this host; "
                      "the root is in rank 0", r.all)


# The environment that these set, faithfully, without them.
class Environments(Tools):
    def together(self, environments, *words):
        """Runs the words once in each environment, at the same time; what they wrote."""
        ps = [subprocess.Popen([TUTTI, *map(str, words)], env=clean_env(**e), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
              for e in environments]
        out = [p.communicate(timeout=LIMIT)[0] for p in ps]
        self.assertEqual([p.returncode for p in ps], [0] * len(ps), out)
        return out

    def slurm(self, n, **more):
        return [dict(SLURM_JOB_ID=os.getpid(), SLURM_STEP_ID=0, SLURM_PROCID=r, SLURM_STEP_NUM_TASKS=n, SLURM_NTASKS=n, SLURM_LOCALID=r,
                     SLURM_NODEID=0, SLURM_STEP_TASKS_PER_NODE=n, SLURM_STEP_NODELIST="n1", **more) for r in range(n)]

    def torchrun(self, n, **more):
        return [dict(dict(RANK=r, WORLD_SIZE=n, LOCAL_RANK=r, LOCAL_WORLD_SIZE=n, MASTER_ADDR="localhost", MASTER_PORT=29500,
                          TORCHELASTIC_RUN_ID=os.getpid()), **more) for r in range(n)]

    def test_perf_runs_under_srun_and_torchrun(self):
        for name, environments in (("srun", self.slurm(3)), ("torchrun", self.torchrun(3)),
                                   ("torchrun on several hosts", self.torchrun(3, LOCAL_WORLD_SIZE=1, LOCAL_RANK=0))):
            with self.subTest(name):
                out = self.together(environments, "perf", "all_reduce", "-b", 8, "-e", "4K", "-f", 8, "-n", 2)
                self.assertEqual(len(re.findall(r"# +Rank ", out[0])), 3, out[0])
                self.assertIn("# Out of bounds values : 0 OK", out[0])

    def test_run_becomes_the_program(self):
        hello = os.path.join(BIN, "examples", "hello_all_reduce_c")
        self.assertEqual(sorted(self.together(self.slurm(2), "run", "-n", 2, "--", hello)), ["rank 0 of 2: 3\n", "rank 1 of 2: 3\n"])

    def test_info_says_who_started_it(self):
        r = self.good(run(TUTTI, "info", **dict(self.slurm(4)[1], SLURM_STEP_NODELIST="n[1-4]", SLURM_STEP_TASKS_PER_NODE="1(x4)",
                                                SLURM_LOCALID=0)))
        self.assertIn("srun        rank 1 of 4, on this host 0 of 1 (SLURM_PROCID=1,", r.stdout)
        self.assertIn("the root is in rank 0 on n1 (SLURM_STEP_NODELIST=n[1-4])", r.stdout)
        self.assertIn("none: tutti run", self.good(run(TUTTI, "info")).stdout)


class Train(Tools):
    def test_the_curve_of_4_ranks_is_that_of_1(self):
        one = self.curve()
        for ranks in (2, 4):
            many = self.curve(TUTTI, "run", "-n", ranks, "--")
            self.same_curve(one, many)
        self.assertGreater(one[-1][1], 95)
        self.assertGreater(many[-1][1], 95)

    def test_the_same_run_gives_the_same_bits(self):
        words = [TUTTI, "run", "-n", 3, "--"]
        self.assertEqual(self.curve(*words), self.curve(*words))

    def test_overlap_gives_the_same_bits_and_says_what_it_hid(self):
        words = [TUTTI, "run", "-n", 2, "--", os.path.join(BIN, "examples", "train")]
        overlapped = self.good(run(*words))
        self.assertEqual(self.curve_in(overlapped), self.curve(*words[:-1], options=["--no-overlap"]))
        self.assertRegex(overlapped.stdout, r"a step's backward pass takes [\d.]+ us, its all-reduces [\d.]+ us, "
                                            r"both at once [\d.]+ us: \d+ % hidden")


class Recover(Tools):
    LINE = r"ranks: y = 3\.0000 x -1\.0000 after 300 steps"

    def recovered(self, *options, left):
        program = [os.path.join(BIN, "examples", "recover"), *options]
        r = run(TUTTI, "run", "-n", left + 1, "--keep-going", "--timeout", 60, "--kill-after", 1, "--", *program)
        self.assertRegex(r.stdout, f"{left} {self.LINE}", r.stderr)
        self.assertEqual(r.stdout.count("going on at step"), left, r.stdout)
        return r

    def test_a_rank_dies_and_the_others_end_with_the_right_line(self):
        for rank in (0, 2):
            r = self.recovered("--die", rank, "--at", 40, left=2)
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertRegex(r.stderr, f"rank {rank} .* was killed by SIGKILL; the others go on")

    def test_without_keep_going_the_launcher_ends_the_job(self):
        r = run(TUTTI, "run", "-n", 2, "--", os.path.join(BIN, "examples", "recover"), "--die", 1, "--at", 40)
        self.assertEqual(r.returncode, 128 + 9, r.stderr)

    def test_keep_going_is_no_excuse_for_other_errors(self):
        r = run(TUTTI, "run", "-n", 2, "--keep-going", "--", "sh", "-c", "exit $((TUTTI_RANK * 3))")
        self.assertEqual(r.returncode, 3, r.stderr)
        r = run(TUTTI, "run", "-n", 2, "--keep-going", "--", "sh", "-c", "kill -9 $$")
        self.assertEqual(r.returncode, 128 + 9, r.stderr)


if __name__ == "__main__":
    names = sys.argv[2:]
    absent = {"Mpirun": not shutil.which("mpirun"), "Mpiexec": not shutil.which("mpiexec.hydra"), "Surroundings": not way_to_mount()}
    if len(names) == 1 and absent.get(names[0]):
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *names], verbosity=2)
