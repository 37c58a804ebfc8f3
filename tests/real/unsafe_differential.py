"""Compares what `supervise verify` says about dangerous files with what torch.load does with them.

usage: unsafe_differential.py PROGRAMS      (PROGRAMS: the folder with the built `supervise`)

Every payload leaves a mark when it runs: it makes a file in a folder made for it. Each is loaded by real torch with
weights_only=False, as verl loads, in a process of its own. Two things must hold: nothing that left a mark was called
whole, and what was called whole (the fixtures, and harmless files that look alike) does nothing a loader has no business
with: no program, no connection, no file opened for writing. (Code compiled from strings tells nothing: torch's own modules do
that while they are imported.)
Ends with 1 where that does not hold, or where a payload that should run no longer does.
"""

import argparse
import contextlib
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

import numpy
import torch

warnings.simplefilter("ignore")
ROOT = Path(__file__).resolve().parents[2]
TOUCH = "touch mark"
WRITE = "open('mark', 'w').close()"


def text(value):
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def value(item):
    """Opcodes for a plain value or an imported name."""
    if isinstance(item, Name):
        return b"c" + item.module.encode() + b"\n" + item.name.encode() + b"\n"
    return pickle.dumps(item, protocol=2)[2:-1]


class Name:
    def __init__(self, path):
        self.module, self.name = path.rsplit(" ", 1)


def call(path, *args):
    return value(Name(path)) + b"(" + b"".join(value(a) if not isinstance(a, Raw) else a.code for a in args) + b"tR"


def call_with(path, arguments):
    """The same with arguments that the pickle computes."""
    return value(Name(path)) + arguments + b"R"


def listed(*items):
    return b"](" + b"".join(value(item) for item in items) + b"e"


def imported(*names):
    """A list of things by their dotted names, made by a loader of torch that calls a function of torch."""
    return call("builtins list", Raw(call("torch.utils.data DataLoader", list(names), None, None, None, None, 0, Name("torch._utils _import_dotted_name"))))


def setter_by(function):
    """The same with what `function` gives."""
    return setter_of(b"}" + text("__setstate__") + function + b"s")


def setter_of(attributes):
    """An object gets attributes through a state that is computed, a `__setstate__` among them; then state that it is called with."""
    state = call("collections Counter", Raw(attributes))
    return b"\x80\x02cargparse\nNamespace\n)\x81" + state + b"b" + value(TOUCH) + b"b."


def builtin_type():
    """A name in torch for the type of `os.system`, which is on no list of bad names."""
    for module in sorted(name for name in sys.modules if name.startswith("torch.") and name.isascii()):
        for name, found in sorted(vars(sys.modules[module]).items()):
            if found is type(os.system) and name[0].isupper():
                return Name(f"{module} {name}")
    return Name("types BuiltinFunctionType")


class Raw:
    def __init__(self, code):
        self.code = code


def stacked(module, name, *args):
    return text(module) + text(name) + b"\x93(" + b"".join(value(a) for a in args) + b"tR"


def archive(data_pkl, names=("archive/data.pkl",), first=(), extra=(), before=b"", flags=0, spoil_crc=False):
    """A stored archive as torch accepts it."""
    out = io.BytesIO()
    out.write(before)
    with zipfile.ZipFile(out, "a" if before else "w") as zipped:
        for name, data in first:
            zipped.writestr(name, data)
        for name in names:
            info = zipfile.ZipInfo(name)
            zipped.writestr(info, data_pkl)
        for name, data in (("archive/byteorder", b"little"), ("archive/version", b"3\n"), *extra):
            zipped.writestr(name, data)
    file = bytearray(out.getvalue())
    if flags:
        file[6] |= flags
        at = file.find(b"PK\x01\x02")
        file[at + 8] |= flags
    if spoil_crc:
        for at, field in ((0, 14), (file.find(b"PK\x01\x02"), 16)):
            file[at + field] ^= 0xFF
    return bytes(file)


