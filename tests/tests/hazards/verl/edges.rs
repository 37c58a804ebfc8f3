//! Other releases, forks, and programs of verl's that are no trainers.

use crate::bench::{Bench, scene};
use std::fs;

/// An interpreter with this release of verl, which does this if it is asked for its configuration.
fn python(bench: &Bench, verl: &str, does: &str) -> String {
    let answer = format!(
        r#"{{"program":"/fake/python","python":"3.11.9","packages":{{}},"verl":{{"at":"/fake/verl","version":"{verl}"}}}}"#
    );
    bench.program(
        "python3",
        &format!("case \"$*\" in *'--cfg job') {does};; *) echo 'supervise-interpreter:{answer}';; esac\n"),
    )
}

/// [edge.asked_and_failed] A verl that no table knows may fail at its own configuration, as ZeroSearch without `openai` and Skywork-OR1 do | It is asked, and what it says is the answer for every entry point: refused with 78 and verl's own words, unless recovery is off
#[test]
fn a_release_that_was_asked_and_failed() {
    let bench = Bench::ppo();
    let python = python(
        &bench,
        "0.1",
        "echo \"ModuleNotFoundError: No module named 'openai'\" >&2; exit 1",
    );
    let root = format!("trainer.default_local_dir={}", bench.root().display());
    let call = [
        "--",
        &python,
        "-m",
        "verl.trainer.main_ppo",
        &root,
        "trainer.n_gpus_per_node=2",
        "trainer.save_freq=2",
    ];
    let told = "does not compose its configuration: exit code 1: ModuleNotFoundError: No module named 'openai'";
    for command in [&["plan", "--learn"][..], &["run"]] {
        bench
            .ask(&[command, &call].concat())
            .tells(78, &[told, "verl 0.1 is not known here"]);
    }
    assert_eq!(bench.attempts(), 0);
    bench
        .ask(&[&["plan", "--learn", "--no-recovery"][..], &call].concat())
        .tells(0, &["No module named 'openai'", "would run the command as written"]);
}

/// [edge.easyr1] EasyR1 is a fork under verl's package name, with keys, a pointer and files of its own; `verl.trainer.main_ppo` is not in it | Named and refused with 78, by its file and by its command, with the command that restarts it with nothing proven
#[test]
fn easyr1_is_no_verl() {
    let bench = Bench::ppo();
    let yaml = "worker: {actor: {model: {model_path: m}}}\ntrainer: {save_freq: 2, max_steps: 8, save_limit: 3, find_last_checkpoint: true}\n";
    fs::write(bench.path("easyr1.yaml"), yaml).unwrap();
    let python = python(&bench, "0.3.3.dev0", "exit 3");
    bench.ask(&["plan", "easyr1.yaml"]).tells(
        78,
        &["of EasyR1", "supervisor.trainer=plain -- python3 -m verl.trainer.main"],
    );
    let call = [&python, "-m", "verl.trainer.main", "config=easyr1.yaml"];
    bench
        .ask(&[&["run", "--"], &call[..]].concat())
        .tells(78, &["the entry point of EasyR1"]);
    let plain = ["plan", "--set", "supervisor.trainer=plain", "--"];
    bench
        .ask(&[&plain, &call[..]].concat())
        .tells(0, &["would run the command as written"]);
}

/// [edge.plain_steps] What is not known is supervised as a plain command, whose steps nobody can prove: a run of weeks that is cut off now and then used up its retries | A printed step beyond those of all attempts before is progress, and refills the retries
#[test]
fn a_plain_program_that_gets_on() {
    let scene = scene();
    let script = "n=$(cat at 2>/dev/null || echo 0)\nfor i in 1 2; do n=$((n+1)); echo step:$n - loss:0.1; done\necho $n >at\n[ $n -ge 12 ] || { echo 'NCCL error: unhandled system error' >&2; exit 1; }\n";
    fs::write(scene.path("train.sh"), script).unwrap();
    let settings = ["retries=1", "backoff.initial=10ms", "backoff.max=20ms"];
    scene.start_plain(&settings, &["sh", "train.sh"]).wait().expect(0);
    assert_eq!(fs::read_to_string(scene.path("at")).unwrap().trim(), "12");
}

/// [edge.own_file] A copy of verl's own `ppo_trainer.yaml` names configurations that stand beside the original only | They are taken from verl's package, as Hydra would find them there
#[test]
fn a_copy_of_verls_own_file() {
    let bench = Bench::ppo();
    let python = python(&bench, "0.9.1", "exit 3");
    let yaml = "defaults:\n  - model_engine: dp\n  - legacy_reward_impl\n  - actor@actor_rollout_ref.actor: dp_actor\n  - _self_\ntrainer: {save_freq: 2, default_local_dir: ckpt, n_gpus_per_node: 2}\n";
    fs::write(bench.path("ppo.yaml"), yaml).unwrap();
    bench
        .ask(&["plan", "ppo.yaml", "--", &python, "-m", "verl.trainer.main_ppo"])
        .tells(0, &["hydra.searchpath=[pkg://verl.trainer.config]"]);
}

/// [edge.asynchronous_file] The file of the fully asynchronous trainer has all keys of PPO: started as PPO, it trains with another algorithm's settings | Refused with 78 if no command says what starts it, with the command that does
#[test]
fn a_file_of_an_asynchronous_trainer() {
    let bench = Bench::ppo();
    let yaml = "defaults: [ppo_trainer, _self_]\ntrainer: {save_freq: 2, default_local_dir: ckpt, n_gpus_per_node: 2}\nasync_training: {staleness_threshold: 0.1}\n";
    fs::write(bench.path("my.yaml"), yaml).unwrap();
    bench.ask(&["plan", "my.yaml"]).tells(
        78,
        &["my.yaml -- python3 -m verl.experimental.fully_async_policy.fully_async_main"],
    );
}

/// [edge.untrained] verl's `generation.yaml` and `evaluation.yaml` have keys like those of the SFT trainer, and train nothing | Named and refused with 78, with the command that only restarts them
#[test]
fn a_file_that_trains_nothing() {
    let bench = Bench::ppo();
    let generation = "trainer: {nnodes: 1, n_gpus_per_node: 8}\ndata: {path: p, prompt_key: prompt, n_samples: 5, output_path: o, batch_size: 128}\nmodel: {path: m}\nrollout: {name: vllm}\nactor: {strategy: fsdp}\n";
    let evaluation =
        "data: {path: p, prompt_key: prompt, response_key: responses, data_source_key: d, reward_model_key: r}\n";
    for (work, module, text) in [
        ("generation", "main_generation", generation),
        ("evaluation", "main_eval", evaluation),
    ] {
        fs::write(bench.path("x.yaml"), text).unwrap();
        let folder = bench.path("");
        let folder = folder.to_str().unwrap().trim_end_matches('/');
        let hint = format!(
            "--set supervisor.trainer=plain -- python3 -m verl.trainer.{module} --config-path {folder} --config-name x"
        );
        bench
            .ask(&["plan", "x.yaml"])
            .tells(78, &[&format!("verl's {work}: it trains nothing"), &hint]);
        let words: Vec<&str> = hint.split(' ').collect();
        bench
            .ask(&[&["plan"], &words[..]].concat())
            .tells(0, &["would run the command as written"]);
        let module = format!("verl.trainer.{module}");
        let own = format!("--set supervisor.trainer=plain -- python3 -m {module} model.path=m");
        bench
            .ask(&["plan", "--", "python3", "-m", &module, "model.path=m"])
            .tells(78, &["it trains nothing", &own]);
    }
}
