//! Commands and scripts as people type them to train on Hugging Face's `Trainer`: each is understood, or refused for a reason.

use crate::world::World;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const RECIPE: &str =
    "model_name_or_path: m\nlogging_strategy: steps\noutput_dir: out\nsave_strategy: \"steps\"\nsave_steps: 2\n";
const FACTORY: &str = "stage: sft\nfinetuning_type: full\noutput_dir: out\nsave_steps: 2\noverwrite_output_dir: true\n";
const REWARD: &str = "stage: rm\nfinetuning_type: full\noutput_dir: out\nsave_steps: 2\n";
const AXOLOTL: &str =
    "base_model: m\noutput_dir: ./out\nmicro_batch_size: 4\nsave_steps: 2\nauto_resume_from_checkpoints: true\n";
const NO_RESUME: &str = "base_model: m\noutput_dir: ./out\nsave_steps: 2\n";
const NO_DIR: &str = "model_name_or_path: m\nlearning_rate: 2.0e-05\n";
const JSON: &str = "{\"output_dir\": \"out\", \"num_train_epochs\": 1, \"save_steps\": 2}";

fn world() -> World {
    let world = World::new();
    for name in [
        "torchrun",
        "accelerate",
        "deepspeed",
        "trl",
        "swift",
        "axolotl",
        "llamafactory-cli",
        "python3",
    ] {
        let program = world.write(&format!("bin/{name}"), "#!/bin/sh\nexit 0\n");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (name, text) in [
        ("r.yaml", RECIPE),
        ("lf.yaml", FACTORY),
        ("rm.yaml", REWARD),
        ("axo.yml", AXOLOTL),
        ("anew.yml", NO_RESUME),
        ("nodir.yaml", NO_DIR),
        ("x.json", JSON),
        ("zero3.yaml", "distributed_type: DEEPSPEED\nnum_processes: 8\n"),
        ("other.yaml", "output_dir: out\nlearning_rate: 1.0e-4\nepochs: 2\n"),
        (
            "diffusers.yaml",
            "output_dir: out\nlr_scheduler_type: cosine\ncheckpointing_steps: 5\n",
        ),
        ("train.py", "pass\n"),
        ("sft.py", "pass\n"),
        ("src/train.py", "pass\n"),
    ] {
        world.write(name, text);
    }
    world
}

/// The expected answer: the root of a run of this trainer, no trainer that is known, or a refusal that says this.
enum Told {
    Root(&'static str),
    Plain,
    Refused(&'static str),
}
use Told::{Plain, Refused, Root};

fn planned(world: &World, words: &[&str]) -> crate::world::Said {
    let path = format!("{}:/usr/bin:/bin", world.path("bin"));
    world.run_with(words, &[("PATH", &path)])
}

#[track_caller]
fn check(world: &World, words: &[&str], told: &Told, what: &str) {
    let said = planned(world, words);
    match told {
        Root(root) => {
            assert!(said.code == 0 && said.out.contains(" (hf)\n"), "{what}: {said:#?}");
            let root = world.path(root);
            assert!(
                said.out.contains(root.as_str()),
                "{what}: {root} is missing in {said:#?}"
            );
        }
        Plain => assert!(
            said.code == 0 && said.out.contains("NOT protected"),
            "{what}: {said:#?}"
        ),
        Refused(text) => {
            assert!(said.code == 78 && said.err.contains(text), "{what}: {said:#?}");
            assert!(said.err.contains("hint:"), "{what}: {said:#?}");
        }
    }
}

#[test]
fn commands_are_understood_as_people_type_them() {
    let world = world();
    for (command, told) in [
        // The recipes of open-r1 and of those who copied them.
        (
            "accelerate launch --config_file zero3.yaml --num_processes=2 sft.py --config r.yaml",
            Root("out"),
        ),
        ("accelerate launch sft.py --config=r.yaml", Root("out")),
        ("torchrun --nproc_per_node=2 train.py x.json", Root("out")),
        ("python3 train.py r.yaml", Root("out")),
        ("deepspeed --num_gpus=2 train.py --config r.yaml", Root("out")),
        // Flags.
        (
            "torchrun train.py --output_dir o --save_steps 5 --logging_steps 1",
            Root("o"),
        ),
        (
            "deepspeed train.py --output_dir o --do_train --save_total_limit 3",
            Root("o"),
        ),
        (
            "python3 train.py --output_dir=o --per_device_train_batch_size=4 --save_strategy=steps",
            Root("o"),
        ),
        // TRL.
        (
            "trl sft --model_name_or_path m --dataset_name d",
            Root("trainer_output"),
        ),
        ("trl sft --config nodir.yaml", Root("trainer_output")),
        ("trl grpo --config r.yaml", Root("out")),
        ("trl distillation --config r.yaml", Root("out")),
        ("python3 -m trl.cli dpo --config r.yaml", Root("out")),
        ("accelerate launch -m trl.scripts.sft --output_dir o", Root("o")),
        // LLaMA-Factory.
        ("llamafactory-cli train lf.yaml", Root("out")),
        (
            "llamafactory-cli train --stage sft --do_train True --output_dir saves/q --save_steps 100",
            Root("saves/q"),
        ),
        ("torchrun src/train.py lf.yaml", Root("out")),
        (
            "accelerate launch --config_file zero3.yaml src/train.py lf.yaml",
            Root("out"),
        ),
        (
            "llamafactory-cli train rm.yaml",
            Refused("cannot resume stage rm with finetuning_type full"),
        ),
        // axolotl.
        ("axolotl train axo.yml", Root("out")),
        ("accelerate launch -m axolotl.cli.train axo.yml", Root("out")),
        ("axolotl train anew.yml", Refused("auto_resume_from_checkpoints")),
        // ms-swift.
        ("swift sft --model m --output_dir o --add_version false", Root("o")),
        (
            "swift rlhf --rlhf_type dpo --output_dir o --add_version false",
            Root("o"),
        ),
        ("swift sft --model m --output_dir o", Refused("--add_version false")),
        // Somebody else's, with a key or two in common.
        ("python3 train.py --config other.yaml", Plain),
        ("accelerate launch train.py --config diffusers.yaml", Plain),
        ("python3 train.py --output_dir o", Plain),
    ] {
        let words: Vec<&str> = ["plan", "--"].into_iter().chain(command.split(' ')).collect();
        check(&world, &words, &told, command);
    }
}

#[test]
fn the_number_of_ranks_is_read_of_the_launchers_files() {
    let world = world();
    crate::world::copy_fixture("hf_trainer_w2", &world.path("out"));
    world.write("hosts", "a slots=4\nb slots=4\n");
    world.write(
        "home/.cache/huggingface/accelerate/default_config.yaml",
        "num_processes: 8\n",
    );
    let flags = "train.py --output_dir out --save_steps 2 --logging_steps 1";
    let home = world.path("home");
    let path = format!("{}:/usr/bin:/bin", world.path("bin"));
    // Two ranks saved it.
    for (launcher, told) in [
        ("accelerate launch --config_file zero3.yaml", "random number generators"),
        ("accelerate launch", "random number generators"),
        ("accelerate launch --num_processes 2", "would resume from checkpoint-4"),
        ("deepspeed --hostfile hosts", "random number generators"),
        (
            "deepspeed --hostfile hosts --num_gpus 1",
            "would resume from checkpoint-4",
        ),
    ] {
        let text = format!("plan -- {launcher} {flags}");
        let words: Vec<&str> = text.split(' ').collect();
        let said = world.run_with(&words, &[("PATH", &path), ("HOME", home.as_str())]);
        assert!(said.out.contains(told), "{launcher}: {said:#?}");
    }
}

#[test]
fn scripts_are_understood_as_people_write_them() {
    let world = world();
    for (script, told) in [
        (
            "set -e\nexport X=1\ntrl sft --model_name_or_path m \\\n  --output_dir o --save_steps 5\n",
            Root("o"),
        ),
        (
            "CUDA_VISIBLE_DEVICES=0 llamafactory-cli train lf.yaml 2>&1 | tee log\n",
            Root("out"),
        ),
        (
            "MODEL=m; DIR=saves/$MODEL\ntorchrun --nproc_per_node 2 src/train.py lf.yaml output_dir=$DIR\n",
            Root("saves/m"),
        ),
        ("python3 prepare.py\naxolotl train axo.yml\n", Root("out")),
        ("accelerate launch -m axolotl.cli.train axo.yml\n", Root("out")),
        (
            "accelerate launch -m axolotl.cli.train anew.yml\n",
            Refused("auto_resume_from_checkpoints"),
        ),
        ("python3 -m trl.cli sft --config r.yaml > sft.log 2>&1\n", Root("out")),
        (
            "NPROC_PER_NODE=2 swift sft --output_dir o --add_version false\n",
            Root("o"),
        ),
        (
            "echo nothing is trained here\n",
            Refused("without a call that could be seen of a trainer"),
        ),
    ] {
        world.write("run.sh", script);
        check(
            &world,
            &["plan", "--learn", "--yes", "--", "bash", "run.sh"],
            &told,
            script,
        );
    }
}