def payloads():
    """(name, file, whether torch runs it)."""
    system = call("posix system", TOUCH)
    code = call("builtins compile", WRITE, "x", "exec")
    ops = {
        "global": system + b".",
        "stack_global": b"\x80\x04" + stacked("posix", "system", TOUCH) + b".",
        "names_through_memo": b"\x80\x04" + text("posix") + b"q\x00" + text("system") + b"q\x0100h\x00h\x01\x93(" + value(TOUCH) + b"tR.",
        "put_and_memoize_mixed": b"\x80\x04" + text("posix") + b"q\x00" + text("system") + b"q\x01" + text("torch") + b"\x94" + text("Size") + b"\x940000h\x00h\x01\x93(" + value(TOUCH) + b"tR.",
        "unicode_escapes": b"Vp\\u006fsix\nVs\\u0079stem\n\x93(" + value(TOUCH) + b"tR.",
        "string_escapes": b"S'p\\x6fsix'\nS's\\171stem'\n\x93(" + value(TOUCH) + b"tR.",
        "inst": b"(" + value(TOUCH) + b"iposix\nsystem\n.",
        "obj": b"(cposix\nsystem\n" + value(TOUCH) + b"o.",
        "subprocess": call("subprocess call", TOUCH.split()) + b".",
        "popen_made_and_built": call("subprocess Popen", TOUCH.split()) + b".",
        "eval": call("builtins eval", WRITE) + b".",
        "exec": call("builtins exec", WRITE) + b".",
        "exec_of_python_2": call("__builtin__ eval", WRITE) + b".",
        "commands_of_python_2": b"\x80\x02" + call("commands getoutput", TOUCH) + b".",
        "getattr": call("builtins getattr", Raw(call("builtins __import__", "os")), "system") + b"(" + value(TOUCH) + b"tR.",
        "attrgetter": call("operator attrgetter", "system") + b"(" + call("importlib import_module", "os") + b"tR(" + value(TOUCH) + b"tR.",
        "partial": call("functools partial", Name("posix system"), TOUCH) + b")R.",
        "map": call("builtins list", Raw(call("builtins map", Name("posix system"), [TOUCH]))) + b".",
        "reduce": call("functools reduce", Name("posix system"), [TOUCH]) + b".",
        "starmap": call("builtins list", Raw(call("itertools starmap", Name("posix system"), [(TOUCH,)]))) + b".",
        "defaultdict": call("collections defaultdict", Name("posix system")) + b".",
        "setstate_in_state": b"\x80\x02cargparse\nNamespace\n)\x81}" + text("__setstate__") + b"cposix\nsystem\nsb" + value(TOUCH) + b"b.",
        "append_in_state": b"\x80\x02cargparse\nNamespace\n)\x81}" + text("append") + b"cposix\nsystem\nsb" + value(TOUCH) + b"a.",
        "extend_in_state": b"\x80\x02cargparse\nNamespace\n)\x81}" + text("extend") + b"cposix\nsystem\nsb(" + value("x") + b"e.",
        "rebuild_calls_it": call("torch._tensor _rebuild_from_type_v2", Name("posix system"), Name("builtins int"), (TOUCH,), None) + b".",
        "dotted_name": b"\x80\x04" + stacked("torch", "serialization.os.system", TOUCH) + b".",
        "module_kept_by_another": b"\x80\x04" + stacked("random", "_os.system", TOUCH) + b".",
        "runpy": call("runpy _run_code", Raw(code), {}) + b".",
        "types": call("types FunctionType", Raw(code), {}) + b")R.",
        "timeit": call("timeit timeit", WRITE, "pass", Name("timeit default_timer"), 1) + b".",
        "profile": call("cProfile run", WRITE) + b".",
        "pdb": call("bdb Bdb.run", None, WRITE) + b".",
        "bdb": b"\x80\x04" + text("bdb") + text("Bdb.run") + b"\x93(" + call("bdb Bdb") + value(WRITE) + b"tR.",
        "trace": b"\x80\x04" + text("trace") + text("Trace.run") + b"\x93(" + call("trace Trace", 0, 0) + value(WRITE) + b"tR.",
        "doctest": call("doctest debug_script", "import os\n" + WRITE) + b".",
        "code": b"\x80\x04" + text("code") + text("InteractiveInterpreter.runcode") + b"\x93(" + call("code InteractiveInterpreter") + code + b"tR.",
        "pydoc": call("pydoc pipepager", "x", TOUCH) + b".",
        "distutils": call("distutils.file_util write_file", "mark", ["x"]) + b".",
        "imaplib": call("imaplib IMAP4_stream", TOUCH) + b".",
        "uuid": call("uuid _get_command_stdout", "touch", "mark") + b".",
        "osx_support": call("_osx_support _read_output", TOUCH) + b".",
        "multiprocessing": call("multiprocessing.util spawnv_passfds", b"/bin/touch", ["touch", "mark"], ()) + b".",
        "logging": call("logging FileHandler", "mark") + b".",
        "io": call("_io FileIO", "mark", "w") + b".",
        "shelve": call("shelve open", "mark") + b".",
        "lib2to3": b"\x80\x04" + text("lib2to3.pgen2.grammar") + text("Grammar.loads") + b"\x93(" + call("lib2to3.pgen2.grammar Grammar") + value(system + b".") + b"tR.",
        "dataclasses": call("dataclasses _create_fn", "f", [], ["pass"], Raw(value({})), Raw(value({}))) + b".",
        "typing": call("typing get_type_hints", Raw(b"cargparse\nNamespace\n)\x81")) + b".",
        "numpy_runstring": call("numpy.testing._private.utils runstring", WRITE, {}) + b".",
        "numpy_f2py": call("numpy.f2py.crackfortran myeval", "__import__('os').system('touch mark')", {}, {}) + b".",
        "numpy_save": call("numpy save", "mark", [1]) + b".",
        "torch_load_from_bytes": call("torch.storage _load_from_bytes", Raw(value(LEGACY))) + b".",
        "torch_collect_env": call("torch.utils.collect_env run", TOUCH) + b".",
        "torch_exec_wrapper": call("torch.jit.unsupported_tensor_ops execWrapper", WRITE, {}, {}) + b".",
        "torch_writer": call("torch._C PyTorchFileWriter", "mark") + b".",
        "torch_config": b"\x80\x04" + text("torch._dynamo.config") + text("load_config") + b"\x93(" + value(system + b".") + b"tR.",
        "pickle": call("pickle loads", system + b".") + b".",
        "dill": call("dill loads", system + b".") + b".",
        "cloudpickle": call("cloudpickle loads", system + b".") + b".",
        "pandas": call("pandas eval", "@__builtins__") + b".",
        "hydra_locate": call("hydra._internal.utils _locate", "posix.system") + b"(" + value(TOUCH) + b"tR.",
        "hydra_instantiate": call("hydra.utils instantiate", {"_target_": "posix.system", "_args_": [TOUCH]}) + b".",
        "sympy": call("sympy sympify", "__import__('os').system('touch mark')") + b".",
        "computed_arguments": setter_by(call_with(
            "torch._tensor _rebuild_from_type_v2",
            call("builtins tuple", Raw(listed(Name("torch._utils _import_dotted_name"), builtin_type(), ("os.system",), None))),
        )),
        "dotted_name_by_torch": call("torch._utils _import_dotted_name", "os.system") + b"(" + value(TOUCH) + b"tR.",
        "loader_with_a_function": setter_of(call("builtins dict", Raw(b"](" + imported("torch.Tensor.__setstate__.__name__", "os.system") + b"e"))),
        "allocator_of_a_library": call("torch.cuda.memory CUDAPluggableAllocator", "libm.so.6", "sin", "cos") + b".",
        "model_of_a_library": call("torch._C._aoti AOTIModelContainerRunnerCpu", "libm.so.6", 1) + b".",
        "logger_changed": call("logging getLogger", "root") + b"}" + text("disabled") + b"\x88sb.",
        "computed_state": b"cargparse\nNamespace\n)\x81" + call("collections Counter", Raw(b"}" + text("lr") + b"K\x01s")) + b"b.",
        "bytearray_of_a_size": call("builtins bytearray", 1 << 46) + b".",
        "array_of_a_size": call("numpy._core.multiarray _reconstruct", Name("numpy ndarray"), (1 << 46,), b"b") + b".",
        "before_a_broken_stream": system + b"\xff",
        "before_the_end": system,
        "dropped_again": system + b"0}.",
        "in_a_persistent_id": b"\x80\x02(" + text("storage") + system + b"tQ.",
    }
    # Payloads that fail before their mark, or leave none; they are judged all the same.
    quiet = {"allocator_of_a_library", "model_of_a_library", "logger_changed", "computed_state", "bytearray_of_a_size", "array_of_a_size"}
    quiet |= {"reduce", "hydra_instantiate", "pdb", "dataclasses", "typing", "pandas", "defaultdict", "extend_in_state", "doctest"}
    for name, data_pkl in ops.items():
        yield name, archive(data_pkl), None if name in quiet else True
    evil, good = system + b".", value({"a": 1}) + b"."
    yield "pickle_of_another_case", archive(evil, names=("archive/DATA.PKL",)), True
    yield "two_cases", archive(good, first=(("archive/Data.pkl", evil),)), True
    yield "two_folders", archive(good, first=(("other/data.pkl", evil),)), None
    yield "said_to_be_encrypted", archive(evil, flags=1), None
    yield "wrong_checksum", archive(evil, spoil_crc=True), True
    yield "pickle_before_the_archive", archive(good, before=evil), True
    yield "legacy", LEGACY, True
    yield "bare_pickle", evil, True
    yield "after_the_end", archive(good + evil), False


