#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The core stands alone.
Usage: check_parts.py [--part NAME | --all-at-once | --of-the-day] [--sanitize] [--without SUITES]
                      [--scratch DIR]
In a copy of the tree it deletes the folders of a part, configures, builds and runs the quick tests
that are left: for each part in turn, then for all of them at once. Leaves with 1 when one fails.
--all-at-once: that run alone. --part NAME: one part. --of-the-day: one part, another each day.
--sanitize: with address and undefined-behaviour sanitizers, as the preset `asan`.
--without SUITES: these tests are left out, too (a filter of GoogleTest: "Ops.*:Selftest.*").
--scratch DIR: where copy and build lie, kept for the next run (default: in the folder for temporary
files). Uses ccache where there is one."""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from parts import parts
from repo_files import ROOT, files, read

TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[A-Za-z_]\w*|\d[\w.\']*|[^\s\w]')
CODE = (".h", ".cpp", ".cu", ".cuh", ".c", ".py", ".sh")
QUICK = "-Slow*:Cuda*"  # a filter of GoogleTest


def tokens(folder, names):
    """Tokens of the code among `names`, without comments and without tests."""
    count = 0
    for name in names:
        if name.startswith("tests/") or not name.endswith(CODE):
            continue
        with open(os.path.join(folder, name), encoding="utf-8", errors="ignore") as file:
            text = file.read()
        comment = r"#[^\n]*" if name.endswith((".py", ".sh")) else r"//[^\n]*|/\*.*?\*/"
        count += len(TOKEN.findall(re.sub(comment, "", text, flags=re.S)))
    return count


def build_root(source):
    """Where the tree is built: inside of it, as programs look for configs/ above their folder."""
    return os.path.join(source, "build")


def copy_without(deleted, source):
    """Makes `source` the tree without the folders of these parts; returns its files. Files that stay
    keep their times, so that a build goes on from that of an earlier run."""
    kept = {name for name in files() if not any(part.holds(name) for part in deleted)}
    for folder, folders, names in os.walk(source):
        folders[:] = [name for name in folders if os.path.join(folder, name) != build_root(source)]
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), source)
            if path not in kept:
                os.remove(os.path.join(source, path))
    for name in kept:
        there, here = os.path.join(source, name), os.path.join(ROOT, name)
        if os.path.exists(there) and os.path.getmtime(there) == os.path.getmtime(here):
            continue
        os.makedirs(os.path.dirname(there), exist_ok=True)
        shutil.copy2(here, there)
    for folder, _, _ in os.walk(source, topdown=False):
        if not os.listdir(folder) and not folder.startswith(build_root(source)):
            os.rmdir(folder)
    return kept


def run_logged(command, log):
    with open(log, "a", encoding="utf-8") as out:
        out.write(f"$ {' '.join(command)}\n")
        out.flush()
        return subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False).returncode


def preset_of(name):
    """The settings of a configure preset and of those that it inherits, as options of cmake."""
    presets = {preset["name"]: preset
               for preset in json.loads(read("CMakePresets.json"))["configurePresets"]}
    settings = {}
    while name:
        settings = presets[name].get("cacheVariables", {}) | settings
        name = presets[name].get("inherits")
    return [f"-D{key}={value}" for key, value in settings.items()]


def build(source, folder, log, preset):
    """The step that failed, or None."""
    configure = ["cmake", "-G", "Ninja", "-S", source, "-B", folder, *preset_of(preset),
                 "-DWEFT_UNITY=ON", "-DWEFT_WERROR=ON",
                 f"-DCMAKE_PROJECT_INCLUDE={os.path.join(ROOT, '.ci/unity.cmake')}"]
    if shutil.which("ccache"):
        configure.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    if run_logged(configure, log):
        return "cmake"
    jobs = str(os.cpu_count())
    return "the build" if run_logged(["cmake", "--build", folder, "-j", jobs], log) else None


def said_by(name, text):
    """What test `name` said, or the end of the text where that is not known; 40 lines at most."""
    told = re.search(rf"^\[ RUN      \] {re.escape(name)}$(.*?)^\[  FAILED  \]", text, re.M | re.S)
    return "\n".join((told.group(1) if told else text).splitlines()[-40:])


def run_tests(source, folder, log, without):
    """Numbers of tests that passed and that failed. There is a process more than processors, as
    many tests wait."""
    shards = os.cpu_count() + 1
    running = []
    for shard in range(shards):
        out = open(f"{log}.tests{shard}", "w+", encoding="utf-8")
        env = {**os.environ, "GTEST_TOTAL_SHARDS": str(shards), "GTEST_SHARD_INDEX": str(shard),
               "OMP_WAIT_POLICY": "passive"}
        command = [os.path.join(folder, "bin/weft_tests"), f"--gtest_filter={QUICK}:{without}"]
        running.append((subprocess.Popen(command, cwd=source, env=env, stdout=out,
                                         stderr=subprocess.STDOUT), out))
    passed = failed = 0
    for process, out in running:
        code = process.wait()
        out.seek(0)
        text = out.read()
        out.close()
        passed += len(re.findall(r"^\[       OK \]", text, re.M))
        lost = re.findall(r"^\[  FAILED  \] ([\w./]+)(?:, where .*)? \(", text, re.M)
        if code and not lost:
            lost = [f"weft_tests left with {code}"]
        failed += len(lost)
        for name in lost:
            print(f"  failed: {name}\n{said_by(name, text)}", flush=True)
    return passed, failed


def check(deleted, scratch, without, preset):
    """Whether the tree without these parts builds and passes; prints what it found."""
    what = ", ".join(part.name for part in deleted)
    source = os.path.join(scratch, "source")
    folder = os.path.join(build_root(source), preset)
    log = os.path.join(scratch, "log")
    os.makedirs(source, exist_ok=True)
    open(log, "w", encoding="utf-8").close()
    size = tokens(source, copy_without(deleted, source))
    started = time.time()
    text = f"without {what}: {size:,} tokens"
    if step := build(source, folder, log, preset):
        print(f"{text}; {step} FAILED, the end of {log}:", flush=True)
        with open(log, encoding="utf-8") as file:
            print("".join(file.readlines()[-40:]))
        return False
    built = time.time()
    passed, failed = run_tests(source, folder, log, without)
    print(f"{text}, built in {built - started:.0f} s; {passed} tests passed, {failed} FAILED"
          f" in {time.time() - built:.0f} s" if failed else
          f"{text}, built in {built - started:.0f} s; {passed} tests passed"
          f" in {time.time() - built:.0f} s", flush=True)
    return passed > 0 and failed == 0


def main():
    every = parts()
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--part", choices=[part.name for part in every])
    chosen.add_argument("--all-at-once", action="store_true")
    chosen.add_argument("--of-the-day", action="store_true")
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--without", default="")
    parser.add_argument("--scratch",
                        default=os.path.join(tempfile.gettempdir(), f"weft_parts_{os.getuid()}"))
    options = parser.parse_args()
    if options.part:
        runs = [[part] for part in every if part.name == options.part]
    elif options.of_the_day:
        runs = [[every[int(time.time() // 86400) % len(every)]]]
    elif options.all_at_once:
        runs = [every]
    else:
        runs = [[part] for part in every] + [every]
    print(f"with every part: {tokens(ROOT, files()):,} tokens", flush=True)
    scratch = os.path.abspath(options.scratch)
    preset = "asan" if options.sanitize else "cpu"
    if not all([check(deleted, scratch, options.without, preset) for deleted in runs]):
        sys.exit(1)


if __name__ == "__main__":
    main()
