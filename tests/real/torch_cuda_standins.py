"""Builds stand-ins for the CUDA libraries that a torch wheel for Linux is linked against.

usage: torch_cuda_standins.py SITE_PACKAGES

The wheel names libcudart, libcublas, libcudnn … as NEEDED, so `import torch` fails
without 4 GB of CUDA packages, even where there is no GPU. This reads, from the
wheel's own shared objects, which libraries, symbols and symbol versions are
missing on this machine, and builds tiny shared objects with those names. Every
function answers 100 (cudaErrorNoDevice) except those that name an error and
cudaStreamIsCapturing. Needs gcc, nm and readelf.
"""

import collections
import re
import subprocess
import sys
from pathlib import Path

CUDA_LIBRARY = re.compile(r"lib(cu|nccl|nvrtc|nvshmem|nvJitLink|nvToolsExt)")
CUDA_SYMBOL = re.compile(r"^(cu|__cuda|nccl|nv|_?cupti|cudnn|cufft|curand|__nv|__fat)", re.IGNORECASE)
NAMES_AN_ERROR = re.compile(
    r"^(cuda|cublas|cudnn|nvrtc|nccl|cusparse).*"
    r"(Error(String|Name)|StatusGetString|StatusName|GetStatusString|GetLastErrorString)"
)


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def system_libraries():
    """Library name to path, for what the loader already finds."""
    ldconfig = Path("/sbin/ldconfig")
    if not ldconfig.exists():
        return {}
    lines = [line for line in output_of(str(ldconfig), "-p").splitlines() if "=>" in line and "x86-64" in line]
    return {line.split()[0]: line.split("=>")[1].strip() for line in lines}


def defined_in(path):
    rows = (line.split() for line in output_of("nm", "-D", str(path)).splitlines())
    return {row[2].partition("@")[0] for row in rows if len(row) == 3}


def undefined_in(path):
    """Symbol to the set of versions asked for ("" where none)."""
    wanted = collections.defaultdict(set)
    for line in output_of("nm", "-D", str(path)).splitlines():
        row = line.split()
        if len(row) == 2 and row[0] == "U":
            base, _, version = row[1].partition("@")
            wanted[base].add(version.lstrip("@"))
    return wanted


def needed_by(path):
    return re.findall(r"NEEDED.*\[(.+?)\]", output_of("readelf", "-d", str(path)))


def version_owners(objects, missing):
    """Symbol version to the missing library it belongs to: ld.so aborts where a version is not in the library named."""
    owners = {}
    for path in objects:
        library = None
        for line in output_of("readelf", "-W", "-V", str(path)).splitlines():
            if match := re.search(r"File: (\S+)", line):
                library = match.group(1)
            elif (match := re.search(r"Name: (\S+)\s+Flags", line)) and library in missing:
                owners[match.group(1)] = library
    return owners


def body(symbol):
    # transformers asks this on every forward pass and reads the answer through the pointer.
    if symbol == "cudaStreamIsCapturing":
        return f"int {symbol}(void *stream, int *status) {{ *status = 0; return 0; }}\n"
    if NAMES_AN_ERROR.search(symbol):
        return f'const char *{symbol}(int code) {{ return "stand-in for a CUDA library"; }}\n'
    return f"int {symbol}(void) {{ return 100; }}\n"


def build(folder, library, by_version, versions):
    source, script = folder / "standin.c", folder / "standin.map"
    source.write_text("".join(body(s) for symbols in by_version.values() for s in sorted(symbols)))
    command = ["gcc", "-shared", "-fPIC", "-O1", "-w", "-fno-builtin", str(source)]
    command += [f"-Wl,-soname,{library}", "-o", str(folder / library)]
    if versions:
        blocks = (f"{v} {{ global: {' '.join(s + ';' for s in sorted(by_version.get(v, [])))} }};\n" for v in sorted(versions))
        script.write_text("".join(blocks))
        command.append(f"-Wl,--version-script={script}")
    subprocess.run(command, check=True)
    (folder / f"{library}.stand-in").touch()
    source.unlink()
    script.unlink(missing_ok=True)


def main():
    torch = Path(sys.argv[1]) / "torch"
    folder = torch / "lib"
    objects = [p for p in sorted(folder.glob("*.so*")) if p.suffix != ".stand-in" and not Path(f"{p}.stand-in").exists()]
    objects += sorted(torch.glob("_C*.so"))
    ours, system = {p.name for p in objects}, system_libraries()

    needed = list(dict.fromkeys(name for p in objects for name in needed_by(p)))
    missing = [name for name in needed if name not in ours and name not in system]
    strangers = [name for name in missing if not CUDA_LIBRARY.match(name)]
    if strangers:
        raise SystemExit(f"not CUDA libraries, yet missing: {strangers}")

    wanted = collections.defaultdict(set)
    for path in objects:
        for symbol, versions in undefined_in(path).items():
            wanted[symbol] |= versions
    have = set().union(*(defined_in(p) for p in [*objects, *(system[n] for n in needed if n in system)]))
    owners = version_owners(objects, missing)

    plan = {library: collections.defaultdict(set) for library in missing}
    for symbol, versions in wanted.items():
        owned = sorted(v for v in versions if v in owners)
        if symbol in have or symbol.startswith(("Py", "_Py")) or not (owned or CUDA_SYMBOL.match(symbol)):
            continue
        plan[owners[owned[0]] if owned else missing[0]][owned[0] if owned else ""].add(symbol)

    for library, by_version in plan.items():
        versions = {v for v, owner in owners.items() if owner == library} | {v for v in by_version if v}
        build(folder, library, by_version, versions)
        print(f"{library}: {sum(map(len, by_version.values()))} symbols, versions {sorted(versions)}")


if __name__ == "__main__":
    main()
