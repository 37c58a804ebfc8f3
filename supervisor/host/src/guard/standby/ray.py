

class NotingWorker(Noting):
    """In a worker that Ray started: what it was started with, and what it imports, among the notes of the driver."""

    def open(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self.state = os.fstat(self.file)
        # Workers that Ray keeps idle for any job import little, and there may be hundreds.
        if os.environ.get("RAY_JOB_ID") == "ffffffff" or self.state.st_size > NOTES:
            raise OSError
        self.left = NOTES_OF_ONE
        self.prefix = f"w{self.process} "
        self.write(f"b {self.process} {time.time()}")
        words = own_words()
        for word in words[: main_at(words) + 1]:
            self.write("c " + word)
        for key, value in os.environ.items():
            if not key.startswith("SUPERVISE_"):
                # A variable cannot contain NUL.
                self.write("E " + f"{key}={value}".replace("\n", "\0"))

    def put(self, line):
        self.left -= len(line)
        if self.left < 0:
            raise OSError
        super().put(line)

    def goes_on(self):
        env, path, states, given = self.after
        # Ray puts the driver's paths first. They stay the worker's own: nothing is pre-imported from them.
        new = len(sys.path) - len(path or sys.path)
        if new > 0 and sys.path[new:] == path:
            for place in reversed(sys.path[:new]):
                self.write("p " + place)
            self.after = env, list(sys.path), states, given
        return super().goes_on()


class Forking(Ahead):
    """Imports ahead what the workers of Ray imported, and is forked for each of them."""

    def replays(self, key, value, text, initial):
        # Variables that differ between workers were left out.
        return True

    def import_ahead(self):
        import random
        import socket

        if not hasattr(os, "pidfd_open"):
            self.be_unfit("this Python has no os.pidfd_open")
        # These variables are not set now, except one that stands for another. An import that iterates over all variables seeks others.
        differs = set(self.draft["differs"]) - {"RAY_RAYLET_PID"}
        for name in differs:
            # Devices are read at their first use, not by an import.
            if name.startswith(OF_LIBRARIES) and name != "CUDA_VISIBLE_DEVICES":
                self.be_unfit(f"{name} is not the same in all workers of Ray: if it is set to 1 for all, they can be")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind("\0" + self.draft["forks"])
        self.initial, self.unseeded, self.looked = dict(os.environ), [], 0
        read, before, seeded = set(), [], []
        variables, generators = type(os.environ), random.Random
        kept = variables.__getitem__, generators.seed, random.seed

        def getitem(environ, key):
            read.add(os.fsdecode(key))
            return kept[0](environ, key)

        def seed(generator, a=None, *version, **named):
            # A module's own generator without a given seed must differ between processes.
            self.unseeded[:] = [other for other in self.unseeded if other is not generator]
            if a is None:
                self.unseeded.append(generator)
            return kept[1](generator, a, *version, **named)

        def seed_all(*a, **named):
            seeded.append(True)
            return kept[2](*a, **named)

        def importing():
            states = random_states()
            states.pop("random", None)
            before[:] = states, own_state(), open_files()
            read.clear()
            seeded.clear()

        def imported(name):
            states, state, files = before
            if read & differs:
                self.leave(name, f"{name} reads {min(read & differs)}, which is not the same in all workers of Ray")
            if seeded or changed(states, random_states()):
                self.leave(name, f"{name} seeds a generator, or draws random numbers")
            if own_state() != state or open_files() - files:
                self.leave(name, f"{name} opens files that stay open, or changes the process")
            if not is_alone():
                self.be_unfit(f"the import of {name} started a thread (numpy's starts none where OMP_NUM_THREADS is 1)")

        self.importing, self.imported = importing, imported
        variables.__getitem__, generators.seed, random.seed = getitem, seed, seed_all
        try:
            super().import_ahead()
        finally:
            variables.__getitem__, generators.seed, random.seed = kept

    def run(self):
        driver = self.wait_for_order()["beside"]
        self.become_known()
        sys.stdout.flush()
        sys.stderr.flush()
        self.serve(driver)

    def serve(self, driver):
        """Returns in the workers alone."""
        import select

        null = os.open(os.devnull, os.O_WRONLY)
        for fd in (1, 2):
            os.dup2(null, fd)
        os.close(null)
        self.listener.listen(128)
        gone = os.pidfd_open(driver)
        poll = select.poll()
        for fd in (gone, self.channel, self.listener.fileno()):
            poll.register(fd, select.POLLIN)
        workers = {}
        while True:
            for fd, _ in poll.poll():
                if fd in workers:
                    os.waitpid(workers.pop(fd), 0)
                    poll.unregister(fd)
                    os.close(fd)
                elif fd == self.listener.fileno():
                    link = self.listener.accept()[0]
                    try:
                        worker = self.fork(link)
                    except Exception:
                        worker = None
                    if worker == 0:
                        for other in (gone, self.channel, self.listener.detach(), *workers):
                            os.close(other)
                        return
                    link.close()
                    if worker:
                        end = os.pidfd_open(worker)
                        workers[end] = worker
                        poll.register(end, select.POLLIN)
                else:
                    # The driver or the guard has exited: there is no one to fork for.
                    os._exit(0)

    def fork(self, link):
        """Pid of a worker for the one that asks; 0 in it; `None` where it shall start by itself."""
        if not is_mine(link):
            return None
        link.settimeout(2)
        given, fds = heard_from(link)
        try:
            if given["command"] != self.words[: self.at + 1] or not self.fits(given["env"]) or not self.are_as_seen():
                return None
            if not is_alone() or opened_gpu():
                return None
            worker = os.fork()
            if worker == 0:
                try:
                    self.become(given, fds, link)
                except BaseException:
                    # Without an answer, the process that asked starts the worker itself.
                    os._exit(70)
            return worker
        finally:
            for fd in fds:
                os.close(fd)

    def become(self, given, fds, link):
        for key in {*self.initial, *os.environ}:
            # An import changed it.
            if os.environ.get(key) != self.initial.get(key):
                given["env"][key] = os.environ.get(key)
        take(given, fds)
        for generator in self.unseeded:
            generator.seed()
        sys.argv[1:] = given["arguments"]
        if hasattr(sys, "orig_argv"):
            sys.orig_argv[1:] = [*self.words[1 : self.at + 1], *given["arguments"]]
        link.settimeout(10)
        link.sendall(b"+")
        if link.recv(1) != b"+":
            # The process that asked timed out, and is the worker itself.
            os._exit(70)
        link.close()

    def fits(self, env):
        mine, differs = self.initial, self.draft["differs"]
        theirs = lambda key: key in differs or key in OF_SHELLS or key.startswith("SUPERVISE_")
        others = [key for key in {*env, *mine} if not theirs(key) and env.get(key) != mine.get(key)]
        if others and env.get("RAY_JOB_ID") == mine.get("RAY_JOB_ID"):
            # The next standby is made without them.
            with open(self.draft["refused"], "ab", 0) as f:
                f.write("".join(f"v {key}\n" for key in sorted(others)).encode("utf-8", "surrogateescape"))
        return not others

    def are_as_seen(self):
        """Looked at for all that ask within a second."""
        if time.monotonic() - self.looked > 1:
            if any(identity(path) != state for path, state in self.seen.items()):
                return False
            self.looked = time.monotonic()
        return True


def is_alone():
    """Returns whether this thread is the only one that a fork would miss."""
    for thread in os.listdir("/proc/self/task"):
        if int(thread) != os.getpid():
            with open(f"/proc/self/task/{thread}/comm") as f:
                # pyarrow's allocator handles forks itself.
                if f.read().strip() != "jemalloc_bg_thd":
                    return False
    return True


def is_mine(link):
    """Returns whether a process of this user is at the other end: the names of such sockets are everybody's."""
    import socket
    import struct

    pid, uid, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    # A process of another container has pid 0 here.
    return pid != 0 and uid == os.getuid()


def open_files():
    """What is open: links of descriptors, but for the one by which they are read."""
    links = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.add(fd + " " + os.readlink("/proc/self/fd/" + fd))
        except OSError:
            pass
    return links


def heard_from(link):
    """What a process is to be started with, and its open files."""
    import array
    import json
    import socket

    fds = array.array("i")
    head, aside, *_ = link.recvmsg(8, socket.CMSG_SPACE(len(FILES) * fds.itemsize), socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in aside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    try:
        left = int.from_bytes(head, "little")
        if len(head) != 8 or len(fds) != len(FILES) or left > REQUEST:
            raise ValueError
        parts = []
        while left:
            part = link.recv(left)
            if not part:
                raise ValueError
            parts.append(part)
            left -= len(part)
        return json.loads(b"".join(parts)), list(fds)
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise


# Standard streams and the working directory.
FILES = (0, 1, 2, ".")
# Read by native code when a library is loaded, not by Python.
OF_LIBRARIES = tuple("ARROW_ CUDA_ GLIBC_ GOMP_ GRPC_ KMP_ LC_ LD_ MALLOC_ MKL_ NCCL_ OMP_ OPENBLAS_ PYTHON PYTORCH_ TF_ TORCH_ TZ".split())
# Set by the shell through which Ray starts a worker.
OF_SHELLS = ("_", "OLDPWD", "PWD", "SHLVL")
REQUEST = 16 << 20
# Bytes of all notes, beyond which no worker starts noting, and of one worker's notes.
NOTES = 8 << 20
NOTES_OF_ONE = 1 << 20
LIMITS = "AS CORE CPU DATA FSIZE MEMLOCK MSGQUEUE NICE NOFILE NPROC RSS RTPRIO RTTIME SIGPENDING STACK".split()


def own_state():
    """What a process has from the one that started it, beside its environment and its open files."""
    import resource
    import signal

    umask = os.umask(0)
    os.umask(umask)
    with open("/proc/self/oom_score_adj") as f:
        oom = int(f.read())
    # The interpreter itself sets handlers for SIGPIPE and SIGINT.
    ignored = [n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN]
    return {
        "umask": umask,
        "limits": {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name)) for name in LIMITS if hasattr(resource, "RLIMIT_" + name)},
        "processors": sorted(os.sched_getaffinity(0)),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "oom": oom,
        "ignored": [int(n) for n in ignored],
        "blocked": [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        "leads": os.getpgrp() == os.getpid(),
    }


def take(given, fds):
    """Takes the place of the process that asked."""
    import resource
    import signal

    for number, fd in zip(FILES[:3], fds):
        os.dup2(fd, number)
    os.fchdir(fds[3])
    state, mine = given["state"], own_state()
    os.umask(state["umask"])
    if state["leads"]:
        os.setpgid(0, 0)
    for name, limits in state["limits"].items():
        if limits != list(mine["limits"][name]):
            resource.setrlimit(getattr(resource, "RLIMIT_" + name), tuple(limits))
    if state["processors"] != mine["processors"]:
        os.sched_setaffinity(0, state["processors"])
    if state["nice"] != mine["nice"]:
        os.setpriority(os.PRIO_PROCESS, 0, state["nice"])
    if state["oom"] != mine["oom"]:
        with open("/proc/self/oom_score_adj", "w") as f:
            f.write(str(state["oom"]))
    for n in set(state["ignored"]) ^ set(mine["ignored"]):
        signal.signal(n, signal.SIG_IGN if n in state["ignored"] else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, state["blocked"])
    os.environ.clear()
    os.environ.update({key: value for key, value in given["env"].items() if value is not None})
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        # A new interpreter has its own seed; `random` reseeds itself after a fork.
        numpy.seed()


def worker_words(words, env):
    """Command and arguments of the worker that this process is to become, its environment changed as Ray's `setup_worker.py` does."""
    import json
    import re

    at = main_at(words)
    if os.path.basename(words[at]) == "default_worker.py":
        return words[: at + 1], words[at + 1 :]
    context, rest = {}, []
    for word in words[at + 1 :]:
        name, _, value = word.partition("=")
        if name == "--serialized-runtime-env-context":
            context = json.loads(value)
        elif name != "--language":
            rest.append(word)
        elif value != "PYTHON":
            return None
    for name, value in (context.pop("env_vars", None) or {}).items():
        env[name] = re.sub(r"\$\{[A-Z0-9_]+\}", "", expanded(value, env))
    program = context.pop("py_executable", None) or sys.executable
    if any(context.values()) or not rest or os.path.basename(rest[0]) != "default_worker.py":
        return None
    return [program, rest[0]], rest[1:]


def expanded(value, env):
    """As `os.path.expandvars`, in an environment that is not there yet."""
    kept = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(env)
        return os.path.expandvars(value)
    finally:
        os.environ.clear()
        os.environ.update(kept)


def ask_for_fork(name, words, env):
    """Ends this process where the interpreter that waits was forked in its place."""
    import array
    import json
    import socket

    found = worker_words(words, env)
    if found is None:
        return
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(10)
        link.connect("\0" + name)
        if not is_mine(link):
            return
        directory = os.open(".", os.O_PATH)
        request = json.dumps({"command": found[0], "arguments": found[1], "env": env, "state": own_state()}).encode()
        fds = array.array("i", [*FILES[:3], directory])
        link.sendmsg([len(request).to_bytes(8, "little")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        link.sendall(request)
        os.close(directory)
        if link.recv(1) == b"+":
            link.sendall(b"+")
            os._exit(0)


def begin_worker():
    """In what a driver's Ray started: a worker, or what becomes one; all else is left alone."""
    kept = dict(os.environ)
    hide()
    notes, forks = os.environ.pop("SUPERVISE_RAY", None), os.environ.pop("SUPERVISE_FORKS", None)
    words = own_words()
    at = main_at(words)
    kind = os.path.basename(words[at]) if at is not None else None
    if kind not in ("setup_worker.py", "default_worker.py") or os.path.basename(os.path.dirname(words[at])) != "workers":
        next_one()
        return
    if forks is not None:
        try:
            ask_for_fork(forks, words, dict(os.environ))
        except Exception:
            pass
    if kind == "setup_worker.py":
        # This process becomes the worker, which must not ask again.
        os.environ.update({k: v for k, v in kept.items() if k != "SUPERVISE_FORKS"})
    next_one()
    if kind == "default_worker.py":
        try:
            sys.meta_path.insert(0, NotingWorker(notes))
        except Exception:
            pass
