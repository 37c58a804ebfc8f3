//! Which of verl's trainers can be asked to save.

use crate::launch::{FULL, PPO, from_step, order, spec};
use supervise_core::journal::record::StartPoint;
use supervise_core::spec::{Assist, RunSpec, TrainerKind};
use supervise_trainers::verl::{self, VerlFacts};
use supervise_trainers::{AdapterPayload, HostFacts, RayMode, SaveDoor, TrainerFacts, adapter};

const SFT: &str = "torchrun -m verl.trainer.sft_trainer a.b=1";

fn run(trainer: TrainerKind, command: &str, version: &str) -> RunSpec {
    let mut spec = spec(trainer, command);
    spec.trainer_version = Some(version.to_owned());
    spec
}

fn facts(own: VerlFacts) -> TrainerFacts {
    TrainerFacts {
        own: AdapterPayload::new(own),
        ray: RayMode::Own { apart: false },
        ..TrainerFacts::default()
    }
}

fn how(spec: &RunSpec, facts: &TrainerFacts) -> Result<&'static str, String> {
    match adapter(spec.trainer).save_door(spec, facts) {
        SaveDoor::Open { how, python } => {
            assert!(!python.is_empty());
            Ok(how)
        }
        SaveDoor::None { why } => Err(why),
    }
}

#[test]
fn sft_is_asked_from_0_6_on_but_not_its_older_trainer() {
    let of = |version: &str, older_sft| {
        let facts = facts(VerlFacts {
            older_sft,
            ..VerlFacts::default()
        });
        how(&run(verl::SFT, SFT, version), &facts).is_ok()
    };
    let asked = ["0.4.1", "0.5.0", "0.6.1", "0.7.0", "0.8.0", "0.9.1", "0.10.0", "1.0.0"].map(|v| of(v, false));
    assert_eq!(asked, [false, false, true, true, true, true, false, false]);
    assert!(!of("0.6.1", true));
}

#[test]
fn ppo_is_asked_by_what_its_trainer_has() {
    let of = |version: &str, saves_on_demand| {
        let facts = facts(VerlFacts {
            saves_on_demand,
            ..VerlFacts::default()
        });
        how(&run(verl::PPO, PPO, version), &facts)
    };
    assert!(of("0.4.1", true).is_err());
    for version in ["0.5.0", "0.8.0", "0.9.1"] {
        assert_eq!(of(version, true), Ok("the expiry check of verl's trainer"));
    }
    assert_eq!(of("0.9.1", false), Ok("the end of a step of verl's trainer"));
    assert!(of("0.8.0", false).is_err());
    assert!(of("0.10.0", true).is_err());
}

#[test]
fn ppo_is_asked_only_where_its_own_driver_starts_ray_and_it_saves() {
    let one = facts(VerlFacts {
        saves_on_demand: true,
        ..VerlFacts::default()
    });
    let spec = run(verl::PPO, PPO, "0.9.1");
    assert!(how(&spec, &one).is_ok());
    let scripted = TrainerFacts {
        ray: RayMode::Scripted,
        ..one.clone()
    };
    assert!(how(&spec, &scripted).is_err());
    let mut never = spec.clone();
    never.cadence.every = None;
    assert!(how(&never, &one).is_err());
    let other = run(verl::PPO, "python3 -m recipe.dapo.main_dapo", "0.9.1");
    assert!(how(&other, &one).is_err());
}

#[test]
fn with_a_door_the_request_takes_the_place_of_the_expiry() {
    let mut spec = run(verl::PPO, PPO, "0.8.0");
    spec.policy.assist = Assist {
        deadline: Some(2_000_000_000),
        ..Assist::default()
    };
    let given = |spec: &RunSpec, order| {
        let host = HostFacts {
            trainer: facts(VerlFacts {
                saves_on_demand: true,
                ..VerlFacts::default()
            }),
            ..HostFacts::default()
        };
        let plan = adapter(spec.trainer).arrange(spec, &order, &host).unwrap();
        let path = plan.env.iter().find(|(name, _)| name == "SUPERVISE_SAVE_REQUEST");
        let expiry = plan.env.iter().any(|(name, _)| name.ends_with("EXPIRATION_TIMESTAMP"));
        (path.map(|(_, path)| path.clone()), expiry)
    };
    assert_eq!(given(&spec, from_step(10, FULL)), (None, true));
    spec.save_door = true;
    let path = format!("{}/attempts/0007/save-request", spec.run_dir);
    assert_eq!(given(&spec, from_step(10, FULL)), (Some(path), false));
    assert_eq!(given(&spec, order(StartPoint::AsIs)), (None, false));
}
