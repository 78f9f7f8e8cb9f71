#!/usr/bin/env python3
"""Proves that the tests find faults: plants the faults of a table one at a time and expects some test to fail.

The work is done on a copy of the workspace under target/mutants/, never on the sources themselves. The copy has to pass
unchanged first. Then, for each mutant, the text `find` (which has to occur exactly once in `file`) is replaced, the package
is built, and its tests run one binary after the other until one fails. A mutant that passes everything has SURVIVED: the
tests lack something. One that does not compile, or whose `find` is stale, is an error: it proves nothing.

A table is a TOML file, tests/mutants/NAME.toml:

    package = "ssm-update"              # whose tests have to find the faults
    order = ["lib", "refusal"]          # test binaries to run first, the fast ones; then the others by name, doctests last
    skip = ["environment"]              # test binaries that cannot find these faults
    build = ["hip-sim"]                 # optional: packages to build beforehand
    environment = { NAME = "value" }    # optional: for all commands; {target} stands for cargo's target folder

    [[mutant]]
    name = "group-map-modulo"
    why = "heads of one group are neighbours; with one group, as in most models, the wrong map does not show"
    file = "src/ports/cpu/rows.rs"
    find = "h / (dims.heads / dims.groups)"
    replace = "h % dims.groups"
    first = "conformance"               # optional: the test binary to run first
    needs = ["avx2"]                    # optional: processor features without which the line is never run
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    import tomli as tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLES = ROOT / "tests" / "mutants"
WORK = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve() / "mutants"
COPY = WORK / "source"

# A mutant may turn a loop into an endless one. Nobody waits longer for a test binary than this much beyond ten times what
# it took on the unchanged copy.
PATIENCE_SECONDS = 60

ENVIRONMENT = os.environ | {
    "CARGO_TARGET_DIR": str(WORK / "build"),
    # From one mutant to the next, little changes: seconds of building become fractions.
    "CARGO_INCREMENTAL": "1",
    # Line tables take time to write, and nobody debugs a mutant.
    "CARGO_PROFILE_RELEASE_DEBUG": "false",
    # Any counterexample will do, it need not be small; and it is the same in every run.
    "PROPTEST_MAX_SHRINK_ITERS": "0",
    "PROPTEST_RNG_SEED": "1",
}
# The library's own switches would change which port is tested.
for name in [name for name in ENVIRONMENT if name.startswith(("SSM_UPDATE_", "MLXCEL_"))]:
    del ENVIRONMENT[name]


class Broken(Exception):
    """The table, or the unchanged copy, is not fit for the purpose."""


def read_table(path):
    """A table whose every entry has what it needs."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        there = ", ".join(str(one.relative_to(ROOT)) for one in sorted(TABLES.glob("*.toml")))
        raise Broken(f"{path}: {error}; a table is expected, such as those of this repository: {there}") from None
    unknown = table.keys() - {"package", "order", "skip", "build", "environment", "mutant"}
    if unknown or "package" not in table or not table.get("mutant"):
        raise Broken(f"{path}: needs `package` and [[mutant]] entries; unknown keys: {sorted(unknown) or 'none'}")
    names = set()
    for mutant in table["mutant"]:
        name = mutant.get("name", "a mutant without a name")
        missing = {"name", "why", "file", "find", "replace"} - mutant.keys()
        unknown = mutant.keys() - {"name", "why", "file", "find", "replace", "first", "needs"}
        if missing or unknown or name in names:
            raise Broken(f"{path}: {name}: missing {sorted(missing)}, unknown {sorted(unknown)}, or listed twice")
        names.add(name)
    return table


def mutate(mutant, text):
    """The file's text with the fault in it."""
    count = text.count(mutant["find"])
    if count != 1:
        raise Broken(f"{mutant['name']}: stale: `find` occurs {count} times in {mutant['file']}, not once")
    return text.replace(mutant["find"], mutant["replace"])


def check_finds(table):
    """Tells every stale entry before the long work begins."""
    stale = []
    for mutant in table["mutant"]:
        path = COPY / mutant["file"]
        try:
            mutate(mutant, path.read_text() if path.is_file() else "")
        except Broken as broken:
            stale.append(str(broken))
    if stale:
        raise Broken("\n  ".join(["the table does not fit the sources:", *stale]))


def synchronise():
    """Makes the copy equal to the workspace and gives its files. Those that are equal already keep their times, so cargo
    rebuilds only what changed since the last run."""
    wanted = set()
    for folder, folders, files in os.walk(ROOT):
        # Build folders and hidden ones: not sources, and the copy itself is in one of them.
        folders[:] = [name for name in folders if not name.startswith((".", "target"))]
        for name in files:
            source = pathlib.Path(folder, name)
            if source.is_symlink() or name.startswith("."):
                continue
            path = COPY / source.relative_to(ROOT)
            wanted.add(path)
            write_if_different(path, source.read_bytes())
    prune(wanted)
    return wanted


