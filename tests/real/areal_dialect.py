"""Compares what the supervisor reads of AReaL's configurations with what AReaL's own loader makes of them.

    python areal_dialect.py PATH-TO-areal_view            (the python of install_areal.sh's environment; about 20 s)

Each case is a YAML and the words behind the script. Where the supervisor would launch, the words of that launch are given to areal's
`load_expr_config`, and it has to take them and read the same values; what it refuses has to be refused, or told, before the launch.
Exits with 1 on any difference.
"""

import contextlib
import getpass
import io
import json
import logging
import subprocess
import sys
import tempfile
from pathlib import Path

BASE = """\
experiment_name: exp
trial_name: t0
total_train_epochs: 2
cluster: {fileroot: TOP, name_resolve: {nfs_record_root: TOP/names}}
train_dataset: {path: p, type: sft}
saver: {experiment_name: exp, trial_name: t0, fileroot: TOP}
evaluator: {experiment_name: exp, trial_name: t0, fileroot: TOP}
stats_logger: {experiment_name: exp, trial_name: t0, fileroot: TOP}
"""
ACTOR = "actor: {experiment_name: exp, trial_name: t0, backend: 'fsdp:d2', optimizer: {lr: 1e-3}}\n"
NAMES = """\
  experiment_name: ${experiment_name}
  trial_name: ${trial_name}
  fileroot: ${cluster.fileroot}
"""
ROLLOUT = "rollout: {experiment_name: exp, trial_name: t0, backend: 'sglang:d2'}\n"


def yaml(recover="  mode: auto\n  freq_steps: 2\n", more="", base=BASE, actor=ACTOR, names=NAMES):
    return f"{base}{actor}recover:\n{names}{recover}{more}"


def mode(word):
    return yaml(f"  mode: {word}\n  freq_steps: 2\n")


def steps(word):
    return yaml(f"  mode: auto\n  freq_steps: {word}\n")


def trial(word):
    return yaml(base=BASE.replace("trial_name: t0\ntotal", f"trial_name: {word}\ntotal"))


