//! Where a configuration asks verl to resume.

use crate::bench::Bench;
use serde_json::json;
use std::fs;
use std::path::Path;
use supervise_tests::harness::snapshot;

/// [resume.auto] `auto` takes what the pointer names; PPO ignores `resume_from_path` then, the SFT trainer obeys it | The newest proven step, given by path; where both were said, each trainer's own answer counts
#[test]
fn auto_is_the_newest_proven_step() {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    bench.plan().starts_at(2);
    let first = bench.step(1, "");
    let first = first.to_str().unwrap().trim_end_matches('/').to_owned();
    bench.set("trainer.resume_from_path", json!(first));
    bench.plan().starts_at(2).finds("resume_from_path_ignored");
    let mut bench = Bench::sft().with("verl_sft_fsdp2_w2");
    let first = bench.root().join("global_step_1");
    bench.set("trainer.resume_from_path", json!(first));
    bench.plan().starts_at(1);
}

/// [resume.disable] `disable` starts at step 0 and saves over what is there, at every relaunch | Begun anew once; older steps go aside as another run's, and later attempts resume
#[test]
fn disable_begins_anew_once() {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    bench.set("trainer.resume_mode", json!("disable"));
    bench.plan().starts_afresh().moves_aside(1).moves_aside(2);
}

/// [resume.path] `resume_path` is not checked to exist, must be the step itself, and PPO takes the number behind the last `global_step_` | The path is proven first; a slash at its end, a role's directory or a missing step is refused with its place
#[test]
fn a_path_has_to_be_a_proven_step() {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    let first = bench.root().join("global_step_1").display().to_string();
    bench.set("trainer.resume_mode", json!("resume_path"));
    bench
        .plan()
        .refuses(78, &["trainer.resume_from_path", "no path is given"]);
    for (path, words) in [
        (format!("{first}/"), "trailing slash"),
        (format!("{first}/actor"), "a part of a step"),
        (first.replace("step_1", "step_01"), "not how verl writes"),
        (first.replace("global_step_1", "final"), "not a step directory"),
    ] {
        bench.set("trainer.resume_from_path", json!(path));
        bench.plan().refuses(78, &["trainer.resume_from_path", words]);
    }
    bench.set("trainer.resume_from_path", json!(first));
    bench.plan().starts_at(1);
    bench.lose(1, "actor/model_world_size_2_rank_0.pt");
    bench.plan().refuses(4, &["global_step_1"]);
}

/// [resume.other_word] Any other mode is an unbound variable in v1, and the pointer or a crash in v0 | Refused with 78, with the words that verl knows
#[test]
fn another_word_is_refused() {
    let mut bench = Bench::ppo();
    bench.set("trainer.resume_mode", json!("latest"));
    bench
        .plan()
        .refuses(78, &["trainer.resume_mode", "`latest`", "auto, disable or resume_path"]);
}

/// [resume.path_parsing] The SFT trainer takes the step from the first `global_step_N` in the whole path, PPO from the last | A root that holds such a name is refused for SFT with 78, and is none of PPO's business
#[test]
fn the_first_number_in_a_path_is_not_the_steps() {
    let mut bench = Bench::sft();
    let root = bench.path("from_global_step_50/checkpoints");
    bench.set("trainer.default_local_dir", json!(root));
    bench
        .plan()
        .refuses(78, &["trainer.default_local_dir", "global_step_N"]);
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    let root = bench.path("from_global_step_50/checkpoints");
    fs::create_dir(bench.path("from_global_step_50")).unwrap();
    fs::rename(bench.root(), &root).unwrap();
    bench.set("trainer.default_local_dir", json!(root));
    bench.plan().starts_at(2);
}

