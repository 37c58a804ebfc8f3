//! Configurations of the SFT trainer, read.

use super::reading::{Case, command, yaml};
use supervise_core::checkpoint::StateKind;
use supervise_core::spec::{LauncherKind, SaveCadence};
use supervise_trainers::verl::VerlFacts;

#[test]
fn sft_says_when_it_saves_and_who_starts_it() {
    let base = "trainer: {default_local_dir: /r, n_gpus_per_node: 4, nnodes: 2}\nmodel: {path: /m}\n";
    let read = yaml(base).good();
    assert_eq!(
        (read.kind, read.roles[0].name.as_str()),
        (supervise_trainers::verl::SFT, "")
    );
    assert_eq!(
        (read.gang.launcher, read.gang.workers, read.gang.nodes, read.world),
        (LauncherKind::Gang, 8, 2, Some(8))
    );
    assert_eq!(
        read.cadence,
        SaveCadence {
            every: None,
            at_end: true
        }
    );
    assert_eq!(read.command[..3], ["python3", "-m", "verl.trainer.sft_trainer"]);
    assert_eq!(
        Case {
            workers: Some(2),
            ..yaml(base)
        }
        .good()
        .world,
        Some(4)
    );

    for (command, launcher, world) in [
        (
            "torchrun --nproc_per_node=2 -m verl.trainer.sft_trainer",
            LauncherKind::Driver,
            Some(2),
        ),
        (
            "torchrun --nproc_per_node=gpu -m verl.trainer.sft_trainer",
            LauncherKind::Driver,
            None,
        ),
        ("python3 -m verl.trainer.sft_trainer_ray", LauncherKind::Driver, Some(8)),
        ("python3 -m verl.trainer.sft_trainer", LauncherKind::Gang, Some(8)),
        ("bash sft.sh {config}", LauncherKind::Driver, None),
    ] {
        let read = Case { command, ..yaml(base) }.good();
        assert_eq!((read.gang.launcher, read.world), (launcher, world), "{command}");
    }
}

#[test]
fn sft_has_its_own_traps() {
    let with = |more: &str| {
        let line: &'static str = Box::leak(format!("torchrun -m verl.trainer.sft_trainer {more}").into_boxed_str());
        command(line)
    };
    assert!(with("trainer.save_freq=0").problem().contains("divides by it"));
    assert!(
        with("trainer.default_local_dir=/a/global_step_3/b")
            .problem()
            .contains("first such name")
    );
    assert_eq!(
        with("trainer.save_freq=after_each_epoch").good().cadence,
        SaveCadence {
            every: None,
            at_end: true
        }
    );
    let by_epoch = with("trainer.save_freq=after_each_epoch").good();
    assert!(by_epoch.findings.iter().any(|f| f.code == "epoch_boundary"));
    assert_eq!(
        with("trainer.save_freq=5 trainer.max_ckpt_to_keep=3").good().keep,
        Some(3)
    );
    assert_eq!(
        with("checkpoint.save_contents=[model]").good().not_restored,
        [StateKind::Optimizer, StateKind::LrSchedule, StateKind::Rng]
    );
    assert_eq!(
        VerlFacts::of(&with("+checkpoint.async_save=True").good().facts).async_save,
        ["checkpoint.async_save"]
    );
}
