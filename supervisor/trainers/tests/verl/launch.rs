//! Launch orders as commands and environments.

use crate::tree::role;
use std::collections::BTreeMap;
use supervise_core::checkpoint::{CkptId, PinsHash};
use supervise_core::id::{AttemptNo, RunId, Step};
use supervise_core::journal::record::{LaunchOrder, StartPoint};
use supervise_core::spec::policy::Policy;
use supervise_core::spec::{
    GangSpec, LauncherKind, Numbering, ResumeIntent, RunSpec, SaveCadence, SavePolicy, TrainerKind,
};
use supervise_trainers::AdapterPayload;
use supervise_trainers::verl::VerlFacts;
use supervise_trainers::{HostFacts, LaunchPlan, TrainerFacts, adapter, hydra};

pub(crate) fn spec(trainer: TrainerKind, command: &str) -> RunSpec {
    let roles = match trainer {
        supervise_trainers::verl::PPO => vec![role("actor"), role("critic")],
        supervise_trainers::verl::SFT => vec![role("")],
        _ => Vec::new(),
    };
    RunSpec {
        run: RunId("r".into()),
        name: None,
        trainer,
        trainer_version: Some("0.9.1".to_owned()),
        declared: None,
        learnt: None,
        config_hash: 0,
        root: (trainer != supervise_trainers::plain::PLAIN).then(|| "/ckpt/it's ${a}".into()),
        run_dir: "/ckpt/.supervise".into(),
        config_file: Some("/conf/ppo.yaml".into()),
        command: command.split_whitespace().map(str::to_owned).collect(),
        cwd: "/data".into(),
        env: BTreeMap::new(),
        gang: GangSpec {
            launcher: LauncherKind::Driver,
            workers: 1,
            nodes: 1,
            gpus: Vec::new(),
        },
        cadence: SaveCadence {
            every: Some(10),
            at_end: true,
        },
        last_step: Some(Step(100)),
        world: Some(2),
        indivisible: Vec::new(),
        roles,
        resume: ResumeIntent::Auto,
        keep: None,
        policy: Policy::default(),
        not_restored: Vec::new(),
        saves: SavePolicy::Steps,
        numbering: Numbering::Steps,
        may_end_early: false,
        saves_at_stop: false,
        has_tail: false,
        save_door: false,
    }
}

pub(crate) fn from_step(step: u64, load: &[&str]) -> LaunchOrder {
    order(StartPoint::Step {
        ckpt: CkptId(format!("global_step_{step}").into()),
        step: Step(step),
        pins: PinsHash(1),
        load: load.iter().map(|s| (*s).to_owned()).collect(),
        roles: BTreeMap::new(),
    })
}

pub(crate) fn order(from: StartPoint) -> LaunchOrder {
    LaunchOrder {
        attempt: AttemptNo(7),
        from,
        lost: Vec::new(),
        nodes: 1,
    }
}

pub(crate) fn arrange(spec: &RunSpec, order: &LaunchOrder, facts: TrainerFacts) -> LaunchPlan {
    let host = HostFacts {
        env: BTreeMap::new(),
        trainer: facts,
        began: 1,
    };
    adapter(spec.trainer).arrange(spec, order, &host).unwrap()
}

fn refusal(spec: &RunSpec, order: &LaunchOrder) -> String {
    let reason = adapter(spec.trainer)
        .arrange(spec, order, &HostFacts::default())
        .unwrap_err();
    format!("{}: {}", reason.code, reason.text)
}

/// The value that Hydra makes of an override's text.
fn value(plan: &LaunchPlan, key: &str) -> String {
    let text = plan
        .overrides
        .iter()
        .rfind(|o| o.split_once('=').is_some_and(|(k, _)| k == key))
        .unwrap();
    let parsed = hydra::parse(text).unwrap().value.unwrap();
    match parsed {
        supervise_config::ConfigValue::Str(text) => text,
        other => panic!("{key} is {other:?}"),
    }
}

pub(crate) const FULL: &[&str] = &["model", "optimizer", "extra"];
pub(crate) const PPO: &str = "python3 -m verl.trainer.main_ppo --config-path=/conf a.b=1";

