//! Commands, and what is put into them.

use super::case::{Case, command, set};
use supervise_core::spec::LauncherKind;

#[test]
fn the_file_and_our_overrides_are_given_once() {
    for (given, started) in [
        (
            "python3 sft.py scheduler.type=local",
            "python3 sft.py --config /conf/x.yaml scheduler.type=local ++recover.mode=auto",
        ),
        (
            "python3 sft.py --config x.yaml scheduler.type=local",
            "python3 sft.py --config /conf/x.yaml scheduler.type=local ++recover.mode=auto",
        ),
        (
            "python3 -m areal.infra.launcher.local sft.py --config=x.yaml",
            "python3 -m areal.infra.launcher.local sft.py --config=/conf/x.yaml ++recover.mode=auto ++recover.retries=0",
        ),
        (
            "python3 sft.py scheduler.type=local ++recover.mode=auto",
            "python3 sft.py --config /conf/x.yaml scheduler.type=local ++recover.mode=auto",
        ),
        (
            "bash run.sh {config} {overrides} tail",
            "bash run.sh /conf/x.yaml ++recover.mode=auto tail",
        ),
        (
            "torchrun --nproc-per-node 2 --max-restarts 3 sft.py",
            "torchrun --nproc-per-node 2 --max-restarts=0 sft.py --config /conf/x.yaml ++recover.mode=auto",
        ),
    ] {
        assert_eq!(command(given).words(), started, "{given}");
    }
}

#[test]
fn ranks_are_told_that_they_train_by_themselves() {
    let spmd = |case: Case| {
        case.launch()
            .env
            .iter()
            .any(|(k, v)| k == "AREAL_SPMD_MODE" && v == "1")
    };
    assert!(!spmd(Case::default()));
    assert!(spmd(command("torchrun --nproc-per-node 2 sft.py")));
    assert!(spmd(Case {
        launcher: Some(LauncherKind::Gang),
        ..command("python3 sft.py")
    }));
    assert!(
        !spmd(command("python3 -m areal.infra.launcher.local sft.py")),
        "it says so itself"
    );
}

#[test]
fn launchers_keep_their_retries_where_nothing_is_recovered() {
    let case = Case {
        no_recovery: true,
        ..command("python3 -m areal.infra.launcher.local sft.py")
    };
    assert!(!case.words().contains("retries"));
}

#[test]
fn a_script_that_cannot_be_seen_has_to_pass_our_words_on() {
    let notes = command("bash run.sh {config}").launch().notes;
    assert!(notes.iter().any(|n| n.contains("has to pass them on")), "{notes:?}");
    assert!(Case::default().launch().notes.is_empty());
}

/// At Weights & Biases AReaL names its run itself; at SwanLab it does not.
#[test]
fn attempts_go_on_in_one_experiment_of_swanlab() {
    let ours = |case: Case| {
        let plan = case.launch();
        let mine = plan.env.into_iter().filter(|(name, _)| name.contains("_RUN_ID"));
        mine.collect::<Vec<_>>()
    };
    assert_eq!(ours(set(&["+stats_logger.wandb.mode=online"])), []);
    let named = ours(set(&["+stats_logger.swanlab.mode=online"]));
    assert!(
        matches!(&named[..], [(name, id)] if name == "SWANLAB_RUN_ID" && id.ends_with("00001")),
        "{named:?}"
    );
}
