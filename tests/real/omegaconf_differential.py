"""Compares what the supervisor makes of trainers' configurations with what OmegaConf and Hydra make of them.

Run by an interpreter that has hydra-core 1.3.2 and omegaconf 2.3.1 (the versions verl users have):

    python omegaconf_differential.py PATH-TO-dump_yaml [--show N]

The example binary answers one JSON line per request; types are told apart. Exits with 1 on any difference that is not listed as known.
"""

import argparse
import importlib.util
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import warnings
from importlib import metadata

from omegaconf import OmegaConf

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


# What the supervisor refuses although the trainer reads it, with the reason. Nothing here is ever read differently.
KNOWN_REFUSALS = (
    "plain scalar cannot start with '-'",  # `[-, 1]`: a lone dash in a flow collection, which YAML 1.2 forbids
    "tag:yaml.org,2002:binary",  # bytes have no place in the tree
)


def same_document(theirs, ours):
    if any(reason in ours.get("error", "") for reason in KNOWN_REFUSALS):
        return True
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


# --- overrides --------------------------------------------------------------------------------------------------------------------

VALUES = r"""1 -1 +1 010 0x10 1_000 1__0 1. .5 -.5 1e3 1E-4 1e 1e5x inf -inf nan NaN true TRUE tRuE false null NULL Null none
abc a-b a_b a.b a/b /tmp/x a:b a:b:c :a a: : a@b %x $x a+b * ? | a|b a \ \, \: \= a\ b a\,b \(x\) \[x\] \{x\} ' '' "" 'x' "x" 'a b'
'a'b' "a'b" 'a"b' "a"b" 'a\' 'a\'b' '' 'a 'b' a'b' 'a'b [] [1] [1,2] [1,a,'b',"c"] [[1],[2]] [1,] [,1] [,] ['','a'] ["",b] [a,''] ['a,b']
{} {a:1} {a:1,b:[x,y]} {a:{b:c}} {1:2} {true:x} {a:b:c} {'a':1} {a} {a:} {:a} {a:1,} ${a} ${a.b} x${a}y ${a}${b} '${a}' '\${a}' ${oc.env:X,y}
${a:${b}} '${a:${b}}' ${} a,b [a],[b] 1,2 x=y a(b) a) (a f(x) int(3) int('3') int(3.9) float(3) float('1e3') str(3) str(3.0) str(true)
str([1,a]) bool(1) bool('true') bool(x) int([1,'2']) int(x) choice(a,b) range(3) interval(1,2) glob(*) a#b #a ~a !a a;b a&b <a >a a^b é 'é'
2026-01-02 12:30:00 1:30 http://h:80/x?y=1 http://h/x a[0] [a]b ??? ... - -- -x 1-2 10-20 1.5.2 0.1.2 1,000 'x' 00 0 -0 +0 1_ _1 on yes no
{a:[1,{b:null}]} [null,true,1.0] [ ] { } [a""".split()
SPACED = ["a b", " a", "a ", " a b ", "'a' ", " 'a'", "[ 1 , 2 ]", "{ a : 1 , b : 2 }", "[a b, c d]", "{a b: c d}", "a , b", "a :b", "a: b",
          "int( 3 )", "int (3)", "\ta", "a\tb", "a\nb", "'a\nb'", "", " ", "[ 'a' , 'b' ]", "str( 'a b' )", "[a ]", "{a: 'b' }", "a\\ b",
          "x ${a} y", "${ a }", "[${a}, ${b}]", "{k: ${a}}", "'it''s'", "null x", "1 2", "true false", "( a )"]
