//! How verl is helped to help itself.

use crate::launch::{FULL, PPO, from_step, order, spec};
use std::collections::BTreeMap;
use supervise_core::id::AttemptNo;
use supervise_core::journal::record::{LaunchOrder, StartPoint};
use supervise_core::spec::{Assist, RunSpec};
use supervise_trainers::AdapterPayload;
use supervise_trainers::verl::VerlFacts;
use supervise_trainers::{HostFacts, LaunchPlan, TrainerFacts, adapter};

const EXPIRY: &str = "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP";

fn facts(loggers: &[&str]) -> TrainerFacts {
    asked(loggers, true)
}

fn asked(loggers: &[&str], saves_on_demand: bool) -> TrainerFacts {
    let own = VerlFacts {
        loggers: loggers.iter().map(|l| (*l).to_owned()).collect(),
        file_logger: loggers.contains(&"file"),
        saves_on_demand,
        validates_first: true,
        ..VerlFacts::default()
    };
    TrainerFacts {
        own: AdapterPayload::new(own),
        ..TrainerFacts::default()
    }
}

fn launched(spec: &RunSpec, order: &LaunchOrder, trainer: TrainerFacts, env: &[(&str, &str)]) -> LaunchPlan {
    let host = HostFacts {
        env: env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        trainer,
        began: 3,
    };
    adapter(spec.trainer).arrange(spec, order, &host).unwrap()
}

/// Settings of the helps that were given.
fn given(plan: &LaunchPlan) -> Vec<&str> {
    for help in &plan.helps {
        assert!(!help.why.is_empty());
        assert!(help.overrides.iter().all(|o| plan.argv.contains(o)), "{:?}", plan.argv);
        assert!(help.env.iter().all(|e| plan.env.contains(e)));
    }
    plan.helps.iter().map(|h| h.setting).collect()
}

fn env<'a>(plan: &'a LaunchPlan, name: &str) -> Option<&'a str> {
    plan.env.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
}

fn ppo(assist: Assist, version: Option<&str>) -> RunSpec {
    let mut spec = spec(supervise_trainers::verl::PPO, PPO);
    spec.policy.assist = assist;
    spec.trainer_version = version.map(str::to_owned);
    spec
}

#[test]
fn each_help_is_given_with_its_reason_and_can_be_switched_off() {
    let all = || Assist {
        skip_validation: true,
        deadline: Some(2_000_000_000),
        ..Assist::default()
    };
    let run = |assist| {
        let spec = ppo(assist, Some("0.8.0"));
        launched(&spec, &from_step(10, FULL), facts(&["wandb"]), &[])
    };
    let plan = run(all());
    let settings = [
        "assist.environment",
        "assist.logger",
        "assist.expiry",
        "assist.skip_validation",
        "assist.wandb",
    ];
    assert_eq!(given(&plan), settings);
    // 300 s early: a save takes its time.
    assert_eq!(env(&plan, EXPIRY), Some("1999999700"));
    assert!(
        plan.argv
            .contains(&"trainer.logger=['wandb','console','file']".to_owned())
    );
    assert!(plan.argv.contains(&"trainer.val_before_train=False".to_owned()));
    let off: [fn(&mut Assist); 5] = [
        |a| a.environment = false,
        |a| a.logger = false,
        |a| a.expiry = false,
        |a| a.skip_validation = false,
        |a| a.wandb = false,
    ];
    for (change, setting) in off.into_iter().zip(settings) {
        let mut assist = all();
        change(&mut assist);
        let rest: Vec<&str> = settings.into_iter().filter(|s| *s != setting).collect();
        assert_eq!(given(&run(assist)), rest);
    }
    // Validation is only left out where it was made before.
    let fresh = launched(&ppo(all(), None), &order(StartPoint::Fresh), facts(&["console"]), &[]);
    assert_eq!(given(&fresh), ["assist.environment", "assist.expiry"]);
    // Nothing is known of what this one resumes from: only what it says is made readable.
    let as_is = launched(&ppo(all(), None), &order(StartPoint::AsIs), facts(&["wandb"]), &[]);
    assert_eq!(given(&as_is), ["assist.environment"]);
}

