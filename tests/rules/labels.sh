#!/bin/bash
# Every test has a time limit and known labels: `ctest -L` and continuous integration choose by them.
set -u
"${CTEST:-ctest}" --test-dir "$2" --show-only=json-v1 | python3 -c '
import json, sys
known = {"unit", "multirank", "netns", "rdma", "collnet", "perf", "gpu", "fuzz", "abi", "rules", "consumer", "packages", "full"}
bad = 0
for test in json.load(sys.stdin)["tests"]:
    properties = {p["name"]: p["value"] for p in test.get("properties", [])}
    labels = properties.get("LABELS", [])
    for wrong in [l for l in labels if l not in known] + ([] if labels else ["no label"]) + ([] if "TIMEOUT" in properties else ["no time limit"]):
        print(test["name"] + ": " + wrong)
        bad = 1
sys.exit(bad)'
