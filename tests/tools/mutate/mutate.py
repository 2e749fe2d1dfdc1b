#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Plants small mistakes in all code that is not a kernel, and counts those that the CPU tests notice.

Usage: tests/tools/mutate/mutate.py [--seed 1] [--count 150] [--skip 0] [--build 240] [--lines 9000] [--only N,N]
Needs root, libclang for Python (python3 -m pip install libclang) and build/cpu with its tests. The sources are never
touched: build/mutants/SEED/ holds a copy of some files (--lines lines of them, drawn by the seed) in which `a < b` reads
`(weft_mutant(7) ? a <= b : a < b)`. One build has --build mistakes; the tests of build/cpu load its libraries, and
WEFT_MUTANT=7 in the environment switches one on. First every test runs by itself and marks the mistakes that it
reaches: no other test can notice them. Then mistakes --skip to --skip + --count run, each against the tests that
reach it, those of its own folder first, until one fails. Noticed: a test fails, crashes or takes four times its time.
Printed and in build/mutants/SEED/results.json: each mistake and its end. A run that was stopped goes on where it was;
--again judges once more those that survived. equivalent.txt lists those that change nothing: file, line, what stands
there instead, reason.
"""
import argparse, collections, concurrent.futures, hashlib, json, os, random, re, shutil, subprocess, sys, tempfile, time
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for option, default in (("seed", 1), ("count", 150), ("skip", 0), ("build", 240), ("lines", 9000), ("jobs", 2)):
    parser.add_argument("--" + option, type=int, default=default)
parser.add_argument("--only", help="numbers of mistakes")
parser.add_argument("--again", action="store_true")
args = parser.parse_args()

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
WORK, BUILD = ROOT / f"build/mutants/{args.seed}", ROOT / "build/cpu"
TREE, TESTS = WORK / "tree", WORK / "weft_tests"
FOLDERS = ("src/", "models/", "data/", "train/")
# What a CPU build leaves out, and code of the tests themselves.
LEFT_OUT = ("src/cuda/", "src/ranks/cuda/")
MAINS = r"train/\w+\.cpp"  # the tests start them where they were built
HEADER = '''#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <cstdlib>
#include <type_traits>
// WEFT_MUTANT=n switches mistake n on; WEFT_MUTANTS_REACHED=file marks all that are reached, a byte each.
struct WeftMutants {
  int active = -1;
  char* reached = nullptr;
  WeftMutants() {
    if (const char* n = std::getenv("WEFT_MUTANT")) active = std::atoi(n);
    if (const char* file = std::getenv("WEFT_MUTANTS_REACHED"))
      if (const int fd = open(file, O_RDWR | O_CLOEXEC); fd >= 0) {
        void* p = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p != MAP_FAILED) reached = static_cast<char*>(p);
      }
  }
};
inline bool weft_mutant_at_run_time(int n) {
  static const WeftMutants mutants;
  if (mutants.reached) mutants.reached[n] = 1;
  return n == mutants.active;
}
constexpr bool weft_mutant(int n) { return std::is_constant_evaluated() ? false : weft_mutant_at_run_time(n); }
'''


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", **options)


def write_if_changed(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)


def pool():
    return concurrent.futures.ThreadPoolExecutor(args.jobs)


def compile_commands():
    return json.loads((BUILD / "compile_commands.json").read_text())


# ---- which mistakes --------------------------------------------------------------------------------------------------


def candidates_of(unit):
    sys.path.insert(0, str(HERE))
    from candidates import find
    return find(*unit)


def drawn_files(chance):
    files = run(["git", "ls-files", *FOLDERS], cwd=ROOT).stdout.split()
    files = [str(ROOT / f) for f in files if f.endswith((".cpp", ".h"))
             and not f.startswith(LEFT_OUT) and not re.fullmatch(MAINS, f)]
    drawn, lines = set(), 0
    for file in chance.sample(files, len(files)):
        lines += len(Path(file).read_text().splitlines())
        if lines <= args.lines:
            drawn.add(file)
    return drawn


def choose(chance):
    """--build candidates: as many of each kind, as far as there are; their order is the seed's."""
    resources = run(["clang", "-print-resource-dir"]).stdout.strip()
    drawn, units = drawn_files(chance), {}
    for entry in compile_commands():
        if entry["file"] in drawn:
            flags = re.findall(r"(?<= )-[ID]\S+|(?<= )-isystem \S+|-std=\S+", entry["command"])
            flags = [word for flag in flags for word in flag.replace('\\"', '"').split()]
            units[entry["file"]] = flags + ["-fopenmp", "-resource-dir", resources]
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as processes:
        found = set().union(*processes.map(candidates_of, [(f, u, drawn) for f, u in sorted(units.items())]))
    kinds, chosen = {}, []
    for c in sorted(found, key=lambda c: (c.file, c.start, c.end, c.kind, c.text or "")):
        kinds.setdefault(c.kind, []).append(c._replace(file=os.path.relpath(c.file, ROOT)))
    print("candidates:", {kind: len(of_kind) for kind, of_kind in kinds.items()}, flush=True)
    for of_kind in kinds.values():
        chance.shuffle(of_kind)
    while len(chosen) < args.build and any(kinds.values()):
        chosen += [of_kind.pop() for of_kind in kinds.values() if of_kind]
    chance.shuffle(chosen)
    line = lambda c, at: (ROOT / c.file).read_bytes()[:at].count(b"\n") + 1
    return [dict(c._asdict(), line=line(c, c.start), last=line(c, c.end), number=i) for i, c in enumerate(chosen)]


