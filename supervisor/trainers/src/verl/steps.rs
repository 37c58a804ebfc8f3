//! The steps under a checkpoint root, built from file facts as they arrive.
//!
//! A fact costs one lookup in a sorted map; judging a step costs that step's files. The result depends only on the
//! last fact of each path, never on their order. `Gone` for a directory removes everything below it.

use super::evidence::StepReports;
use super::finished::MARKER;
use super::lineage::Lineage;
use super::names::{self, ShardContent, VerlRootName};
use super::step_files::StepFiles;
use super::{judge, marks, required_files};
use crate::adapter::{ExpectedLayout, StepTracker};
use crate::kit::PinsSum;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::ops::Bound;
use supervise_checkpoint::{EarlierStep, FileReport, RequiredFile, StepCounters};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, EntryKind, FileFact, PinsHash};
use supervise_core::event::TrackerState;
use supervise_core::id::Step;

/// Number of neighbours that show what a step of this run looks like.
const NEIGHBOURS: usize = 4;

#[derive(Debug)]
pub(crate) struct VerlSteps {
    expect: ExpectedLayout,
    steps: BTreeMap<Step, VerlStepDir>,
    odd: BTreeMap<String, VerlRootName>,
    earlier: Vec<EarlierStep>,
    pointer: TrackerState,
    /// A step of this root had `fsdp_config.json` (written since verl 0.4.1): its trainer writes it.
    was_marked: bool,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct VerlStepDir {
    /// The fact about the directory itself, if noted.
    dir: Option<FileFact>,
    files: BTreeMap<String, FileFact>,
    pins: PinsSum,
    /// Its counters when it was proven; cleared when one of its files changes.
    marks: Option<StepCounters>,
}

impl VerlStepDir {
    /// Kind of the step's own entry: a directory, or something that is not followed.
    pub(crate) fn kind(&self) -> EntryKind {
        self.dir.as_ref().map_or(EntryKind::Dir, |d| d.kind)
    }

    pub(crate) fn survey<'a>(&'a self, reports: StepReports<'a>) -> StepFiles<'a> {
        StepFiles::of(self.files.iter().map(|(path, fact)| (path.as_str(), fact)), reports)
    }

    pub(crate) fn pins(&self) -> PinsHash {
        self.pins.hash()
    }

    pub(crate) fn facts(&self) -> impl Iterator<Item = (&str, &FileFact)> {
        self.files.iter().map(|(path, fact)| (path.as_str(), fact))
    }

    fn is_empty(&self) -> bool {
        self.dir.is_none() && self.files.is_empty()
    }

    fn put(&mut self, path: &str, fact: &FileFact) {
        self.marks = None;
        self.pins.add(path, fact);
        if let Some(was) = self.files.insert(path.to_owned(), fact.clone()) {
            self.pins.take(path, &was);
        }
    }

    fn remove(&mut self, path: &str) {
        self.marks = None;
        self.take(path);
        let (from, to) = (format!("{path}/"), format!("{path}0"));
        let below: Vec<String> = self
            .files
            .range::<str, _>((Bound::Included(from.as_str()), Bound::Excluded(to.as_str())))
            .map(|(p, _)| p.clone())
            .collect();
        for path in below {
            self.take(&path);
        }
    }

    fn take(&mut self, path: &str) {
        if let Some(was) = self.files.remove(path) {
            self.pins.take(path, &was);
        }
    }

    fn starting_with<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.files
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .map(|(path, _)| path.as_str())
            .take_while(move |path| path.starts_with(prefix))
    }

    fn finished_with_critic(&self) -> bool {
        let critic = self.files.contains_key("critic/ckpt_contents.json")
            || self.starting_with("critic/model_world_size_").next().is_some();
        self.files.contains_key("data.pt") && critic
    }

    fn is_marked(&self) -> bool {
        ["", "actor/", "critic/"]
            .iter()
            .any(|role| self.files.contains_key(&format!("{role}{MARKER}")))
    }

