"""First in every interpreter that runs ours: off the path again, and the exception that ends it told.

It comes first on PYTHONPATH, from memory, as `sitecustomize`, alone or with what imports ahead behind it. Only the standard library,
Python 3.9 and later.

The exception (SUPERVISE_ENDING=FILE) is a line of JSON in memory of the guard. It is read at the very end, where the interpreter keeps
what it printed as uncaught: no hook is set, and the trainer's own hooks and handlers see nothing of it. No locals; all of it has a
bound. A process that ends in any other way (a signal, `os._exit`) leaves nothing.
"""

import atexit
import os
import sys


def hide():
    """Takes this file off the path, for this interpreter and for what it starts."""
    here = os.path.dirname(__file__)
    while here in sys.path:
        sys.path.remove(here)
    sys.path_importer_cache.pop(here, None)
    rest = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p != here]
    # An empty PYTHONPATH differs from an unset one.
    if os.environ.pop("SUPERVISE_PYTHONPATH", None) is None and not rest:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = os.pathsep.join(rest)


def next_one():
    """The site's own file of this name."""
    # Under these names they are already loaded; importlib itself would import a dozen other modules.
    import _frozen_importlib
    import _frozen_importlib_external

    spec = _frozen_importlib_external.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = _frozen_importlib.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def leave_ending(path, process):
    """Tells of the exception that ends the process, if one does."""
    if os.getpid() != process:
        # A fork, which exits on its own.
        return
    value = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if not isinstance(value, BaseException):
        return

    def word(text):
        out = []
        for c in text[:4000]:
            n = ord(c)
            if n > 0xFFFF:
                n -= 0x10000
                out.append("\\u%04x\\u%04x" % (0xD800 + (n >> 10), 0xDC00 + (n & 0x3FF)))
            else:
                out.append(c if 31 < n < 127 and c not in '"\\' else "\\u%04x" % n)
        return '"' + "".join(out) + '"'

    def one(value):
        kind = type(value)
        name = kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else kind.__module__ + "." + kind.__qualname__
        try:
            message = str(value)
        except Exception:
            message = ""
        frames = []
        trace = value.__traceback__
        while trace is not None and len(frames) < 10000:
            code = trace.tb_frame.f_code
            frames.append('{"file":%s,"line":%d,"function":%s}' % (word(code.co_filename[:400]), trace.tb_lineno or 0, word(code.co_name[:400])))
            trace = trace.tb_next
        frames = frames[:8] + frames[8:][-24:]
        return '{"type":%s,"message":%s,"frames":[%s]}' % (word(name[:400]), word(message), ",".join(frames))

    chain = []
    while value is not None and len(chain) < 4:
        chain.append(one(value))
        cause = value.__cause__
        value = cause if cause is not None or value.__suppress_context__ else value.__context__
    line = '{"pid":%d,"chain":[%s]}\n' % (process, ",".join(chain))
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    os.write(file, line.encode("ascii"))
    os.close(file)


def leave_ending_quietly(path, process):
    try:
        leave_ending(path, process)
    except BaseException:
        pass


if "SUPERVISE_ENDING" in os.environ:
    atexit.register(leave_ending_quietly, os.environ.pop("SUPERVISE_ENDING"), os.getpid())

