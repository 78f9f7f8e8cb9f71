#!/usr/bin/env python3
"""Writes the notices that go with the binary: for each crate linked into it, its licence expression and the licence files that it
comes with, equal texts once. Fails naming a crate that comes with none.

What licences are allowed at all is the business of scripts/check_licences.py.
"""

import argparse
import pathlib
import re
import sys

import linked

NAMES = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)


def files(folder):
    found = sorted(path for path in pathlib.Path(folder).iterdir() if path.is_file() and NAMES.match(path.name))
    return [(path.name, "\n".join(line.rstrip() for line in path.read_text("utf-8").strip().splitlines())) for path in found]


def notices(crates):
    """The text, and the crates that come without a licence."""
    numbers, bare = {}, []
    lines = [
        "The library contains code of the crates below, each under the licence that stands behind it; where there is a choice, each of the",
        "texts that it offers is given. Texts follow by number. Its static and its shared form also contain Rust's standard library, whose",
        "notices are in rust-standard-library.html.",
        "",
    ]
    for crate in crates:
        texts = files(crate.folder)
        if not texts:
            bare.append(f"{crate.name} {crate.version} ({crate.licence})")
        places = [f"{name} [{numbers.setdefault(text, len(numbers) + 1)}]" for name, text in texts]
        lines.append(f"{crate.name} {crate.version}: {crate.licence}: {', '.join(places)}")
    for text, number in numbers.items():
        lines += ["", f"[{number}] " + "-" * 100, "", text]
    return "\n".join(lines) + "\n", bare


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path, help="file to write")
    arguments = parser.parse_args()
    text, bare = notices(linked.linked().values())
    if bare:
        sys.exit(f"no licence file comes with: {', '.join(bare)}\nWithout its text the crate may not be shipped: take another version, or ask there.")
    arguments.output.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