def prune(wanted):
    """Removes what else is in the copy: files that are gone from the workspace, and what a failing test left behind, such as
    a counterexample, which would help to catch the next mutant."""
    for path in [path for path in COPY.rglob("*") if path.is_file() and path not in wanted]:
        path.unlink()


def write_if_different(path, content):
    """Writes, unless that would change nothing but the time."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def cargo(*arguments, environment=None):
    """Runs cargo in the copy; gives status, output and what it wrote for people."""
    command = ["cargo", *arguments]
    environment = environment or ENVIRONMENT
    return subprocess.run(command, cwd=COPY, env=environment, capture_output=True, text=True, check=False)


class Suite:
    """The test binaries of the package, in the order in which they are run."""

    def __init__(self, table):
        self.package = table["package"]
        listed = cargo("metadata", "--locked", "--no-deps", "--format-version", "1")
        if listed.returncode:
            raise Broken(listed.stderr)
        targets = next((p["targets"] for p in json.loads(listed.stdout)["packages"] if p["name"] == self.package), None)
        if targets is None:
            raise Broken(f"no package {self.package} in the workspace")
        tests = {target["name"] for target in targets if "test" in target["kind"]}
        library = {"lib", "doc"} if any("lib" in target["kind"] for target in targets) else set()
        order, skip = table.get("order", []), set(table.get("skip", []))
        if unknown := {*order, *skip, *(m["first"] for m in table["mutant"] if "first" in m)} - tests - library:
            raise Broken(f"the table names tests that package {self.package} does not have: {', '.join(sorted(unknown))}")
        rest = sorted((tests | library) - {"doc"} - set(order)) + sorted(library & {"doc"})
        self.order = [name for name in [*order, *(name for name in rest if name not in order)] if name not in skip]
        self.seconds = {}
        target = ENVIRONMENT["CARGO_TARGET_DIR"]
        extra = {name: value.replace("{target}", target) for name, value in table.get("environment", {}).items()}
        self.environment = ENVIRONMENT | extra
        for package in table.get("build", []):
            built = self.cargo("build", "--release", "--locked", "-p", package)
            if built.returncode:
                raise Broken(f"package {package} does not build:\n{built.stderr}")

    def cargo(self, *arguments):
        """Runs cargo in the table's environment."""
        return cargo(*arguments, environment=self.environment)

    def arguments(self, name):
        """What cargo needs to choose a test binary."""
        choice = {"lib": ["--lib"], "doc": ["--doc"]}.get(name, ["--test", name])
        return ["test", "--release", "--locked", "-p", self.package, *choice]

    def build(self, name):
        """Builds a test binary; gives the compiler's text where that fails."""
        if name == "doc":
            return None  # cannot be built apart; the library under it has been
        result = self.cargo(*self.arguments(name), "--no-run")
        return result.stderr if result.returncode else None

    def run(self, name):
        """Runs a test binary up to its first failure; gives None where there is none, else what failed."""
        process = subprocess.Popen(
            ["cargo", *self.arguments(name), "--", "--color=never"],
            cwd=COPY,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # so that a binary that hangs can be ended together with cargo
        )
        limit = PATIENCE_SECONDS + 10 * self.seconds.get(name, 3600)
        timer = threading.Timer(limit, end, [process])
        timer.start()
        failed, lines = None, []
        try:
            for line in process.stdout:
                lines.append(line)
                if match := re.match(r"test (.+?) \.\.\. FAILED", line):
                    failed = match[1].removesuffix(" - should panic")
                    end(process)
                    break
            status = process.wait()
            late = not timer.is_alive() and failed is None
        finally:
            timer.cancel()
            end(process)  # whoever interrupts this script does not mean to leave a test running
            process.stdout.close()
        if failed:
            return f"{name}::{failed}"
        if late:
            return f"{name} (no end within {limit:.0f} s)"
        if status:
            # No test reported a failure: the process died. Cargo says how.
            how = re.search(r"\(signal: \d+, SIG\w+|\(exit status: \d+\)", "".join(lines))
            return f"{name} (the process died: {how[0].strip('()') if how else status})\n{''.join(lines[-30:])}"
        return None


def end(process):
    """Ends a process and its children, if it has not ended."""
    if process.poll() is not None:
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def check_unchanged(suite):
    """The unchanged copy has to pass, or every mutant would look caught."""
    print(f"unchanged copy of {suite.package}: {', '.join(suite.order)}", flush=True)
    for name in suite.order:
        if errors := suite.build(name):
            raise Broken(f"the unchanged copy does not compile:\n{errors}")
        began = time.monotonic()
        if failure := suite.run(name):
            raise Broken(f"the unchanged copy fails: {failure}")
        suite.seconds[name] = time.monotonic() - began
        print(f"  {name} passes ({suite.seconds[name]:.1f} s)", flush=True)


