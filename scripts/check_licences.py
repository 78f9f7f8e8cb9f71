#!/usr/bin/env python3
"""Checks that every crate the workspace may build has a licence that lets ssm-update be shipped under its own.

Reads the SPDX expressions in `cargo metadata` (all platforms, all features, development dependencies too) and evaluates
them against the tables ALLOWED and TOOLS. Fails naming crate, version and expression. Before that, it tests itself: expressions that
must pass, and ones that must not.
"""

import argparse
import json
import re
import subprocess
import sys

# Licence (with its exception, if any), and why it is here. All of them permit use, change and redistribution, in source
# and binary form, under terms of one's own, in return for at most a notice.
ALLOWED = {
    "MIT": "the project's own",
    "Apache-2.0": "the project's own",
    "Apache-2.0 WITH LLVM-exception": "Apache-2.0 without its duties for what a compiler puts into binaries",
    "BSD-2-Clause": "notice only",
    "BSD-3-Clause": "notice only; no endorsement",
    "BSL-1.0": "notice in source form only (Boost, not the Business Source Licence)",
    "CC0-1.0": "public domain; no patent grant, so taken for code only where the crate offers it beside others",
    "ISC": "MIT in fewer words",
    "MIT-0": "MIT without the notice",
    "Unicode-3.0": "notice only; tables that are derived from Unicode's data files",
    "Unlicense": "public domain",
    "Zlib": "notice in source form; changed versions are marked",
}

# Crates under other licences that only tests and tools run. Nothing of them is in what is shipped, which is checked: they may be
# development dependencies and no others.
TOOLS = {
    "cbindgen": ("MPL-2.0", "writes include/ssm_update.h; copyleft for changes of its own files, none for what it writes"),
}

# What the packages of this workspace have to say themselves.
OWN = "MIT OR Apache-2.0"


class Malformed(ValueError):
    """Not an SPDX licence expression."""


def permitted(expression):
    """Whether some choice that the expression offers consists of allowed licences only.

    Grammar: OR binds weakest, then AND, then WITH; `/` is Cargo's former way to write OR.
    """
    tokens = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))

    def peek():
        return tokens[0] if tokens else None

    def either():
        value = both()
        while peek() == "OR":
            tokens.pop(0)
            right = both()
            value = value or right
        return value

    def both():
        value = single()
        while peek() == "AND":
            tokens.pop(0)
            right = single()
            value = value and right
        return value

    def single():
        if peek() == "(":
            tokens.pop(0)
            value = either()
            if peek() != ")":
                raise Malformed(expression)
            tokens.pop(0)
            return value
        return name() in ALLOWED

    def name():
        licence = word()
        if peek() == "WITH":
            tokens.pop(0)
            licence += " WITH " + word()
        return licence

    def word():
        if peek() in (None, "(", ")", "AND", "OR", "WITH"):
            raise Malformed(expression)
        return tokens.pop(0)

    value = either()
    if tokens:
        raise Malformed(expression)
    return value


def objection(package, kinds=frozenset()):
    """Why a package of `cargo metadata` may not be used, or None. `kinds`: how others depend on it."""
    expression = package["license"]
    if package["name"] in TOOLS:
        if expression != TOOLS[package["name"]][0]:
            return f"{expression}, and not {TOOLS[package['name']][0]} as in TOOLS"
        return None if kinds == {"dev"} else f"{expression}, and a dependency of the kinds {sorted(map(str, kinds))}, not of tests alone"
    if expression is None:
        return f"no licence expression (licence file: {package['license_file'] or 'none'})"
    if package["source"] is None:
        return None if expression == OWN else f"{expression}, where this workspace's packages are {OWN}"
    try:
        return None if permitted(expression) else expression
    except Malformed:
        return f"{expression}: not a licence expression"


def self_test():
    """The check has to be able to fail: each line is an expression and whether it is permitted."""
    for expression, expected in [
        ("MIT", True),
        ("MIT/Apache-2.0", True),
        ("Apache-2.0 / MIT", True),
        ("GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("GPL-3.0-only OR MIT", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", True),
        ("(MIT OR Apache-2.0) AND LGPL-2.1-or-later", False),
        # AND binds tighter than OR: the first choice is MIT alone.
        ("MIT OR GPL-3.0-only AND GPL-2.0-only", True),
        ("GPL-2.0-only AND MIT OR GPL-3.0-only", False),
        ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", True),
        # An exception makes it another licence.
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("MIT WITH LLVM-exception", False),
    ]:
        assert permitted(expression) is expected, f"{expression}: expected {expected}"
    for expression in ["", "MIT Apache-2.0", "(MIT", "MIT OR", "AND MIT", "MIT)"]:
        try:
            permitted(expression)
        except Malformed:
            continue
        raise AssertionError(f"{expression!r} was taken for a licence expression")

    crate = {"name": "planted", "version": "1.0.0", "license": "GPL-3.0-only", "license_file": None, "source": "registry"}
    assert objection(crate), "a denied licence was not reported"
    assert objection(crate | {"license": None}), "a crate without a licence was not reported"
    assert objection(crate | {"license": "MIT", "source": None}), "a package of our own with another licence was not reported"
    assert not objection(crate | {"license": "MIT"}), "an allowed licence was reported"
    for name, (expression, _) in TOOLS.items():
        tool = crate | {"name": name, "license": expression}
        assert not objection(tool, {"dev"}), "a tool of the tests was reported"
        assert objection(tool, {"dev", None}), "a tool that is shipped was not reported"
        assert objection(tool, {"build"}), "a tool of a build script was not reported"
        assert objection(tool | {"license": "GPL-3.0-only"}, {"dev"}), "a tool with another licence was not reported"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print every crate with its expression")
    arguments = parser.parse_args()

    self_test()
    command = ["cargo", "metadata", "--locked", "--all-features", "--format-version", "1"]
    metadata = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if metadata.returncode:
        sys.exit(f"failed: {' '.join(command)}")
    metadata = json.loads(metadata.stdout)
    packages = sorted(metadata["packages"], key=lambda package: (package["name"], package["version"]))
    kinds = {}
    for node in metadata["resolve"]["nodes"]:
        for dependency in node["deps"]:
            kinds.setdefault(dependency["pkg"], set()).update(kind["kind"] for kind in dependency["dep_kinds"])
    objections = 0
    for package in packages:
        if arguments.list:
            print(f"{package['name']} {package['version']}: {package['license']}")
        if why := objection(package, kinds.get(package["id"], set())):
            objections += 1
            print(f"licence not allowed: {package['name']} {package['version']}: {why}", file=sys.stderr)
    print(f"licences: {len(packages) - objections} passed, {objections} failed")
    if objections:
        sys.exit("A licence that is permissive goes into ALLOWED in scripts/check_licences.py, with the reason.")


if __name__ == "__main__":
    main()