/// [resume.world_size] FSDP loads the files of its own number of ranks and no others | A whole step of another number is not called damaged, not moved and not skipped: the run stops with 3 and names the number that fits. With `elastic: true` it is cut anew, where the batches divide, and kept as it was
#[test]
fn fsdp_resumes_only_with_as_many_ranks() {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    bench.set("trainer.n_gpus_per_node", json!(4));
    bench
        .plan()
        .refuses(3, &["written by 2 ranks and this run has 4"])
        .moves_nothing();
    bench.verify("global_step_2").tells(0, &[]);
    bench.set("supervisor.elastic", json!(true));
    // Six samples of three answers each, for four ranks.
    bench
        .set("data.train_batch_size", json!(6))
        .set("actor_rollout_ref.rollout.n", json!(3));
    bench
        .actor("ppo_mini_batch_size", json!(6))
        .actor("ppo_micro_batch_size_per_gpu", json!(1));
    let why = [
        "data.train_batch_size=6 times",
        "is no multiple of 4: data.train_batch_size=8",
    ];
    bench.plan().refuses(3, &why).moves_nothing();
    bench
        .set("data.train_batch_size", json!(8))
        .actor("ppo_mini_batch_size", json!(4));
    let micro = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu";
    bench.actor("ppo_micro_batch_size_per_gpu", json!(2));
    let why = format!("{micro}=2 does not divide the 3 samples of a rank: {micro}=1");
    bench.plan().refuses(3, &[&why]).moves_nothing();
    bench.actor("ppo_micro_batch_size_per_gpu", json!(3));
    let inside = |dir: &Path| -> Vec<_> {
        let all = snapshot(dir).into_iter();
        all.map(|(path, size, at)| (path.strip_prefix(dir).unwrap().to_owned(), size, at))
            .collect()
    };
    let was = inside(&bench.step(2, ""));
    bench.plan().starts_at(2).says("saved by 2 ranks and this run has 4");
    assert_eq!(was, inside(&bench.step(2, "")));
    // The trainer trains nothing; what it is given is what counts here.
    bench.run(&[]).tells(
        3,
        &[
            "global_step_2 is cut anew, from 2 ranks to 4",
            "was cut anew, from 2 ranks to 4",
        ],
    );
    bench.verify("global_step_2").tells(0, &["whole"]);
    assert!(bench.step(2, "actor/model_world_size_4_rank_3.pt").exists());
    let aside = bench.root().join(".supervise/aside/global_step_2.before-attempt-1");
    assert_eq!(was, inside(&aside));
    let (old, new) = (aside.join("actor"), bench.step(2, "actor"));
    let equal = bench.ask(&["compare", old.to_str().unwrap(), new.to_str().unwrap()]);
    equal.tells(0, &["equal"]);
}

/// [resume.parallel_sizes] Megatron resumes with another number of copies; another division of the model only where both save and load are fully reshardable, and then without random states | Told from the step's own configuration: another division stops with 3, or loses the random states where it is allowed
#[test]
fn megatron_resumes_with_the_same_division() {
    let mut bench = Bench::megatron().with("verl_megatron_v2_hf");
    bench.set("trainer.n_gpus_per_node", json!(4));
    bench.plan().starts_at(2);
    bench
        .set("trainer.n_gpus_per_node", json!(2))
        .actor("megatron.tensor_model_parallel_size", json!(1));
    bench
        .plan()
        .refuses(3, &["tensor_model_parallel_size=2 (it is 1)"])
        .moves_nothing();
}

/// [resume.incomplete] A directory with parts missing or cut fails every launch: FileNotFoundError, a zip reader's error, an assertion of Megatron's | Never chosen: it goes aside with the reason, and an older proven step is taken
#[test]
fn an_incomplete_step_is_never_chosen() {
    let bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    bench.cut(2, "actor/model_world_size_2_rank_0.pt");
    bench.plan().starts_at(1).moves_aside(2);
    let bench = Bench::megatron_shards().with("verl_megatron_v2_tp2");
    bench.lose(2, "actor/model/dist_ckpt/.metadata");
    bench.plan().starts_at(1).moves_aside(2);
}