# ---- one build with switches -----------------------------------------------------------------------------------------


def planted(source, mutants):
    """The source with all mutants of a file; line numbers stay. What overlaps another one is dropped."""
    def text(start, end, inside):  # `inside`: mutants within, outer ones first
        out, at = b"", start
        while inside:
            first, *rest = inside
            if first["start"] < at:
                first["dropped"] = True
                inside = rest
                continue
            inner = text(first["start"], first["end"], [m for m in rest if m["end"] <= first["end"]]).decode()
            wrapped = (f"if (weft_mutant({first['number']})) {{}} else {inner}" if first["text"] is None else
                       f"(weft_mutant({first['number']}) ? ({first['text']}) : ({inner}))")
            out += source[at:first["start"]] + wrapped.encode()
            at, inside = first["end"], [m for m in rest if m["end"] > first["end"]]
        return out + source[at:end]

    order = sorted(mutants, key=lambda m: (m["start"], -m["end"], m["text"] is not None))
    return f'#include "{WORK}/weft_mutant.h"\n#line 1\n'.encode() + text(0, len(source), order)


def compiled(file, command, headers):
    """Compiles a file of the copy unless its object is new; what the compiler says if it fails."""
    output = re.search(r" -o (\S+)", command)[1]
    target, key_file = WORK / "objects" / output, WORK / "objects" / f"{output}.key"
    key = hashlib.sha256(headers + (TREE / file).read_bytes() + command.encode()).hexdigest()
    if key_file.exists() and key_file.read_text() == key:
        return ""
    target.parent.mkdir(parents=True, exist_ok=True)
    command = command.replace(f"-I{ROOT} ", f"-I{TREE} -I{ROOT} ").replace(f"-c {ROOT}/{file}", f"-c {TREE}/{file}")
    made = run(command.replace(f" -o {output}", f" -o {target}"), shell=True, cwd=BUILD)
    if made.returncode == 0:
        key_file.write_text(key)
    return made.stderr if made.returncode else ""


def headers_of():
    """For each object of build/cpu the headers of the project that it includes."""
    needs, output = {}, ""
    for line in run(["ninja", "-C", BUILD, "-t", "deps"]).stdout.splitlines():
        if not line.startswith(" "):
            output = line.split(":")[0]
        elif line.strip():
            path = os.path.normpath(BUILD / line.strip())  # ccache writes relative ones
            needs.setdefault(output, set()).add(os.path.relpath(path, ROOT))
    return needs


def compile_all(mutants, needs):
    """Plants all mutants and compiles what holds one; marks those that do not compile as dropped. True: all do."""
    by_file, todo = {}, []
    for m in mutants:
        by_file.setdefault(m["file"], [])
        if not m.get("dropped"):
            by_file[m["file"]].append(m)
    for file, of_file in by_file.items():
        write_if_changed(TREE / file, planted((ROOT / file).read_bytes(), of_file))
    for entry in compile_commands():
        file, output = os.path.relpath(entry["file"], ROOT), re.search(r" -o (\S+)", entry["command"])[1]
        read = sorted(h for h in needs.get(output, ()) if h.endswith(".h") and by_file.get(h))
        if (by_file.get(file) or read) and file.startswith(FOLDERS) and not re.fullmatch(MAINS, file):
            if file not in by_file:
                write_if_changed(TREE / file, (ROOT / file).read_bytes())
            todo.append((file, entry["command"], b"".join((TREE / h).read_bytes() for h in read)))
    with pool() as threads:
        said = "".join(threads.map(lambda unit: compiled(*unit), todo))
    broken = set()
    for file, line in re.findall(r"^(?:%s/)?((?:src|models|data|train)/[^:\s]+):(\d+):(?:\d+:)?\s+"
                                 r"(?:error|.*required from)" % TREE, said, re.M):
        broken |= {m["number"] for m in by_file.get(file, ()) if m["line"] <= int(line) <= m["last"]}
    if said:
        print(f"{len(broken)} of {sum(map(len, by_file.values()))} mistakes do not compile", flush=True)
    if said and not broken:
        sys.exit(said[-5000:])
    for number in broken:
        mutants[number]["dropped"] = True
    return not said