#[test]
fn what_the_user_set_is_left_alone() {
    let spec = ppo(
        Assist {
            deadline: Some(2_000_000_000),
            ..Assist::default()
        },
        None,
    );
    let set = [
        ("WANDB_RUN_ID", "mine"),
        ("SAGEMAKER_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP", "1"),
        ("PYTHONUNBUFFERED", "0"),
        ("HYDRA_FULL_ERROR", "0"),
        ("RAY_DEDUP_LOGS", "1"),
        ("VERL_FILE_LOGGER_PATH", "/mine"),
    ];
    let plan = launched(&spec, &from_step(10, FULL), facts(&["console", "wandb", "file"]), &set);
    assert_eq!((given(&plan).len(), plan.env.len()), (0, 0), "{:?}", plan.env);
}

#[test]
fn expiry_is_told_only_to_trainers_that_ask() {
    let deadline = || Assist {
        deadline: Some(2_000_000_000),
        ..Assist::default()
    };
    let told = |spec: &RunSpec, on_demand| {
        let facts = asked(&["console"], on_demand);
        env(&launched(spec, &from_step(10, FULL), facts, &[]), EXPIRY).is_some()
    };
    for (version, asks) in [
        (None, true),
        (Some("0.9.1"), true),
        (Some("0.5.0"), true),
        (Some("0.4.1"), false),
    ] {
        assert_eq!(told(&ppo(deadline(), version), true), asks, "{version:?}");
    }
    assert!(!told(&ppo(deadline(), None), false));
    assert!(!told(&ppo(Assist::default(), None), true));
    let mut never = ppo(deadline(), None);
    never.cadence.every = None;
    assert!(!told(&never, true));
    let mut sft = spec(supervise_trainers::verl::SFT, "torchrun -m verl.trainer.sft_trainer");
    sft.policy.assist = deadline();
    assert!(!told(&sft, true));
}

#[test]
fn a_logger_that_prints_steps_is_added_where_there_is_none() {
    for (loggers, version, wanted, file) in [
        (&["console"][..], Some("0.9.1"), None, false),
        (&["console", "file"], Some("0.9.1"), None, true),
        (&["file"], Some("0.9.1"), Some("['file','console']"), true),
        (&["wandb"], Some("0.6.0"), Some("['wandb','console','file']"), true),
        // No logger of this name is known there, or nobody knows.
        (&["wandb"], Some("0.5.0"), Some("['wandb','console']"), false),
        (&["wandb"], None, Some("['wandb','console']"), false),
        (&[], Some("0.9.1"), None, false),
    ] {
        let plan = launched(
            &ppo(Assist::default(), version),
            &from_step(10, FULL),
            facts(loggers),
            &[],
        );
        let said = plan.overrides.iter().find_map(|o| o.strip_prefix("trainer.logger="));
        assert_eq!(said, wanted, "{loggers:?}");
        let path = env(&plan, "VERL_FILE_LOGGER_PATH");
        assert_eq!(
            path,
            file.then_some("/ckpt/.supervise/attempts/0007/metrics.jsonl"),
            "{loggers:?}"
        );
    }
}

#[test]
fn attempts_go_on_in_one_run_of_wandb_until_a_start_from_nothing() {
    let spec = ppo(Assist::default(), None);
    let id = |order: &LaunchOrder, began| {
        let host = HostFacts {
            env: BTreeMap::new(),
            trainer: facts(&["console", "wandb"]),
            began,
        };
        let plan = adapter(spec.trainer).arrange(&spec, order, &host).unwrap();
        assert_eq!(env(&plan, "WANDB_RESUME"), Some("allow"));
        env(&plan, "WANDB_RUN_ID").unwrap().to_owned()
    };
    assert_eq!(id(&from_step(10, FULL), 1), "r-1");
    assert_eq!(id(&from_step(20, FULL), 1), "r-1");
    assert_eq!(id(&order(StartPoint::Fresh), 4), "r-4");
}