# Name, text, words behind the script, configuration class; what is expected where it is not simply the same on both sides:
# "mended" (areal refuses the user's own words and takes ours), "later" (areal's loader takes it, its trainer does not).
CASES = [
    ("least", yaml(), [], "SFTConfig", None),
    ("mode on", mode("on"), [], "SFTConfig", "mended"),
    ("mode yes", mode("yes"), [], "SFTConfig", "mended"),
    ("mode off", mode("off"), [], "SFTConfig", "mended"),
    ("mode 'on'", mode("'on'"), [], "SFTConfig", None),
    ("mode disabled", mode("disabled"), [], "SFTConfig", None),
    ("mode fault", mode("fault"), [], "SFTConfig", "strict"),
    ("mode 1", mode("1"), [], "SFTConfig", "strict"),
    ("mode null", mode("null"), [], "SFTConfig", "strict"),
    ("mode on in the command", yaml(), ["recover.mode=on"], "SFTConfig", None),
    ("steps 010", steps("010"), [], "SFTConfig", None),
    ("steps 0x10", steps("0x10"), [], "SFTConfig", None),
    ("steps 1:30", steps("1:30"), [], "SFTConfig", None),
    ("steps 1_000", steps("1_000"), [], "SFTConfig", None),
    ("steps '7'", steps("'7'"), [], "SFTConfig", None),
    ("steps ' 7 '", steps("' 7 '"), [], "SFTConfig", None),
    ("steps '1_0'", steps("'1_0'"), [], "SFTConfig", None),
    ("steps 2.0", steps("2.0"), [], "SFTConfig", None),
    ("steps true", steps("true"), [], "SFTConfig", None),
    ("steps many", steps("many"), [], "SFTConfig", None),
    ("steps [2]", steps("[2]"), [], "SFTConfig", None),
    ("steps from elsewhere", steps("${seed}"), ["+seed=5"], "SFTConfig", None),
    ("steps from nowhere", steps("${no.such}"), [], "SFTConfig", None),
    ("steps twice", yaml("  mode: auto\n  freq_steps: 2\n  freq_steps: 3\n"), [], "SFTConfig", None),
    ("never", yaml("  mode: auto\n"), [], "SFTConfig", "later"),
    ("epochs and seconds", yaml("  mode: auto\n  freq_epochs: 1\n  freq_secs: 3600\n"), [], "SFTConfig", None),
    ("retries", yaml("  mode: auto\n  freq_steps: 2\n  retries: 7\n"), [], "SFTConfig", None),
    ("no optimizer", yaml("  mode: auto\n  freq_steps: 2\n  no_save_optim: yes\n"), [], "SFTConfig", None),
    ("no optimizer, as text", yaml("  mode: auto\n  freq_steps: 2\n  no_load_optim: 'on'\n"), [], "SFTConfig", None),
    ("no optimizer, as nonsense", yaml("  mode: auto\n  freq_steps: 2\n  no_load_optim: perhaps\n"), [], "SFTConfig", None),
    ("trial 010", trial("010"), [], "SFTConfig", None),
    ("trial on", trial("on"), [], "SFTConfig", None),
    ("trial 1e-3", trial("1e-3"), [], "SFTConfig", None),
    ("trial 1.50", trial("1.50"), [], "SFTConfig", None),
    ("trial 2024-01-02", trial("2024-01-02"), [], "SFTConfig", None),
    ("trial ~", trial("~"), [], "SFTConfig", None),
    ("trial ???", trial("'???'"), [], "SFTConfig", None),
    ("trial [a]", trial("[a]"), [], "SFTConfig", None),
    ("names of its own", yaml(names=NAMES.replace("${trial_name}", "${experiment_name}-${seed}")), [], "SFTConfig", None),
    ("name missing", yaml(names=NAMES.replace("  trial_name: ${trial_name}\n", "")), [], "SFTConfig", None),
    ("unknown key", yaml("  mode: auto\n  freq_steps: 2\n  freq_step: 3\n"), [], "SFTConfig", None),
    ("unknown key of the cluster", yaml(), ["+cluster.nodes=2"], "SFTConfig", None),
    ("dataset missing", yaml(base=BASE.replace("train_dataset: {path: p, type: sft}\n", "")), [], "SFTConfig", None),
    ("saver missing", yaml(base=BASE.replace("saver: {experiment_name: exp, trial_name: t0, fileroot: TOP}\n", "")), [], "SFTConfig", None),
    ("override", yaml(), ["recover.freq_steps=9"], "SFTConfig", None),
    ("override of nothing", yaml(), ["total_train_steps=30"], "SFTConfig", None),
    ("override added", yaml(), ["+total_train_steps=30"], "SFTConfig", None),
    ("override added twice", yaml(), ["+total_train_steps=30", "total_train_steps=40"], "SFTConfig", None),
    ("override added to what is there", yaml(), ["+recover.freq_steps=3"], "SFTConfig", None),
    ("override forced", yaml(), ["++recover.freq_steps=3", "++total_train_steps='12'"], "SFTConfig", None),
    ("override deleted", yaml("  mode: auto\n  freq_steps: 2\n  freq_secs: 60\n"), ["~recover.freq_secs"], "SFTConfig", None),
    ("override deletes nothing", yaml(), ["~recover.freq_secs"], "SFTConfig", None),
    ("override swept", yaml(), ["recover.freq_steps=1,2"], "SFTConfig", None),
    ("override of null", yaml("  mode: auto\n  freq_steps: 2\n  freq_epochs: 1\n"), ["recover.freq_steps=null"], "SFTConfig", None),
    ("epochs none", yaml(), ["total_train_epochs=0"], "SFTConfig", None),
    ("saver mode", yaml(), ["+saver.mode=later"], "SFTConfig", None),
    ("backend", yaml(), ["actor.backend='megatron:(attn:d1p2t2|ffn:d1p2e2)'", "+recover.no_save_optim=true"], "SFTConfig", None),
    ("backend without a name", yaml(), ["actor.backend=d2"], "SFTConfig", "later"),
    ("backend of FSDP with pipelines", yaml(), ["actor.backend='fsdp:d2p2'"], "SFTConfig", "later"),
    ("asynchronous", yaml(), ["actor.backend='megatron:d2'", "+actor.megatron.async_save=true"], "SFTConfig", None),
    ("ppo", yaml(more=ROLLOUT), ["+critic={experiment_name: exp, trial_name: t0, backend: 'fsdp:d2'}"], "PPOConfig", None),
    ("ppo, minibatches", yaml(more=ROLLOUT), ["+actor.ppo_n_minibatches=2"], "PPOConfig", None),
    ("ppo, removed key", yaml(more=ROLLOUT), ["+actor.behave_imp_weight_cap=2"], "PPOConfig", None),
    ("v2", yaml(), ["+actor._version=v2"], "SFTConfig", "later"),
    ("v3", yaml(), ["+actor._version=v3"], "SFTConfig", None),
    ("whole section null", yaml(base=BASE.replace("saver: {experiment_name: exp, trial_name: t0, fileroot: TOP}", "saver: null")), [], "SFTConfig", None),
]  # fmt: skip
# Told before the launch, because a script's own classes may know better: as good as a refusal.
TOLD = {"unknown_key", "mandatory_missing"}


