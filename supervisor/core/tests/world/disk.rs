//! The simulated checkpoint root: what is really there, and what a scan says of it.

use super::script::Truth;
use camino::Utf8PathBuf;
use std::borrow::Cow;
use std::collections::BTreeMap;
use supervise_core::checkpoint::reshard::{ReshardSpec, ReshardedStep};
use supervise_core::checkpoint::{
    CheckpointSummary, CkptId, Depth, Finding, PartialStep, PinsHash, ReshardOffer, Resumability, StateKind, Verdict,
};
use supervise_core::event::{ScanReport, TrackerState};
use supervise_core::id::{Step, WallMs};
use supervise_core::journal::record::DiskEdit;

#[derive(Debug, Clone)]
pub(crate) struct SimStep {
    pub(crate) step: u64,
    pub(crate) truth: Truth,
    /// It was there before the run.
    pub(crate) old: bool,
    pins: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Disk {
    pub(crate) steps: BTreeMap<CkptId, SimStep>,
    pub(crate) aside: Vec<(CkptId, Truth)>,
    pub(crate) tracker: TrackerState,
    /// A step that was being cut anew when its helper died: it stands nowhere.
    half: Option<(CkptId, SimStep)>,
    /// The run has begun.
    pub(crate) begun: bool,
    writes: u64,
    saves: u64,
}

/// The save that a live set or a generation is of.
fn save_of(id: &CkptId) -> &str {
    id.0.as_str().split_once('.').map_or("", |(_, save)| save)
}

/// A generation that the trainer wrote by itself and does not name.
pub(crate) fn own(step: u64, save: &str) -> CkptId {
    CkptId(format!("generation_{step}.{save}").into())
}

/// The directory of a step under the root.
pub(crate) fn dir(step: u64) -> CkptId {
    CkptId(Utf8PathBuf::from(format!("global_step_{step}")))
}

/// The directory of a step elsewhere.
pub(crate) fn elsewhere(step: u64) -> CkptId {
    CkptId(Utf8PathBuf::from(format!("/elsewhere/global_step_{step}")))
}

impl Disk {
    pub(crate) fn put(&mut self, id: CkptId, step: u64, truth: Truth) {
        self.writes += 1;
        let (pins, old) = (self.writes, !self.begun);
        self.steps.insert(id, SimStep { step, truth, old, pins });
    }

    /// Something turned bad (or readable again) without being written.
    pub(crate) fn turn(&mut self, step: u64, truth: Truth) {
        match self.steps.get_mut(&dir(step)) {
            // An I/O error changes no pins; it comes and goes.
            Some(s) if truth == Truth::Unreadable || s.truth == Truth::Unreadable && truth == Truth::Whole => {
                s.truth = truth;
            }
            _ => self.put(dir(step), step, truth),
        }
    }

    pub(crate) fn pins(&self, id: &CkptId) -> Option<PinsHash> {
        self.steps.get(id).map(|s| PinsHash(s.pins))
    }

    pub(crate) fn truth(&self, id: &CkptId) -> Option<Truth> {
        self.steps.get(id).map(|s| s.truth)
    }

    pub(crate) fn edit(&mut self, edit: &DiskEdit) {
        match edit {
            DiskEdit::MoveAside { from, .. } => {
                if let Some(s) = self.steps.remove(from) {
                    self.aside.push((from.clone(), s.truth));
                }
            }
            DiskEdit::PartAside { from, .. } => {
                // The files that are left have the pins that the proof of the part told.
                if let Some(s) = self.steps.get_mut(from) {
                    s.truth = Truth::Degraded;
                }
            }
            DiskEdit::WriteTracker { step } => self.tracker = TrackerState::Step(*step),
            DiskEdit::RemoveTracker => self.tracker = TrackerState::Missing,
            DiskEdit::SetFrequencies => {}
            DiskEdit::PutBack { from } => self.put_back(from),
            // Told by what they give.
            DiskEdit::Reshard(_) | DiskEdit::EndReshard(_) => {}
        }
    }

    /// Cuts a step anew.
    pub(crate) fn reshard(&mut self, cut: &ReshardSpec) -> Option<ReshardedStep> {
        self.half = self.steps.remove_entry(&cut.ckpt);
        self.end_reshard(cut)
    }

