//! The steps that this run wrote, and how that is known.
//!
//! A step's number does not show who wrote it. A step is this run's if its files got their pins while an attempt of
//! this run was running and watched, or if it was accepted as a resume point.

use super::RunState;
use crate::checkpoint::kind::is_live;
use crate::checkpoint::{CheckpointSummary, CkptId, Depth, PinsHash};
use crate::event::ScanReport;
use crate::journal::record::{DiskEdit, StartPoint};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A step of this run, as it was last known to be unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnStep {
    /// Hash over the metadata of its files.
    pub pins: PinsHash,
    /// Whether every byte was read with these pins and found correct.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read: bool,
}

/// Who wrote a step, as far as the journal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepOrigin {
    /// This run wrote it, and it was not changed since.
    Own,
    /// This run wrote a step of that name, but its files changed while no attempt of this run was watched.
    Changed,
    /// Nothing shows that this run wrote it.
    Unknown,
}

impl RunState {
    /// Who wrote a step of a scan.
    #[must_use]
    pub fn origin_of(&self, c: &CheckpointSummary) -> StepOrigin {
        match self.disk.own.get(c.id.0.as_str()) {
            Some(own) if own.pins == c.pins => StepOrigin::Own,
            // Resharded by this run, from a step that it had accepted.
            _ if self.derivation(c).is_some() => StepOrigin::Own,
            Some(_) => StepOrigin::Changed,
            None => StepOrigin::Unknown,
        }
    }

    /// Notes the steps of a scan made while their writer is watched, or right after it exited.
    pub(super) fn note_own(&mut self, report: &ScanReport) {
        if report.unreadable.is_some() {
            return;
        }
        let is_watched = self.disk.watched && (self.live().is_some() || self.disk.settled.is_none());
        let put_back = std::mem::take(&mut self.disk.put_back);
        let mut there = 0;
        for c in report.steps.iter().filter(|c| c.other_owner.is_none()) {
            let (name, is_read) = (c.id.0.as_str(), c.is_proven(Depth::Full));
            let known = self.disk.own.get(name).copied();
            let now = match known {
                Some(known) if known.pins == c.pins => OwnStep {
                    read: known.read || is_read,
                    ..known
                },
                _ if is_watched && self.disk.foreign.get(name) != Some(&c.pins) || put_back && is_live(&c.id) => {
                    OwnStep {
                        pins: c.pins,
                        read: is_read,
                    }
                }
                Some(_) => {
                    there += 1;
                    continue;
                }
                None => continue,
            };
            there += 1;
            if known != Some(now) {
                self.disk.own.insert(name.to_owned(), now);
            }
        }
        if self.disk.own.len() > there {
            let names: BTreeSet<&str> = report.steps.iter().map(|c| c.id.0.as_str()).collect();
            // What stands outside of the checkpoint root is not in every scan.
            self.disk
                .own
                .retain(|name, _| name.starts_with('/') || names.contains(name.as_str()));
        }
    }

    /// Notes the steps that exist before an attempt, which it did not write.
    pub(super) fn note_foreign(&mut self) {
        let steps = self.disk.scan.iter().flat_map(|scan| &scan.steps);
        self.disk.foreign = steps
            .filter(|c| self.origin_of(c) != StepOrigin::Own)
            .map(|c| (c.id.to_string(), c.pins))
            .collect();
    }

    /// Accepts a step as resume point, which makes it this run's.
    pub(super) fn accept(&mut self, from: &StartPoint) {
        let StartPoint::Step { ckpt, pins, .. } = from else {
            return;
        };
        let is_it = |c: &&CheckpointSummary| c.id == *ckpt && c.pins == *pins;
        let scanned = self.disk.scan.iter().flat_map(|scan| &scan.steps).find(is_it);
        // Of a step that is used in part the pins are others.
        let Some(scanned) = scanned.filter(|c| c.other_owner.is_none()) else {
            return;
        };
        let read = scanned.is_proven(Depth::Full);
        self.disk.own.insert(ckpt.to_string(), OwnStep { pins: *pins, read });
    }

    /// Notes disk edits: a live set that was put back is our copy, and a step that could not be moved stays.
    pub(super) fn note_arranged(&mut self, edits: &[DiskEdit]) {
        for edit in edits {
            match edit {
                DiskEdit::PutBack { .. } => self.disk.put_back = true,
                DiskEdit::MoveAside { from, others: true, .. } if !self.disk.immovable.contains(from) => {
                    self.disk.immovable.push(from.clone());
                }
                _ => {}
            }
        }
    }

    /// Returns true if this is another user's step that we once tried to move in vain.
    #[must_use]
    pub fn is_immovable(&self, id: &CkptId) -> bool {
        self.disk.immovable.contains(id)
    }
}
