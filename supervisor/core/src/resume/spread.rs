//! Saves that were spread over ranks in another way than the run is now.

use crate::checkpoint::kind::save_of;
use crate::checkpoint::{CheckpointSummary, StateKind};
use crate::journal::reason::Reason;
use crate::spec::{RoleSpread, RunSpec};
use crate::state::RunState;

/// How a save compares with the run that is to load it.
pub(super) enum SpreadChange {
    /// There is nothing to compare, or it is the same.
    None,
    /// It can be loaded, but some state is lost.
    Sizes {
        lost: Vec<StateKind>,
        /// What differs, as text.
        text: String,
    },
    /// It cannot be loaded, with the reason.
    Backend(String),
    /// It is not recorded who wrote it.
    NotRecorded(Reason),
}

pub(super) fn change(s: &RunState, spec: &RunSpec, c: &CheckpointSummary) -> SpreadChange {
    let Some(place) = spec.saves.in_place().filter(|place| !place.spread.is_empty()) else {
        return SpreadChange::None;
    };
    let Some(saved) = save_of(&c.id).and_then(|save| s.disk.spreads.of(save)) else {
        let now: Vec<String> = place.spread.iter().map(|(role, now)| said(role, now)).collect();
        let text = format!(
            "whether {} was saved with the same backend and parallel sizes ({}) is not recorded: if they were others, the resume is not exact, and this is not checked",
            c.id,
            now.join(", ")
        );
        return SpreadChange::NotRecorded(Reason::new("spread_not_recorded", text));
    };
    let roles = place.spread.iter();
    let pairs = roles.filter_map(|(role, now)| Some((role, saved.get(role)?, now)));
    let differ: Vec<(&String, &RoleSpread, &RoleSpread)> = pairs.filter(|(_, was, now)| was != now).collect();
    if let Some((role, was, now)) = differ.iter().find(|(_, was, now)| was.backend != now.backend) {
        return SpreadChange::Backend(format!(
            "{role} was saved by {} ({}), and this run loads it with {} ({}): a backend loads what it saved itself; choose the one that saved it, or let the run start in an empty checkpoint directory",
            was.backend, was.sizes, now.backend, now.sizes
        ));
    }
    if differ.is_empty() {
        return SpreadChange::None;
    }
    let mut lost = vec![StateKind::Parallel];
    let words = differ.iter().map(|(role, was, now)| {
        let other_data = was.shares != now.shares;
        if other_data {
            lost.push(StateKind::DataOrder);
        }
        let data = match other_data {
            true => format!(
                ", so that the data is dealt out in {} and not in {}: its place is another one, samples come again or are left out",
                shares(now.shares),
                was.shares
            ),
            false => String::new(),
        };
        format!("{role} was saved as {} and this run has {}{data}", was.sizes, now.sizes)
    });
    let text = words.collect::<Vec<_>>().join("; ");
    lost.sort_unstable();
    lost.dedup();
    SpreadChange::Sizes { lost, text }
}

fn said(role: &str, spread: &RoleSpread) -> String {
    format!("{role} {}", spread.sizes)
}

fn shares(n: u32) -> String {
    match n {
        1 => "one share".to_owned(),
        n => format!("{n} shares"),
    }
}
