//! Statements of a configuration about a run.

use super::case::{Case, command, more, recover, set, with};
use supervise_core::checkpoint::StateKind;
use supervise_core::spec::{LauncherKind, SaveCadence};
use supervise_trainers::ReadOutput;
use supervise_trainers::areal::ArealSpec;

fn live(read: &ReadOutput) -> ArealSpec {
    ArealSpec::of(&read.saves).unwrap()
}

#[test]
fn the_root_follows_from_the_recover_section_and_the_user() {
    let read = Case::default().good();
    assert_eq!(read.kind, supervise_trainers::areal::AREAL);
    assert_eq!(read.root.as_ref().unwrap(), "/share/checkpoints/ann/exp/t0");
    let user = live(&read).user;
    assert_eq!(
        (read.saves.in_place().unwrap().store.as_str(), user.as_str()),
        ("/share/supervise/ann/exp/t0", "ann")
    );
    // Not from the names above it.
    let other = set(&["recover.trial_name=other", "experiment_name=elsewhere"]).good();
    assert_eq!(other.root.unwrap(), "/share/checkpoints/ann/elsewhere/other");
    // A relative root stands where the trainer starts.
    let relative = set(&["cluster.fileroot=out"]).good();
    assert_eq!(relative.root.unwrap(), "/data/out/checkpoints/ann/exp/t0");
}

#[test]
fn the_user_is_pythons() {
    let user = |env: &'static [(&'static str, &'static str)], command: &'static str| {
        let case = Case {
            env,
            command,
            ..Case::default()
        };
        live(&case.good()).user
    };
    let plain = "python3 sft.py scheduler.type=local";
    assert_eq!(user(&[("USER", "b"), ("LOGNAME", "a")], plain), "a");
    assert_eq!(user(&[("USER", "b"), ("LOGNAME", "")], plain), "b");
    assert_eq!(user(&[("USERNAME", "d"), ("LNAME", "c")], plain), "c");
    assert_eq!(user(&[], plain), "uid-name");
    let env = "env LOGNAME=z python3 sft.py scheduler.type=local";
    assert_eq!(user(&[("LOGNAME", "a")], env), "z");
}

#[test]
fn the_user_is_pinned_for_every_launch() {
    let env = Case::default().launch().env;
    let get = |name: &str| env.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str());
    assert_eq!((get("LOGNAME"), get("USER")), (Some("ann"), None));
    let none = Case {
        env: &[],
        ..Case::default()
    };
    let env = none.launch().env;
    let get = |name: &str| env.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str());
    assert_eq!((get("LOGNAME"), get("USER")), (Some("uid-name"), Some("uid-name")));
}

#[test]
fn a_root_that_leads_elsewhere_is_refused() {
    assert!(set(&["recover.trial_name='../x'"]).problem().contains("leads out of"));
    assert!(set(&["cluster.fileroot=''"]).problem().contains("it is empty"));
}

#[test]
fn nothing_that_is_ever_saved_is_refused_while_recovery_is_on() {
    let nothing = "  mode: auto";
    assert!(recover(nothing).problem().contains("nothing would ever be saved"));
    let without = Case {
        no_recovery: true,
        ..recover(nothing)
    };
    assert!(without.says("never_saved").is_some());
}

#[test]
fn frequencies_without_steps_say_what_a_crash_can_cost() {
    let usual = recover("  mode: disabled\n  freq_epochs: 1\n  freq_steps: null\n  freq_secs: 3600");
    let said = usual.says("cadence_without_steps").unwrap();
    assert!(
        said.contains("an epoch, or 3600 s and the step that they end in, whichever is less"),
        "{said}"
    );
    assert_eq!(
        usual.good().cadence,
        SaveCadence {
            every: None,
            at_end: true
        }
    );
    let epochs = recover("  mode: auto\n  freq_epochs: 2");
    assert!(
        epochs
            .says("cadence_without_steps")
            .unwrap()
            .ends_with("can cost 2 epochs")
    );
    assert!(!epochs.good().cadence.at_end, "one epoch is planned");
}

#[test]
fn a_last_step_that_is_not_saved_is_told() {
    let case = Case {
        set: &["+total_train_steps=5"],
        ..Case::default()
    };
    assert!(case.says("cadence").unwrap().contains("the last one, 5, is not saved"));
}