#[test]
fn a_resume_is_said_in_full_and_comes_last() {
    let spec = spec(supervise_trainers::verl::PPO, PPO);
    let plan = arrange(&spec, &from_step(120, FULL), TrainerFacts::default());
    assert_eq!(plan.argv[..5], spec.command[..]);
    assert_eq!(plan.argv[5..], plan.overrides[..]);
    assert_eq!(plan.overrides[0], "trainer.resume_mode=resume_path");
    // The interpolation mark is escaped for OmegaConf, which takes the backslash away.
    assert_eq!(
        value(&plan, "trainer.resume_from_path"),
        r"/ckpt/it's \${a}/global_step_120"
    );
    assert_eq!(value(&plan, "trainer.default_local_dir"), r"/ckpt/it's \${a}");
    for key in [
        "actor_rollout_ref.actor.checkpoint.load_contents",
        "critic.checkpoint.load_contents",
    ] {
        assert!(
            plan.overrides.contains(&format!("{key}=['model','optimizer','extra']")),
            "{:?}",
            plan.overrides
        );
    }
}

#[test]
fn a_trainer_that_is_only_taken_for_verls_finds_the_step_by_its_tracker() {
    let mut spec = spec(
        supervise_trainers::verl::PPO,
        "python3 -m mine.main trainer.n_gpus_per_node=2",
    );
    let says = |plan: &LaunchPlan, key: &str| plan.overrides.iter().any(|o| o.starts_with(key));
    let resume = |spec: &RunSpec| arrange(spec, &from_step(120, FULL), TrainerFacts::default());
    let replaced = resume(&spec);
    assert!(says(&replaced, "trainer.resume_mode=resume_path"));
    assert!(
        replaced.notes.iter().any(|n| n.contains("with `auto` alone")),
        "{:?}",
        replaced.notes
    );
    spec.resume = ResumeIntent::Tracker;
    let fresh = arrange(&spec, &order(StartPoint::Fresh), TrainerFacts::default());
    for plan in [resume(&spec), fresh] {
        assert!(!says(&plan, "trainer.resume_mode") && !says(&plan, "trainer.resume_from_path"));
        assert_eq!(value(&plan, "trainer.default_local_dir"), r"/ckpt/it's \${a}");
        assert!(!plan.notes.iter().any(|n| n.contains("with `auto` alone")));
    }
    assert!(says(&resume(&spec), "actor_rollout_ref.actor.checkpoint.load_contents"));
    // No tracker names a step that stands elsewhere.
    let mut elsewhere = from_step(120, FULL);
    if let StartPoint::Step { ckpt, .. } = &mut elsewhere.from {
        *ckpt = CkptId(".supervise/aside/global_step_120".into());
    }
    let plan = arrange(&spec, &elsewhere, TrainerFacts::default());
    assert!(says(&plan, "trainer.resume_mode=resume_path"));
}

#[test]
fn sft_has_its_own_keys() {
    let spec = spec(
        supervise_trainers::verl::SFT,
        "torchrun --nproc_per_node=2 --max_restarts 3 -m verl.trainer.sft_trainer x=1",
    );
    let facts = TrainerFacts {
        keep: vec![("trainer.max_ckpt_to_keep".into(), 3)],
        own: AdapterPayload::new(VerlFacts {
            async_save: vec!["checkpoint.async_save".into()],
            ..VerlFacts::default()
        }),
        ..TrainerFacts::default()
    };
    let plan = arrange(&spec, &from_step(4, &["model", "hf_model"]), facts);
    assert_eq!(
        plan.argv[..6],
        [
            "torchrun",
            "--nproc_per_node=2",
            "--max-restarts=0",
            "-m",
            "verl.trainer.sft_trainer",
            "x=1"
        ]
    );
    for wanted in [
        "checkpoint.load_contents=['model']",
        "trainer.max_ckpt_to_keep=5",
        "++checkpoint.async_save=False",
    ] {
        assert!(plan.argv.iter().any(|a| a == wanted), "{wanted} in {:?}", plan.argv);
    }
    assert_eq!(plan.notes.len(), 3, "{:?}", plan.notes);
    assert!(plan.env.contains(&("VERL_SFT_LOGGING_LEVEL".into(), "INFO".into())));
    assert!(!plan.env.iter().any(|(name, _)| name == "RAY_DEDUP_LOGS"));
}

