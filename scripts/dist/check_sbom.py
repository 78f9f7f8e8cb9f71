#!/usr/bin/env python3
"""Holds a list that sbom.py wrote to CycloneDX's own schema, and to itself: every part once, and nothing needed that is not listed.

Needs the package cyclonedx-python-lib[json-validation].
"""

import collections
import json
import pathlib
import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_sbom.py FILE")
    text = pathlib.Path(sys.argv[1]).read_text("utf-8")
    if error := JsonStrictValidator(SchemaVersion.V1_5).validate_str(text):
        sys.exit(f"not CycloneDX 1.5: {error}")

    bom = json.loads(text)
    listed = collections.Counter(part["bom-ref"] for part in [bom["metadata"]["component"], *bom["components"]])
    if twice := [name for name, count in listed.items() if count > 1]:
        sys.exit(f"listed more than once: {twice}")
    named = {name for entry in bom["dependencies"] for name in (entry["ref"], *entry["dependsOn"])}
    if unknown := sorted(named - listed.keys()):
        sys.exit(f"needed, and not listed: {unknown}")
    if unused := sorted(listed.keys() - named):
        sys.exit(f"listed, and needed by nothing: {unused}")
    print(f"CycloneDX 1.5, {len(listed)} parts")


if __name__ == "__main__":
    main()
