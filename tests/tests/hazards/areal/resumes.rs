//! Where it resumes, and what comes back.

use crate::areal_bench::Areal;
use crate::areal_run::Run;
use crate::stage::{Stage, files, live};
use camino::Utf8PathBuf;
use serde_json::{Value, json};
use std::fs;
use supervise_core::checkpoint::Verdict;
use supervise_core::journal::record::DiskEdit;
use supervise_trainers::areal::Frequencies;

/// [resume.first_epoch, resume.finished] Within the first epoch and with a constant schedule, a resume goes on as if nothing had been | The same, from a set of which every byte was looked at
#[test]
fn in_the_first_epoch() {
    Areal::genuine().plan().resumes();
}

/// [resume.no_counters, resume.overwrites] A checkpoint without `recover_info` is nothing to AReaL: it begins anew and writes over it | It does not launch over weights that nobody asked to lose
#[test]
fn weights_without_counters() {
    let bench = Areal::genuine();
    fs::remove_dir_all(bench.trial("recover_info")).unwrap();
    bench.plan().does_not_launch(&["recover_info_missing"]);
}

/// [resume.scratch_in_silence_kept] A torn counter is a warning, and the run begins anew with exit code 0 | With nothing kept, it does not launch, and says which file is why
#[test]
fn a_torn_counter_and_nothing_kept() {
    let bench = Areal::genuine();
    fs::write(bench.trial("recover_info/step_info.json"), "{").unwrap();
    bench.plan().does_not_launch(&["step_info.json", "json_truncated"]);
}

/// [resume.world_size, disk.data_list] Another number of ranks is a fresh start: the list of places in the data has another length | It does not launch, and says with how many processes it would resume
#[test]
fn another_number_of_ranks() {
    for ranks in ["1", "4"] {
        let bench = Areal::genuine()
            .with("fsdp:d2", &format!("fsdp:d{ranks}"))
            .with("n_gpus_per_node: 2", &format!("n_gpus_per_node: {ranks}"));
        bench.plan().does_not_launch(&[
            "2 processes wrote their place in the data",
            "start it with 2 processes again, or choose another trial_name",
        ]);
    }
    // As it says.
    Areal::genuine().plan().resumes();
    let other = Areal::genuine().with("trial_name: t0", "trial_name: t1");
    other.plan().begins_anew();
}

/// [resume.parallel] As many ranks that are spread otherwise load it without a word, and go on at another place in the data | Recorded with each save and compared before each launch: without `degraded_resume: model_only` it does not launch, with it says what is lost; where nothing is recorded, that is said
#[test]
fn ranks_that_are_spread_otherwise() {
    let run = Run::new("sys.exit(train())").until(4);
    run.run(&[]).expect(0);
    let run = run.until(6).set("actor", "backend", json!("fsdp:d1t2"));
    let refused = run.run(&[]);
    refused
        .expect(4)
        .says("default was saved as fsdp:d1 and this run has fsdp:d1t2")
        .says("can only be resumed without its parallel sizes")
        .says("--set supervisor.degraded_resume=model_only");
    let agreed = run.run(&["--set", "supervisor.degraded_resume=model_only"]);
    agreed
        .expect(0)
        .says("this run has fsdp:d1t2")
        .says("NOT restored: parallel sizes");
    // What it saved since is its own.
    let run = run.until(8);
    let same = run.run(&[]);
    same.expect(0);
    assert!(!same.text.contains("parallel sizes"), "{}", same.text);
    assert_eq!(run.trained(), [1, 2, 3, 4, 5, 6, 7, 8]);

    let foreign = Run::new("sys.exit(train())");
    foreign.saved(4);
    foreign.run(&[]).expect(0).says("(default fsdp:d1) is not recorded");
}

/// [resume.backend] No backend loads what another one saved: each launch ends with an exception | It does not launch, and names the backend that saved it
#[test]
fn another_backend() {
    for backend in ["archon:d1", "megatron:d1"] {
        let run = Run::new("sys.exit(train())").until(4);
        run.run(&[]).expect(0);
        let run = run.until(6).set("actor", "backend", json!(backend));
        let refused = run.run(&[]);
        refused.expect(3).says("this run loads it with");
        assert_eq!(run.launches(), 1);
    }
    Areal::genuine()
        .with("fsdp:d2", "megatron:d2")
        .plan()
        .does_not_launch(&["not by Megatron"]);
}

