#!/usr/bin/env python3
"""Checks the documentation against the tree and the build: docs_test.py SOURCE BUILD CC CXX."""
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE, BUILD = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
CC, CXX = sys.argv[3], sys.argv[4]
SANITIZE = [f"-fsanitize={os.environ['SANITIZE']}"] if os.environ.get("SANITIZE") else []
TUTTI = BUILD / "bin" / "tutti"
SKIPPED = {"build", "install", ".git", ".cache"}


def documents():
    return sorted(p for p in SOURCE.rglob("*.md") if not SKIPPED & set(p.relative_to(SOURCE).parts))


def fences(text):
    """(language, body) of each fenced block."""
    return re.findall(r"^ *```([a-z+]*)\n(.*?)^ *```$", text, re.M | re.S)


def anchors(path):
    headings = re.findall(r"^#+ +(.*)$", re.sub(r"^ *```.*?^ *```$", "", path.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def clean_env(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TUTTI_", "NCCL_", "OMPI_", "PMIX_", "PMI_"))}
    env["TUTTI_CALIBRATE"] = "off"  # a test measures nothing and keeps nothing in the user's cache
    env.update(more)
    return env


class Links(unittest.TestCase):
    def test_every_relative_link_resolves(self):
        broken = []
        for path in documents():
            text = re.sub(r"^ *```.*?^ *```$", "", path.read_text(), flags=re.M | re.S)
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"[a-z]+:", target):
                    continue
                name, _, anchor = target.partition("#")
                file = (path.parent / name).resolve() if name else path
                if not file.exists():
                    broken.append(f"{path.relative_to(SOURCE)}: {target}")
                elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                    broken.append(f"{path.relative_to(SOURCE)}: no heading for {target}")
        self.assertEqual(broken, [])

    def test_every_page_of_docs_is_in_the_index(self):
        index = (SOURCE / "docs" / "README.md").read_text()
        for page in (SOURCE / "docs").glob("*.md"):
            if page.name != "README.md":
                self.assertIn(f"({page.name})", index)

    def test_every_decision_is_in_its_index(self):
        index = (SOURCE / "docs" / "adr" / "README.md").read_text()
        for page in (SOURCE / "docs" / "adr").glob("[0-9]*.md"):
            self.assertIn(f"({page.name})", index)
        numbers = re.findall(r"^\| \[(\d{4})\]", index, re.M)
        self.assertEqual(numbers, sorted(numbers))

    def test_glossary_defines_each_word_once(self):
        words = re.findall(r"^\| \*\*(.+?)\*\* \|", (SOURCE / "docs" / "glossary.md").read_text(), re.M)
        self.assertEqual(len(words), len(set(words)))
        self.assertEqual(words, sorted(words))


class Whole(unittest.TestCase):
    def test_no_page_waits_for_something_to_be_filled_in(self):
        marks = [f"{p.relative_to(SOURCE)}: {line.strip()[:80]}" for p in documents() for line in p.read_text().splitlines() if "@@" in line]
        self.assertEqual(marks, [])


class Names(unittest.TestCase):
    """Names that the pages use exist, so that a page does not outlive what it describes."""

    def known(self, pattern, *suffixes):
        found = set()
        for folder in ("core", "plugins", "plugin-api"):
            for path in (SOURCE / folder).rglob("*"):
                if path.suffix in suffixes:
                    found |= set(re.findall(pattern, path.read_text(errors="replace")))
        return found

    def test_functions_and_constants_exist(self):
        header = (SOURCE / "core/include/tutti/tutti.h").read_text()
        for path in documents():
            for name in set(re.findall(r"`(tutti[A-Z]\w+)`", path.read_text())):
                with self.subTest(f"{path.relative_to(SOURCE)}: {name}"):
                    self.assertRegex(header, rf"\b{name}\b")

    def test_variables_exist(self):
        known = self.known(r"\b(?:TUTTI|NCCL)_[A-Z0-9_]+", ".cc", ".h", ".hpp")
        for path in documents():
            if path.name in ("CHANGELOG.md", "CONTRIBUTING.md") or "tests" in path.parts:
                continue
            for name in set(re.findall(r"`((?:TUTTI|NCCL)_[A-Z0-9_]*[A-Z0-9])(?==|`)", path.read_text())):
                if name.startswith(("TUTTI_PLUGIN_", "TUTTI_TEST_")):
                    continue
                with self.subTest(f"{path.relative_to(SOURCE)}: {name}"):
                    self.assertIn(name, known)


class Snippets(unittest.TestCase):
    def test_the_readmes_program_is_the_example(self):
        block = next(body for language, body in fences((SOURCE / "README.md").read_text()) if language == "c")
        example = (SOURCE / "docs" / "examples" / "hello_all_reduce.c").read_text()
        self.assertTrue(example.endswith(block), "README.md and docs/examples/hello_all_reduce.c differ")

    def test_programs_in_the_docs_compile(self):
        includes = [f"-I{SOURCE / d}" for d in ("core/include", "plugin-api/include", "plugin-api/cxx")]
        with tempfile.TemporaryDirectory() as folder:
            for path in documents():
                for language, body in fences(path.read_text()):
                    if language not in ("c", "cpp", "c++") or "#include" not in body:
                        continue
                    c = language == "c"
                    file = Path(folder) / ("snippet.c" if c else "snippet.cc")
                    file.write_text(body)
                    words = [CC, "-std=c11"] if c else [CXX, "-std=c++20"]
                    r = subprocess.run([*words, "-Wall", "-Wextra", "-fsyntax-only", *includes, str(file)], capture_output=True, text=True)
                    with self.subTest(f"{path.relative_to(SOURCE)}"):
                        self.assertEqual(r.returncode, 0, r.stderr)

    def test_the_readmes_program_runs(self):
        block = next(body for language, body in fences((SOURCE / "README.md").read_text()) if language == "c")
        with tempfile.TemporaryDirectory() as folder:
            source, program = Path(folder) / "hello.c", Path(folder) / "hello"
            source.write_text(block)
            subprocess.run([CC, *SANITIZE, str(source), f"-I{SOURCE / 'core/include'}", f"-L{BUILD / 'lib'}", f"-Wl,-rpath,{BUILD / 'lib'}",
                            "-ltutti", "-o", str(program)], check=True, timeout=60)
            r = subprocess.run([TUTTI, "run", "-n", "2", "--timeout", "60", "--", program], capture_output=True, text=True, env=clean_env(), timeout=90)
            self.assertEqual(sorted(r.stdout.splitlines()), ["rank 0 of 2: 3", "rank 1 of 2: 3"], r.stderr)


class Quotes(unittest.TestCase):
    """A fenced block under <!-- from FILE --> is part of that file; "..." stands for what was left out."""

    def quotes(self):
        for path in documents():
            for name, body in re.findall(r"^<!-- from (\S+) -->\n```[a-z+]*\n(.*?)^```$", path.read_text(), re.M | re.S):
                yield path, name, [[line.strip() for line in piece.splitlines()] for piece in re.split(r"^\.\.\.\n", body, flags=re.M)]

    def test_what_is_quoted_is_in_the_source(self):
        for path, name, pieces in self.quotes():
            lines = [line.strip() for line in (SOURCE / name).read_text().splitlines()]
            at = 0
            for piece in pieces:
                found = next((i for i in range(at, len(lines) - len(piece) + 1) if lines[i:i + len(piece)] == piece), None)
                with self.subTest(f"{path.relative_to(SOURCE)}: {name}: {piece[0]}"):
                    self.assertIsNotNone(found, "\n".join(piece))
                at = (found or 0) + len(piece)

    def test_every_quote_is_read(self):
        for path in documents():
            marks = len(re.findall(r"^<!-- from ", path.read_text(), re.M))
            self.assertEqual(marks, sum(p == path for p, _, _ in self.quotes()), path.relative_to(SOURCE))


class Commands(unittest.TestCase):
    def test_the_commands_that_the_docs_show_exist(self):
        help_text = subprocess.run([TUTTI, "--help"], capture_output=True, text=True, check=True).stdout
        known = set(re.findall(r"^  ([a-z-]+) ", help_text, re.M))
        wrong = []
        for path in documents():
            if path.name in ("roadmap.md", "CHANGELOG.md"):
                continue
            for line in [x for _, body in fences(path.read_text()) for x in body.splitlines()] + re.findall(r"`([^`\n]+)`", path.read_text()):
                found = re.match(r"(?:[A-Z_]+=\S+ )*(?:\S*/)?tutti ([a-z-]+)( .*)?$", line.strip())
                if not found:
                    continue
                if found[1] not in known:
                    wrong.append(f"{path.relative_to(SOURCE)}: {line}")
                elif found[1] == "perf" and found[2] and "OP" not in found[2].split():
                    flags = [w for w in shlex.split(found[2], comments=True) if w.startswith("-")]
                    help_perf = subprocess.run([TUTTI, "perf", "--help"], capture_output=True, text=True).stdout
                    wrong += [f"{path.relative_to(SOURCE)}: {line}: {f}" for f in flags
                              if not re.search(rf"(?<![\w-]){re.escape(f.split('=')[0])}(?![\w-])", help_perf)]
        self.assertEqual(wrong, [])

    def test_dev_has_the_two_commands_of_the_readme(self):
        r = subprocess.run([SOURCE / "dev", "help"], capture_output=True, text=True, check=True)
        for command in re.findall(r"^\./dev (\w+)$", (SOURCE / "README.md").read_text(), re.M):
            self.assertRegex(r.stdout, rf"(?m)^ +{command}\b")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=2)
