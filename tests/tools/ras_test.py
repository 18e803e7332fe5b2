#!/usr/bin/env python3
"""`tutti ras`, `tutti ras diff` and the gdb helper, run as a user does: ras_test.py BIN [CLASS ...]."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from cli_test import BIN, TUTTI, clean_env, run

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(ROOT, "tests", "data", "flight")
HELPER = os.path.join(ROOT, "core", "tools", "gdb", "tutti_gdb.py")
STUCK = os.path.join(os.path.dirname(BIN), "tests", "stuck_rank")


def files(case):
    folder = os.path.join(DATA, case)
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]


class Diff(unittest.TestCase):
    def diff(self, *paths, code=1):
        r = run(TUTTI, "ras", "diff", *paths)
        self.assertEqual(r.returncode, code, r.all)
        if code < 2:
            self.assertEqual(sum(line.startswith("verdict: ") for line in r.stdout.splitlines()), 1, r.stdout)
            self.assertTrue(r.stdout.splitlines()[-1].startswith("verdict: "), r.stdout)
        return r

    def verdict(self, case):
        text = self.diff(*files(case)).stdout.splitlines()[-1]
        shuffled = self.diff(*reversed(files(case))).stdout.splitlines()[-1]
        self.assertEqual(text, shuffled)
        j = json.loads(run(TUTTI, "ras", "diff", "--json", *files(case)).stdout)
        self.assertEqual(j["format"], "tutti.ras-diff/1")
        self.assertIn(j["verdict"]["text"], text)
        return text, j["verdict"]

    def test_a_rank_that_never_called_is_named_by_all_that_wait_for_it(self):
        text, v = self.verdict("absent")
        self.assertEqual((v["kind"], v["ranks"]), ("absent", [2]))
        self.assertEqual(text, "verdict: rank 2 never called all_reduce #2 (1024 float sum) that ranks 0, 1, 3 wait in since 31 s; "
                               "it is idle after all_reduce #1 (1024 float sum) since 38 s")

    def test_a_chain_is_followed_to_the_rank_without_a_file(self):
        text, v = self.verdict("chain")
        self.assertEqual((v["kind"], v["ranks"]), ("no_file", [2]))
        self.assertIn("rank 2 left no file", text)
        self.assertIn("all_reduce #1", text)

    def test_another_call_at_the_same_number_is_named_with_both_calls(self):
        text, v = self.verdict("other")
        self.assertEqual((v["kind"], v["ranks"]), ("disagreement", [2]))
        self.assertIn("rank 2 calls broadcast #2 (512 float root 1)", text)
        self.assertIn("ranks 0, 1 call all_reduce #2 (1024 float sum)", text)

    def test_communicators_used_in_different_orders_are_a_deadlock_of_both(self):
        text, v = self.verdict("deadlock")
        self.assertEqual(v["kind"], "deadlock")
        self.assertIn("wait for each other", text)
        self.assertIn("00000000000000bb", text)

    def test_one_half_of_a_deadlock_names_the_rank_that_is_elsewhere(self):
        text = self.diff(*files("deadlock")[:2]).stdout.splitlines()[-1]
        self.assertIn("rank 1 never called all_reduce #1", text)

    def test_nothing_to_find_is_code_0(self):
        r = self.diff(*files("quiet"), code=0)
        self.assertIn("no rank waits", r.stdout)

    def test_ranks_without_a_file_are_listed(self):
        r = self.diff(files("absent")[0])
        self.assertIn("ranks 1-3: no file", r.stdout)

    def test_two_versions_are_a_warning(self):
        r = self.diff(*files("versions"), code=0)
        self.assertIn("warning: the ranks run different versions of the library: 0.9.0", r.stdout)

    def test_files_that_do_not_fit_together_are_an_error_that_names_both(self):
        r = self.diff(*files("twice"), code=2)
        self.assertIn("pid7.json", r.stderr)
        self.assertIn("pid8.json", r.stderr)
        self.assertIn("not of one job", r.stderr)
        r = self.diff(*files("absent"), files("quiet")[0], code=2)
        self.assertIn("has 2 ranks here, and 4 in", r.stderr)

    def test_what_cannot_be_read_is_an_error_of_one_line_that_names_the_file(self):
        for path, why in (("map", "no flight-recorder file"), ("newer", "tutti.flight/2, this tool reads tutti.flight/1"),
                          ("part", "only a part"), ("rank", '"rank" of 5; a number from 0 to 0'), ("none", "No such file")):
            with self.subTest(path):
                r = self.diff(os.path.join(DATA, "bad", path + ".json"), code=2)
                self.assertEqual(len(r.stderr.splitlines()), 1, r.stderr)
                self.assertIn(path + ".json", r.stderr)
                self.assertIn(why, r.stderr)
                self.assertEqual(r.stdout, "")

    def test_bad_arguments(self):
        for words in (["diff"], ["nosuch"], ["--watch", "x"], ["--timeout", "0"], ["--pid", "-1"], ["-o", "x"], ["--watch", "--dump"]):
            self.assertEqual(run(TUTTI, "ras", *words).returncode, 64)


class Live(unittest.TestCase):
    """Of a process with two ranks: rank 0 waits in an all_reduce that rank 1 does not call."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.key = os.path.join(self.folder, "key")
        with open(os.open(self.key, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as f:
            f.write(os.urandom(32))
        self.log = os.path.join(self.folder, "log")
        env = clean_env(TUTTI_JOB_KEY_FILE=self.key, TUTTI_RECORD_FILE=self.folder + "/own/", TUTTI_DEBUG_FILE=self.log,
                        TUTTI_DEBUG="info")
        os.mkdir(self.folder + "/own")
        self.stuck = subprocess.Popen([STUCK], env=env, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        self.addCleanup(self.end)
        self.assertEqual(self.stuck.stdout.readline(), "stuck\n")

    def end(self):
        self.stuck.kill()
        self.stuck.wait()
        self.stuck.stdout.close()
        self.stuck.stdin.close()

    def ras(self, *words, code=None, **env):
        r = run(TUTTI, "ras", "--pid", str(self.stuck.pid), *words, **env)
        if code is not None:
            self.assertEqual(r.returncode, code, r.all)
        return r

    def address(self):
        out = self.ras("--where", code=0).stdout
        self.assertIn(f"pid {self.stuck.pid} on ", out)
        return next(w for w in out.split() if w.startswith("127.0.0.1:"))

    def test_the_stall_is_shown_with_its_culprit_and_code_1(self):
        out = self.ras("--stall", "0.1", code=1).stdout
        self.assertRegex(out, r"(?m)^job [0-9a-f]{16}: 2 ranks, 1 process on 1 host, tutti \d")
        self.assertRegex(out, r'(?m)^STALLED  communicator [0-9a-f]{16} "stuck", 2 ranks$')
        self.assertIn("rank 1 never called all_reduce #2", " ".join(out.split()))
        self.assertIn("rank 0: in all_reduce #2 (1024 float sum), waits for rank 1", out)
        self.assertLessEqual(max(len(line) for line in out.splitlines()), 100)
        self.assertEqual(self.ras("--stall", "1000", code=0).stdout.count("RUNNING"), 1)

    def test_json_says_the_same(self):
        j = json.loads(self.ras("--json", "--stall", "0.1", code=1).stdout)
        self.assertEqual(j["format"], "tutti.ras/1")
        c = j["jobs"][0]["communicators"][0]
        self.assertEqual((c["verdict"]["state"], c["verdict"]["kind"], c["verdict"]["ranks"]), ("STALLED", "absent", [1]))
        self.assertEqual(c["ranks"][0]["waits_for"][0]["rank"], 1)
        self.assertGreater(j["interval_ns"], 0)
        self.assertEqual(c["operations_per_s"], 0)

    def test_one_rank_in_detail_and_choices_that_match_nothing(self):
        out = self.ras("--rank", "0", "--links", "--stall", "0.1", code=1).stdout
        self.assertIn(f"rank 0: pid {self.stuck.pid} on ", out)
        self.assertRegex(out, r"waits for rank 1 \(recv\) since")
        self.assertEqual(self.ras("--comm", "stuck", "--stall", "99").returncode, 0)
        for words in (["--comm", "nosuch"], ["--job", "zz"]):
            self.assertIn("no running job is what was asked for", self.ras(*words, code=2).stderr)

    def test_watching_goes_on_until_the_job_ends(self):
        watch = subprocess.Popen([TUTTI, "ras", "--pid", str(self.stuck.pid), "--watch", "0.1", "--json"], env=clean_env(),
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        lines = [json.loads(watch.stdout.readline()) for _ in range(3)]
        self.assertEqual(lines[0]["interval_ns"], 0)
        self.assertGreater(lines[2]["interval_ns"], 0)
        self.stuck.stdin.close()
        out, err = watch.communicate(timeout=60)
        self.assertIn(watch.returncode, (0, 1))
        self.assertEqual(err, "")

    def test_a_stopped_process_is_named_though_nobody_else_knows_it(self):
        os.kill(self.stuck.pid, signal.SIGSTOP)
        try:
            r = self.ras(code=2)
            self.assertIn(f"pid {self.stuck.pid} uses the library and is stopped", r.stderr)
        finally:
            os.kill(self.stuck.pid, signal.SIGCONT)
        self.assertIn(self.ras("--stall", "0.1").returncode, (1,))

    def test_from_afar_with_the_key_and_only_with_it(self):
        at = self.address()
        good = run(TUTTI, "ras", "--host", at, "--key-file", self.key, "--stall", "0.1")
        self.assertEqual(good.returncode, 1, good.all)
        self.assertIn("rank 1 never called", " ".join(good.stdout.split()))
        same = run(TUTTI, "ras", "--host", at, "--stall", "0.1", TUTTI_JOB_KEY_FILE=self.key)
        self.assertEqual(same.returncode, 1, same.all)
        other = os.path.join(self.folder, "other")
        with open(os.open(other, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as f:
            f.write(os.urandom(32))
        for words, why in ((["--key-file", other], "knows nothing of this"), ([], "needs the job's key"),
                           (["--key-file", "/nosuch"], "cannot open the job key file")):
            r = run(TUTTI, "ras", "--host", at, *words)
            self.assertEqual((r.returncode, r.stdout), (2, ""), r.all)
            self.assertIn(why, r.stderr)
        os.chmod(other, 0o644)
        self.assertIn("mode 0600", run(TUTTI, "ras", "--host", at, "--key-file", other).stderr)
        for bad in ("nowhere", "127.0.0.1", "127.0.0.1:0", "[::1"):
            self.assertIn("no HOST:PORT", run(TUTTI, "ras", "--host", bad, "--key-file", self.key).stderr)
        with open(self.log) as f:
            text = f.read()
        self.assertEqual(text.count("refused a question from"), 1) # of the other key; once
        with open(self.key, "rb") as f:
            self.assertNotIn(f.read().hex(), text)
        self.assertIn("questions of `tutti ras` are answered", text)

    def test_flight_recorders_are_written_or_brought_and_say_what_happened(self):
        said = self.ras("--dump", code=0).stdout
        self.assertEqual(said.count(": written"), 2, said)
        self.assertEqual(len(os.listdir(self.folder + "/own")), 2)
        brought = self.folder + "/brought"
        self.ras("--dump", "-o", brought, code=0)
        names = sorted(os.listdir(brought))
        self.assertEqual(len(names), 2)
        r = run(TUTTI, "ras", "diff", *(os.path.join(brought, n) for n in names))
        self.assertEqual(r.returncode, 1, r.all)
        self.assertIn("rank 1 never called all_reduce #2", r.stdout)
        with open(os.path.join(brought, names[0])) as f:
            self.assertEqual(json.load(f)["reason"], "asked")

    def test_no_job_at_all_is_one_line(self):
        self.end()
        r = run(TUTTI, "ras", "--pid", str(self.stuck.pid))
        self.assertEqual((r.returncode, r.stdout, len(r.stderr.splitlines())), (2, "", 1), r.all)
        self.stuck = subprocess.Popen(["/bin/true"], stdout=subprocess.PIPE, stdin=subprocess.PIPE) # for end()


class Gdb(unittest.TestCase):
    """Of a process with two ranks: rank 0 waits in an all_reduce that rank 1 does not call."""

    def setUp(self):
        self.stuck = subprocess.Popen([STUCK], env=clean_env(), stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        self.addCleanup(self.end)
        self.assertEqual(self.stuck.stdout.readline(), "stuck\n")

    def end(self):
        self.stuck.kill()
        self.stuck.wait()
        self.stuck.stdout.close()
        self.stuck.stdin.close()

    def gdb(self, *words):
        commands = [w for c in ("source " + HELPER, "tutti-state", "print comms[0]", "print comms[1]") for w in ("-ex", c)]
        r = subprocess.run(["gdb", "-nx", "-batch", *words, *commands], capture_output=True, text=True, timeout=120,
                           stdin=subprocess.DEVNULL)
        return r.stdout + r.stderr

    def check(self, said):
        if "Could not attach" in said or "Operation not permitted" in said:
            self.skipTest("this user may not attach to processes: kernel.yama.ptrace_scope")
        self.assertRegex(said, r"communicator [0-9a-f]{16}: rank 0 of 2, 2 operations enqueued, 1 completed")
        self.assertRegex(said, r"communicator [0-9a-f]{16}: rank 1 of 2, 1 operations enqueued, 1 completed")
        self.assertIn("runs all_reduce #2 (1024 float sum)", said)
        self.assertIn("waits for rank 1 (recv, slice 1 of 1)", said)
        self.assertRegex(said, r"lane 0: step \d+ of \d+")
        self.assertRegex(said, r"to rank 1: \d+ messages in this operation; ever: \d+ messages, \d+ bytes")
        self.assertIn("idle after all_reduce #1 (1024 float sum)", said)
        self.assertIn('tuttiComm: rank 0 of 2, ready, "stuck"', said)
        self.assertIn('tuttiComm: rank 1 of 2, ready, "stuck"', said)

    def test_the_state_of_a_live_process(self):
        self.check(self.gdb("-p", str(self.stuck.pid)))

    def test_the_state_in_a_core_dump(self):
        with open(STUCK, "rb") as f:
            if b"__asan_init" in f.read():
                self.skipTest("a process of the address sanitizer has terabytes that no file takes")
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        r = subprocess.run(["gcore", "-o", os.path.join(folder, "core"), str(self.stuck.pid)], capture_output=True, text=True,
                           timeout=120, stdin=subprocess.DEVNULL)
        if "Could not attach" in r.stdout + r.stderr or "Operation not permitted" in r.stdout + r.stderr:
            self.skipTest("this user may not attach to processes: kernel.yama.ptrace_scope")
        self.check(self.gdb(STUCK, f"{folder}/core.{self.stuck.pid}"))

    def test_a_process_without_the_library_is_one_clear_line(self):
        r = subprocess.run(["gdb", "-nx", "-batch", "-ex", "source " + HELPER, "-ex", "tutti-state", "/bin/true"],
                           capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        self.assertIn("has no libtutti with debug information", r.stdout + r.stderr)


if __name__ == "__main__":
    names = sys.argv[2:]
    if names == ["Gdb"] and not (shutil.which("gdb") and shutil.which("gcore")):
        print("skipped: no gdb")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *names], verbosity=2)