/// [resume.load_contents] An empty list loads nothing and still counts on; `[model]` begins with a fresh optimizer, schedule and random numbers | What is loaded is always said, never an empty list; a partial load is told as lost before the launch
#[test]
fn what_is_loaded_is_said() {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    let key = "actor_rollout_ref.actor.checkpoint.load_contents";
    bench.plan().passes(&format!("{key}=['model','optimizer','extra']"));
    bench.set(key, json!([]));
    bench.plan().refuses(78, &[key, "nothing would be loaded"]);
    bench.set(key, json!("${.save_contents}"));
    bench.plan().starts_at(2).loses(&[]);
}

/// [resume.load_once] `load_contents=[model]`, once useful to start from weights alone, throws the optimizer away at each relaunch as well | Obeyed at the first launch; later ones load all that the run's own steps hold
#[test]
fn a_wish_for_less_is_obeyed_once() {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    let key = "actor_rollout_ref.actor.checkpoint.load_contents";
    fs::rename(bench.step(2, ""), bench.path("second")).unwrap();
    fs::write(bench.tracker(), "1").unwrap();
    // The first attempt saves the second step; both fail.
    let script = "echo \"$@\" >>asked\n\
        [ -d second ] && mv second checkpoints/global_step_2 && printf 2 >checkpoints/latest_checkpointed_iteration.txt\n\
        exit 1\n";
    bench
        .set(key, json!(["model"]))
        .script(script)
        .set("supervisor.retries", json!(1));
    bench.run(&[]);
    let asked = fs::read_to_string(bench.path("asked")).unwrap();
    let asked: Vec<&str> = asked.lines().collect();
    let loads = |line: &str, list: &str| line.contains(&format!("{key}={list}"));
    assert!(
        loads(asked[0], "['model']") && asked[0].contains("global_step_1"),
        "{asked:#?}"
    );
    assert!(
        loads(asked[1], "['model','optimizer','extra']") && asked[1].contains("global_step_2"),
        "{asked:#?}"
    );
}

/// [resume.data_order] Without `data.pt` the data starts again at the epoch's beginning, with a warning in the log | The step is whole, the lost data order is told before the launch; with `degraded_resume: never` the run stops with 4 instead
#[test]
fn a_missing_dataloader_state_is_told() {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    bench.lose(1, "data.pt").lose(2, "data.pt");
    bench.verify("global_step_2").tells(0, &["no_data_state"]);
    bench.plan().starts_at(2).loses(&["data_order"]);
    bench.set("supervisor.degraded_resume", json!("never"));
    bench.plan().refuses(4, &["data order"]);
}

/// [resume.epoch_boundary] A resume at the end of an epoch trains nothing in the SFT trainer, and ends with exit code 0 | Saving at each epoch's end is warned of; an attempt that ends well without a new step stops the run with 3
#[test]
fn an_epochs_end_trains_nothing() {
    let mut bench = Bench::sft().with("verl_sft_fsdp2_w2");
    bench.set("trainer.save_freq", json!("after_each_epoch"));
    bench.plan().finds("epoch_boundary");
    bench.script("echo 'StatefulDataLoader will automatically resume from global step: 2'\nexit 0\n");
    bench.run(&[]).tells(3, &["exit code 0"]);
    assert_eq!(bench.attempts(), 1);
}

/// [resume.not_restored] Rollout seeds and what was in flight come back with no trainer, whatever was saved | Listed as never restored, in `plan` and at every resume
#[test]
fn what_never_comes_back_is_listed() {
    Bench::ppo().plan().never_restores("rollout");
}

/// [resume.scratch_in_silence] A trainer that was told to resume and begins at step 0 only prints a line | The line is seen, and the attempt is ended before its first save goes over anything
#[test]
fn a_start_from_nothing_in_silence_is_ended() {
    let mut bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    bench
        .script("echo 'Training from scratch'\nsleep 60\n")
        .set("supervisor.retries", json!(0));
    bench.run(&[]).tells(3, &["starts from scratch"]);
    assert_eq!(bench.diagnosis().0, "ckpt.missing_part");
}

