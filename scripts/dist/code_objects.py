#!/usr/bin/env python3
"""Lays out the code objects that a build embedded: a file per architecture, the committed bundle of prebuilt/, and a manifest with sizes,
checksums and who made them. Checks each file against the table that the library has of it, and that the committed bundle holds the very
code object of this build where the same compiler made both.
"""

import argparse
import hashlib
import pathlib
import re
import shutil
import sys
import tomllib

ROW = re.compile(r'target: "(?P<target>\w+)",.*?sha256: "(?P<sha256>\w+)",\s*compiler: "(?P<compiler>[^"]*)",\s*flags: "(?P<flags>[^"]*)"', re.DOTALL)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def entry(kind, path, target, row):
    pairs = {"file": path.name, "target": target, "bytes": path.stat().st_size, "sha256": sha256(path), **row}
    return [f"[[{kind}]]", *(f"{key} = {value}" if isinstance(value, int) else f'{key} = "{value}"' for key, value in pairs.items()), ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("built", type=pathlib.Path, help="folder that the build script wrote")
    parser.add_argument("output", type=pathlib.Path, help="folder to fill")
    arguments = parser.parse_args()

    rows = [row.groupdict() for row in ROW.finditer((arguments.built / "code_objects.rs").read_text("utf-8"))]
    wanted = re.findall(r"^gfx\w+", pathlib.Path("hip/targets.txt").read_text("utf-8"), re.MULTILINE)
    missing = sorted(set(wanted) - {row["target"] for row in rows})
    if missing:
        sys.exit(f"not compiled for {', '.join(missing)}, which hip/targets.txt lists: a release is made with a compiler that knows them all")
    arguments.output.mkdir(parents=True)
    lines = ["# The code objects that the library has on board, one by one, and the bundles of prebuilt/, which hipModuleLoadData takes as they are.", ""]
    for row in sorted(rows, key=lambda row: row["target"]):
        target, expected = row.pop("target"), row.pop("sha256")
        path = arguments.output / f"ssm_update-{target}.co"
        shutil.copyfile(arguments.built / f"{target}.co", path)
        if sha256(path) != expected:
            sys.exit(f"{target}.co in {arguments.built} has SHA-256 {sha256(path)}, and the library embeds {expected}")
        lines += entry("code_object", path, target, row)
    manifest = tomllib.loads(pathlib.Path("prebuilt/manifest.toml").read_text("utf-8"))
    compilers = {row["compiler"] for row in rows}
    for bundle in manifest["bundle"]:
        path = arguments.output / f"ssm_update-{bundle['target']}.hipfb"
        shutil.copyfile(pathlib.Path("prebuilt") / path.name, path)
        if sha256(path) != bundle["bundle_sha256"]:
            sys.exit(f"prebuilt/{path.name} is not what prebuilt/manifest.toml says: make verify-prebuilt")
        compiled = arguments.output / f"ssm_update-{bundle['target']}.co"
        if compilers == {manifest["compiler"]} and sha256(compiled) != bundle["object_sha256"]:
            sys.exit(f"{manifest['compiler']} made another code object for {bundle['target']} than prebuilt/ has: make verify-prebuilt")
        lines += entry("bundle", path, bundle["target"], {key: manifest[key] for key in ("compiler", "flags")})
    (arguments.output / "manifest.toml").write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    main()
