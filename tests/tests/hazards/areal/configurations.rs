//! What is wrong with a configuration, before anything is started.

use crate::areal_bench::Areal;

const GANG: &str = "supervisor:\n  gang: {launcher: gang, gpus: none}\n";

/// [config.mode_on] `mode: on` without quotes, as AReaL's documentation writes it, is a truth value, and refused by every launch | Understood; each launch gets `++recover.mode=auto`
#[test]
fn recovery_that_is_on() {
    let plan = Areal::new().with("mode: auto", "mode: on").plan();
    plan.begins_anew().says(&["recover_mode", "++recover.mode=auto"]);
}

/// [config.mode_off] Recovery is off by default: nothing is saved to go on from | Switched on for the launch, and said
#[test]
fn recovery_that_is_off() {
    let plan = Areal::new().with("mode: auto", "mode: disabled").plan();
    plan.begins_anew().says(&["recover_switched_on", "++recover.mode=auto"]);
}

/// [config.unknown_key] A key that AReaL does not know ends it: so would a block of ours | It is given a copy of the YAML without our block; the user's file stays as it is
#[test]
fn a_block_that_areal_refuses() {
    Areal::new()
        .plan()
        .begins_anew()
        .says(&["\"--config\"", "/supervise/trainer/real/t0/config/"]);
}

/// [config.suffix] A file that does not end in `.yaml` is not found | Refused, with the reason
#[test]
fn the_name_of_the_file() {
    Areal::new().file("x.yml").plan().refuses(&[".yaml"]);
}

/// [config.override] An override of a key that the YAML does not have ends it, also where AReaL has a default | Refused as Hydra does; our own begin with `++`
#[test]
fn an_override_of_nothing() {
    let command = ["python3", "sft.py", "recover.retries=3"];
    Areal::new().command(&command).plan().refuses(&["recover.retries"]);
}

/// [config.frequency] Saved every N steps, at each N-th: a crash costs up to N; with epochs or seconds only, an epoch or an hour | Said before
#[test]
fn what_a_crash_costs() {
    Areal::new().plan().says(&["a crash costs up to 2 steps"]);
    let epochs = Areal::new().with("freq_steps: 2", "freq_epochs: 1, freq_secs: 3600");
    epochs.plan().says(&["cadence_without_steps"]);
}

/// [config.no_frequency] With none of the three frequencies nothing is ever saved | Refused with 78, unless it is started with `--no-recovery`
#[test]
fn no_frequency_at_all() {
    Areal::new()
        .with("freq_steps: 2", "freq_steps: null")
        .plan()
        .refuses(&["nothing would ever be saved"]);
}

/// [config.no_scheduler] Without a launcher and without `scheduler.type` it ends with "Unknown scheduler type" | Refused with 78, with the three ways out
#[test]
fn nobody_starts_the_ranks() {
    Areal::new()
        .with(GANG, "")
        .plan()
        .refuses(&["scheduler.type=local", "areal.infra.launcher.local"]);
}

/// [config.v2] The second version of its controllers cannot recover: `NotImplementedError` at the first save | Refused with 78
#[test]
fn the_second_version_of_controllers() {
    let bench = Areal::new().with("  path: m\n", "  path: m\n  _version: v2\n");
    bench.plan().refuses(&["_version"]);
}

/// [config.older] Before 1.0 AReaL has other keys, and resumes in another way: read as 1.0 is, every example of 0.5.3 is refused with a key that 0.5.3 does not have | The release is asked for, named and refused with 78; `--no-recovery` starts it as it is written. If no release is known, `allocation_mode` without a backend tells
#[test]
fn a_release_before_the_first_that_is_known() {
    let old = Areal::new()
        .with("  backend: 'fsdp:d2'\n", "")
        .with("total_train_steps", "allocation_mode: fsdp:d2\ntotal_train_steps");
    old.plan().refuses(&[
        "allocation_mode, and no actor.backend",
        "known from 1.0 on",
        "--no-recovery",
    ]);
    let told = Areal::new().with(GANG, "supervisor: {trainer_version: 0.5.3}\n");
    told.plan().refuses(&["AReaL 0.5.3 is not known here", "--no-recovery"]);
    let watched = Areal::new()
        .with(GANG, "supervisor: {trainer_version: 0.5.3, recovery: false}\n")
        .plan();
    watched.says(&["\"from\": \"as_is\"", "AReaL 0.5.3 is not known here"]);
}

/// [config.no_command] A file of AReaL's does not say which script it is for | AReaL is named, and the command that starts it is printed
#[test]
fn a_file_without_its_script() {
    let bench = Areal::new().with(GANG, "").command(&[]);
    bench.plan().refuses(&[
        "a configuration of AReaL",
        "-- python3 YOUR_SCRIPT.py +scheduler.type=local",
    ]);
}

/// [config.fileroot] A file root that does not exist ends AReaL's own launchers | Refused with 78 where they are used
#[test]
fn a_file_root_that_does_not_exist() {
    let bench = Areal::new()
        .with("cluster: {fileroot: ", "cluster: {fileroot: /nowhere")
        .with(GANG, "");
    let launcher = ["python3", "-m", "areal.infra.launcher.local", "sft.py"];
    bench.command(&launcher).plan().refuses(&["cluster.fileroot"]);
}

/// [config.megatron_optimizer] Megatron's optimizer cannot be saved by 1.0.4: each recover save fails | Said before
#[test]
fn the_optimizer_of_megatron() {
    Areal::new()
        .with("fsdp:d2", "megatron:d2")
        .plan()
        .says(&["no_save_optim"]);
}

/// [config.megatron_lora] Megatron with LoRA has no checkpointer: the first save ends the run | Refused with 78
#[test]
fn the_adapters_of_megatron() {
    let lora = |backend| {
        let bench = Areal::new().with("fsdp:d2", backend);
        bench.with("  path: m\n", "  path: m\n  use_lora: true\n").plan()
    };
    lora("megatron:d2").refuses(&["actor.use_lora", "no checkpoint of Megatron's adapters"]);
    lora("fsdp:d2").begins_anew();
}

/// [export.critic_twice] Actor and critic share one counter: `freq_steps: 2` exports only the critic | Said before
#[test]
fn exports_of_the_critic_alone() {
    let exported = |every| {
        let freq = format!("saver: {{freq_steps: {every}, ");
        Areal::new().with("saver: {", &freq).with_critic().plan()
    };
    exported(2)
        .begins_anew()
        .says(&["exports_skip_roles", "only the critic is exported"]);
    exported(1).begins_anew().is_silent_on("exports_skip_roles");
}
