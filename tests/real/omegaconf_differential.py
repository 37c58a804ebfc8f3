"""Compares what the supervisor makes of trainers' configurations with what OmegaConf and Hydra make of them.

Run by an interpreter that has hydra-core 1.3.2 and omegaconf 2.3.1 (the versions verl users have):

    python omegaconf_differential.py PATH-TO-dump_yaml [--show N]

The example binary answers one JSON line per request; types are told apart. Exits with 1 on any difference that is not listed as known.
"""

import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import warnings

import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf

warnings.simplefilter("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
CORPUS = os.path.join(HERE, "..", "..", "config", "tests", "corpus")
ENV = {"PRESENT": "here", "NUMBER": "12", "EMPTY": "", "LIST": "[1, a]", "BRACED": "${a}"}


def tagged(value):
    """A value as JSON that keeps types apart."""
    if value is None:
        return None
    if isinstance(value, bool):
        return {"b": value}
    if isinstance(value, int):
        return {"i": str(value)}
    if isinstance(value, float):
        bits = struct.pack(">d", value).hex() if value == value else "7ff8000000000000"
        return {"f": bits}
    if isinstance(value, str):
        return {"s": value}
    if isinstance(value, (list, tuple)):
        return [tagged(item) for item in value]
    if isinstance(value, dict):
        return {"m": [[tagged(key), tagged(item)] for key, item in value.items()]}
    return {"unsupported": type(value).__name__}


def has_unsupported(value):
    return '"unsupported"' in json.dumps(value)


def ask(binary, requests):
    """All answers of the binary, in order."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([binary], input=lines, capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode != 0 or len(answers) != len(requests):
        raise SystemExit(f"{binary} answered {len(answers)} of {len(requests)} requests: {done.stderr}")
    return answers


# --- documents --------------------------------------------------------------------------------------------------------------------


def corpus_documents():
    """Hand-written documents; `=====` lines separate them within a file."""
    found = []
    for name in sorted(os.listdir(CORPUS)):
        if name.endswith(".yaml"):
            with open(os.path.join(CORPUS, name), encoding="utf-8") as file:
                for number, text in enumerate(file.read().split("=====\n")):
                    found.append((f"{name}#{number}", text))
    return found


WORDS = """on off yes no y n true False TRUE nO null Null ~ 1 -1 +1 0 -0 00 01 010 08 0o10 0x1F 0X1f 0b101 0b2 1_000 1__0 _1 1_ 0_7
1.5 1. .5 -.5 +.5 1e5 1E5 1e-4 1.0e-4 1.0E+4 .5e5 .5e-5 1.e3 -1e5 1e 1e+ 1_0e3 1_.5 1._5 09e1 08.5 .inf -.inf +.INF .Inf .nan .NaN -.nan
inf nan 1:30 1:30:00 01:30 -1:30 1:60 1:5:9 0:30 1:30.5 1:30:00.25 190:20:30 1_0:30 2026-01-02 2026-01-02T03:04:05Z 12:34:56 ??? a-b
a:b :a a: #a a#b <<x =x 0.1 100000000000000000000 18446744073709551615 1e400 4e-320 ${a} $a {a} [a] 'on' "1" '~' "" '' !!str\\ 1
!!int\\ "7" !!float\\ 1 !!bool\\ "yes" !!str\\ on !!null\\ x -x --x -- - ? x?y @ `a` %a &b *zz ! |- >+ a,b 1,000 1e5_0 0x 0b 0x_ 1e1.5""".split()


def generated_documents(seed, count):
    """Documents built from tricky words in the places where scalars can stand."""
    chance = random.Random(seed)
    words = [word.replace("\\", " ") for word in WORDS]
    found = [(f"scalar {word}", f"a: {word}\n") for word in words]
    found += [(f"key {word}", f"{word}: a\n") for word in words]
    found += [(f"item {word}", f"- {word}\n- 1\n") for word in words]
    for number in range(count):
        found.append((f"generated {seed}/{number}", document(chance, words, 0)))
    return found


def document(chance, words, depth):
    """A mapping of random shape."""
    lines = []
    indent = "  " * depth
    for position in range(chance.randint(1, 4)):
        key = chance.choice(["k", "lr", "on", "1", "a b", "x-y", "'q'", "0.5"]) + (f"{position}" if chance.random() < 0.9 else "")
        kind = chance.random()
        if kind < 0.2 and depth < 3:
            lines.append(f"{indent}{key}:\n{document(chance, words, depth + 1)}".rstrip("\n"))
        elif kind < 0.35:
            items = ", ".join(chance.choice(words) for _ in range(chance.randint(0, 3)))
            lines.append(f"{indent}{key}: [{items}]")
        elif kind < 0.5:
            items = "\n".join(f"{indent}- {chance.choice(words)}" for _ in range(chance.randint(1, 3)))
            lines.append(f"{indent}{key}:\n{items}")
        elif kind < 0.6:
            lines.append(f"{indent}{key}: {{p: {chance.choice(words)}, q: {chance.choice(words)}}}")
        elif kind < 0.7:
            lines.append(f"{indent}{key}: {chance.choice('|>')}{chance.choice(['', '-', '+'])}\n{indent}  {chance.choice(words)}\n{indent}  next")
        else:
            lines.append(f"{indent}{key}: {chance.choice(words)}")
    return "\n".join(lines) + "\n"


def omegaconf_answer(text):
    """What OmegaConf loads and resolves."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        try:
            config = OmegaConf.load(file.name)
            raw = tagged(OmegaConf.to_container(config, resolve=False))
        except Exception as error:  # every refusal counts alike
            return {"error": f"{type(error).__name__}: {error}"}
    try:
        resolved = tagged(OmegaConf.to_container(config, resolve=True))
    except Exception as error:
        resolved = {"error": f"{type(error).__name__}: {error}"}
    return {"raw": raw, "resolved": resolved}


def same_document(theirs, ours):
    if "error" in theirs or "error" in ours:
        if "error" in theirs and "error" not in ours and isinstance(ours["resolved"], dict) and "error" in ours["resolved"]:
            return True  # a broken interpolation: refused at once by OmegaConf, when asked for by us
        return "error" in theirs and "error" in ours
    if has_unsupported(theirs):
        return True
    if theirs["raw"] != ours["raw"]:
        return False
    refused = [isinstance(side["resolved"], dict) and "error" in side["resolved"] for side in (theirs, ours)]
    return all(refused) if any(refused) else theirs["resolved"] == ours["resolved"]


def compare(title, names, theirs, ours, same, show):
    """Prints the differences of one kind and returns how many there are."""
    differ = 0
    for name, left, right in zip(names, theirs, ours):
        if not same(left, right):
            differ += 1
            if differ <= show:
                print(f"DIFFERS {title} {name!r}\n  trainer:    {json.dumps(left)}\n  supervisor: {json.dumps(right)}")
    return differ


def documents(binary, show):
    os.environ.update(ENV)
    cases = corpus_documents() + generated_documents(20261121, 400)
    theirs = [omegaconf_answer(text) for _, text in cases]
    ours = ask(binary, [{"yaml": text, "env": ENV} for _, text in cases])
    names = [f"{name}: {text}" for name, text in cases]
    return len(cases), compare("document", names, theirs, ours, same_document, show)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    parser.add_argument("--show", type=int, default=20)
    options = parser.parse_args()
    compared = differ = 0
    for part in (documents,):
        done, differing = part(options.binary, options.show)
        compared += done
        differ += differing
    print(f"{compared} compared, {differ} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
