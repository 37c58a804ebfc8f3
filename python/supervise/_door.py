"""Answers at each step boundary whether the supervisor asks for a save, on all ranks alike.

Rank 0 reads one small file and publishes its answer in the process group's own store, where the other ranks read it. No signal, no
collective, no work for a GPU. `supervise` also runs this file in trainers that it knows, so it uses only the standard library and
imports little before it is asked.
"""

# mypy: ignore-errors

import os
import sys
import time


class SaveDoor:
    """`path` is the file that a request is renamed to. `group` returns the process group: store, rank, world size, seconds until a collective gives up."""

    PREFIX = "supervise/save/"
    # One wait in the store. It holds a lock that other threads of a backend may want.
    SLICE = 30.0
    # The other ranks have just taken part in a collective with rank 0.
    COMING = 2.0
    # Answers that stay in the store: no rank is so many boundaries behind.
    KEPT = 4096

    def __init__(self, path: str, group: object = None) -> None:
        self.path, self.group = path, group or process_group
        self.answers = os.path.join(os.path.dirname(path), "save-answers")
        self.seen, self.store, self.boundary, self.published, self.complete = b"", None, 0, {}, False
        self.broken = False

    def asked(self, step: object, told: object = None) -> bool:
        """Whether the boundary after `step` is to save. Each rank must call it once at each boundary. `told`: the step in the answer, if only rank 0 knows it."""
        told = step if told is None else told
        try:
            group = self.group()
        except Exception as error:
            # The same on all ranks: this torch has other names.
            if not self.broken:
                self.broken = True
                print(f"supervise: no saves on request: {error!r}", file=sys.stderr, flush=True)
            return False
        if group is None:
            return self.accept(self.request(), told)
        store, rank, world, patience = group
        self.begin(store, rank)
        self.boundary += 1
        key = f"{self.PREFIX}{self.boundary}/{step}"
        if rank != 0:
            return self.hear(store, key, patience)
        wish = None
        try:
            wish = self.request()
            if wish is not None and not self.all_listen(store, world):
                wish = None
        except Exception:
            wish = None
        finally:
            # The others wait for this, whatever happened here.
            store.set(key, "0" if wish is None else "1")
        self.forget(store, key)
        return self.accept(wish, told)

    def begin(self, store, rank):
        """Counts from one in each process group, since ranks may join later ones with a history of their own."""
        if self.store is not None and self.store() is store:
            return
        import weakref

        # A store that is held here would live longer than its process group.
        self.store, self.boundary, self.published, self.complete = weakref.ref(store), 0, {}, False
        if rank != 0:
            store.add(self.PREFIX + "listening", 1)

    def request(self):
        """The id of a request that was not answered yet."""
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                wish = os.read(file, 32).strip()
            finally:
                os.close(file)
        except OSError:
            return None
        return wish if wish.isdigit() and len(wish) < 19 and wish != self.seen else None

    def all_listen(self, store, world):
        """A rank that does not ask would not save: then none does."""
        until = time.monotonic() + (self.COMING if self.boundary == 1 else 0.0)
        while not self.complete:
            self.complete = store.add(self.PREFIX + "listening", 0) >= world - 1
            if time.monotonic() >= until:
                break
            time.sleep(0.001)
        return self.complete

    def hear(self, store, key, patience):
        """Rank 0's answer. A rank that gets none fails like in a collective: it must not decide alone."""
        from datetime import timedelta

        began = time.monotonic()
        while True:
            now = time.monotonic()
            left = min(self.SLICE, max(began + patience - now, 0.001))
            try:
                store.wait([key], timedelta(seconds=left))
                break
            except Exception as error:
                if time.monotonic() >= began + patience:
                    raise RuntimeError(f"rank 0 did not reach this step boundary within {patience:.0f} s") from error
                if time.monotonic() < now + left / 2:
                    # The store itself failed.
                    raise
        return store.get(key) == b"1"

    def forget(self, store, key):
        self.published[self.boundary] = key
        old = self.published.pop(self.boundary - self.KEPT, None)
        if old is not None:
            try:
                store.delete_key(old)
            except Exception:
                # A FileStore of an old release cannot.
                pass

    def accept(self, wish, step):
        """Says which boundary answers the request. Only the checkpoint itself proves that it was saved."""
        if wish is None:
            return False
        self.seen = wish
        try:
            import json

            line = json.dumps({"id": int(wish), "step": step, "at": round(time.time(), 3)}) + "\n"
            file = os.open(self.answers, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, line.encode("ascii"))
            finally:
                os.close(file)
        except Exception:
            pass
        return True


def process_group() -> object:
    """The default process group of torch; `None` if this process trains alone."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    c10d = dist.distributed_c10d
    return c10d._get_default_store(), dist.get_rank(), dist.get_world_size(), patience_of(c10d)


def patience_of(c10d):
    """Seconds after which a collective gives up. The store's own limit may be shorter."""
    try:
        group = c10d._get_default_group()
        limits = [group._get_backend(device).options._timeout for device in group._device_types]
        return max(limit.total_seconds() for limit in limits)
    except Exception:
        return 1800.0
