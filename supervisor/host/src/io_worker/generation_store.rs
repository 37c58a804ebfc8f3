//! A live set and its generations, presented as the steps of one run.
//!
//! The live set is treated as a step in the parent of the trainer's directory. It is always checked thoroughly,
//! because it is written in place, which no directory timestamp shows. Generations are checked like any steps. If a
//! newer release of AReaL keeps its own generations, the one that its pointer names is the live set.

use super::checkpoint_places::{CheckpointDirs, RunCheckpoints};
use super::copy::{drop_generations, generation_aside, in_place_aside, live_aside, put_back, set_frequencies};
use super::edit::if_ours;
use super::latest::{LatestPointer, is_odd};
use super::proof_record::forget;
use super::scan::RootProver;
use super::trainer_generations::{dir_name, own_aside, pointer_aside};
use super::tree::WalkMode;
use super::write::disk_error;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::io;
use supervise_checkpoint::EarlierStep;
use supervise_checkpoint::latest_file::{GENERATIONS, LATEST, LatestFile};
use supervise_core::checkpoint::kind::{LIVE, OLDER, is_live, is_older, is_own};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, Finding, PinsHash, Resumability, Verdict};
use supervise_core::event::{ActError, ScanReport};
use supervise_core::id::Step;
use supervise_core::journal::record::DiskEdit;
use supervise_core::state::OwnStep;

pub(super) struct GenerationStore {
    pub(super) places: CheckpointDirs,
    prover: RootProver,
    own: RootProver,
    known: Vec<EarlierStep>,
}

impl GenerationStore {
    /// `None`: this trainer has a directory per step.
    pub(super) fn of(place: &RunCheckpoints) -> Option<Self> {
        let places = CheckpointDirs::of(place)?;
        let prover = RootProver::new(&places.protected(), places.trainer, &places.expect());
        Some(Self {
            own: RootProver::new(&places.generations(), places.trainer, &places.expect()),
            places,
            prover,
            known: Vec::new(),
        })
    }

    pub(super) fn keeping_records(mut self, run_dir: &Utf8Path) -> Self {
        self.prover = self.prover.keeping_records(run_dir);
        self
    }

    pub(super) fn know(&mut self, own: &BTreeMap<String, OwnStep>) {
        self.prover.own.clone_from(own);
    }

    pub(super) fn live_prover(&self) -> Option<RootProver> {
        let (above, _) = self.places.above()?;
        Some(RootProver::new(above, self.places.trainer, &self.places.expect_live()))
    }

    /// Scans the generations and then the live set, which is compared with them. Returns the live prover's report,
    /// and both under the names used by the run.
    pub(super) fn look(
        &mut self,
        live: &mut RootProver,
        depth: Depth,
        whole: u32,
        how: WalkMode,
        working: &mut dyn FnMut(u64) -> bool,
    ) -> (ScanReport, ScanReport) {
        let mut kept = self.prover.look(depth, whole, how, working);
        // The unreadable directory is not the trainer's own.
        let at = self.places.protected();
        kept.unreadable = kept.unreadable.map(|why| format!("{at}, where copies are kept: {why}"));
        let good: Vec<CheckpointSummary> = kept
            .steps
            .iter()
            .filter(|c| c.verdict == Verdict::Whole && c.proven.is_some())
            .cloned()
            .collect();
        self.prover.record(&good);
        self.tell(live, &good);
        let seen = live.look(depth, whole, WalkMode::Thorough, working);
        // The pointer is read first: the generation it names then exists, unless it was deleted for a newer one.
        let pointer = self.places.pointer();
        let own = match is_odd(&self.places.generations()) {
            true => linked(&self.places),
            false => self.own.look(depth, whole, WalkMode::Thorough, working),
        };
        let report = merged(&seen, kept, own, &pointer, &self.places);
        (seen, report)
    }

    /// Tells the live prover which sets to compare with.
    fn tell(&mut self, live: &mut RootProver, good: &[CheckpointSummary]) {
        let known: Vec<EarlierStep> = good
            .iter()
            .map(|c| EarlierStep {
                step: c.step,
                marks: self.prover.cache.marks(&c.id),
            })
            .collect();
        if known != self.known {
            self.known.clone_from(&known);
            live.cache.remember(known.clone());
            self.own.cache.remember(known);
        }
    }