#[test]
fn a_scheduler_that_is_null_is_refused_before_the_launch() {
    let problem = command("python3 sft.py").problem();
    assert!(
        problem.contains("Unknown scheduler type") && problem.contains("scheduler.type=local"),
        "{problem}"
    );
    for good in [
        "python3 sft.py scheduler.type=ray",
        "python3 -m areal.infra.launcher.local sft.py",
        "torchrun --nproc-per-node 2 sft.py",
        "bash run.sh {config}",
    ] {
        command(good).good();
    }
    let spmd = Case {
        env: &[("USER", "ann"), ("AREAL_SPMD_MODE", "1")],
        ..command("python3 sft.py")
    };
    spmd.good();
}

#[test]
fn jobs_of_slurm_outlive_what_started_them() {
    for slurm in [
        "python3 sft.py scheduler.type=slurm",
        "python3 -m areal.infra.launcher.slurm sft.py",
    ] {
        assert!(command(slurm).says("slurm_jobs").is_some(), "{slurm}");
    }
    assert_eq!(Case::default().says("slurm_jobs"), None);
}

#[test]
fn ranks_and_the_place_in_the_data_depend_on_the_mode() {
    let of = |case: Case| {
        let read = case.good();
        (
            read.gang.launcher,
            read.gang.workers,
            read.world,
            live(&read).data_ranks,
        )
    };
    let (driver, gang) = (LauncherKind::Driver, LauncherKind::Gang);
    assert_eq!(of(Case::default()), (driver, 1, Some(2), Some(1)));
    assert_eq!(
        of(command("python3 -m areal.infra.launcher.local sft.py")),
        (driver, 1, Some(2), Some(2))
    );
    assert_eq!(
        of(command("torchrun --nproc_per_node=2 sft.py")),
        (driver, 1, Some(2), Some(2))
    );
    let ours = Case {
        launcher: Some(gang),
        ..command("python3 sft.py")
    };
    assert_eq!(of(ours), (gang, 2, Some(2), Some(2)));
    let told = Case {
        workers: Some(2),
        ..command("python3 sft.py")
    };
    assert_eq!(of(told), (gang, 2, Some(2), Some(2)));
    assert_eq!(of(command("bash run.sh {config}")).3, None);
}

#[test]
fn another_number_of_ranks_than_the_engine_wants_is_refused() {
    let problem = command("torchrun --nproc-per-node 4 sft.py").problem();
    assert!(problem.contains("spread over 2 ranks, and 4 are started"), "{problem}");
    assert!(
        set(&["actor.backend=d4"])
            .problem()
            .contains("does not understand `d4`")
    );
    assert!(set(&["actor.backend='sglang:d4'"]).problem().contains("generates only"));
}

#[test]
fn the_controller_v2_cannot_recover() {
    let v2 = Case {
        set: &["+actor._version=v2"],
        ..Case::default()
    };
    assert!(v2.problem().contains("controller v2"));
    let without = Case {
        no_recovery: true,
        ..v2
    };
    assert!(without.says("controller_v2").is_some());
}

#[test]
fn what_each_engine_brings_back_is_told() {
    let fsdp = Case::default();
    assert_eq!(fsdp.good().not_restored, [StateKind::Rng]);
    let said = fsdp.says("restored").unwrap();
    assert!(said.contains("weights, optimizer of `default`"), "{said}");
    let megatron = Case {
        set: &["actor.backend='megatron:d2'", "+recover.no_save_optim=true"],
        ..Case::default()
    };
    assert_eq!(megatron.good().not_restored, [StateKind::Optimizer]);
    assert!(
        megatron
            .says("restored")
            .unwrap()
            .contains("weights, random numbers of")
    );
    let whole = set(&["actor.backend='megatron:d2'"]);
    assert_eq!(whole.good().not_restored, []);
    assert!(
        whole
            .says("restored")
            .unwrap()
            .contains("weights, optimizer, learning-rate schedule, random numbers")
    );
}