KEYS = ["a=1", "+a=1", "++a=1", "~a", "~a=1", "~a=", "a.b=1", "a.0=1", "a.0.b=1", "0.a=1", "0=1", "a.01=1", "a-b=1", "a_b=1", "_a=1", "$a=1",
        "a$b.c=1", "a/b=c", "a/b/c=d", "a@b=c", "a/b@c.d=e", "a@=c", "@a=b", "=1", "+=1", "a", "+a", "", "a.=1", ".a=1", "a..b=1", "a b=1",
        "a =1", " a=1", "é=1", "a[0]=1", "a@b@c=1", "a/=1", "/a=1", "a/b.c=1", "+++a=1", "~~a", "~+a=1", "a:b=1", "a.1_0=1", "A.b=1", "-a=1"]


def override_answer(parser, text):
    """What Hydra's parser reads; sweeps count as refused, because one run cannot take them."""
    try:
        read = parser.parse_override(text)
        if read.is_sweep_override():
            return {"error": "a sweep"}
        value = read.value()
        OmegaConf.create({"x": value})  # keys that OmegaConf would refuse
        return {"action": read.type.name, "key": read.key_or_group, "package": read.package, "value": tagged(value)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def same_override(theirs, ours):
    return ("error" in ours) if "error" in theirs else theirs == ours


def overrides(binary, show):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser = OverridesParser.create()
    chance = random.Random(7)
    pieces = ["a", "1", ".", "-", "'", '"', "\\", " ", ",", ":", "[", "]", "{", "}", "${a}", "$", "e", "true", "(", ")", "=", "_", "é", "/"]
    mixed = ["".join(chance.choice(pieces) for _ in range(chance.randint(1, 7))) for _ in range(1500)]
    texts = KEYS + [f"k={value}" for value in VALUES + SPACED + mixed]
    theirs = [override_answer(parser, text) for text in texts]
    ours = ask(binary, [{"override": text} for text in texts])
    return len(texts), compare("override", texts, theirs, ours, same_override, show)


def encoder(binary, show):
    """What the encoder writes arrives unchanged through Hydra and OmegaConf."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser = OverridesParser.create()
    chance = random.Random(11)
    pieces = ["a", "\\", "\\\\", "'", '"', "$", "${", "}", "{", ",", " ", "\n", "é", "=", "#", "${x}", "\t", ":", "null", "1"]
    texts = ["", " ", "null", "true", "1", "1e5", "'", "\\", "${a}", "a,b"]
    texts += ["".join(chance.choice(pieces) for _ in range(chance.randint(1, 9))) for _ in range(1500)]
    answers = ask(binary, [{"encode": text} for text in texts])
    arrived = []
    for answer in answers:
        try:
            value = parser.parse_override("k=" + answer["encoded"]).value()
            arrived.append(OmegaConf.create({"k": value}).k)
        except Exception as error:
            arrived.append(f"{type(error).__name__}: {error}")
    lists = [texts[at : at + chance.randint(0, 4)] for at in range(0, len(texts), 5)]
    for answer in ask(binary, [{"encode_list": items} for items in lists]):
        try:
            value = parser.parse_override("k=" + answer["encoded"]).value()
            arrived.append(list(OmegaConf.create({"k": value}).k))
        except Exception as error:
            arrived.append(f"{type(error).__name__}: {error}")
    wanted = texts + lists
    return len(wanted), compare("encoded", wanted, wanted, arrived, lambda left, right: left == right, show)


# --- composed configurations ------------------------------------------------------------------------------------------------------

GROUPS = {
    "db/mysql.yaml": "name: mysql\nport: 3306\nuser: ${user}\n",
    "db/pg.yaml": "name: pg\nport: 5432\n",
    "db/with_list.yaml": "defaults:\n  - /db/pg@inner\n  - _self_\nname: wl\n",
    "db/nested.yaml": "defaults:\n  - engine: fast\n  - _self_\nname: nested\n",
    "db/engine/fast.yaml": "kind: fast\nspeed: 1e-3\n",
    "db/engine/slow.yaml": "kind: slow\n",
    "opt/adam.yaml": "lr: 1e-4\nbetas: [0.9, 0.999]\n",
    "opt/sgd.yaml": "lr: 0.1\nmomentum: on\n",
    "opt/mysql_opt.yaml": "lr: 3\n",
    "glob/g.yaml": "# @package _global_\nuser: from_global\nflag: yes\n",
    "glob/h.yaml": "# @package other.place\nx: 1\n",
    "glob/o.yaml": "# @package _global_\ndefaults:\n  - override /opt: sgd\n  - override /db: pg\nmark: o\n",
    "actor/rel.yaml": "defaults:\n  - ../opt@optim: adam\n  - ../opt: sgd\n  - ../db/pg@place\n  - _self_\nname: rel\n",
    "model/dp.yaml": "engine: dp\n",
    "model/megatron.yaml": "engine: megatron\n",
    "actor/dp_actor.yaml": "defaults:\n  - ../opt@optim: adam\n  - _self_\nstrategy: fsdp\n",
    "actor/megatron_actor.yaml": "strategy: megatron\noptim: {lr: 2}\n",
    "base.yaml": "user: base\ndeep: {a: 1, b: {c: 2}}\nlst: [1, 2, 3]\n",
    "base2.yaml": "defaults:\n  - base\n  - _self_\ndeep: {b: {d: 3}}\nlst: [9]\n",
}

COMPOSED = [
    ("defaults:\n  - db: mysql\nuser: u\n", []),
    ("defaults:\n  - _self_\n  - db: mysql\nuser: u\ndb: {port: 1}\n", []),
    ("defaults:\n  - db: mysql\n  - _self_\nuser: u\ndb: {port: 1}\n", []),
    ("defaults:\n  - db: mysql\n  - _self_\nuser: u\n", ["db=pg", "db.port=7"]),
    ("defaults:\n  - base\n  - _self_\ndeep: {a: 5}\n", ["deep.b.c=10", "+new.key=1", "~lst"]),
    ("defaults:\n  - base2\n  - _self_\n", ["lst=[a,b]", "++deep.b.e=1e-4", "user='x y'"]),
    ("defaults:\n  - db: with_list\n  - opt: adam\n  - _self_\n", []),
    ("defaults:\n  - db: nested\n  - _self_\n", ["db/engine=slow"]),
    ("defaults:\n  - db: nested\n  - _self_\n  - override db/engine: slow\n", []),
    ("defaults:\n  - db@primary: mysql\n  - db@secondary: pg\n  - _self_\nuser: u\n", ["db@secondary=mysql"]),
    ("defaults:\n  - db@_global_: mysql\n  - _self_\nuser: u\n", []),
    ("defaults:\n  - db@_here_: pg\n  - _self_\n", []),
    ("defaults:\n  - base\n  - glob: g\n  - _self_\n", []),
    ("defaults:\n  - glob: h\n  - _self_\nother: {y: 2}\n", []),
    ("defaults:\n  - db: mysql\n  - opt: adam\n  - _self_\n  - glob: o\nuser: u\n", []),
    ("defaults:\n  - optional db: nothing\n  - opt: sgd\n  - _self_\n", []),
    ("defaults:\n  - db: nothing\n", []),
    ("defaults:\n  - db: null\n  - _self_\na: 1\n", ["db=pg"]),
    ("defaults:\n  - db: null\n  - _self_\na: 1\n", []),
    ("defaults:\n  - db: ???\n  - _self_\n", []),
    ("defaults:\n  - db: ???\n  - _self_\n", ["db=pg"]),
    ("defaults:\n  - db: [mysql, pg]\n  - _self_\nuser: u\n", []),
    ("defaults:\n  - db: [mysql, pg]\n  - _self_\nuser: u\n", ["db=[pg]"]),
    ("defaults:\n  - db: mysql\n  - opt: ${db}_opt\n  - _self_\nuser: u\n", []),
    ("defaults:\n  - opt: ${db}_opt\n  - db: mysql\n  - _self_\nuser: u\n", []),
    ("defaults:\n  - model: dp\n  - actor: ${model}_actor\n  - _self_\n", ["model=megatron"]),
    ("defaults:\n  - model: dp\n  - ${model}_actor@actor\n  - _self_\n", []),
    ("defaults:\n  - model@engine: dp\n  - actor@actor_rollout.actor: megatron_actor\n  - _self_\nactor_rollout: {actor: {strategy: mine}}\n", []),
    ("defaults:\n  - override db: pg\n  - db: mysql\n", []),
    ("defaults:\n  - db: mysql\n  - override opt: sgd\nuser: u\n", []),
    ("defaults:\n  - _self_\n  - _self_\n", []),
    ("defaults:\n  - db: mysql\n  - db: pg\nuser: u\n", []),
    ("defaults: {db: mysql}\n", []),
    ("defaults:\n  - {a: 1, b: 2}\n", []),
    ("defaults:\n  - 5\n", []),
    ("defaults:\n  - actor: rel\n  - _self_\n", []),
    ("defaults:\n  - actor@x.y: rel\n  - _self_\n", []),
    ("a: 1\nb: {c: [1, 2]}\n", ["a=x", "b.c.1=5"]),
    ("a: 1\n", ["b=1"]),
    ("a: 1\n", ["+a=2"]),
    ("a: null\n", ["+a=2"]),
    ("a: ???\n", ["+a=2"]),
    ("a: 1\n", ["++a=2"]),
    ("a: 1\n", ["a.b=2"]),
    ("a: 1\n", ["+a.b=2"]),
    ("a: null\n", ["a.b=2"]),
    ("a: {b: 1}\n", ["a=5"]),
    ("a: {b: 1}\n", ["a={b:2}"]),
    ("a: {b: 1}\n", ["a={c:2}"]),
    ("a: {b: 1}\n", ["+a={c:2}"]),
    ("a: {b: 1}\n", ["a=[1]"]),
    ("a: [1]\n", ["a={b:1}"]),
    ("a: [1]\n", ["a=[2,3]"]),
    ("a: [1]\n", ["a=null"]),
    ("a: [1]\n", ["a.0=2"]),
    ("a: [1]\n", ["a.1=2"]),
    ("a: 1\nb: 2\n", ["~a"]),
    ("a: 1\n", ["~a=1"]),
    ("a: 1\n", ["~a=2"]),
    ("a: null\n", ["~a"]),
    ("a: 1\n", ["~b"]),
    ("a: {b: 1, c: 2}\n", ["~a.b"]),
    ("a: ${b}\nb: {c: 1}\n", ["a.c=2"]),
    ("a: ${b}\nb: {c: 1}\n", ["+a.d=2"]),
    ("a: 1\n", ["a@b=1"]),
    ("a: 1\n", ["+db=pg"]),
    ("a: 1\n", ["+db@x.y=pg"]),
    ("a: 1\n", ["db=pg"]),
    ("defaults:\n  - db: pg\n  - _self_\n", ["~db"]),
    ("defaults:\n  - db: pg\n  - _self_\n", ["~db=mysql"]),
    ("defaults:\n  - base\n  - _self_\nlst: {a: 1}\n", []),
    ("defaults:\n  - base\n  - _self_\ndeep: null\n", []),
    ("defaults:\n  - base\n  - _self_\ndeep: ???\nuser: ???\n", []),
    ("defaults:\n  - base\n  - _self_\nuser: {x: 1}\ndeep: {b: {c: {e: 1}}}\n", []),
    ("copy: ${deep}\ndefaults:\n  - base\n  - _self_\n", []),
    ("a: 1e-4\nb: 010\nc: 1:30\nd: off\n", ["a=1e-5", "b=0", "c=x", "d=true"]),
    ("a: '${oc.env:PRESENT}'\nb: ${oc.decode:${oc.env:NUMBER}}\n", ["+c='${a}'", "+d=${b}"]),
    ("a: 1\n", ["+p='\\\\${x}'", "+q='it\\'s'"]),
]


def composed_answer(directory, text, changes):
    """What Hydra makes of a primary configuration."""
    with open(os.path.join(directory, "config.yaml"), "w", encoding="utf-8") as file:
        file.write(text)
    return hydra_answer(directory, "config", changes)


def hydra_answer(directory, name, changes):
    """What Hydra composes, without its own node."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(config_dir=directory, version_base=None):
            config = hydra_compose(config_name=name, overrides=changes)
            raw = tagged(OmegaConf.to_container(config, resolve=False))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    try:
        resolved = tagged(OmegaConf.to_container(config, resolve=True))
    except Exception as error:
        resolved = {"error": f"{type(error).__name__}: {error}"}
    return {"raw": raw, "resolved": resolved}


def compositions(binary, show):
    with tempfile.TemporaryDirectory() as directory:
        for name, text in GROUPS.items():
            path = os.path.join(directory, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        theirs = [composed_answer(directory, text, changes) for text, changes in COMPOSED]
    requests = [{"files": {**GROUPS, "config.yaml": text}, "overrides": changes, "env": ENV} for text, changes in COMPOSED]
    ours = ask(binary, requests)
    return len(COMPOSED), compare("composed", COMPOSED, theirs, ours, same_composed, show)


VERL = [
    ("ppo_trainer", []),
    ("ppo_trainer", ["model_engine=megatron"]),
    ("ppo_trainer", ["model_engine=veomni"]),
    ("ppo_trainer", ["model_engine=torchtitan"]),
    ("ppo_megatron_trainer", []),
    ("sft_trainer_engine", []),
    ("sft_trainer_engine", ["engine=megatron", "optim=megatron"]),
    ("ppo_trainer", ["trainer.save_freq=20", "+trainer.new=1", "trainer.default_local_dir='/a b/c'"]),
    ("ppo_trainer", ["actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer]", "trainer.logger=console"]),
    ("ppo_trainer", ["trainer.no_such_key=1"]),
    ("ppo_trainer", ["++critic.checkpoint.strict=True", "critic.optim.lr=1e-5", "~trainer.v1"]),
]


def verl_tree(binary, show):
    """verl's own configurations, where verl is installed for this interpreter."""
    found = importlib.util.find_spec("verl")
    directory = os.path.join(found.submodule_search_locations[0], "trainer", "config") if found else None
    directory = os.environ.get("VERL_CONFIG_DIR", directory)
    if not directory or not os.path.isdir(directory):
        print("verl is not installed here: its own configurations are not compared")
        return 0, 0
    files = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".yaml"):
                with open(path, encoding="utf-8") as file:
                    files[os.path.relpath(path, directory)] = file.read()
    theirs = [hydra_answer(directory, name, changes) for name, changes in VERL]
    ours = ask(binary, [{"files": files, "config": name, "overrides": changes, "env": ENV} for name, changes in VERL])
    return len(VERL), compare("verl", VERL, theirs, ours, same_composed, show)


def sorted_maps(value):
    """Mappings by key: Hydra's order of keys is not ours where defaults interleave."""
    if isinstance(value, list):
        return [sorted_maps(item) for item in value]
    if isinstance(value, dict) and "m" in value:
        entries = [[key, sorted_maps(item)] for key, item in value["m"]]
        return {"m": sorted(entries, key=lambda entry: json.dumps(entry[0]))}
    return value


def same_composed(theirs, ours):
    return same_document(sorted_maps_of(theirs), sorted_maps_of(ours))


def sorted_maps_of(answer):
    return {key: sorted_maps(value) for key, value in answer.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    parser.add_argument("--show", type=int, default=20)
    options = parser.parse_args()
    print(f"hydra-core {metadata.version('hydra-core')}, omegaconf {metadata.version('omegaconf')}, PyYAML {metadata.version('PyYAML')}")
    compared = differ = 0
    for part in (documents, overrides, encoder, compositions, verl_tree):
        done, differing = part(options.binary, options.show)
        compared += done
        differ += differing
    print(f"{compared} compared, {differ} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
