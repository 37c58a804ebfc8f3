"""Requests for a save: what each rank answers at its step boundaries, whatever happens to rank 0 or to the store."""

import json
import os
import tempfile
import threading
import time
import unittest
from pathlib import Path

from supervise._door import SaveDoor


class Store:
    """Keeps what torch's stores keep. Each rank has a client of its own on the shared part."""

    def __init__(self, shared=None):
        self.shared = shared or {"values": {}, "lock": threading.Condition(), "broken": False, "sets": []}

    def client(self):
        return Store(self.shared)

    def check(self):
        if self.shared["broken"]:
            raise RuntimeError("Connection reset by peer")

    def set(self, key, value):
        with self.shared["lock"]:
            self.check()
            assert key not in self.shared["values"], f"{key} was published twice"
            self.shared["values"][key] = value.encode()
            self.shared["sets"].append(key)
            self.shared["lock"].notify_all()

    def get(self, key):
        with self.shared["lock"]:
            return self.shared["values"][key]

    def add(self, key, more):
        with self.shared["lock"]:
            self.check()
            now = int(self.shared["values"].get(key, b"0")) + more
            self.shared["values"][key] = str(now).encode()
            return now

    def delete_key(self, key):
        with self.shared["lock"]:
            return self.shared["values"].pop(key, None) is not None

    def wait(self, keys, limit):
        with self.shared["lock"]:
            def there():
                self.check()
                return all(key in self.shared["values"] for key in keys)

            if not self.shared["lock"].wait_for(there, limit.total_seconds()):
                raise RuntimeError("wait timeout")

    def end(self):
        with self.shared["lock"]:
            self.shared["broken"] = True
            self.shared["lock"].notify_all()


class Door(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name) / "save-request"
        self.path.touch()

    def ask(self, text):
        draft = self.path.with_suffix(".draft")
        draft.write_text(f"{text}\n")
        draft.rename(self.path)

    def answers(self):
        file = self.path.with_name("save-answers")
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def alone(self):
        return SaveDoor(str(self.path), lambda: None)

    def ranks(self, world, patience=60.0):
        store = Store()
        clients = [store.client() for _ in range(world)]
        return store, [SaveDoor(str(self.path), lambda n=n: (clients[n], n, world, patience)) for n in range(world)]

    def together(self, calls):
        """What each rank gets, or the exception it ends with."""
        out = [None] * len(calls)

        def run(n):
            try:
                out[n] = calls[n]()
            except Exception as e:
                out[n] = e

        threads = [threading.Thread(target=run, args=(n,)) for n in range(len(calls))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive())
        return out

    def boundary(self, doors, step):
        return self.together([lambda door=door: door.asked(step) for door in doors])

    def test_one_process_answers_each_request_once(self):
        door = self.alone()
        self.assertFalse(door.asked(1))
        self.ask(7)
        self.assertEqual([door.asked(step) for step in (2, 3)], [True, False])
        self.ask(8)
        self.assertTrue(door.asked(4))
        self.assertEqual([(a["id"], a["step"]) for a in self.answers()], [(7, 2), (8, 4)])

    def test_a_request_from_before_the_first_step_is_answered_at_its_end(self):
        self.ask(1)
        self.assertTrue(self.alone().asked(1))

    def test_what_is_no_request_is_none(self):
        door = self.alone()
        for text in ("", "x", "-1", "1 2", "1" * 19, "\u0663"):
            self.ask(text)
            self.assertFalse(door.asked(1), text)
        self.path.unlink()
        self.assertFalse(door.asked(1))
        self.assertEqual(self.answers(), [])

    def test_all_ranks_get_one_answer_whenever_it_is_asked(self):
        _, doors = self.ranks(16)
        got = {}
        for step in range(1, 9):
            if step in (1, 4, 5, 8):
                self.ask(step)
            answers = set(self.boundary(doors, step))
            self.assertEqual(len(answers), 1)
            got[step] = answers.pop()
        self.assertEqual([step for step in got if got[step]], [1, 4, 5, 8])

    def test_steps_that_are_counted_again_have_answers_of_their_own(self):
        _, doors = self.ranks(2)
        self.ask(1)
        self.assertEqual(self.boundary(doors, 1), [True, True])
        # A second training in the same process.
        self.assertEqual(self.boundary(doors, 1), [False, False])

    def test_rank_0_publishes_even_if_it_cannot_read(self):
        _, doors = self.ranks(3)

        def fails():
            raise MemoryError

        self.boundary(doors, 1)
        doors[0].request = fails
        self.assertEqual(self.boundary(doors, 2), [False] * 3)

    def test_the_others_wait_for_a_slow_rank_0_beyond_one_wait_of_the_store(self):
        _, doors = self.ranks(3)
        self.boundary(doors, 1)
        waiting = threading.Event()
        for door in doors[1:]:
            door.SLICE = 0.01
        read = doors[0].request

        def slow():
            waiting.wait(0.5)
            return read()

        doors[0].request = slow
        self.ask(1)
        self.assertEqual(self.boundary(doors, 2), [True] * 3)

    def test_without_rank_0_the_others_fail_like_in_a_collective(self):
        _, doors = self.ranks(3, patience=0.2)
        self.boundary(doors, 1)
        got = self.together([lambda door=door: door.asked(2) for door in doors[1:]])
        for error in got:
            self.assertIsInstance(error, RuntimeError)
            self.assertIn("rank 0 did not reach this step boundary", str(error))

    def test_if_the_store_ends_with_rank_0_the_others_fail_at_once(self):
        store, doors = self.ranks(3, patience=1e6)
        self.boundary(doors, 1)

        def ends():
            until = time.monotonic() + 60
            while len(store.shared["lock"]._waiters) < 2 and time.monotonic() < until:
                time.sleep(0.01)
            store.end()

        got = self.together([ends, *(lambda door=door: door.asked(2) for door in doors[1:])])
        self.assertEqual([type(error) for error in got[1:]], [RuntimeError] * 2)

    def test_no_rank_saves_if_one_of_them_does_not_ask(self):
        _, doors = self.ranks(3)
        doors[0].COMING = 0.05
        self.ask(1)
        self.assertEqual(self.boundary(doors[:2], 1), [False, False])
        self.assertEqual(self.answers(), [])
        # Once it asks as well, the request is still there.
        doors[2].begin(doors[2].group()[0], 2)
        doors[2].boundary = 1
        self.assertEqual(self.boundary(doors, 2), [True] * 3)

    def test_a_later_process_group_counts_anew(self):
        _, doors = self.ranks(2)
        self.boundary(doors, 1)
        store = Store()
        clients = [store.client(), store.client()]
        newcomer = SaveDoor(str(self.path), lambda: (clients[1], 1, 2, 60.0))
        doors[0].group = lambda: (clients[0], 0, 2, 60.0)
        self.ask(1)
        self.assertEqual(self.boundary([doors[0], newcomer], 2), [True, True])

    def test_old_answers_leave_the_store(self):
        store, doors = self.ranks(2)
        for door in doors:
            door.KEPT = 4
        for step in range(20):
            self.boundary(doors, step)
        self.assertEqual(len(store.shared["sets"]), 20)
        self.assertLessEqual(len(store.shared["values"]), 4 + 1)

    def test_a_group_that_cannot_be_read_is_said_once_and_asked_no_more(self):
        def other_names():
            raise AttributeError("_get_default_store")

        door = SaveDoor(str(self.path), other_names)
        self.ask(1)
        self.assertEqual([door.asked(1), door.asked(2)], [False, False])


if __name__ == "__main__":
    unittest.main()
