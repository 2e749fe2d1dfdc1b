#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the record of a GPU test run. Usage: write_gpu_record.py GTEST_REPORT.json OUT.json
$WEFT_COMMIT names the commit where the sources lie without their history."""
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


def main():
    report_path, out_path = sys.argv[1:3]
    report = json.load(open(report_path))
    skipped = [f'{suite["name"]}.{t["name"]}' for suite in report["testsuites"] for t in suite["testsuite"]
               if t.get("result") == "SKIPPED" or "skipped" in t]
    run = sum(1 for suite in report["testsuites"] for t in suite["testsuite"] if t.get("status") == "RUN")
    failed = [f'{suite["name"]}.{t["name"]}' for suite in report["testsuites"] for t in suite["testsuite"] if t.get("failures")]
    gpus = query("name,driver_version")
    device, driver = gpus[0][:2]
    tools = pathlib.Path(__file__).parent
    source_hash = subprocess.run([str(tools / "source_hash.sh")], capture_output=True, text=True, check=True).stdout.strip()
    counts = {f'{suite["name"]}.{t["name"]}': {key: int(t[key]) for key in COUNTS if key in t}
              for suite in report["testsuites"] for t in suite["testsuite"]}
    record = {
        "device": device,
        "gpus": len(gpus),
        "driver": driver,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "source_hash": source_hash,
        "commit": os.environ.get("WEFT_COMMIT") or commit(tools),
        "passed": run - len(failed) - len(skipped),
        "failed": len(failed),
        "skipped": len(skipped),
        "counts": {name: count for name, count in counts.items() if count},
        "failed_tests": failed,
        "skipped_tests": skipped,
        "suites": {suite["name"]: suite["tests"] for suite in report["testsuites"]},
    }
    pathlib.Path(out_path).write_text(json.dumps(record, indent=2) + "\n")
    print(f'{out_path}: {record["passed"]} passed, {record["failed"]} failed, {record["skipped"]} skipped on {device}')


if __name__ == "__main__":
    main()
