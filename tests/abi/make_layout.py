#!/usr/bin/env python3
"""Writes layout_X_Y.c: assertions that freeze every public struct, member, constant and id of a version of the plugin ABI.

freeze.sh runs it once per version:  tests/abi/make_layout.py plugin-api/include 0_9 > tests/abi/layout_0_9.c
The output is never edited: later versions may append, so sizes are only frozen for array elements."""
import pathlib
import re
import subprocess
import sys
import tempfile

include, version = pathlib.Path(sys.argv[1]), sys.argv[2]
DRAFTS = {"profiler.h", "device.h"}  # not frozen


def strip(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def members(body):
    """Names of the members of a struct, in order; function pointers, arrays and lists included."""
    flat, depth, part = [], 0, ""
    for c in body:
        depth += c == "("
        depth -= c == ")"
        if c == ";" and depth == 0:
            flat.append(part)
            part = ""
        else:
            part += c
    for declaration in flat:
        pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)\s*\(", declaration)
        if pointer:
            yield pointer.group(1)
            continue
        for name in re.sub(r"\[[^]]*\]", "", declaration).split(","):
            found = re.search(r"(\w+)\s*$", name)
            if found:
                yield found.group(1)


structs, constants, texts, elements = [], [], [], set()
for header in sorted((include / "tutti/plugin").glob("*.h")):
    if header.name in DRAFTS:
        continue
    raw = header.read_text()
    for comment, name in re.findall(r"/\*((?:(?!\*/).)*)\*/\s*typedef struct (\w+) \{", raw, flags=re.S):
        if "rray element" in comment and "frozen" in comment:
            elements.add(name)
    text = strip(raw)
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\n\} \1;", text, flags=re.S):
        structs.append((name, list(members(body))))
    for body in re.findall(r"\benum \{(.*?)\}", text, flags=re.S):
        constants += re.findall(r"\b(TUTTI_\w+)\s*=", body)
    constants += re.findall(r"#define (TUTTI_ABI_MAJOR)\b", text)
    texts += re.findall(r'#define (TUTTI_\w+) ("tutti\.[^"]+")', text)

# What grows is not frozen.
constants = [c for c in constants if c not in ("TUTTI_DT_COUNT", "TUTTI_RED_COUNT", "TUTTI_COLL_COUNT")]

probe = ['#include "tutti/plugin/plugin.h"', "#include <stdio.h>", "int main(void) {"]
for name, fields in structs:
    for f in fields:
        probe.append(f'  printf("LAYOUT({name}, {f}, %zu, %zu)\\n", offsetof({name}, {f}), sizeof((({name} *)0)->{f}));')
    kind = "ELEMENT" if name in elements else "AT_LEAST"
    probe.append(f'  printf("{kind}({name}, %zu)\\n", sizeof({name}));')
for c in constants:
    probe.append(f'  printf("CONSTANT({c}, %lld)\\n", (long long)({c}));')
for name, value in texts:
    probe.append(f"  puts(\"TEXT({name}, {value[:-1].replace(chr(34), chr(92) + chr(34))}\\\")\");")
probe.append("  return 0;\n}")
with tempfile.TemporaryDirectory() as folder:
    source = pathlib.Path(folder, "probe.c")
    source.write_text("\n".join(probe))
    subprocess.run(["cc", "-std=c11", f"-I{include}", str(source), "-o", f"{folder}/probe"], check=True)
    lines = subprocess.run([f"{folder}/probe"], check=True, capture_output=True, text=True).stdout

print(f"""/* The plugin ABI as called {version.replace('_', '.')}, written by make_layout.py. Never edited: what fails here breaks plugins that exist. */
#include "tutti/plugin/plugin.h"

#define LAYOUT(type, member, offset, size)                                                                           \\
  _Static_assert(offsetof(type, member) == (offset) && sizeof(((type *)0)->member) == (size), #type "." #member);
#define AT_LEAST(type, size) _Static_assert(sizeof(type) >= (size), #type " became shorter");
#define ELEMENT(type, size) _Static_assert(sizeof(type) == (size), #type " is an array element: its size is frozen");
#define CONSTANT(name, value) _Static_assert((name) == (value), #name " changed");
#define TEXT(name, value) _Static_assert(sizeof(name) == sizeof(value), #name " changed");

/* clang-format off */
/* NOLINTBEGIN(bugprone-sizeof-expression): a pointer member is measured on purpose */
{lines}/* NOLINTEND(bugprone-sizeof-expression) */
/* clang-format on */

int main(void) {{ return 0; }}""")