def ours(view, top, cases):
    requests = [
        {
            "yaml": text.replace("TOP", str(top)),
            "file": str(top / f"{n}" / "x.yaml"),
            "command": ["python3", "s.py", *words],
            "user": getpass.getuser(),
        }
        for n, (_, text, words, *_) in enumerate(cases)
    ]
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([view], input=lines, capture_output=True, text=True, check=True)
    return [(request, json.loads(line)) for request, line in zip(requests, done.stdout.splitlines(), strict=True)]


def theirs(argv, cls):
    """What areal reads, or the name of what it raises."""
    from areal.api import cli_args

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return cli_args.load_expr_config(argv, getattr(cli_args, cls))[0]
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends the trainer
            return f"{type(error).__name__}: {error}"


def values(config, cls):
    from areal.api.alloc_mode import ModelAllocation

    r = config.recover
    frequencies = {
        f"{name}_info.json": [part.freq_epochs, part.freq_steps, part.freq_secs]
        for name, part in (("checkpoint", r), ("saver", config.saver), ("evaluator", config.evaluator))
    }
    saved = 1 if r.no_save_optim else 2
    loaded = 1 if r.no_save_optim or r.no_load_optim else 2
    critic = {"critic": [saved, loaded]} if getattr(config, "critic", None) else {}
    allocation = ModelAllocation.from_str(config.actor.backend)
    return {
        "root": f"{r.fileroot}/checkpoints/{getpass.getuser()}/{r.experiment_name}/{r.trial_name}",
        "frequencies": frequencies,
        "last_step": config.total_train_steps,
        "world": allocation.parallel.world_size,
        "updates": config.actor.ppo_n_minibatches if cls == "PPOConfig" else 1,
        "async_save": config.actor.megatron.async_save and allocation.backend == "megatron",
        "contents": {"default": [saved, loaded], **critic},
    }


def judge(case, request, read):
    """What is wrong with a case, in words; nothing where both agree."""
    name, _, words, cls, expected = case
    refuses = read.get("error") or next((w for w in read.get("warnings", []) if w in TOLD), None)
    own = theirs(["s.py", "--config", request["file"], *words], cls)
    if expected == "later":
        return None if refuses and not isinstance(own, str) else f"ours: {refuses}; areal: {own}"
    if expected == "strict":
        return None if read.get("error") and isinstance(own, str) else f"ours: {refuses}; areal: {own}"
    if expected == "mended" and not isinstance(own, str):
        return "areal takes the user's own words"
    if read.get("error"):
        return None if isinstance(own, str) else f"refused here, and areal takes it: {read['error']}"
    given = theirs(read["argv"][1:], cls)
    if isinstance(given, str):
        return None if refuses else f"areal refuses what would be launched: {given}"
    if refuses:
        return f"told here, and areal takes it: {refuses}"
    wanted = values(given, cls)
    wrong = {key: (read[key], value) for key, value in wanted.items() if read[key] != value}
    if given.recover.mode != "auto" or read["retries"] not in (None, given.recover.retries):
        wrong["recover"] = (read["retries"], given.recover)
    return f"ours and areal's: {wrong}" if wrong else None


def main():
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        answers = ours(sys.argv[1], top, CASES)
        bad = 0
        for case, (request, read) in zip(CASES, answers, strict=True):
            file = Path(request["file"])
            file.parent.mkdir()
            file.write_text(request["yaml"])
            wrong = judge(case, request, read)
            if wrong:
                bad += 1
                print(f"{case[0]}: {wrong}", file=sys.stderr)
    launched = sum("error" not in read and not TOLD & set(read["warnings"]) for _, read in answers)
    print(f"areal_dialect: {len(CASES)} configurations, {launched} launched with areal's values, {bad} differences")
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