#[test]
fn a_fresh_start_is_said_and_as_is_changes_nothing() {
    let spec = spec(supervise_trainers::verl::PPO, PPO);
    let facts = || TrainerFacts {
        keep: vec![("trainer.max_actor_ckpt_to_keep".into(), 1)],
        ..TrainerFacts::default()
    };
    let plan = arrange(&spec, &order(StartPoint::Fresh), facts());
    assert_eq!(plan.overrides[0], "trainer.resume_mode=disable");
    assert!(
        !plan
            .overrides
            .iter()
            .any(|o| o.contains("load_contents") || o.contains("resume_from_path"))
    );
    assert!(plan.overrides.contains(&"trainer.max_actor_ckpt_to_keep=3".to_owned()));
    let plan = arrange(&spec, &order(StartPoint::AsIs), facts());
    assert_eq!((plan.argv, plan.overrides.len()), (spec.command, 0));
}

#[test]
fn the_keep_number_is_left_alone_where_nobody_prunes() {
    for (prune, observe) in [(false, false), (true, true)] {
        let mut spec = spec(supervise_trainers::verl::PPO, PPO);
        spec.policy.retention.prune = prune;
        spec.policy.start.observe = observe;
        let facts = TrainerFacts {
            keep: vec![("trainer.max_actor_ckpt_to_keep".into(), 2)],
            ..TrainerFacts::default()
        };
        let plan = arrange(&spec, &from_step(10, FULL), facts);
        assert!(!plan.argv.iter().any(|a| a.contains("to_keep")), "{:?}", plan.argv);
    }
}

#[test]
fn placeholders_are_filled_and_settings_stand_before_the_resume() {
    let mut spec = spec(supervise_trainers::verl::PPO, "bash run.sh {config} {overrides} tail");
    spec.command[1] = "my run.sh".into();
    let facts = TrainerFacts {
        settings: vec!["++a=1".into(), "++trainer.resume_mode=auto".into()],
        ..TrainerFacts::default()
    };
    let plan = arrange(&spec, &order(StartPoint::Fresh), facts);
    assert_eq!(
        plan.argv[..5],
        [
            "bash",
            "my run.sh",
            "/conf/ppo.yaml",
            "++a=1",
            "++trainer.resume_mode=auto"
        ]
    );
    assert_eq!(plan.argv[5], "trainer.resume_mode=disable");
    assert_eq!(plan.argv.last().map(String::as_str), Some("tail"));

    let shadowed = self::spec(
        supervise_trainers::verl::PPO,
        "python3 -m verl.trainer.main_ppo {overrides} trainer.resume_mode=auto",
    );
    assert!(refusal(&shadowed, &order(StartPoint::Fresh)).starts_with("override_shadowed: "));
}

#[test]
fn a_script_without_a_place_for_overrides_is_told_of_them() {
    let plan = arrange(
        &spec(supervise_trainers::verl::PPO, "bash run.sh"),
        &order(StartPoint::Fresh),
        TrainerFacts::default(),
    );
    assert_eq!(plan.argv[..3], ["bash", "run.sh", "trainer.resume_mode=disable"]);
    assert!(plan.notes[0].contains("pass them on"), "{:?}", plan.notes);
}

#[test]
fn each_role_loads_what_it_holds_and_never_less_than_its_weights() {
    let spec = spec(supervise_trainers::verl::PPO, PPO);
    let by_role = |critic: &[&str]| {
        let mut order = from_step(10, &["model"]);
        if let StartPoint::Step { roles, .. } = &mut order.from {
            let words = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
            roles.insert("actor".to_owned(), words(FULL));
            roles.insert("critic".to_owned(), words(critic));
        }
        order
    };
    let plan = arrange(&spec, &by_role(&["model", "hf_model"]), TrainerFacts::default());
    for wanted in [
        "actor_rollout_ref.actor.checkpoint.load_contents=['model','optimizer','extra']",
        "critic.checkpoint.load_contents=['model']",
    ] {
        assert!(
            plan.overrides.iter().any(|o| o == wanted),
            "{wanted} in {:?}",
            plan.overrides
        );
    }
    for none in [&[][..], &["hf_model"], &["optimizer", "extra"]] {
        let why = refusal(&spec, &by_role(none));
        assert!(why.contains("loads no model shards of `critic`"), "{why}");
    }
}