    fn data_parts(&self, world: u32) -> Option<u32> {
        self.files.contains_key(&ShardContent::Model.file(world, 0)).then(|| {
            let parts = self.starting_with("data_").filter_map(names::data_part).count();
            u32::try_from(parts).unwrap_or(u32::MAX)
        })
    }
}

/// What the other steps of this root show about what a step must hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Neighbours<'a> {
    steps: &'a BTreeMap<Step, VerlStepDir>,
    of: Step,
    was_marked: bool,
}

impl Neighbours<'_> {
    fn newest(&self) -> impl Iterator<Item = &VerlStepDir> {
        let of = self.of;
        self.steps
            .iter()
            .rev()
            .filter(move |(step, _)| **step != of)
            .map(|(_, e)| e)
            .take(NEIGHBOURS)
    }

    pub(crate) fn newer_has_role(&self, role: &str) -> bool {
        let dir = format!("{role}/");
        let newer = self.steps.range((Bound::Excluded(self.of), Bound::Unbounded));
        newer.into_iter().any(|(_, e)| e.starting_with(&dir).next().is_some())
    }

    pub(crate) fn have_critic(&self) -> bool {
        self.newest().any(VerlStepDir::finished_with_critic)
    }

    /// Returns true if any step of this root, including this one, has `fsdp_config.json`.
    pub(crate) fn are_marked(&self) -> bool {
        self.was_marked || self.steps.values().any(VerlStepDir::is_marked)
    }

    /// The most dataloader parts in another step of this world size.
    pub(crate) fn data_parts(&self, world: u32) -> u32 {
        self.newest().filter_map(|e| e.data_parts(world)).max().unwrap_or(0)
    }
}

impl VerlSteps {
    pub(crate) fn new(expect: ExpectedLayout) -> Self {
        Self {
            expect,
            steps: BTreeMap::new(),
            odd: BTreeMap::new(),
            earlier: Vec::new(),
            pointer: TrackerState::Missing,
            was_marked: false,
        }
    }

    fn entry(&self, ckpt: &CkptId) -> Option<(Step, &VerlStepDir)> {
        let VerlRootName::Step(step) = names::root_name(ckpt.0.as_str()) else {
            return None;
        };
        self.steps.get(&step).map(|entry| (step, entry))
    }

    /// Other proven steps: what is on disk now takes precedence over what was remembered.
    fn lineage(&self, of: Step) -> Lineage<'_> {
        let mut known: BTreeMap<Step, &StepCounters> = self.earlier.iter().map(|e| (e.step, &e.marks)).collect();
        let now = self
            .steps
            .iter()
            .filter_map(|(step, e)| Some((*step, e.marks.as_ref()?)));
        known.extend(now);
        known.remove(&of);
        Lineage {
            known: known.into_iter().collect(),
            own: self.earlier.iter().find(|e| e.step == of).map(|e| &e.marks),
            partial: self.expect.loads_in_part(),
        }
    }

    fn note_odd(&mut self, name: &str, kind: VerlRootName, fact: &FileFact, whole_path: bool) {
        if fact.kind != EntryKind::Gone {
            self.odd.insert(name.to_owned(), kind);
        } else if whole_path {
            self.odd.remove(name);
        }
    }
}

impl StepTracker for VerlSteps {
    fn note(&mut self, fact: &FileFact) {
        let path = fact.path.as_str();
        let (name, rest) = path
            .split_once('/')
            .map_or((path, None), |(name, rest)| (name, Some(rest)));
        let step = match names::root_name(name) {
            VerlRootName::Other => return,
            VerlRootName::Step(step) => step,
            odd => return self.note_odd(name, odd, fact, rest.is_none()),
        };
        match (rest, fact.kind) {
            (None, EntryKind::Gone) => {
                self.steps.remove(&step);
            }
            (Some(rest), EntryKind::Gone) => {
                let Some(entry) = self.steps.get_mut(&step) else { return };
                entry.remove(rest);
                if entry.is_empty() {
                    self.steps.remove(&step);
                }
            }
            (None, _) => self.steps.entry(step).or_default().dir = Some(fact.clone()),
            (Some(rest), _) => {
                self.was_marked |= rest.rsplit('/').next() == Some(MARKER);
                self.steps.entry(step).or_default().put(rest, fact);
            }
        }
    }