def try_mutant(suite, mutant):
    """Plants one fault; gives whether it was caught, and by what or why not."""
    path = COPY / mutant["file"]
    original = path.read_text()
    text = mutate(mutant, original)
    try:
        path.write_text(text)
        first = [mutant["first"]] if "first" in mutant else []
        for name in [*first, *(name for name in suite.order if name not in first)]:
            if errors := suite.build(name):
                error = next((line for line in errors.splitlines() if line.startswith("error")), errors)
                return False, f"DOES NOT COMPILE: {error}"
            if failure := suite.run(name):
                return True, f"caught by {failure.splitlines()[0]}"
        return False, f"SURVIVED: {mutant['why']}"
    finally:
        path.write_text(original)


def processor_features():
    """What the kernel reports; empty where it reports nothing in this form."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return set(match[1].split()) if match else set()


def read_part(text):
    """The part of each table that is run: `2/3` is every third mutant, beginning with the second."""
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if not match or int(match[1]) > int(match[2]):
        raise argparse.ArgumentTypeError(f"expected K/N with K from 1 to N, got {text}")
    return int(match[1]), int(match[2])


def run_table(path, only, part, compile_only):
    """Runs the mutants of a table; gives how many passed, failed and could not be run here."""
    table = read_table(path)
    chosen = table["mutant"][part[0] - 1 :: part[1]]
    mutants = [mutant for mutant in chosen if not only or mutant["name"] in only]
    if left_out := len(table["mutant"]) - len(chosen):
        print(f"{path.stem}: {len(chosen)} mutants, part {part[0]} of {part[1]}; {left_out} NOT RUN this time", flush=True)
    if not mutants:
        return 0, 0, 0
    files = synchronise()
    check_finds(table)
    suite = Suite(table)
    if not compile_only:
        check_unchanged(suite)
    passed = failed = absent = 0
    features = processor_features()
    for mutant in mutants:
        began = time.monotonic()
        if lacking := set(mutant.get("needs", [])) - features:
            absent += 1
            print(f"  {mutant['name']}: NOT RUN, this processor lacks {', '.join(sorted(lacking))}", flush=True)
            continue
        if compile_only:
            caught, what = try_compile(suite, mutant)
        else:
            caught, what = try_mutant(suite, mutant)
        prune(files)
        passed, failed = passed + caught, failed + (not caught)
        print(f"  {mutant['name']}: {what} ({time.monotonic() - began:.1f} s)", flush=True)
    return passed, failed, absent


def try_compile(suite, mutant):
    """Only whether the fault compiles."""
    path = COPY / mutant["file"]
    original = path.read_text()
    try:
        path.write_text(mutate(mutant, original))
        result = suite.cargo("check", "--release", "--locked", "-p", suite.package)
        return result.returncode == 0, "compiles" if result.returncode == 0 else f"DOES NOT COMPILE:\n{result.stderr}"
    finally:
        path.write_text(original)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=pathlib.Path, action="append", help="a table; without it, all of tests/mutants/")
    parser.add_argument("--only", metavar="NAME", action="append", default=[], help="run this mutant (repeatable)")
    parser.add_argument("--part", metavar="K/N", type=read_part, default=(1, 1), help="of each table, every Nth from the Kth on")
    parser.add_argument("--list", action="store_true", help="print names and reasons, run nothing")
    parser.add_argument("--compile", action="store_true", help="only check that each mutant compiles, without any test")
    arguments = parser.parse_args()

    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # as an interrupt: through every `finally`
    tables = arguments.table or sorted(TABLES.glob("*.toml"))
    try:
        known = [mutant for path in tables for mutant in read_table(path)["mutant"]]
        if arguments.list:
            for mutant in known:
                print(f"{mutant['name']} ({mutant['file']}): {mutant['why']}")
            return
        if unknown := set(arguments.only) - {mutant["name"] for mutant in known}:
            raise Broken(f"no such mutant: {', '.join(sorted(unknown))}; --list names them")
        if shutil.which("cargo") is None:
            raise Broken("cargo is not on PATH")
        began = time.monotonic()
        counts = [run_table(path, set(arguments.only), arguments.part, arguments.compile) for path in tables]
    except Broken as broken:
        sys.exit(f"mutants: {broken}")
    passed, failed, absent = (sum(column) for column in zip(*counts))
    note = f", {absent} not run on this processor" if absent else ""
    print(f"mutants: {passed} passed, {failed} failed{note} ({(time.monotonic() - began) / 60:.1f} min)")
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
