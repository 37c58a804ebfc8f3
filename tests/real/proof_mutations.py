"""Ways to damage a checkpoint on disk, each undone again, and which bytes a checksum inside the files covers.

A mutation is chosen by a seeded generator, so the same seed damages the same bytes. The times of files are put back:
nothing but content may tell.
"""

import io
import os
import pickle
import shutil
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path

BLOCK = 4096


def flip_bit(data, rng):
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def truncate(data, rng):
    return data[: rng.randrange(len(data))]


def truncate_little(data, rng):
    """The last bytes, as a writer without the last flush leaves it."""
    return data[: max(0, len(data) - rng.randrange(1, 65))]


def zero_block(data, rng):
    """A page that never reached the disk; of a small file a piece."""
    size = min(BLOCK, max(1, len(data) // 4))
    at = rng.randrange(len(data)) // size * size
    return data[:at] + bytes(min(size, len(data) - at)) + data[at + size :]


def zero_tail(data, rng):
    """The length is right, the rest is not written: delayed allocation and a power failure."""
    at = rng.randrange(len(data))
    return data[:at] + bytes(len(data) - at)


def duplicate_over(data, rng):
    """A range is written a second time, over another."""
    size = rng.randrange(1, max(2, len(data) // 2))
    source, target = rng.randrange(len(data) - size + 1), rng.randrange(len(data) - size + 1)
    return data[:target] + data[source : source + size] + data[target + size :]


def duplicate_in(data, rng):
    """A range is written twice, and what follows moves."""
    size = rng.randrange(1, max(2, len(data) // 2))
    at = rng.randrange(len(data) - size + 1)
    return data[: at + size] + data[at:]


def cut_out(data, rng):
    """A range is missing, and what follows moves."""
    size = rng.randrange(1, max(2, len(data) // 2))
    at = rng.randrange(len(data) - size + 1)
    return data[:at] + data[at + size :]


def extend(data, rng):
    size = rng.randrange(1, BLOCK)
    return data + (bytes(size) if rng.random() < 0.5 else rng.randbytes(size))


def empty(data, rng):
    return b""


BYTES = {
    mutate.__name__: mutate
    for mutate in (
        flip_bit, truncate, truncate_little, zero_block, zero_tail, duplicate_over, duplicate_in, cut_out, extend, empty,
    )
}  # fmt: skip
HEADERS = {
    "version": (None, b"", b"x", b"0\n", b"11\n", b"-3\n", b"3", b"10\n"),
    "byteorder": (None, b"", b"little\n", b"Little", b"native"),
    ".storage_alignment": (None, b"", b"x", b"64.0", b"0x40", b"6__4", b"4096"),
    ".format_version": (None, b"", b"x"),
    ".data/serialization_id": (None, b"", b"x"),
}
REFERENCES = ((b"storageq", b"storagxq"), (b"\x00\x00\x00cpuq", b"\x00\x00\x00cpxq"), (b"tq", b"lq"), (b"FloatStorage", b"FloatStoraga"))


def other_entry(data, rng):
    """An archive written anew, each checksum right: one of torch's small entries is missing or says something else."""
    name = rng.choice(sorted(HEADERS))
    value = rng.choice(HEADERS[name])
    return rewritten(data, lambda entry, content: value if entry.split("/", 1)[-1] == name else content)


def other_reference(data, rng):
    """The same with a storage named in another way."""
    before, after = rng.choice(REFERENCES)
    return rewritten(data, lambda entry, content: content.replace(before, after, 1) if entry.endswith("/data.pkl") else content)


def rewritten(data, change):
    if not data.startswith(b"PK\x03\x04"):
        return data
    out = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w") as target:
            for name in source.namelist():
                content = change(name, source.read(name))
                if content is not None:
                    target.writestr(name, content)
    except zipfile.BadZipFile:
        return data
    return out.getvalue()


CRAFTED = {mutate.__name__: mutate for mutate in (other_entry, other_reference)}
FILES = ("delete", "swap", "other_step")


def choose(root, rng):
    """A bit is the smallest damage and the hardest to see, so it is done more often; a lone file has nothing to swap."""
    kinds = ["flip_bit"] * 4 + list(BYTES)
    if any(path.suffix == ".pt" for path in files_of(root)):
        kinds += list(CRAFTED) * 2
    return rng.choice([*kinds, "other_step"] if root.is_file() else [*kinds, *FILES])


class Saved:
    """A file's content and times, to be put back."""

    def __init__(self, path):
        self.path, self.data = path, path.read_bytes()
        info = path.stat()
        self.times = (info.st_atime_ns, info.st_mtime_ns)

    def write(self, data):
        self.path.write_bytes(data)
        os.utime(self.path, ns=self.times)

    def restore(self):
        self.write(self.data)


class Mutation:
    """One damage to a folder or a file; `apply` is a context in which it stands."""

    def __init__(self, root, other, kind, rng, paths=None):
        """`other` is the same checkpoint of another step; `paths` are the files to choose from, if not all."""
        self.kind, self.files = kind, {}
        self.saved = []
        paths = paths or files_of(root)
        # Small files are as likely as large ones: in the large ones most bytes are the same kind.
        path = rng.choice(paths)
        self.path = path
        if kind in BYTES:
            data = path.read_bytes()
            self.files[path] = BYTES[kind](data, rng) if data else b"\0"
        elif kind in CRAFTED:
            path = self.path = rng.choice([p for p in paths if p.suffix == ".pt"] or paths)
            self.files[path] = CRAFTED[kind](path.read_bytes(), rng)
        elif kind == "delete":
            self.files[path] = None
        elif kind == "other_step":
            self.files[path] = (other if root.is_file() else other / path.relative_to(root)).read_bytes()
        elif kind == "swap":
            alike = [p for p in paths if p.suffix == path.suffix and p != path] or [path]
            second = rng.choice(alike)
            self.files[path], self.files[second] = second.read_bytes(), path.read_bytes()

    @contextmanager
    def apply(self):
        self.saved = [Saved(path) for path in self.files]
        try:
            for saved in self.saved:
                data = self.files[saved.path]
                if data is None:
                    saved.path.unlink()
                else:
                    saved.write(data)
            yield
        finally:
            for saved in self.saved:
                saved.restore()

    def changes_anything(self):
        return any(data is None or data != path.read_bytes() for path, data in self.files.items())

    def breaks_a_checksum(self):
        """Whether a byte that a CRC covers is another one now, in a file that is otherwise as long as it was."""
        if self.kind not in BYTES:
            return False
        before, after = self.path.read_bytes(), self.files[self.path]
        return any(before[a:b] != after[a:b] for a, b in covered(self.path, before))


def files_of(root):
    """All files, in a fixed order; a checkpoint that is one file is itself."""
    return [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.is_file())


def covered(path, data):
    """The ranges of a file that a CRC in it covers."""
    if path.suffix == ".pt":
        return zip_ranges(path, data, 0)
    if path.suffix == ".distcp":
        return [found for offset, length in stored(path) for found in zip_ranges(path, data[offset : offset + length], offset)]
    return []


def stored(path):
    """Offset and length of each entry of a .distcp file, as the metadata beside it says."""
    found = []
    for name in (".metadata", f"__{path.name.split('_')[2]}.metadata"):
        if (path.parent / name).exists():
            for info in pickle.loads((path.parent / name).read_bytes()).storage_data.values():
                if info.relative_path == path.name and not info.transform_descriptors:
                    found.append((info.offset, info.length))
    return found


def zip_ranges(path, data, base):
    """Content of each entry of a zip archive that has a real CRC."""
    if not data.startswith(b"PK"):
        return []
    found = []
    for entry in zipfile.ZipFile(io.BytesIO(data)).infolist():
        at = entry.header_offset
        names = int.from_bytes(data[at + 26 : at + 28], "little") + int.from_bytes(data[at + 28 : at + 30], "little")
        start = at + 30 + names
        if zlib.crc32(data[start : start + entry.compress_size]) == entry.CRC:
            found.append((base + start, base + start + entry.compress_size))
    return found


def copy_of(root, target):
    """A copy to damage, times included."""
    if root.is_file():
        target.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy2(root, target / root.name))
    return Path(shutil.copytree(root, target / root.name))
