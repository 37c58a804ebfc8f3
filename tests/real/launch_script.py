"""verl's own SFT trainer from a launch script: `| tee`, a tool server beside it, and an exit code that says nothing.

usage: launch_script.py PROGRAMS [--work DIR]

A rank is killed. The script prints its log through `tee` without pipefail, stops its server and ends with 0, as many published launch
scripts do. The training must be brought back all the same, and end with the tensors of an uninterrupted run.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from recovery import ENV, Bench, nothing_left

SCRIPT = """\
#!/bin/bash
set -x
no-such-module load cuda
cd {folder}
export PATH={bin}:$PATH
python3 -m http.server --bind 127.0.0.1 0 > server.log 2>&1 &
server_pid=$!
torchrun --standalone --nnodes=1 --nproc_per_node=2 -m verl.trainer.sft_trainer {words} 2>&1 | tee train.log
kill $server_pid
echo "done: $(date)"
"""


def words(bench, root):
    return [f"data.train_files={bench.model}/train.parquet", "data.train_batch_size=16", "data.micro_batch_size_per_gpu=4",
            "data.use_dynamic_bsz=false", "data.max_length=128", "data.truncation=right", "data.num_workers=0",
            "data.ignore_input_ids_mismatch=true", f"model.path={bench.model}", "model.use_remove_padding=false",
            "model.enable_gradient_checkpointing=false", "+model.override_config.attn_implementation=sdpa",
            "engine.strategy=fsdp2", "engine.use_torch_compile=false", "engine.dtype=float32", "trainer.device=cpu",
            "trainer.logger=[console]", "trainer.total_epochs=1", "trainer.save_freq=1", "trainer.test_freq=-1",
            f"trainer.default_local_dir={root}", "trainer.project_name=real", "trainer.experiment_name=sft", "trainer.nnodes=1",
            "trainer.n_gpus_per_node=2", f"hydra.run.dir={root}.hydra"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", type=lambda p: Path(p).resolve())
    parser.add_argument("--work", type=lambda p: Path(p).resolve(), default=None)
    args = parser.parse_args()
    work = args.work or Path(tempfile.mkdtemp(prefix="launch-script-"))
    bench = Bench(args.programs, work)
    folder, root = bench.case("script")
    script = folder / "run.sh"
    script.write_text(SCRIPT.format(folder=folder, bin=Path(sys.executable).parent, words=" ".join(words(bench, root))))
    env = dict(ENV, FAULTS=json.dumps([{"kind": "kill", "step": 4, "rank": 1}]), FAULT_LEDGER=str(folder / "ledger"),
               XDG_STATE_HOME=str(folder / "state"))
    settings = ["--set", "supervisor.backoff.initial=200ms", "--set", "supervisor.rehearse=false"]
    done = bench.supervise("run", *settings, "--", "bash", script, env=env)
    print(done.stdout)
    assert "finished" in done.stdout and "2 attempts" in done.stdout, done.stdout
    assert "command not found" not in done.stdout.split("the script calls the trainer")[-1], done.stdout
    bench.same_as_straight(root)
    nothing_left(folder)
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
