#!/usr/bin/env python3
"""Writes the list of what is in the binary, as CycloneDX 1.5 in JSON: the crates linked into it with licences, checksums and what needs
what, Rust's standard library, and each code object with its SHA-256.

Everything in it comes from Cargo.lock, the sources and the files; its time is SOURCE_DATE_EPOCH, its serial number a hash of the rest, and no
path of this machine is in it (cargo-cyclonedx names the packages of a workspace by theirs).
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import tomllib
import uuid

import linked


def reference(crate):
    return f"pkg:cargo/{crate.name}@{crate.version}"


def component(crate, checksums):
    entry = {
        "type": "library",
        "bom-ref": reference(crate),
        "name": crate.name,
        "version": crate.version,
        "scope": "required",
        "licenses": [{"expression": crate.licence}],
        "purl": reference(crate),
    }
    if crate.registry:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksums[crate.name, crate.version]}]
    if crate.repository:
        entry["externalReferences"] = [{"type": "vcs", "url": crate.repository}]
    return entry


def code_object(entry):
    return {
        "type": "file",
        "bom-ref": f"code-object:{entry['file']}",
        "name": entry["file"],
        "licenses": [{"expression": "MIT OR Apache-2.0"}],
        "hashes": [{"alg": "SHA-256", "content": entry["sha256"]}],
        "properties": [{"name": key, "value": entry[key]} for key in ("target", "compiler", "flags")],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--code-objects", type=pathlib.Path, required=True, help="manifest of the code objects on board")
    parser.add_argument("output", type=pathlib.Path, help="file to write")
    arguments = parser.parse_args()

    lock = tomllib.loads(pathlib.Path("Cargo.lock").read_text("utf-8"))
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in lock["package"]}
    crates = linked.linked()
    (main_crate,) = [crate for crate in crates.values() if crate.name == linked.PACKAGE]
    rustc = subprocess.run(["rustc", "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    standard = {
        "type": "library",
        "bom-ref": "rust-standard-library",
        "name": "rust-standard-library",
        "version": rustc.split()[1],
        "scope": "required",
        "licenses": [{"expression": "MIT OR Apache-2.0"}],
        "properties": [{"name": "rustc", "value": rustc}],
    }
    objects = [code_object(entry) for entry in tomllib.loads(arguments.code_objects.read_text("utf-8"))["code_object"]]
    time = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.UTC)
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": component(main_crate, checksums)},
        "components": [component(crate, checksums) for crate in crates.values() if crate is not main_crate] + [standard] + objects,
        "dependencies": [
            {
                "ref": reference(crate),
                "dependsOn": sorted(reference(crates[key]) for key in crate.needs)
                + ([entry["bom-ref"] for entry in (standard, *objects)] if crate is main_crate else []),
            }
            for crate in crates.values()
        ],
    }
    content = json.dumps(bom, sort_keys=True)
    bom["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}"
    arguments.output.write_text(json.dumps(bom, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