    fn steps(&self) -> Vec<(CkptId, Step)> {
        self.steps
            .keys()
            .rev()
            .map(|step| (CkptId(names::step_dir(*step).into()), *step))
            .collect()
    }

    fn needs(&self, ckpt: &CkptId, _depth: Depth) -> Vec<RequiredFile> {
        let Some((step, entry)) = self.entry(ckpt) else {
            return Vec::new();
        };
        let dir = names::step_dir(step);
        let wanted = required_files::all(&entry.survey(StepReports::default()));
        wanted.into_iter().map(|need| need.under(Utf8Path::new(&dir))).collect()
    }

    fn judge(&mut self, ckpt: &CkptId, depth: Depth, reports: &BTreeMap<Utf8PathBuf, FileReport>) -> CheckpointSummary {
        let Some((step, entry)) = self.entry(ckpt) else {
            return crate::kit::unknown_step(ckpt);
        };
        let neighbours = Neighbours {
            steps: &self.steps,
            of: step,
            was_marked: self.was_marked,
        };
        let (summary, marks) = judge::judge(&judge::VerlStepInput {
            lineage: self.lineage(step),
            step,
            entry,
            neighbours,
            expect: &self.expect,
            pointer: &self.pointer,
            depth,
            reports,
        });
        if !reports.is_empty()
            && let Some(entry) = self.steps.get_mut(&step)
        {
            entry.marks = marks;
        }
        summary
    }

    fn marks(&self, ckpt: &CkptId, reports: &BTreeMap<Utf8PathBuf, FileReport>) -> StepCounters {
        let Some((_, entry)) = self.entry(ckpt) else {
            return StepCounters::default();
        };
        marks::marks(&entry.survey(StepReports::below(ckpt.0.as_str(), reports)))
    }

    fn remember(&mut self, earlier: Vec<EarlierStep>) {
        self.earlier = earlier;
    }

    fn pins(&self, ckpt: &CkptId) -> Option<PinsHash> {
        self.entry(ckpt).map(|(_, entry)| entry.pins())
    }

    fn remarks(&self) -> Vec<String> {
        let told = self.odd.iter().filter_map(|(name, kind)| remark(name, *kind));
        crate::kit::first(told.collect())
    }

    fn is_step_name(&self, name: &str) -> bool {
        matches!(names::root_name(name), VerlRootName::Step(_))
    }

    fn forget(&mut self, ckpt: &CkptId) {
        if let VerlRootName::Step(step) = names::root_name(ckpt.0.as_str()) {
            self.steps.remove(&step);
        }
        self.odd.remove(ckpt.0.as_str());
    }

    fn tracker_file(&self) -> &'static str {
        names::TRACKER
    }

    fn read_tracker(&mut self, bytes: Option<&[u8]>) -> TrackerState {
        self.pointer = super::tracker::read(bytes);
        self.pointer.clone()
    }

    fn rests_on_tracker(&self, ckpt: &CkptId) -> bool {
        self.entry(ckpt).is_some_and(|(_, entry)| !entry.is_marked())
    }
}

