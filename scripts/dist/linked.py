"""The crates of which code is in the library of the C interface, with what links what."""

import json
import subprocess
from typing import NamedTuple

PACKAGE = "ssm-update-capi"
TARGET = "x86_64-unknown-linux-gnu"


class Crate(NamedTuple):
    """A package of `cargo metadata`, and what of it is linked."""

    name: str
    version: str
    licence: str
    repository: str | None
    folder: str
    registry: bool
    needs: frozenset  # (name, version) of the crates that it links


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def linked():
    """Crates by (name, version). Procedural macros, build scripts and tests leave no code behind, and are left out."""
    metadata = json.loads(run("cargo", "metadata", "--locked", "--format-version", "1"))
    packages = {(package["name"], package["version"]): package for package in metadata["packages"]}
    # cargo metadata knows the features of the whole workspace, cargo tree those of this package.
    lines = run(
        *("cargo", "tree", "--locked", "--package", PACKAGE, "--edges", "normal,no-proc-macro", "--target", TARGET),
        *("--prefix", "depth", "--no-dedupe", "--format", "\t{p}"),
    ).splitlines()
    needs, above = {}, []
    for line in lines:
        depth, words = line.split("\t")
        name, version = words.split()[:2]
        key = (name, version.removeprefix("v"))
        needs.setdefault(key, set())
        del above[int(depth) :]
        if above:
            needs[above[-1]].add(key)
        above.append(key)
    crates = {}
    for key in sorted(needs):
        package = packages[key]
        crates[key] = Crate(
            *key,
            licence=package["license"].replace("/", " OR "),
            repository=package["repository"],
            folder=package["manifest_path"].removesuffix("/Cargo.toml"),
            registry=package["source"] is not None,
            needs=frozenset(needs[key]),
        )
    return crates