    /// Puts what was cut in the place of what it was cut from.
    pub(crate) fn end_reshard(&mut self, cut: &ReshardSpec) -> Option<ReshardedStep> {
        let (id, was) = self.half.take()?;
        self.aside.push((id.clone(), was.truth));
        self.writes += 1;
        let (truth, pins) = (Truth::Whole, self.writes);
        self.steps.insert(id, SimStep { truth, pins, ..was });
        Some(ReshardedStep {
            of: cut.clone(),
            pins: PinsHash(pins),
            kept: None,
        })
    }

    /// The worst moment in which whoever cuts a step can die: it is gone, and nothing stands in its place.
    pub(crate) fn half_cut(&mut self, ckpt: &CkptId) {
        if self.half.is_none() {
            self.half = self.steps.remove_entry(ckpt);
        }
    }

    /// A copy of a generation stands where the trainer looks, or its pointer names another one of its own.
    fn put_back(&mut self, from: &CkptId) {
        if !from.0.as_str().starts_with("step_") {
            self.unname();
            let Some(own) = self.steps.remove(from) else { return };
            self.tracker = match from.0.as_str().starts_with("older") {
                true => TrackerState::Missing,
                false => TrackerState::Step(Step(own.step)),
            };
            self.steps.insert(CkptId(format!("live.{}", save_of(from)).into()), own);
            return;
        }
        let Some(kept) = self.steps.get(from).cloned() else {
            return;
        };
        self.writes += 1;
        let pins = self.writes;
        let id = CkptId(format!("live.{}", save_of(from)).into());
        self.steps.insert(id, SimStep { pins, ..kept });
    }

    /// The set that the trainer's pointer named is one of its generations like others.
    fn unname(&mut self) {
        let live = self.steps.keys().find(|id| id.0.as_str().starts_with("live")).cloned();
        if let Some(live) = live
            && let Some(s) = self.steps.remove(&live)
        {
            self.steps.insert(own(s.step, save_of(&live)), s);
        }
    }

    /// A save into a directory of its own: when it is whole the pointer names it, and the one before is deleted.
    pub(crate) fn beside(&mut self, step: u64, truth: Truth) {
        self.steps.retain(|_, s| s.step != step || s.truth != Truth::Torn);
        if truth == Truth::Torn {
            self.put(CkptId(format!("generation_{step}").into()), step, truth);
            return;
        }
        self.overwrite(step, truth);
        self.tracker = TrackerState::Step(Step(step));
    }

    /// A save overwrites the only checkpoint.
    pub(crate) fn overwrite(&mut self, step: u64, truth: Truth) {
        self.steps.retain(|id, _| !id.0.as_str().starts_with("live"));
        self.saves += 1;
        self.put(CkptId(format!("live.{}", self.saves).into()), step, truth);
    }

    /// The last write of a save that was found whole before it.
    pub(crate) fn rewrite(&mut self) {
        self.writes += 1;
        let pins = self.writes;
        let live = self.steps.iter_mut().find(|(id, _)| id.0.as_str().starts_with("live"));
        if let Some((_, s)) = live {
            s.pins = pins;
        }
    }

    /// A copy of the live set becomes a generation, if nobody wrote into it meanwhile.
    pub(crate) fn keep(&mut self, ckpt: &CkptId, pins: PinsHash) -> bool {
        let Some(live) = self.steps.get(ckpt).filter(|s| s.pins == pins.0).cloned() else {
            return false;
        };
        self.writes += 1;
        let pins = self.writes;
        let id = CkptId(format!("step_{}.{}", live.step, save_of(ckpt)).into());
        self.steps.insert(id, SimStep { pins, ..live });
        true
    }