LEGACY = b"".join(pickle.dumps(x, protocol=2) for x in (0x1950A86A20F9469CFC6C, 1001)) + call("posix system", TOUCH) + b"."


def harmless():
    """Files that must be whole, and do nothing: everything that real trainers wrote, and look-alikes."""
    for path in sorted((ROOT / "tests/fixtures").rglob("*.pt")):
        yield str(path.relative_to(ROOT)), path.read_bytes()
    for path in sorted((ROOT / "supervisor/checkpoint/tests").glob("torch-2.*/*.pt")):
        if path.stem not in ("legacy", "script", "failed", "module"):
            yield str(path.relative_to(ROOT)), path.read_bytes()
    yield "words_in_strings", archive(value({"os": "system", "posix": "eval"}) + b".")
    yield "array", archive(pickle.dumps(numpy.arange(9), protocol=4))


WATCHED = {"os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect", "socket.bind", "ctypes.dlopen"}


def load(path, folder):
    """Loads in a process of its own; gives whether it left a mark and what it did that a loader has no business with."""
    note = folder / "note"
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in 0, 1, 2:
            os.dup2(null, fd)
        seen = []

        def hook(event, args):
            writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
            if event in WATCHED or writes:
                seen.append(f"{event} {str(args)[:80]}")

        status = 0
        try:
            sys.addaudithook(hook)
            torch.load(path, weights_only=False)
        except BaseException:
            status = 1
        # A payload may start a program without waiting for it: its mark is made before the verdict is read.
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        done = list(seen)
        try:
            note.write_text(json.dumps(done))
        finally:
            os._exit(status)
    os.waitpid(child, 0)
    mark = any((folder / name).exists() for name in ("mark", "mark.db", "mark.npy", "mark.dat"))
    return mark, json.loads(note.read_text()) if note.exists() else ["ended early"]


