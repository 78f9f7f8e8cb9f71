#!/usr/bin/env python3
"""Checks what is published, before anything is built from it.

For each source package: `cargo package --list` has the files that the build needs and nothing that is not for publication; the licences and,
for each bundle of prebuilt/manifest.toml, the file are in it; what docs.rs is told exists. For each package with features: the page
docs/packagers.md has a row per feature, and so has the package's front page. For the Debian packages: names and versions are those of the
library. Before that, it tests itself.
"""

import fnmatch
import json
import pathlib
import re
import subprocess
import sys

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    import tomli as tomllib

PAGE = pathlib.Path("docs/packagers.md")

# Source packages: what has to be in them, and what may.
REQUIRED = {
    "ssm-update": [
        *("build.rs", "build/*.rs", "src/lib.rs", "hip/ssm_update.hip", "hip/targets.txt", "gpu/*.h", "cuda/*", "metal/*", "tests/*.rs"),
        *("prebuilt/manifest.toml", "README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "Cargo.lock"),
    ],
    "ssm-update-candle": ["src/lib.rs", "tests/*.rs", "LICENSE-APACHE", "LICENSE-MIT", "Cargo.lock"],
}
ALLOWED = {
    "ssm-update": re.compile(
        r"(build|cuda|examples|gpu|hip|metal|prebuilt|src|tests)/.*|docs/[a-z-]+\.(md|svg)|build\.rs|README\.md|CHANGELOG\.md|LICENSE-[A-Z]+|Cargo\.(toml|toml\.orig|lock)"
    ),
    "ssm-update-candle": re.compile(r"(src|tests)/.*\.rs|candle\.md|LICENSE-[A-Z]+|Cargo\.(toml|toml\.orig|lock)"),
}
# Written by cargo: the commit.
OF_CARGO = ".cargo_vcs_info.json"

# Packages with features, and where their front page is.
FRONT_PAGES = {"ssm-update": "src/lib.rs", "ssm-update-candle": "candle/src/lib.rs", "ssm-update-capi": None}

# What a registry takes.
LIMIT = 10_000_000


def objections_to_files(name, files, bundles):
    found = [f"{name}: {pattern} is not in the package" for pattern in REQUIRED[name] if not fnmatch.filter(files, pattern)]
    if name == "ssm-update":
        found += [f"{name}: the bundle {file} of prebuilt/manifest.toml is not in the package" for file in bundles if file not in files]
    found += [f"{name}: {file} is in the package and not meant to be" for file in files if file != OF_CARGO and not ALLOWED[name].fullmatch(file)]
    return found


def objections_to_features(name, manifest, page, front):
    features = set(manifest.get("features", {})) - {"default"}
    found = [f"docs/packagers.md has no row for `{feature}` of {name}" for feature in sorted(features) if f"| `{feature}` |" not in section(page, name)]
    if front is not None:
        found += [f"the front page of {name} has no row for the feature `{feature}`" for feature in sorted(features) if f"//! | `{feature}` |" not in front]
    told = manifest["package"].get("metadata", {}).get("docs", {}).get("rs", {})
    found += [f"{name}: docs.rs is told of a feature `{feature}` that is not there" for feature in told.get("features", []) if feature not in features]
    if name in REQUIRED and not told:
        found.append(f"{name}: no [package.metadata.docs.rs]")
    return found


def section(page, name):
    """The part of the page under the heading with this name."""
    match = re.search(rf"^#+ .*`{re.escape(name)}`.*\n((?:(?!#).*\n?)*)", page, re.MULTILINE)
    return match.group(1) if match else ""


def objections_to_debian(manifest, version, abi):
    deb = manifest["package"]["metadata"]["deb"]
    runtime, dev = deb["variants"]["runtime"], deb["variants"]["dev"]
    library = f"libssm-update{abi}"
    found = []
    if runtime["name"] != library:
        found.append(f"capi/Cargo.toml: the Debian package is {runtime['name']}, and the library's interface has the number {abi}: {library}")
    if f"{library} (= {version}-1)" not in dev["depends"]:
        found.append(f"capi/Cargo.toml: the Debian package for developers has to depend on {library} (= {version}-1), and depends on: {dev['depends']}")
    assets = [asset for asset in runtime["assets"] + dev["assets"] if "link_name" in asset]
    links = {asset["dest"].rpartition("/")[2]: asset["link_name"] for asset in assets}
    wanted = {f"libssm_update.so.{abi}": f"libssm_update.so.{version}", "libssm_update.so": f"libssm_update.so.{abi}"}
    if links != wanted:
        found.append(f"capi/Cargo.toml: the Debian packages have to have the links {wanted}, and have: {links}")
    for variant in (runtime, dev):
        for asset in variant["assets"]:
            target = asset["dest"] if isinstance(asset, dict) else asset[1]
            if target.startswith("usr/share/doc/") and not target.startswith(f"usr/share/doc/{variant['name']}/"):
                found.append(f"capi/Cargo.toml: {target} is the folder of another Debian package than {variant['name']}")
    return found


def self_test():
    """The check has to be able to fail."""
    whole = [pattern.replace("*", "x") for pattern in REQUIRED["ssm-update"]] + ["prebuilt/a.hipfb"]
    assert not objections_to_files("ssm-update", whole, ["prebuilt/a.hipfb"])
    for file in whole:
        assert objections_to_files("ssm-update", [other for other in whole if other != file], ["prebuilt/a.hipfb"]), file
    for file in (".carry/key", "scripts/setup.sh", "engine/src/lib.rs", "docs/private.txt", "id_rsa"):
        assert objections_to_files("ssm-update", [*whole, file], ["prebuilt/a.hipfb"]), file

    manifest = {"features": {"default": ["a"], "a": []}, "package": {"metadata": {"docs": {"rs": {"features": ["a"]}}}}}
    page, front = "## The crate `ssm-update`\n| `a` | yes |\n## Other\n| `b` |\n", "//! | `a` | yes |"
    assert not objections_to_features("ssm-update", manifest, page, front)
    assert objections_to_features("ssm-update", manifest, page.replace("`a`", "`c`"), front)
    assert objections_to_features("ssm-update", manifest, page, "")
    other = manifest | {"features": {"b": []}}
    assert len(objections_to_features("ssm-update", other, page, front)) == 3
    assert objections_to_features("ssm-update", manifest | {"package": {}}, page, front)

    asset = ["a", "usr/share/doc/libssm-update0/", "644"]
    soname = {"link_name": "libssm_update.so.1.0.0", "dest": "usr/lib/libssm_update.so.0"}
    link = {"link_name": "libssm_update.so.0", "dest": "usr/lib/libssm_update.so"}
    variants = {
        "runtime": {"name": "libssm-update0", "assets": [asset, soname]},
        "dev": {"name": "dev", "depends": "libssm-update0 (= 1.0.0-1)", "assets": [link]},
    }
    debian = {"package": {"metadata": {"deb": {"variants": variants}}}}
    assert not objections_to_debian(debian, "1.0.0", "0")
    assert len(objections_to_debian(debian, "1.0.1", "0")) == 2
    assert len(objections_to_debian(debian, "1.0.0", "1")) == 3
    variants["dev"]["assets"].append(asset)
    assert objections_to_debian(debian, "1.0.0", "0")


def main():
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
        return
    if sys.argv[1:]:
        sys.exit(f"no arguments are taken, and these came: {' '.join(sys.argv[1:])}")
    self_test()
    metadata = json.loads(subprocess.run(["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"], stdout=subprocess.PIPE, check=True).stdout)
    manifests = {package["name"]: pathlib.Path(package["manifest_path"]) for package in metadata["packages"]}
    bundles = [f"prebuilt/ssm_update-{bundle['target']}.hipfb" for bundle in tomllib.loads(pathlib.Path("prebuilt/manifest.toml").read_text("utf-8"))["bundle"]]
    found, count = [], 0
    for name in REQUIRED:
        # What is not committed yet is looked at too: the commit is what will be packed.
        command = ["cargo", "package", "--list", "--locked", "--allow-dirty", "--package", name]
        files = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout.splitlines()
        found += objections_to_files(name, files, bundles)
        size = sum(path.stat().st_size for file in files if (path := manifests[name].parent / file).exists())
        if size > LIMIT:
            found.append(f"{name}: {size} bytes, and a registry takes {LIMIT}")
        count += len(files)
        print(f"packages: {name} has {len(files)} files, {size / 1e6:.1f} MB")
    page = PAGE.read_text("utf-8")
    for name, front in FRONT_PAGES.items():
        text = pathlib.Path(front).read_text("utf-8") if front else None
        found += objections_to_features(name, tomllib.loads(manifests[name].read_text("utf-8")), page, text)
    version = next(package["version"] for package in metadata["packages"] if package["name"] == "ssm-update-capi")
    abi = re.search(r"SSM_UPDATE_ABI_VERSION: u32 = (\d+);", pathlib.Path("capi/src/abi_version.rs").read_text("utf-8")).group(1)
    found += objections_to_debian(tomllib.loads(manifests["ssm-update-capi"].read_text("utf-8")), version, abi)
    for line in found:
        print(line, file=sys.stderr)
    print(f"packages: {len(found)} objections")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