    /// Newest first; proven until `whole` whole steps are found.
    pub(crate) fn scan(&self, depth: Depth, whole: u32) -> ScanReport {
        let mut order: Vec<(&CkptId, &SimStep)> = self.steps.iter().collect();
        // The live set comes first among equals, as an I/O worker lists it.
        order.sort_by_key(|(id, s)| (std::cmp::Reverse(s.step), (*id).clone()));
        let mut found = 0;
        let mut steps = Vec::new();
        for (id, s) in order {
            let summary = if found < whole {
                summary(id, s, Some(depth))
            } else {
                summary(id, s, None)
            };
            found += u32::from(summary.verdict == Verdict::Whole && summary.proven.is_some());
            steps.push(summary);
        }
        ScanReport {
            empty: steps.is_empty() && self.tracker == TrackerState::Missing,
            saving: None,
            steps,
            tracker: self.tracker.clone(),
            unreadable: None,
            remarks: Vec::new(),
        }
    }
}

/// Remains of a step whose optimizer or dataloader state is torn.
fn part(s: &SimStep, depth: Option<Depth>) -> Option<PartialStep> {
    let (lost, held, aside) = match s.truth {
        Truth::NoOptimizer => (vec![StateKind::Optimizer], vec!["model", "extra"], None),
        Truth::NoData => (
            vec![StateKind::DataOrder],
            vec!["model", "optimizer", "extra"],
            Some(Utf8PathBuf::from("data.pt")),
        ),
        _ => return None,
    };
    let held = held.into_iter().map(str::to_owned).collect();
    depth.map(|depth| PartialStep {
        lost,
        holds: BTreeMap::from([("actor".to_owned(), held)]),
        proven: Some(depth),
        aside: aside.into_iter().collect(),
        pins: PinsHash(s.pins),
    })
}

/// Content of a proof of this depth; `None`: names only.
fn summary(id: &CkptId, s: &SimStep, depth: Option<Depth>) -> CheckpointSummary {
    let (verdict, finding) = match (s.truth, depth) {
        (Truth::Unreadable, _) => (
            Verdict::Unreadable,
            Some(("io_error", "Input/output error (os error 5)")),
        ),
        (Truth::Others, _) => (Verdict::Unknown, Some(("another_owner", "it belongs to user 1000"))),
        (Truth::Unknown, _) => (Verdict::Unknown, Some(("layout_unknown", "no file here fits a layout"))),
        (Truth::NoOptimizer, Some(_)) => (
            Verdict::Damaged,
            Some(("zip_truncated", "the optimizer of rank 1 is torn")),
        ),
        (Truth::NoData, Some(_)) => (Verdict::Damaged, Some(("zip_truncated", "data.pt is torn"))),
        (Truth::Torn, _) => (Verdict::Incomplete, Some(("shard_missing", "rank 1 of 2 is missing"))),
        (Truth::Husk, _) => (Verdict::Incomplete, Some(("husk", "only data.pt is left"))),
        (Truth::Damaged, Some(_)) => (
            Verdict::Damaged,
            Some(("zip_truncated", "the zip directory is missing")),
        ),
        (Truth::Rotten, Some(Depth::Full)) => (Verdict::Damaged, Some(("crc", "a checksum does not match"))),
        (Truth::Unsafe, Some(_)) => (Verdict::Unsafe, Some(("danger", "loading it calls os.system"))),
        _ => (Verdict::Whole, None),
    };
    let resume = match s.truth {
        Truth::Degraded => Resumability::Degraded {
            lost: vec![StateKind::DataOrder],
        },
        Truth::Unfit => Resumability::Not {
            why: "it was saved by 4 ranks, this run has 2".to_owned(),
        },
        _ => Resumability::Exact,
    };
    CheckpointSummary {
        id: id.clone(),
        step: Step(s.step),
        layout: Cow::Borrowed("verl_fsdp_ppo"),
        verdict,
        proven: depth.filter(|_| verdict == Verdict::Whole),
        roles: vec!["actor".to_owned()],
        world: Some(2),
        contents: vec!["model".to_owned(), "optimizer".to_owned(), "extra".to_owned()],
        holds: BTreeMap::new(),
        reshard: (s.truth == Truth::Unfit).then(|| ReshardOffer {
            from: 4,
            to: 2,
            lost: Vec::new(),
        }),
        resume,
        part: part(s, depth),
        pins: PinsHash(s.pins),
        bytes: 1 << 20,
        files: 6,
        newest: WallMs(0),
        saved_by: None,
        save: None,
        husk: s.truth == Truth::Husk,
        other_owner: (s.truth == Truth::Others).then_some(1000),
        unfamiliar: match s.truth {
            Truth::Strange => vec!["my_project.state.Sampler".to_owned()],
            _ => Vec::new(),
        },
        trainer_note: None,
        own_modules: match s.truth {
            Truth::Strange => vec!["my_project".to_owned()],
            _ => Vec::new(),
        },
        findings: finding
            .map(|(code, text)| Finding::error(code, verdict, text))
            .into_iter()
            .collect(),
    }
}
