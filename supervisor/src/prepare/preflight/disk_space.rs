//! Whether the next saves fit on the checkpoint root's file system.

use crate::render;
use camino::{Utf8Path, Utf8PathBuf};
use nix::sys::statvfs::statvfs;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use supervise_core::checkpoint::Finding;
use supervise_core::spec::Policy;

/// Steps whose size is looked at, newest first.
const STEPS: usize = 4;
/// Files that are counted in one step.
const FILES: usize = 200_000;

/// What is free, and what a step takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Room {
    /// Bytes that the file system has left for us.
    pub free: u64,
    /// Bytes of the largest of the newest steps; 0 where there is none.
    pub step: u64,
    /// Steps that stand there.
    pub steps: u32,
}

impl Room {
    /// Looks at a root whose steps' names begin so. `None` where the file system does not tell.
    #[must_use]
    pub fn of(root: &Utf8Path, prefix: Option<&str>) -> Option<Self> {
        let here = root.ancestors().find(|p| p.exists())?;
        let system = statvfs(here.as_std_path()).ok().filter(|s| s.blocks() > 0)?;
        let steps = prefix.map(|prefix| steps(root, prefix)).unwrap_or_default();
        let newest = steps.values().rev().take(STEPS);
        Some(Self {
            free: system.blocks_available().saturating_mul(system.fragment_size()),
            step: newest.map(|dir| bytes_below(dir)).max().unwrap_or(0),
            steps: u32::try_from(steps.len()).unwrap_or(u32::MAX),
        })
    }

    /// Bytes that are needed until the trainer deletes as much as it saves, where it keeps so many steps.
    fn needed(&self, keep: u32) -> u64 {
        // One more stands there while it is written.
        let more = keep.saturating_add(1).saturating_sub(self.steps).max(1);
        self.step.saturating_mul(more.into())
    }
}

fn steps(root: &Utf8Path, prefix: &str) -> BTreeMap<u64, Utf8PathBuf> {
    let Ok(listing) = root.read_dir_utf8() else {
        return BTreeMap::new();
    };
    let number = |name: &str| name.strip_prefix(prefix)?.parse::<u64>().ok();
    listing
        .flatten()
        .filter_map(|entry| Some((number(entry.file_name())?, entry.into_path())))
        .collect()
}

fn bytes_below(dir: &Utf8Path) -> u64 {
    let (mut waiting, mut sum, mut seen) = (vec![dir.to_owned()], 0_u64, 0);
    while let Some(dir) = waiting.pop() {
        let Ok(listing) = dir.read_dir_utf8() else { continue };
        for entry in listing.flatten() {
            seen += 1;
            let Ok(meta) = fs::symlink_metadata(entry.path()) else {
                continue;
            };
            if seen > FILES {
                return sum;
            }
            if meta.is_dir() {
                waiting.push(entry.into_path());
            } else {
                sum = sum.saturating_add(meta.len());
            }
        }
    }
    sum
}

/// Tells whether the next saves fit, and leaves the trainer's number of steps as the user set it where more would not.
pub(in crate::prepare) fn check(room: &Room, keep: Option<u32>, policy: &mut Policy) -> Vec<Finding> {
    if room.step == 0 || !policy.recovery {
        return Vec::new();
    }
    let (step, free) = (render::bytes(room.step), render::bytes(room.free));
    let Some(keep) = keep else {
        let saves = room.free / room.step;
        let told =
            format!("a step takes {step}, and every step stays: {free} are free, which is room for {saves} more");
        return vec![match saves {
            0 | 1 => Finding::warning("disk_short", told),
            _ => Finding::note("disk", told),
        }];
    };
    let raise = if policy.prune && !policy.observe {
        policy.keep_raise
    } else {
        0
    };
    let mut out = Vec::new();
    let mut kept = keep.saturating_add(raise);
    if raise > 0 && room.needed(kept) > room.free {
        let needed = render::bytes(room.needed(kept));
        out.push(Finding::warning(
            "no_room_to_raise",
            format!("the trainer's number of steps to keep stays at {keep}: {raise} more would take up to {needed}, and {free} are free; it deletes older steps before a newer one is proven"),
        ));
        policy.keep_raise = 0;
        kept = keep;
    }
    let needed = render::bytes(room.needed(kept));
    let told = format!(
        "a step takes {step}, and up to {} stand at once: the next saves take up to {needed}, {free} are free",
        kept.saturating_add(1)
    );
    out.push(match room.needed(kept) > room.free {
        true => Finding::warning("disk_short", told),
        false => Finding::note("disk", told),
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(room: Room, keep: Option<u32>) -> (Vec<String>, u32) {
        let mut policy = Policy::default();
        let found = check(&room, keep, &mut policy);
        let words = found.iter().map(|f| format!("{}: {}", f.code, f.detail));
        (words.collect(), policy.keep_raise)
    }

    #[test]
    fn the_number_is_only_raised_where_the_disk_holds_it() {
        let room = |free, steps| Room {
            free,
            step: 10 << 30,
            steps,
        };
        // 2 and 2 more, and the one that is written, with 2 there: 30 GiB.
        let (words, raise) = told(room(30 << 30, 2), Some(2));
        assert!(
            words[0].starts_with("disk: a step takes 10.0 GiB, and up to 5 stand at once"),
            "{words:?}"
        );
        assert_eq!(raise, 2);
        let (words, raise) = told(room(29 << 30, 2), Some(2));
        assert!(
            words[0].starts_with("no_room_to_raise: ") && words[1].starts_with("disk: "),
            "{words:?}"
        );
        assert_eq!(raise, 0);
        let (words, raise) = told(room(9 << 30, 2), Some(2));
        assert!(words[1].starts_with("disk_short: "), "{words:?}");
        assert_eq!(raise, 0);
        // Steps that stand there already need no room again, but the next one does.
        let (words, _) = told(room(11 << 30, 9), Some(2));
        assert!(words[0].starts_with("disk: "), "{words:?}");
    }

    #[test]
    fn without_a_number_every_save_needs_its_room() {
        let room = |free| Room {
            free,
            step: 10 << 30,
            steps: 7,
        };
        assert!(told(room(25 << 30), None).0[0].contains("room for 2 more"));
        assert!(told(room(15 << 30), None).0[0].starts_with("disk_short: "));
        // Nothing is known before the first save.
        let first = Room {
            free: 1,
            step: 0,
            steps: 0,
        };
        assert_eq!(told(first, Some(2)), (Vec::new(), 2));
    }

    #[test]
    fn the_largest_of_the_newest_steps_counts() {
        let dir = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(dir.path()).unwrap();
        for (step, size) in [(2, 9000), (10, 700), (12, 800), (14, 100), (16, 50)] {
            let actor = root.join(format!("global_step_{step}/actor"));
            fs::create_dir_all(&actor).unwrap();
            fs::write(actor.join("model.pt"), vec![0; size]).unwrap();
        }
        let room = Room::of(root, Some("global_step_")).unwrap();
        assert_eq!((room.step, room.steps), (800, 5));
        assert!(Room::of(&root.join("not/yet"), Some("global_step_")).is_some_and(|r| r.steps == 0 && r.free > 0));
    }
}
