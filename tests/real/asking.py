"""Asks a trainer under `supervise` for a save, by the file of its attempt."""

import time

LIMIT = 900


def wait_for(is_so, what):
    until = time.monotonic() + LIMIT
    while not is_so():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.05)


def request(path, number):
    wait_for(path.is_file, path)
    draft = path.with_name("save-request.draft")
    draft.write_text(f"{number}\n")
    draft.rename(path)
