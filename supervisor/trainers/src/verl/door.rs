//! Where verl's trainers can be asked to save.

use super::VerlFacts;
use super::version::{ReleaseSeries, VerlRelease};
use crate::adapter::{SaveDoor, TrainerFacts};
use crate::command::{self, EntryPoint};
use crate::launch::RayMode;
use supervise_core::spec::RunSpec;

const OF_RANKS: [&str; 2] = ["\n\nIN_RAY = False\n", include_str!("door.py")];
/// The trainer runs in a worker of the Ray that its driver starts.
const OF_RAY: [&str; 2] = ["\n\nIN_RAY = True\n", include_str!("door.py")];

pub(super) fn save_door(sft: bool, spec: &RunSpec, facts: &TrainerFacts) -> SaveDoor {
    let Some(release) = spec.trainer_version.as_deref().and_then(VerlRelease::of) else {
        return SaveDoor::none("this release of verl is not known");
    };
    let own = VerlFacts::of(facts);
    let entry = command::entry(spec.trainer_command()).map(|(entry, _)| entry);
    if sft {
        let is_known = matches!(entry, Some(EntryPoint::Sft | EntryPoint::SftRay));
        return match is_known && !own.older_sft && release.since(ReleaseSeries::V0_6, 0) {
            true => SaveDoor::Open {
                how: "the save interval of verl's SFT trainer",
                python: &OF_RANKS,
            },
            false => SaveDoor::none("this SFT trainer has no place where it can be asked"),
        };
    }
    if entry != Some(EntryPoint::Ppo) {
        return SaveDoor::none("this trainer is not verl's own main_ppo");
    }
    if spec.cadence.every.is_none() {
        return SaveDoor::none("trainer.save_freq says never to save");
    }
    if !matches!(facts.ray, RayMode::Own { .. }) {
        return SaveDoor::none("the trainer runs in a Ray that it does not start itself");
    }
    let how = match own.saves_on_demand {
        true if release.since(ReleaseSeries::V0_5, 0) => "the expiry check of verl's trainer",
        false if release.since(ReleaseSeries::V0_9, 0) => "the end of a step of verl's trainer",
        _ => return SaveDoor::none("this release of verl has no place where it can be asked"),
    };
    SaveDoor::Open { how, python: &OF_RAY }
}
