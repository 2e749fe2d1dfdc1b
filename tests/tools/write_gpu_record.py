#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the record of a GPU test run. Usage: write_gpu_record.py GTEST_REPORT.json... OUT.json
Several reports are of processes that ran side by side; a test in two of them must have ended in the same way.
$WEFT_COMMIT names the commit where the sources lie without their history."""
import collections
import datetime
import json
import os
import pathlib
import subprocess
import sys

COUNTS = ("launches", "updates", "differences", "flips", "changed", "caught")  # that tests report of themselves


def query(fields):
    out = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], capture_output=True, text=True)
    return [line.split(", ") for line in out.stdout.strip().splitlines()] if out.returncode == 0 and out.stdout else [["none", "none"]]


def commit(folder):
    out = subprocess.run(["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True)
    return out.stdout.strip() or "unknown"


def outcome(test):
    if test.get("failures"):
        return "failed"
    if test.get("result") == "SKIPPED" or "skipped" in test:
        return "skipped"
    return "passed" if test.get("status") == "RUN" else "not run"


def tests_of(report_paths):
    """All tests of the reports: (suite, name) -> (how it ended, what it counted)."""
    tests, first = {}, {}
    for path in report_paths:
        for suite in json.loads(pathlib.Path(path).read_text())["testsuites"]:
            for test in suite["testsuite"]:
                name = suite["name"], test["name"]
                ended = outcome(test), {key: int(test[key]) for key in COUNTS if key in test}
                if tests.setdefault(name, ended) != ended:
                    sys.exit(f"error: {'.'.join(name)}: {tests[name]} in {first[name]}, {ended} in {path}: "
                             "run it once, or find out why it differs")
                first.setdefault(name, path)
    return tests


def main():
    *report_paths, out_path = sys.argv[1:]
    if not report_paths:
        sys.exit(__doc__)
    tests = tests_of(report_paths)
    ended = {how: [".".join(name) for name, (end, _) in tests.items() if end == how]
             for how in ("passed", "failed", "skipped")}
    suites = collections.Counter(suite for suite, _ in tests)
    gpus = query("name,driver_version")
    device, driver = gpus[0][:2]
    tools = pathlib.Path(__file__).parent
    source_hash = subprocess.run([str(tools / "source_hash.sh")], capture_output=True, text=True, check=True).stdout.strip()
    record = {
        "device": device,
        "gpus": len(gpus),
        "driver": driver,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "source_hash": source_hash,
        "commit": os.environ.get("WEFT_COMMIT") or commit(tools),
        "passed": len(ended["passed"]),
        "failed": len(ended["failed"]),
        "skipped": len(ended["skipped"]),
        "counts": {".".join(name): count for name, (_, count) in tests.items() if count},
        "failed_tests": ended["failed"],
        "skipped_tests": ended["skipped"],
        "suites": suites,
    }
    pathlib.Path(out_path).write_text(json.dumps(record, indent=2) + "\n")
    print(f'{out_path}: {record["passed"]} passed, {record["failed"]} failed, {record["skipped"]} skipped on {device}')


if __name__ == "__main__":
    main()