/// An interpreter with a release of verl that composes this for a module of one's own.
fn python(bench: &Bench, verl: &str, mode: &str) -> String {
    let answer = format!(
        r#"{{"program":"/fake/python","python":"3.11.9","packages":{{}},"verl":{{"at":"/fake/verl","version":"{verl}"}}}}"#
    );
    let root = bench.root();
    let trainer =
        json!({"default_local_dir": root, "save_freq": 1, "nnodes": 1, "n_gpus_per_node": 2, "logger": ["console"]});
    let trainer = trainer.to_string().replacen('{', &format!("{{{mode}"), 1);
    let composed = format!(
        "actor_rollout_ref: {{actor: {{strategy: fsdp2}}}}\nalgorithm: {{adv_estimator: grpo}}\ntrainer: {trainer}\n"
    );
    fs::write(bench.path("composed"), composed).unwrap();
    let at = bench.path("composed").display().to_string();
    bench.program(
        "python3",
        &format!(
            "case \"$*\" in *'--cfg job') cat {at};; *'read(1 << 20)'*) echo hydra.main;; *) echo 'supervise-interpreter:{answer}';; esac\n"
        ),
    )
}

/// [resume.auto_alone] A trainer built on verl's classes may keep more beside its steps, and load it with `auto` alone: resumed by a path, Absolute-Zero-Reasoner begins its data anew without a word | Where a trainer is only taken for one of verl's, `auto` stays as it is written, the pointer is mended, and the first printed step is compared with the one that was meant
#[test]
fn auto_stays_for_a_trainer_that_is_not_known() {
    let bench = Bench::ppo().with("verl_ppo_fsdp2_w2");
    fs::remove_file(bench.tracker()).unwrap();
    let python = python(&bench, "0.9.1", "\"resume_mode\": \"auto\", ");
    let call = [
        "plan",
        "--learn",
        "--json",
        "--",
        &python,
        "-m",
        "mine.main",
        "trainer.n_gpus_per_node=2",
    ];
    let said = bench.ask(&call);
    said.tells(0, &["global_step_2", "write_tracker", "`auto` stays as it is written"]);
    assert!(
        !said.out.contains("trainer.resume_mode=") && !said.out.contains("resume_from_path="),
        "{}",
        said.out
    );
}

/// [resume.none_at_all] verl 0.1, as forks hold it, has no `resume_mode`: started again it trains from step 0 and writes over `actor/global_step_N` | Refused with 78 where verl composes a configuration without it, one that adds the key as well; `--no-recovery` starts it as it is written, and steps one level below the root are named
#[test]
fn a_release_without_the_key_cannot_resume() {
    let bench = Bench::ppo();
    let python = python(&bench, "0.1", "");
    let call = [
        "--",
        &python,
        "-m",
        "verl.trainer.main_ppo",
        "trainer.n_gpus_per_node=2",
    ];
    let with = |more: &[&str]| bench.ask(&[&["plan", "--learn", "--json"], more, &call].concat());
    let told = "verl 0.1 has no trainer.resume_mode: its trainer cannot resume";
    with(&[]).tells(78, &[told, "--no-recovery"]);
    with(&["--set", "+trainer.resume_mode=auto"]).tells(78, &[told]);
    let said = with(&["--no-recovery"]);
    said.tells(0, &[told, "\"from\": \"as_is\""]);
    assert!(!said.out.contains("trainer.resume_mode="), "{}", said.out);
    fs::create_dir_all(bench.root().join("actor/global_step_4")).unwrap();
    let nested = "actor/global_step_4 looks like a step and does not stand in the root itself";
    let root = bench.root().display().to_string();
    bench.ask(&["checkpoints", &root]).tells(0, &[nested]);
    bench.plan().starts_afresh().says(nested);
}