def build(mutants):
    write_if_changed(WORK / "weft_mutant.h", HEADER.encode())
    needs = headers_of()
    for m in mutants:  # a header that nearly all read would be a build of nearly all
        m["dropped"] = m.get("dropped", False) or sum(m["file"] in n for n in needs.values()) > 40
    while not compile_all(mutants, needs):
        pass
    (WORK / "lib").mkdir(exist_ok=True)
    for library in ("libweft.so", "libweft_attention.so.1.0.0"):
        output = f" -o lib/{library} "
        commands = run(["ninja", "-C", BUILD, "-t", "commands", f"lib/{library}"]).stdout.splitlines()
        command = [c for c in commands if output in c][0].replace(output, f" -o {WORK}/lib/{library} -Wl,-Bsymbolic ")
        command = re.sub(r" (CMakeFiles/\S+\.o)", lambda m: f" {WORK}/objects/{m[1]}"
                         if (WORK / f"objects/{m[1]}.key").exists() else m[0], command)
        made = run(command, shell=True, cwd=BUILD)
        assert made.returncode == 0, made.stderr
    for link in (WORK / "lib/libweft_attention.so.1", WORK / "lib/libweft_attention.so"):
        link.unlink(missing_ok=True)
        link.symlink_to("libweft_attention.so.1.0.0")
    shutil.copy(BUILD / "bin/weft_tests", WORK / "new")
    os.replace(WORK / "new", TESTS)


# ---- what notices them -----------------------------------------------------------------------------------------------


# Everything but /dev/shm is read-only, processes outside are out of reach, memory and files are limited: a mistake may
# write anywhere, replace /dev/null, and send signals to anybody. Bash stays the first process, for which most signals
# do nothing. setpriv: when this script ends, all that it has started ends, too. No preexec_fn: it can hang in threads.
ALONE = 'ulimit -v 12582912 -f 1048576; mount -o bind,remount,ro / && (! mountpoint -q /dev || mount -o bind,remount,ro /dev) || exit; "$0" "$@"; exit'


def start(tests, timeout, **environment):
    """Exit code of the tests, None after `timeout` seconds; and what was printed."""
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "-mpf", "--mount-proc", "--kill-child", "bash", "-c", ALONE, TESTS,
               "--gtest_filter=" + ":".join(tests), "--gtest_fail_fast", "--gtest_brief=1"]
    with tempfile.TemporaryDirectory(prefix="mutant", dir="/dev/shm") as folder, open(folder + "/said", "w+b") as said:
        variables = dict(os.environ, TMPDIR=folder, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive",
                         LD_LIBRARY_PATH=WORK / "lib", **environment)
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                                   start_new_session=True, env=variables)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            status = None
        if status != 0:  # and what it has started
            try:
                os.killpg(process.pid, 9)
            except ProcessLookupError:
                pass
            process.wait()
        said.seek(0)
        return status, said.read().decode(errors="replace")


def list_tests():
    kernels = "".join(path.read_text() for path in (ROOT / "tests/kernels").rglob("*.cpp"))  # these reach no mistake
    left_out = set(re.findall(r"^(?:TEST|TEST_F|TEST_P|INSTANTIATE_TEST_SUITE_P)\((\w+),", kernels, re.M))
    names, suite = [], ""
    listed = run([TESTS, "--gtest_list_tests", "--gtest_filter=-Cuda*:Slow*:*DISABLED*"], cwd=ROOT).stdout
    for line in listed.split("\n"):
        line = line.split("#")[0].rstrip()
        if line.startswith("  ") and suite.split("/")[-1].rstrip(".") not in left_out:
            names.append(suite + line.strip())
        elif line.endswith("."):
            suite = line
    return names