#[test]
fn orders_that_verl_would_misread_are_refused() {
    let ppo = spec(supervise_trainers::verl::PPO, PPO);
    assert!(refusal(&ppo, &from_step(10, &["optimizer"])).starts_with("load_contents: "));
    assert!(refusal(&ppo, &from_step(10, &[])).starts_with("load_contents: "));
    let mut wrong = from_step(10, FULL);
    if let StartPoint::Step { ckpt, .. } = &mut wrong.from {
        *ckpt = CkptId("global_step_10/actor".into());
    }
    assert!(refusal(&ppo, &wrong).starts_with("resume_path: "));
    let mut sft = spec(supervise_trainers::verl::SFT, "torchrun -m verl.trainer.sft_trainer");
    sft.root = Some("/old/global_step_7/sft".into());
    assert!(refusal(&sft, &from_step(10, FULL)).contains("would take its step from there"));
    let mut ppo = ppo;
    ppo.root = Some("/old/global_step_7/ppo".into());
    assert_eq!(
        arrange(&ppo, &from_step(10, FULL), TrainerFacts::default()).notes,
        Vec::<String>::new()
    );
    ppo.root = Some("relative".into());
    assert!(refusal(&ppo, &from_step(10, FULL)).starts_with("no_root: "));
}

#[test]
fn the_environment_of_the_user_wins() {
    let mut spec = spec(supervise_trainers::verl::PPO, PPO);
    spec.env.insert("HYDRA_FULL_ERROR".into(), "0".into());
    let host = HostFacts {
        env: BTreeMap::from([("RAY_DEDUP_LOGS".to_owned(), "1".to_owned())]),
        trainer: TrainerFacts {
            own: AdapterPayload::new(VerlFacts {
                file_logger: true,
                ..VerlFacts::default()
            }),
            ..TrainerFacts::default()
        },
        began: 1,
    };
    let plan = adapter(spec.trainer)
        .arrange(&spec, &order(StartPoint::Fresh), &host)
        .unwrap();
    assert_eq!(
        plan.env,
        [
            ("PYTHONUNBUFFERED".to_owned(), "1".to_owned()),
            (
                "VERL_FILE_LOGGER_PATH".to_owned(),
                "/ckpt/.supervise/attempts/0007/metrics.jsonl".to_owned()
            ),
        ]
    );
}

#[test]
fn a_plain_command_stays_as_it_is() {
    let spec = spec(
        supervise_trainers::plain::PLAIN,
        "torchrun --max-restarts=2 train.py {config} --max-restarts=5",
    );
    let plan = arrange(&spec, &order(StartPoint::AsIs), TrainerFacts::default());
    assert_eq!(
        plan.argv,
        [
            "torchrun",
            "--max-restarts=0",
            "train.py",
            "/conf/ppo.yaml",
            "--max-restarts=5"
        ]
    );
    assert!(refusal(&spec, &from_step(1, FULL)).starts_with("no_resume: "));
    assert_eq!(
        adapter(supervise_trainers::plain::PLAIN)
            .tracker(&Default::default())
            .steps(),
        Vec::new()
    );
}

#[test]
fn a_plan_tells_what_a_crash_costs() {
    let told = |spec: &RunSpec, facts: &TrainerFacts| {
        let found = adapter(spec.trainer).preflight(spec, facts);
        found
            .iter()
            .map(|f| format!("{}: {}", f.code, f.detail))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let mut ppo = spec(supervise_trainers::verl::PPO, PPO);
    let facts = TrainerFacts {
        keep: vec![("trainer.max_actor_ckpt_to_keep".into(), 1)],
        own: AdapterPayload::new(VerlFacts {
            validates_first: true,
            ..VerlFacts::default()
        }),
        ..TrainerFacts::default()
    };
    let text = told(&ppo, &facts);
    assert!(
        text.contains("costs up to 10 steps") && text.contains("validates_first"),
        "{text}"
    );
    assert!(
        !text.contains("keep_one") && text.contains("two steps are kept"),
        "the number is raised: {text}"
    );
    ppo.policy.retention.prune = false;
    ppo.roles[0].save_contents = vec!["model".into()];
    ppo.cadence = SaveCadence {
        every: None,
        at_end: false,
    };
    let text = told(&ppo, &facts);
    for code in [
        "keep_one",
        "not_saved: save_contents leaves out the optimizer, learning-rate",
        "nothing is ever saved",
    ] {
        assert!(text.contains(code), "{code} in {text}");
    }
    assert!(told(&spec(supervise_trainers::verl::SFT, "x"), &facts).contains("one more step"));
}
