//! How the roles of each save were spread over ranks, if the journal saw who wrote it.
//!
//! Only for a checkpoint that is overwritten: the name of such a save is the same in each copy of it.

use super::RunState;
use crate::checkpoint::kind::save_of;
use crate::event::ScanReport;
use crate::spec::RoleSpread;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What is known about the saves on disk.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Spreads {
    /// As in the configuration of the term.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    term: BTreeMap<String, RoleSpread>,
    /// As configured when the last attempt was launched.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attempt: BTreeMap<String, RoleSpread>,
    /// By save; empty if nobody saw who wrote it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    saves: BTreeMap<String, BTreeMap<String, RoleSpread>>,
}

impl Spreads {
    /// Returns true if nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// How a save was spread; `None`: not recorded.
    pub(crate) fn of(&self, save: &str) -> Option<&BTreeMap<String, RoleSpread>> {
        self.saves.get(save).filter(|roles| !roles.is_empty())
    }

    pub(super) fn begin_term(&mut self, spread: &BTreeMap<String, RoleSpread>) {
        self.term.clone_from(spread);
    }

    /// Notes a new attempt: saves that exist before it are not its own.
    pub(super) fn begin_attempt(&mut self, scan: Option<&ScanReport>) {
        self.attempt.clone_from(&self.term);
        for save in scan.into_iter().flat_map(saves) {
            self.saves.entry(save.to_owned()).or_default();
        }
    }
}

fn saves(report: &ScanReport) -> impl Iterator<Item = &str> {
    report.steps.iter().filter_map(|c| save_of(&c.id))
}

impl RunState {
    /// Notes new saves: one that appears while an attempt is watched belongs to that attempt.
    pub(super) fn note_spreads(&mut self, report: &ScanReport) {
        if report.unreadable.is_some() {
            return;
        }
        let is_watched = self.disk.watched && (self.live().is_some() || self.disk.settled.is_none());
        let known = &mut self.disk.spreads;
        if is_watched && !known.attempt.is_empty() {
            for save in saves(report) {
                let attempt = &known.attempt;
                known.saves.entry(save.to_owned()).or_insert_with(|| attempt.clone());
            }
        }
        let there: BTreeSet<&str> = saves(report).collect();
        known.saves.retain(|save, _| there.contains(save.as_str()));
    }
}