    pub(super) fn pins(&mut self, live: &mut RootProver, id: &CkptId) -> io::Result<Option<PinsHash>> {
        if is_own(id) {
            return self.own.pins_now(&CkptId(dir_name(id)?.into()));
        }
        match (is_live(id), self.places.above(), self.places.pointer()) {
            (true, _, LatestPointer::Names(pointer)) => self.own.pins_now(&CkptId(pointer.generation().into())),
            (true, Some((_, name)), LatestPointer::Missing) => live.pins_now(&CkptId(name.into())),
            (true, _, _) => Ok(None),
            _ => self.prover.pins_now(id),
        }
    }

    pub(super) fn perform(
        &self,
        edits: &[DiskEdit],
        by: &str,
        records: Option<&Utf8PathBuf>,
        working: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), ActError> {
        for edit in edits {
            match edit {
                DiskEdit::MoveAside {
                    from,
                    foreign,
                    others,
                    why,
                    ..
                } if is_live(from) => {
                    if_ours(*others, live_aside(&self.places, from, *foreign, why, by))
                        .map_err(|e| aside_failed(from, &e))?;
                }
                DiskEdit::MoveAside {
                    from,
                    foreign,
                    others,
                    why,
                    ..
                } if is_older(from) => {
                    if_ours(*others, in_place_aside(&self.places, from, *foreign, why, by))
                        .map_err(|e| aside_failed(from, &e))?;
                }
                DiskEdit::MoveAside {
                    from,
                    foreign,
                    others,
                    why,
                    ..
                } if is_own(from) => {
                    let moved = dir_name(from).and_then(|name| own_aside(&self.places, name, *foreign, why, by));
                    if_ours(*others, moved).map_err(|e| aside_failed(from, &e))?;
                }
                DiskEdit::MoveAside {
                    from,
                    foreign,
                    others,
                    why,
                    ..
                } => {
                    if_ours(
                        *others,
                        generation_aside(&self.places, from.0.as_str(), *foreign, why, by),
                    )
                    .map_err(|e| aside_failed(from, &e))?;
                    if let Some(records) = records {
                        forget(records, from);
                    }
                }
                DiskEdit::SetFrequencies => set_frequencies(&self.places)?,
                DiskEdit::PutBack { from } => put_back(&self.places, from, by, working)?,
                DiskEdit::RemoveTracker => pointer_aside(&self.places, "nothing it could name is left", by)
                    .map_err(|e| disk_error("moving LATEST aside", &e))?,
                DiskEdit::PartAside { .. }
                | DiskEdit::WriteTracker { .. }
                | DiskEdit::Reshard(_)
                | DiskEdit::EndReshard(_) => {}
            }
        }
        Ok(())
    }

    pub(super) fn prune(&self, ids: &[CkptId], records: Option<&Utf8PathBuf>) -> Result<(), ActError> {
        drop_generations(&self.places, ids)?;
        if let Some(records) = records {
            ids.iter().for_each(|id| forget(records, id));
        }
        Ok(())
    }
}

/// Scans everything that a run could resume from, thoroughly and without leaving a trace.
pub fn look_at_run(place: &RunCheckpoints, depth: Depth, working: &mut dyn FnMut(u64) -> bool) -> ScanReport {
    match GenerationStore::of(place) {
        Some(mut kept) => match kept.live_prover() {
            Some(mut live) => kept.look(&mut live, depth, u32::MAX, WalkMode::Thorough, working).1,
            None => ScanReport::default(),
        },
        None => RootProver::new(&place.root, place.trainer, &place.expect).scan(depth, u32::MAX, working),
    }
}

fn aside_failed(id: &CkptId, e: &io::Error) -> ActError {
    disk_error(&format!("moving {id} aside"), e)
}

/// Generations behind a link are not scanned, but reported.
fn linked(places: &CheckpointDirs) -> ScanReport {
    let detail = format!(
        "{GENERATIONS} is a symbolic link, or no directory: that is not followed, put the directory itself there"
    );
    let finding = Finding::error("symlink", Verdict::Unknown, detail).in_file(GENERATIONS);
    ScanReport {
        steps: vec![places.layout.no_set(Step(0), finding)],
        ..ScanReport::default()
    }
}

