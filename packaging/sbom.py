"""Prints a CycloneDX bill of materials of the program: every crate that is built into it, with its licence and digest.

usage: sbom.py VERSION TARGET
"""

import json
import os
import re
import subprocess
import sys
from datetime import datetime, timezone

version, target = sys.argv[1:]
command = ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform", target]
data = json.loads(subprocess.check_output(command))
packages = {p["id"]: p for p in data["packages"]}
nodes = {n["id"]: n for n in data["resolve"]["nodes"]}
root = next(i for i, p in packages.items() if p["name"] == "supervise")
lock = open("Cargo.lock", encoding="utf-8").read()
digests = {m[:2]: m[2] for m in re.findall(r'name = "(.*)"\nversion = "(.*)"\nsource = .*\nchecksum = "(.*)"', lock)}


def normal(node):
    """Crates that a crate needs when it runs, not for its build or its tests."""
    return sorted(d["pkg"] for d in node["deps"] if any(k["kind"] is None for k in d["dep_kinds"]))


def ref(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package):
    out = {"type": "library", "bom-ref": ref(package), "name": package["name"], "version": package["version"], "purl": ref(package)}
    if package["license"]:
        # Older manifests separate the choices with a slash.
        out["licenses"] = [{"expression": package["license"].replace("/", " OR ") if " " not in package["license"] else package["license"]}]
    if digest := digests.get((package["name"], package["version"])):
        out["hashes"] = [{"alg": "SHA-256", "content": digest}]
    return out


reached, waiting = set(), [root]
while waiting:
    at = waiting.pop()
    if at not in reached:
        reached.add(at)
        waiting += normal(nodes[at])
order = sorted(reached, key=lambda i: ref(packages[i]))
stamp = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
bom = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "version": 1,
    "metadata": {"timestamp": stamp, "component": {**component(packages[root]), "type": "application", "version": version}},
    "components": [component(packages[i]) for i in order if i != root],
    "dependencies": [{"ref": ref(packages[i]), "dependsOn": sorted(ref(packages[d]) for d in normal(nodes[i]))} for i in order],
}
print(json.dumps(bom, indent=1))