#[test]
fn megatron_of_1_0_4_cannot_save_its_optimizer() {
    assert!(
        set(&["actor.backend='megatron:d2'"])
            .says("megatron_optimizer")
            .is_some()
    );
    let lora = Case {
        set: &[
            "actor.backend='megatron:d2'",
            "+actor.use_lora=true",
            "+recover.no_save_optim=true",
        ],
        ..Case::default()
    };
    assert!(lora.problem().contains("adapters"));
    let background = Case {
        set: &["actor.backend='megatron:d2'", "+actor.megatron.async_save=true"],
        ..Case::default()
    };
    assert!(background.says("async_save").is_some() && live(&background.good()).async_save);
}

#[test]
fn a_schedule_is_replayed_by_fsdp_and_that_is_told() {
    let cosine = set(&["+actor.optimizer.lr_scheduler_type=cosine"]);
    assert!(
        cosine
            .says("schedule_replayed")
            .unwrap()
            .contains("cosine schedule runs again")
    );
    assert!(cosine.good().not_restored.contains(&StateKind::LrSchedule));
    let warmup = set(&["actor.optimizer.warmup_steps_proportion=0.1"]);
    assert!(
        warmup
            .says("schedule_replayed")
            .unwrap()
            .contains("warmup is run again")
    );
    assert_eq!(Case::default().says("schedule_replayed"), None);
}

#[test]
fn the_order_of_the_data_holds_in_the_first_epoch_only() {
    assert_eq!(Case::default().says("data_order"), None);
    assert!(set(&["+total_train_epochs=2"]).says("data_order").is_some());
}

#[test]
fn a_critic_is_saved_and_not_loaded() {
    let case = more(
        "rollout: {backend: 'sglang:d2', experiment_name: e, trial_name: t}\ncritic: {backend: 'fsdp:d2', experiment_name: e, trial_name: t}\n",
    );
    let read = case.good();
    let names: Vec<&str> = read.roles.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["default", "critic"]);
    assert!(case.says("critic_not_restored").is_some());
    assert!(read.not_restored.contains(&StateKind::Rollout));
    assert_eq!(live(&read).updates_per_step, Some(4));
    assert_eq!(live(&Case::default().good()).updates_per_step, Some(1));
}

#[test]
fn outputs_that_are_no_checkpoints_are_named() {
    assert!(
        set(&["+saver.freq_steps=2"])
            .says("exports")
            .unwrap()
            .contains("no run is resumed from one")
    );
    assert!(set(&["+evaluator.freq_steps=2"]).says("evaluation_lost").is_some());
    let stamped = set(&[
        "+stats_logger.wandb.mode=online",
        "+stats_logger.wandb.id_suffix=timestamp",
    ]);
    assert!(stamped.says("wandb_timestamp").is_some());
    assert!(
        set(&["+stats_logger.wandb.mode=online"])
            .says("wandb_one_run")
            .is_some()
    );
}

#[test]
fn the_examples_are_read() {
    for (text, command, launcher) in [
        (
            include_str!("../../../../examples/configs/areal_sft.yaml"),
            "python3 train_sft.py",
            Some(LauncherKind::Gang),
        ),
        (
            include_str!("../../../../examples/configs/areal_grpo.yaml"),
            "python3 gsm8k_rl.py scheduler.type=local",
            None,
        ),
    ] {
        let yaml = match text.contains("\nsupervisor:") {
            true => supervise_config::without_block(text, "supervisor", "x.yaml").unwrap(),
            false => text.to_owned(),
        };
        let case = Case {
            yaml,
            command,
            launcher,
            ..Case::default()
        };
        assert!(
            case.good()
                .root
                .unwrap()
                .as_str()
                .starts_with("/tmp/areal/experiments/checkpoints/ann/")
        );
    }
}

#[test]
fn a_file_of_areals_is_known_without_a_word() {
    let yaml = with("  mode: auto\n  freq_steps: 2", "");
    let root = supervise_config::parse_trainer_yaml(&yaml, "x").unwrap();
    assert!(supervise_trainers::areal::is_meant(&root));
    let verl =
        supervise_config::parse_trainer_yaml("trainer: {}\nexperiment_name: x\ntrial_name: y\nrecover: {}\n", "x");
    assert!(!supervise_trainers::areal::is_meant(&verl.unwrap()));
}