/// Merges the reports, newest step first, the live set before a copy of it.
fn merged(
    in_place: &ScanReport,
    kept: ScanReport,
    own: ScanReport,
    pointer: &LatestPointer,
    places: &CheckpointDirs,
) -> ScanReport {
    let mut steps = Vec::with_capacity(kept.steps.len() + own.steps.len() + 1);
    let mut remarks = in_place.remarks.clone();
    // Directories may be created by a path lookup: without a file in them nothing was saved.
    let is_there =
        |c: &&CheckpointSummary| c.files > 0 || c.findings.iter().any(|f| matches!(&*f.code, "symlink" | "linked"));
    let hidden = *pointer != LatestPointer::Missing;
    for c in in_place.steps.iter().filter(is_there) {
        let name = if hidden { OLDER } else { LIVE };
        steps.push(called(c.clone(), name));
        if hidden {
            let what = format!(
                "{OLDER} (step {}) was written in place by an older build of {}",
                c.step,
                places.who()
            );
            remarks.push(format!("{what}: a newer one loads what {LATEST} names, and not that"));
        }
    }
    for mut c in own.steps {
        let name = c.id.0.to_string();
        c = match pointer {
            LatestPointer::Names(p) if p.generation() == name => called(refused(c, p, places), LIVE),
            _ if name.is_empty() => called(c, LIVE),
            _ => called(c, &name),
        };
        steps.push(c);
    }
    if !steps.iter().any(|c| is_live(&c.id)) {
        steps.extend(nothing_named(pointer, places).map(|c| called(c, LIVE)));
    }
    steps.extend(kept.steps);
    // A live set of unknown step comes first, so that it is not skipped silently although it may be the newest.
    let unknown = |c: &CheckpointSummary| is_live(&c.id) && c.step.0 == 0;
    steps.sort_by_key(|c| (std::cmp::Reverse((unknown(c), c.step)), !is_live(&c.id)));
    remarks.extend(own.remarks);
    remarks.extend(kept.remarks);
    ScanReport {
        empty: in_place.empty && kept.empty && own.empty,
        tracker: pointer.tracker(),
        unreadable: in_place.unreadable.clone().or(own.unreadable).or(kept.unreadable),
        steps,
        remarks,
        saving: None,
    }
}

fn called(mut c: CheckpointSummary, name: &str) -> CheckpointSummary {
    c.id = CkptId(match &c.save {
        Some(save) => format!("{name}.{save}").into(),
        None => name.into(),
    });
    c
}

/// The generation that the pointer names, with what makes the trainer refuse it.
fn refused(mut c: CheckpointSummary, pointer: &LatestFile, places: &CheckpointDirs) -> CheckpointSummary {
    let (engines, who) = (places.engines(), places.who());
    let lacks = |name: &&String| !pointer.engines.contains(name);
    let named = pointer.engines.join(", ");
    if let Some(name) = pointer
        .engines
        .iter()
        .find(|name| !c.roles.contains(name))
        .or(engines.iter().find(lacks))
    {
        let detail =
            format!("{LATEST} says that it holds {named}, which is not so for {name}: {who} would end before any work");
        let finding = Finding::error("pointer_engines", Verdict::Damaged, detail).in_file(LATEST);
        c.findings.insert(0, finding);
        c.verdict = c.verdict.worst(Verdict::Damaged);
        (c.proven, c.part) = (None, None);
    } else if !engines.is_empty() && pointer.engines.len() > engines.len() {
        let ours = engines.join(", ");
        let why =
            format!("{LATEST} says that it holds {named}, and this run has {ours}: {who} would end before any work");
        c.resume = Resumability::Not { why };
    }
    c
}

/// A report if the pointer names a generation that does not exist.
fn nothing_named(pointer: &LatestPointer, places: &CheckpointDirs) -> Option<CheckpointSummary> {
    let who = places.who();
    let (step, mut finding) = match pointer {
        LatestPointer::Missing => return None,
        LatestPointer::Names(p) => {
            let detail = format!(
                "it names {}, which is not there: {who} would end before any work",
                p.generation()
            );
            (p.step, Finding::error("pointer_dangling", Verdict::Incomplete, detail))
        }
        LatestPointer::Wrong(why) => {
            let detail = format!("it names no generation ({why}): {who} would end before any work");
            (Step(0), Finding::error("pointer_damaged", Verdict::Damaged, detail))
        }
        LatestPointer::Unreadable(why) => {
            let detail = format!("cannot be read: {why}");
            (Step(0), Finding::error("unreadable", Verdict::Unreadable, detail))
        }
    };
    finding.retryable = finding.verdict == Verdict::Unreadable;
    Some(places.layout.no_set(step, finding.in_file(LATEST)))
}
