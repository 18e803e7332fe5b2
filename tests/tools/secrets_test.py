#!/usr/bin/env python3
"""Nothing that a job of four ranks writes or shows holds its secrets: secrets_test.py BIN."""
import base64
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from cli_test import BIN, TUTTI, clean_env, run

RANK = os.path.join(os.path.dirname(BIN), "tests", "netns_rank")
LIMIT = 60


def derive(key, label, data=b""):
    """As core/bootstrap/crypto.cc does."""
    return hashlib.blake2b(bytes([len(label)]) + label.encode() + data, key=key, digest_size=32).digest()


def forms(secret):
    """How it could be written; half of it would be too much already."""
    out = []
    for part in (secret[:16], secret[16:32]):
        out += [part, part.hex().encode(), part.hex().upper().encode(), " ".join(f"{b:02x}" for b in part).encode()]
    for at in range(3):  # base64 depends on what stands before
        out.append(base64.b64encode(bytes(at) + secret)[4 * (at > 0):-4 - 4 * (at > 0)])
    return out


class Secrets(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.processes = []
        self.addCleanup(self.end)

    def end(self):
        for p in self.processes:
            if p.poll() is None:
                p.kill()
            p.wait()

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.place = f"127.0.0.1:{s.getsockname()[1]}"
        self.key = os.urandom(32)
        with open(os.open(self.path("key"), os.O_CREAT | os.O_WRONLY, 0o600), "wb") as f:
            f.write(self.key)
        os.mkdir(self.path("flight"))
        for rank in range(4):
            env = clean_env(TUTTI_RANK=rank, TUTTI_NRANKS=4, TUTTI_COMM_ID=self.place, TUTTI_JOB_KEY_FILE=self.path("key"),
                            TUTTI_DEBUG="trace", TUTTI_DEBUG_SUBSYS="ALL", TUTTI_RECORD_FILE=self.path("flight") + "/",
                            TUTTI_TEST_STOP=self.path("stop"), TUTTI_HOSTID=f"host{rank // 2}")
            out = open(self.path(f"log.{rank}"), "wb")
            self.addCleanup(out.close)
            self.processes.append(subprocess.Popen([RANK, "--no-intro", "--test-case=operations go on*"], env=env, stdout=out,
                                                   stderr=out, stdin=subprocess.DEVNULL))

    def secrets(self):
        secret = hashlib.blake2b(bytes([13]) + b"tutti job key" + self.key, digest_size=32).digest()
        base = derive(secret, "tutti address", self.place.encode())[:8]
        comm = base + bytes(4)
        comm_key = derive(secret, "tutti comm key", comm)
        self.comm_id = int.from_bytes(derive(secret, "tutti comm id", comm)[:8], "little")
        return {"the key file": self.key, "the id's secret": secret, "the root's key": derive(secret, "tutti root"),
                "the communicator's key": comm_key, "the key for questions": derive(secret, "tutti ask key"),
                "the communicator's key for questions": derive(comm_key, "tutti ask key")}

    def test_logs_flight_files_ras_and_command_lines_hold_no_secret(self):
        self.start()
        secrets = self.secrets()
        pid = str(self.processes[0].pid)
        texts = {}
        open(self.path("stop.go"), "w").close()
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:  # it is under way
            look = run(TUTTI, "ras", "--pid", pid, "--json", "--interval", "0.1")
            under_way = all(os.path.exists(self.path(f"stop.running.{rank}")) for rank in range(4))
            if under_way and f"{self.comm_id:016x}" in look.stdout and '"answered":true' in look.stdout.replace(" ", ""):
                break
        self.assertIn(f"{self.comm_id:016x}", look.stdout)  # so the keys above are those of this job
        texts["tutti ras --json"] = look.all.encode()
        texts["tutti ras"] = run(TUTTI, "ras", "--pid", pid, "--links").all.encode()
        texts["tutti ras --dump"] = run(TUTTI, "ras", "--pid", pid, "--dump", "-o", self.path("dump")).all.encode()
        run(TUTTI, "ras", "--pid", pid, "--dump")
        for p in self.processes:
            with open(f"/proc/{p.pid}/cmdline", "rb") as f:
                texts[f"command line of {p.pid}"] = f.read()
        open(self.path("stop"), "w").close()
        for p in self.processes:
            self.assertEqual(p.wait(LIMIT), 0)
        files = [os.path.join(at, name) for at, _, names in os.walk(self.folder) for name in names]
        self.assertTrue(any("/dump/" in f for f in files) and any("/flight/" in f for f in files), files)
        for name in files:
            if name != self.path("key"):
                with open(name, "rb") as f:
                    texts[name] = f.read()
        self.assertIn(b"debug:", b"".join(texts[self.path(f"log.{r}")] for r in range(4)))
        for where, text in texts.items():
            for what, secret in secrets.items():
                for form in forms(secret):
                    self.assertNotIn(form, text, f"{where} holds {what}")

    def test_the_launcher_shows_no_secret_on_command_lines_either(self):
        code = ("import glob\n"
                "for f in glob.glob('/proc/[0-9]*/cmdline'):\n"
                "  try: print(open(f, 'rb').read().hex())\n"
                "  except OSError: pass\n"
                "import os\n"
                "print('id', open(os.environ['TUTTI_COMM_ID'][5:], 'rb').read(128).hex())\n")
        r = run(TUTTI, "run", "-n", "1", sys.executable, "-c", code)
        self.assertEqual(r.returncode, 0, r.all)
        lines = [line.split()[-1] for line in r.stdout.splitlines() if line.strip()]
        unique_id = bytes.fromhex(lines[-1])
        self.assertEqual(len(unique_id), 128)
        secret = unique_id[4 + 1 + 4 + 8 + 8 + 4:][:32]  # see encode(UniqueId)
        shown = b"".join(bytes.fromhex(line) for line in lines[:-1] if line != "id")
        for form in forms(secret):
            self.assertNotIn(form, shown)


if __name__ == "__main__":
    if not os.path.exists(RANK):
        print("skipped: netns_rank is not built")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:], verbosity=2)