/// [resume.user, resume.identity] The user's name is a part of the checkpoint root: with another one it finds nothing and begins anew | The name is written into the environment of every launch, so that it cannot change between two
#[test]
fn the_name_of_the_user() {
    Areal::genuine()
        .plan()
        .resumes()
        .says(&["\"LOGNAME\",", "checkpoints/trainer/real/t0"]);
    Areal::genuine()
        .user("other")
        .plan()
        .says(&["checkpoints/other/real/t0"]);
}

/// [resume.schedule] FSDP and Archon do not save the learning-rate schedule: warmup and decay run again from their beginning | Said before the first launch; not said where the schedule is constant
#[test]
fn the_schedule_runs_again() {
    let cosine = Areal::genuine().with("lr_scheduler_type: constant", "lr_scheduler_type: cosine");
    cosine.plan().resumes().says(&["schedule_replayed", "\"lr_schedule\""]);
    Areal::genuine().plan().is_silent_on("schedule_replayed");
}

/// [resume.rng] No random state is in a checkpoint of FSDP's or Archon's: each start seeds anew | Told as never restored
#[test]
fn random_numbers() {
    Areal::genuine().plan().says(&["\"rng\""]);
}

/// [resume.second_epoch] Beyond the first epoch, a resume goes on with the first epoch's order of the data | Said before the first launch, where there is more than one epoch
#[test]
fn the_order_of_the_data() {
    Areal::genuine().plan().says(&["data_order"]);
    let one = Areal::genuine().with("total_train_epochs: 4", "total_train_epochs: 1");
    one.plan().is_silent_on("\"data_order\"");
}

/// [resume.retries] `recover.retries` counts for AReaL's old launchers only; they relaunch by themselves, also what had ended well | It counts for `supervise`, and those launchers get 0
#[test]
fn who_relaunches() {
    let launcher = ["python3", "-m", "areal.infra.launcher.local", "sft.py"];
    let bench = Areal::new()
        .with("recover: {", "recover: {retries: 7, ")
        .with("supervisor:\n  gang: {launcher: gang, gpus: none}\n", "");
    bench
        .command(&launcher)
        .plan()
        .begins_anew()
        .says(&["++recover.retries=0", "recover.retries=7"]);
}

/// [resume.critic] The critic is saved and never loaded: after a resume it begins anew | Said before the first launch, and among what was not restored at each resume; and its state has to be whole all the same
#[test]
fn the_critic_begins_anew() {
    let said = "saves the critic and does not load it";
    Areal::new()
        .with_critic()
        .plan()
        .begins_anew()
        .says(&["critic_not_restored", said, "\"critic\""]);
    Areal::new().plan().is_silent_on("critic_not_restored");
    Areal::genuine()
        .with_critic()
        .plan()
        .does_not_launch(&["there is no state of critic"]);
}

/// [resume.frequency] The frequencies of saves that were stored win over those that are configured now | Said, and written beside the checkpoint before the launch: the configuration counts
#[test]
fn frequencies_that_were_stored() {
    Areal::genuine()
        .plan()
        .resumes()
        .says(&["frequency_stored", "every 1 steps", "every 2 steps", "set_frequencies"]);
    let same = Areal::genuine()
        .with("freq_steps: 2", "freq_steps: 1")
        .with("saver: {", "saver: {freq_steps: 2, ");
    same.plan().resumes().is_silent_on("set_frequencies");

    let mut stage = Stage::new();
    stage.save(4);
    let name = "checkpoint_info.json";
    let wanted = Frequencies {
        steps: Some(5),
        ..Frequencies::default()
    };
    stage.say(|live| live.frequencies = [(name.to_owned(), wanted)].into());
    let before = files(&stage.root);
    let mut io_worker = stage.io_worker();
    io_worker.scan();
    io_worker.edit(vec![DiskEdit::SetFrequencies]).unwrap();
    let mut after = files(&stage.root);
    let path = Utf8PathBuf::from("recover_info").join(name);
    let written: Value = serde_json::from_slice(&after[&path]).unwrap();
    assert_eq!(written["step"]["frequency_steps"], 5);
    after.insert(path.clone(), before[&path].clone());
    assert_eq!(after, before, "nothing else is another");
    assert_eq!(live(&io_worker.scan()).verdict, Verdict::Whole);
}

/// [resume.drawn_prompts] Prompts that were drawn and not yet trained are skipped | Told as never restored
#[test]
fn prompts_that_were_drawn() {
    let rollout = "rollout: {backend: 'sglang:d1', max_head_offpolicyness: 2}\n";
    let bench = Areal::new().with("recover: {", &format!("{rollout}recover: {{"));
    bench.plan().begins_anew().says(&["\"rollout\"", "in-flight rollouts"]);
    Areal::new().plan().is_silent_on("in-flight rollouts");
}