def verdicts(programs, folder, files):
    paths = [folder / f"{number}.pt" for number in range(len(files))]
    for path, file in zip(paths, files):
        path.write_bytes(file)
    done = subprocess.run([programs / "supervise", "verify", "--json", "--depth", "full", *paths], capture_output=True, text=True, check=False)
    answers = {Path(p["path"]).name: p["files"][0]["verdict"] for p in json.loads(done.stdout)["paths"]}
    return [(path, answers[path.name]) for path in paths]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=Path)
    parser.add_argument("--show", action="store_true", help="one line for every file")
    options = parser.parse_args()
    bad, ran = [], 0
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        cases = [(name, file, runs, True) for name, file, runs in payloads()]
        cases += [(name, file, False, False) for name, file in harmless()]
        judged = verdicts(options.programs.resolve(), work, [case[1] for case in cases])
        for (name, _, runs, dangerous), (path, verdict) in zip(cases, judged):
            folder = work / f"{path.stem}.folder"
            folder.mkdir()
            mark, seen = load(path, folder)
            ran += mark
            if options.show:
                print(f"{name:45} {verdict:10} {'ran' if mark else '-':4} {seen[:2]}")
            if verdict == "whole" and (mark or seen or dangerous):
                bad.append(f"{name} is called whole: mark {mark}, did {seen[:3]}")
            if runs is not None and mark != runs:
                bad.append(f"{name} was expected to {'run' if runs else 'do nothing'}: {seen[:3]}")
            if not dangerous and verdict == "unsafe":
                bad.append(f"{name} is called unsafe")
    print(f"{len(cases)} files, {ran} payloads ran in torch {torch.__version__}, none of them was called whole" if not bad else "\n".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