fn remark(name: &str, kind: VerlRootName) -> Option<String> {
    Some(match kind {
        VerlRootName::Plural => format!("{name} is ignored: verl writes and reads global_step_N, without an s"),
        VerlRootName::Padded => format!("{name} is ignored: verl looks for the number without leading zeros"),
        VerlRootName::TooLarge => format!("{name} is ignored: no step has a number this large"),
        VerlRootName::Suffixed => {
            format!("{name} is ignored: a step directory is called global_step_N and nothing more")
        }
        VerlRootName::TrackerLeftover => format!("{name} is left over from a tracker write that was killed: harmless"),
        VerlRootName::Step(_) | VerlRootName::Other => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise_checkpoint::{FileKind, unreadable_file};
    use supervise_core::checkpoint::Verdict;

    fn file(path: &Utf8Path) -> FileFact {
        FileFact {
            path: path.to_owned(),
            kind: EntryKind::File,
            size: 4096,
            mtime: 0,
            ctime: 0,
            dev: 0,
            ino: 0,
            uid: 0,
        }
    }

    fn whole_step(ranks: u32) -> (VerlSteps, BTreeMap<Utf8PathBuf, FileReport>) {
        let mut steps = VerlSteps::new(ExpectedLayout::default());
        let mut names = vec!["fsdp_config.json".to_owned(), "huggingface/config.json".to_owned()];
        for rank in 0..ranks {
            names.extend(ShardContent::ALL.map(|content| content.file(ranks, rank)));
        }
        let mut reports = BTreeMap::new();
        for name in names {
            let path = Utf8PathBuf::from(format!("global_step_4/actor/{name}"));
            let mut report = unreadable_file(FileKind::of(&name), std::io::Error::other("nothing was read"));
            (report.verdict, report.facts.world_size) = (Verdict::Whole, Some(ranks));
            report.findings.clear();
            steps.note(&file(&path));
            reports.insert(path, report);
        }
        (steps, reports)
    }

    #[test]
    fn pins_that_were_kept_are_those_of_the_files_that_are_there() {
        let (mut steps, reports) = whole_step(4);
        let ckpt = CkptId("global_step_4".into());
        let now = |path: &Utf8Path, kind, size| FileFact {
            kind,
            size,
            ..file(path)
        };
        for (n, path) in (0..).zip(reports.keys()) {
            let kind = if n % 3 == 0 { EntryKind::Gone } else { EntryKind::File };
            steps.note(&now(path, kind, 4096 + n % 2));
            let entry = &steps.steps[&Step(4)];
            assert_eq!(entry.pins(), crate::kit::pins(entry.facts()), "{path}");
        }
        steps.note(&now("global_step_4/actor".into(), EntryKind::Gone, 0));
        assert_eq!(steps.pins(&ckpt), None, "with the last file the step is gone");
    }

    #[test]
    fn a_digest_takes_the_files_in_the_order_of_their_paths() {
        // Numerically rank 2 comes before rank 10, alphabetically after it; recorded digests use the alphabetical
        // order.
        let (steps, mut reports) = whole_step(12);
        for (crc, report) in (7..).zip(reports.values_mut()) {
            report.crc = Some(crc);
        }
        let mut files: Vec<(&str, u32)> = reports
            .iter()
            .map(|(path, r)| (path.as_str().trim_start_matches("global_step_4/"), r.crc.unwrap()))
            .collect();
        files.sort_unstable();
        let mut hash = crc32fast::Hasher::new();
        for (path, crc) in files {
            hash.update(format!("{path}\0").as_bytes());
            hash.update(&crc.to_le_bytes());
        }
        let marks = steps.marks(&CkptId("global_step_4".into()), &reports);
        assert_eq!(marks.digest, Some(hash.finalize()));
    }

    #[test]
    fn a_judgement_builds_no_name_of_a_file_that_is_there() {
        let ckpt = CkptId("global_step_4".into());
        for ranks in [1, 8, 512] {
            let (mut steps, reports) = whole_step(ranks);
            let built = names::BUILT.get();
            assert_eq!(steps.needs(&ckpt, Depth::Full).len(), reports.len());
            let seen = steps.judge(&ckpt, Depth::Structure, &reports);
            assert_eq!(
                (seen.verdict, seen.world),
                (Verdict::Whole, Some(ranks)),
                "{:?}",
                seen.findings
            );
            assert_eq!(seen.proven, Some(Depth::Structure));
            assert_eq!(names::BUILT.get(), built, "names were built for {ranks} ranks");
        }
    }
}