#[test]
fn each_tool_goes_on_in_its_experiment_and_what_the_user_set_is_left() {
    let spec = ppo(Assist::default(), None);
    let loggers = facts(&["console", "wandb", "swanlab", "mlflow"]);
    let plan = launched(&spec, &from_step(10, FULL), loggers.clone(), &[]);
    assert_eq!(env(&plan, "SWANLAB_RESUME"), Some("allow"));
    assert_eq!(env(&plan, "SWANLAB_RUN_ID"), Some("r00003"));
    // MLflow gives the ids, and ends on others.
    assert_eq!(env(&plan, "MLFLOW_RUN_ID"), None);
    // A mode without an id, as `must`, would end the trainer if an id were put beside it.
    for (set, ours) in [
        ("WANDB_RESUME", "WANDB_RUN_ID"),
        ("SWANLAB_RESUME", "SWANLAB_RUN_ID"),
        ("SWANLAB_RUN_ID", "SWANLAB_RESUME"),
    ] {
        let plan = launched(&spec, &from_step(10, FULL), loggers.clone(), &[(set, "must")]);
        assert_eq!((env(&plan, ours), env(&plan, set)), (None, None), "{set}");
    }
    let mut first = order(StartPoint::Fresh);
    let told = |order: &LaunchOrder, set: &[(&str, &str)]| {
        let plan = launched(&spec, order, loggers.clone(), set);
        assert_eq!(env(&plan, "MLFLOW_RUN_ID"), None);
        let mut notes = plan.notes.into_iter().filter(|note| note.contains("MLflow"));
        (notes.next().unwrap_or_default(), notes.count())
    };
    first.attempt = AttemptNo(1);
    let (own, more) = told(&first, &[]);
    assert!(own.contains("each attempt is a run of its own") && more == 0, "{own}");
    let twice = |order: &LaunchOrder| {
        let notes = launched(&spec, order, loggers.clone(), &[]).notes;
        notes.iter().filter(|note| note.contains("trained twice")).count()
    };
    assert_eq!((twice(&first), twice(&from_step(10, FULL))), (2, 0));
    let (named, more) = told(&first, &[("MLFLOW_RUN_ID", "abc")]);
    assert!(named.contains("stays as you set it") && more == 0, "{named}");
    assert_eq!(told(&from_step(10, FULL), &[]), (String::new(), 0));
}

#[test]
fn a_trainer_that_cannot_save_on_demand_is_named() {
    let told = |kind, on_demand, deadline| {
        let mut spec = spec(kind, PPO);
        spec.policy.assist.deadline = deadline;
        let facts = asked(&["console"], on_demand);
        let found = adapter(kind).preflight(&spec, &facts);
        let found = found.into_iter().find(|f| f.code == "no_save_on_demand");
        found.map(|f| (f.level > supervise_core::checkpoint::FindingLevel::Note, f.detail))
    };
    let (warns, text) = told(supervise_trainers::verl::PPO, false, Some(9)).unwrap();
    assert!(
        warns && text.contains("cannot save on demand") && text.contains("trainer.save_freq"),
        "{text}"
    );
    let (warns, text) = told(supervise_trainers::verl::SFT, false, None).unwrap();
    assert!(
        !warns && text.contains("the SFT trainer of verl cannot save on demand"),
        "{text}"
    );
    let (warns, text) = told(supervise_trainers::verl::PPO, true, None).unwrap();
    assert!(!warns && text.contains("set `deadline`"), "{text}");
    assert_eq!(told(supervise_trainers::verl::PPO, true, Some(9)), None);
}

#[test]
fn verl_0_4_0_binds_model_optimizer_and_extra_together() {
    let told = |version: &str, load: &[&str]| {
        let mut spec = ppo(Assist::default(), Some(version));
        spec.roles[1].load_contents = load.iter().map(|c| (*c).to_owned()).collect();
        let found = adapter(spec.trainer).preflight(&spec, &facts(&["console"]));
        found
            .into_iter()
            .find(|f| f.code == "contents_bound_together")
            .map(|f| f.detail)
    };
    assert!(told("0.4.0", &["model"]).unwrap().contains("of `critic`"));
    assert_eq!(told("0.4.0", FULL), None);
    assert_eq!(told("0.4.1", &["model"]), None);
    assert_eq!(told("0.9.1", &["model"]), None);
}