def reach(test):
    """Seconds of a test and the mistakes that it reaches; None if it fails without any."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(bytes(65536))
        file.flush()
        began = time.time()
        status, _ = start([test], 600, WEFT_MUTANTS_REACHED=file.name)
        marks = Path(file.name).read_bytes()
        return None if status != 0 else [time.time() - began, [i for i, mark in enumerate(marks) if mark]]


def tests_by_reach():
    """reach() of all tests that pass, kept for as long as the libraries stay: test -> (seconds, mistakes)."""
    digest = hashlib.sha256((WORK / "lib/libweft.so").read_bytes()).hexdigest()
    kept_in = WORK / f"reached{digest[:16]}.txt"  # a line per test, written as soon as it is known
    kept = dict(map(json.loads, kept_in.read_text().splitlines())) if kept_in.exists() else {}
    names = list_tests()
    with pool() as threads, open(kept_in, "a") as file:
        missing = [name for name in names if not kept.get(name)]
        for name, reached in zip(missing, threads.map(reach, missing)):
            kept[name] = reached
            print(json.dumps([name, reached]), file=file, flush=True)
    print("these tests fail without a mistake:", [name for name in names if not kept[name]], flush=True)
    return {name: (kept[name][0], set(kept[name][1])) for name in names if kept[name]}


def folders_of_suites():
    return {suite: str(path.relative_to(ROOT / "tests").with_suffix("")) for path in (ROOT / "tests").rglob("*.cpp")
            for suite in re.findall(r"^(?:TEST|TEST_F|TEST_P|INSTANTIATE_TEST_SUITE_P)\((\w+),", path.read_text(), re.M)}


def judge(mutant, tests, homes):
    """How a mistake ended: "noticed by ..." or "survived ..."."""
    file = mutant["file"].rsplit(".", 1)[0]

    def likely(test):  # tests of its file, of its folder, of others; those that reach little else first
        (seconds, marks), home = tests[test], homes.get(re.sub(r"^\w+/|[./].*", "", test), "")
        return home != file + "_test", os.path.dirname(home) != os.path.dirname(file), seconds > 3, len(marks)

    left = sorted((name for name, (_, marks) in tests.items() if mutant["number"] in marks), key=likely)
    reached = len(left)
    while left:
        batch, cost = [], 0.0
        while left and (not batch or cost + tests[left[0]][0] < 8):
            cost += tests[left[0]][0]
            batch.append(left.pop(0))
        status, said = start(batch, 20 + 4 * cost, WEFT_MUTANT=str(mutant["number"]))
        if status != 0:
            failed = re.findall(r"\[  FAILED  \] ([\w./]+)", said)
            return "noticed by " + (failed[0] if failed else "time" if status is None else f"exit code {status}")
    return f"survived the {reached} tests that reach it"


def main():
    state = WORK / "mutants.json"
    WORK.mkdir(parents=True, exist_ok=True)
    mutants = json.loads(state.read_text()) if state.exists() else choose(random.Random(args.seed))
    state.write_text(json.dumps(mutants))
    build(mutants)
    state.write_text(json.dumps(mutants))
    tests = tests_by_reach()
    alive = [m for m in mutants if not m.get("dropped")][args.skip:args.skip + args.count]
    if args.only:
        alive = [mutants[int(n)] for n in args.only.split(",")]
    known = [tuple(line.split("  ")[:3]) for line in (HERE / "equivalent.txt").read_text().splitlines()]
    results, homes = WORK / "results.json", folders_of_suites()  # a line per mistake, the last one counts
    ends = {}
    if results.exists():
        ends = {end["number"]: end["result"] for end in map(json.loads, results.read_text().splitlines())}

    def end(m):
        line = (ROOT / m["file"]).read_text().splitlines()[m["line"] - 1].strip()
        result = ends.get(m["number"], "survived")
        if m["number"] not in ends or args.only or (args.again and result.startswith("survived")):
            result = judge(m, tests, homes)
        if result.startswith("survived") and (m["file"], line, m["text"] or "dropped") in known:
            result = "equivalent"
        print(f"{m['number']} {m['file']}:{m['line']} {m['kind']}: {result}\n    {line}\n    -> {m['text']}", flush=True)
        with open(results, "a") as file:
            print(json.dumps(dict(m, result=result)), file=file, flush=True)
        return result.split()[0]

    with pool() as threads:
        counts = collections.Counter(threads.map(end, alive))
    share = 100 * counts["noticed"] / max(1, counts["noticed"] + counts["survived"])
    print(f"{dict(counts)}: {share:.1f} % of those that change something are noticed")


if __name__ == "__main__":
    main()
