//! Checks that the next saves fit on the checkpoint root's file system.

use crate::render;
use supervise_core::checkpoint::Finding;
use supervise_core::spec::policy::Policy;
use supervise_host::io_worker::SaveSpace;

/// Bytes needed until the trainer deletes as much as it saves, if it retains `keep` steps.
fn needed_by(room: &SaveSpace, keep: u32) -> u64 {
    // One more exists while it is being written.
    let more = keep.saturating_add(1).saturating_sub(room.steps).max(1);
    room.step.saturating_mul(more.into())
}

/// Reports whether the next saves fit, and keeps the user's number of retained steps if more would not fit.
pub(in crate::prepare) fn check(room: &SaveSpace, keep: Option<u32>, policy: &mut Policy) -> Vec<Finding> {
    if room.step == 0 || !policy.start.recovery {
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
    let raise = if policy.retention.prune && !policy.start.observe {
        policy.retention.keep_raise
    } else {
        0
    };
    let mut out = Vec::new();
    let mut kept = keep.saturating_add(raise);
    if raise > 0 && needed_by(room, kept) > room.free {
        let needed = render::bytes(needed_by(room, kept));
        out.push(Finding::warning(
            "no_room_to_raise",
            format!("the trainer's number of steps to keep stays at {keep}: {raise} more would need up to {needed}, and {free} is free; it deletes older steps before a newer one is proven"),
        ));
        policy.retention.keep_raise = 0;
        kept = keep;
    }
    let needed = render::bytes(needed_by(room, kept));
    let told = format!(
        "a step takes {step}, and up to {} exist at the same time; the next saves need up to {needed}, {free} is free",
        kept.saturating_add(1)
    );
    out.push(match needed_by(room, kept) > room.free {
        true => Finding::warning("disk_short", told),
        false => Finding::note("disk", told),
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(room: SaveSpace, keep: Option<u32>) -> (Vec<String>, u32) {
        let mut policy = Policy::default();
        let found = check(&room, keep, &mut policy);
        let words = found.iter().map(|f| format!("{}: {}", f.code, f.detail));
        (words.collect(), policy.retention.keep_raise)
    }

    #[test]
    fn the_number_is_only_raised_where_the_disk_holds_it() {
        let room = |free, steps| SaveSpace {
            free,
            step: 10 << 30,
            steps,
        };
        // 2 steps, 2 more and the one being written, with 2 on disk: 30 GiB.
        let (words, raise) = told(room(30 << 30, 2), Some(2));
        assert!(
            words[0].starts_with("disk: a step takes 10.0 GiB, and up to 5 exist at the same time"),
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
        // Existing steps need no more space, but the next one does.
        let (words, _) = told(room(11 << 30, 9), Some(2));
        assert!(words[0].starts_with("disk: "), "{words:?}");
    }

    #[test]
    fn without_a_number_every_save_needs_its_room() {
        let room = |free| SaveSpace {
            free,
            step: 10 << 30,
            steps: 7,
        };
        assert!(told(room(25 << 30), None).0[0].contains("room for 2 more"));
        assert!(told(room(15 << 30), None).0[0].starts_with("disk_short: "));
        // Step sizes are unknown before the first save.
        let first = SaveSpace {
            free: 1,
            step: 0,
            steps: 0,
        };
        assert_eq!(told(first, Some(2)), (Vec::new(), 2));
    }
}
