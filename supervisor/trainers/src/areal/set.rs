//! The files of one set, sorted: the run's state, and the state of each engine.

use super::names::{self, DEFAULT, INFO, SetPath};
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::{BTreeMap, BTreeSet};
use supervise_checkpoint::latest_file::generation_step;
use supervise_checkpoint::set::{self, SetKind, SetReport};
use supervise_checkpoint::{FileReport, RequiredFile, StepCounters};
use supervise_core::checkpoint::{EntryKind, FileFact, Finding, PinsHash};
use supervise_core::id::WallMs;

/// All files of a set by path relative to it, and odd entries in its directories.
#[derive(Debug, Clone, Default)]
pub(super) struct SetFiles {
    files: BTreeMap<String, FileFact>,
    pub(super) odd: BTreeSet<String>,
    /// Links in place of directories that a set may have.
    pub(super) linked: BTreeSet<String>,
}

impl SetFiles {
    pub(super) fn note(&mut self, path: &str, fact: &FileFact) {
        if names::is_place(path) {
            match fact.kind {
                EntryKind::Symlink => self.linked.insert(path.to_owned()),
                _ => self.linked.remove(path),
            };
        }
        if names::part(path) == SetPath::Other {
            return;
        }
        match fact.kind {
            EntryKind::File => {
                self.odd.remove(path);
                self.files.insert(path.to_owned(), fact.clone());
            }
            EntryKind::Symlink | EntryKind::Other => {
                self.files.remove(path);
                self.odd.insert(path.to_owned());
            }
            EntryKind::Dir | EntryKind::Gone => {
                self.files.remove(path);
                self.odd.remove(path);
            }
        }
    }

    /// Returns true if there is no file of a set. Directories prove nothing: path helpers create them.
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.odd.is_empty() && self.linked.is_empty()
    }

    pub(super) fn engines(&self) -> BTreeSet<&str> {
        let of = |path| match names::part(path) {
            SetPath::State(engine, _) => Some(engine),
            SetPath::Info(_) | SetPath::Other => None,
        };
        self.files.keys().filter_map(|path| of(path.as_str())).collect()
    }

    pub(super) fn sum(&self) -> (u32, u64, WallMs) {
        let bytes = self.files.values().fold(0_u64, |sum, f| sum.saturating_add(f.size));
        let newest = self
            .files
            .values()
            .map(|f| f.mtime / 1_000_000)
            .max()
            .unwrap_or_default();
        (
            u32::try_from(self.files.len()).unwrap_or(u32::MAX),
            bytes,
            WallMs(newest),
        )
    }

    pub(super) fn pins(&self) -> PinsHash {
        crate::kit::pins(self.files.iter().map(|(path, fact)| (path.as_str(), fact)))
    }

    /// Shards of an engine written after its table by more than the clock tolerance. The table is written last.
    pub(super) fn after_table(&self, engine: &str) -> Vec<(String, i64)> {
        let dir = names::state_dir(engine);
        let Some(table) = self.modified(&format!("{dir}/.metadata")) else {
            return Vec::new();
        };
        let shards = self.inside(&dir).into_keys().filter(|n| names::is_shard(n));
        let late = shards.filter_map(|n| Some((self.modified(&format!("{dir}/{n}"))?.saturating_sub(table), n)));
        late.filter(|(by, _)| *by > CLOCKS).map(|(by, n)| (n, by)).collect()
    }

    pub(super) fn modified(&self, path: &str) -> Option<i64> {
        self.files.get(path).map(|f| f.mtime)
    }

    fn inside(&self, dir: &str) -> BTreeMap<String, u64> {
        let name = |path: &str| path.strip_prefix(dir)?.strip_prefix('/').map(str::to_owned);
        let sized = self
            .files
            .iter()
            .filter_map(|(path, fact)| Some((name(path)?, fact.size)));
        sized.collect()
    }

    pub(super) fn parts(&self) -> Vec<(String, SetKind, BTreeMap<String, u64>)> {
        let mut out = vec![(INFO.to_owned(), SetKind::RecoverInfo, self.inside(INFO))];
        for engine in self.engines() {
            let dir = names::state_dir(engine);
            let files = self.inside(&dir);
            let found = set::recognize(files.keys().map(String::as_str));
            let kind = found.filter(|k| *k == SetKind::MegatronDist).unwrap_or(SetKind::Dcp);
            out.push((dir, kind, files));
        }
        out
    }

    pub(super) fn needs(&self) -> Vec<RequiredFile> {
        let parts = self.parts();
        let below = |(dir, kind, files): &(String, SetKind, BTreeMap<String, u64>)| {
            let needs = set::needs(*kind, files.keys().map(String::as_str));
            needs
                .into_iter()
                .map(|n| n.under(Utf8Path::new(dir)))
                .collect::<Vec<_>>()
        };
        parts.iter().flat_map(below).collect()
    }
}

#[derive(Debug)]
pub(super) struct SetReports<'a> {
    dir: &'a str,
    own: bool,
    all: &'a BTreeMap<Utf8PathBuf, FileReport>,
}

impl<'a> SetReports<'a> {
    pub(super) fn new(dir: &'a str, all: &'a BTreeMap<Utf8PathBuf, FileReport>) -> Self {
        let own = generation_step(dir).is_some();
        Self { dir, own, all }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn of(&self, path: &str) -> Option<&'a FileReport> {
        let dir = Utf8Path::new(self.dir);
        match self.own {
            true => self.all.get(&dir.join(names::as_own(path))),
            false => self.all.get(&dir.join(path)),
        }
    }

    /// Rewrites the paths of findings to those on disk.
    pub(super) fn place(&self, findings: &mut [Finding]) {
        for finding in findings.iter_mut().filter(|_| self.own) {
            finding.file = finding.file.take().map(|file| names::as_own(file.as_str()).into());
            finding.detail = finding.detail.replace(INFO, names::MANIFEST);
        }
    }

    pub(super) fn judge(&self, dir: &str, kind: SetKind, files: &BTreeMap<String, u64>) -> SetReport {
        let report = |name: &String| Some((name.clone(), self.of(&format!("{dir}/{name}"))?.clone()));
        let reports = files.keys().filter_map(report).collect();
        set::judge(kind, files, &reports)
    }

    /// Counters that rise from save to save, and values that identify a save.
    pub(super) fn marks(&self, files: &SetFiles) -> StepCounters {
        let mut counters = BTreeMap::new();
        let mut put = |name: String, value: Option<u64>| counters.extend(value.map(|n| (name, n)));
        let info = |name: &str| self.of(&format!("{INFO}/{name}"));
        put(
            CHECKS.to_owned(),
            info("checkpoint_info.json").and_then(|r| r.facts.checks),
        );
        put(
            DATA.to_owned(),
            info("dataloader_info.pkl").and_then(|r| r.crc).map(u64::from),
        );
        put(
            GIVEN.to_owned(),
            info("dataloader_info.pkl").and_then(|r| r.facts.batches),
        );
        for engine in files.engines() {
            let dir = names::state_dir(engine);
            let table = self.of(&format!("{dir}/.metadata"));
            put(save_mark(engine), table.and_then(|r| r.crc).map(u64::from));
            put(format!("{engine}.{OPTIMIZER}"), self.updates(files, &dir));
            for name in files.inside(&dir).into_keys().filter(|n| names::is_shard(n)) {
                let crc = self.of(&format!("{dir}/{name}")).and_then(|r| r.crc);
                put(shard_mark(engine, &name), crc.map(u64::from));
            }
        }
        StepCounters { counters, digest: None }
    }

    fn updates(&self, files: &SetFiles, dir: &str) -> Option<u64> {
        let reports = files
            .inside(dir)
            .into_keys()
            .filter_map(|name| self.of(&format!("{dir}/{name}")));
        reports
            .flat_map(|r| r.facts.dcp_steps.values().flatten().copied())
            .max()
    }

    /// A key that identifies this save and is the same in a copy; `None` until all identifying files have been read.
    pub(super) fn save(&self, files: &SetFiles) -> Option<String> {
        let mut sum = crc32fast::Hasher::new();
        let mut add = |path: &str| -> Option<()> {
            sum.update(path.as_bytes());
            sum.update(&self.of(path)?.crc?.to_le_bytes());
            Some(())
        };
        // Other files there contain frequencies, which may be changed.
        for name in ["step_info.json", "dataloader_info.pkl"] {
            add(&format!("{INFO}/{name}"))?;
        }
        for engine in files.engines() {
            add(&format!("{}/.metadata", names::state_dir(engine)))?;
        }
        files
            .engines()
            .contains(DEFAULT)
            .then(|| format!("{:08x}", sum.finalize()))
    }
}

/// Tolerance between the clocks of two machines, in nanoseconds. Two saves are at least one step apart.
pub(super) const CLOCKS: i64 = 1_000_000_000;
/// How often AReaL checked whether to save: once per step.
pub(super) const CHECKS: &str = "checks";
/// CRC-32 of the dataloader position.
pub(super) const DATA: &str = "data";
/// Batches of the epoch that were returned.
pub(super) const GIVEN: &str = "given";
pub(super) const OPTIMIZER: &str = "optimizer";

/// The counter name for the CRC-32 of an engine's table, which contains a random number per save.
pub(super) fn save_mark(engine: &str) -> String {
    format!("{engine}.save")
}

pub(super) fn shard_mark(engine: &str, shard: &str) -> String {
    format!("{engine}.shard.{shard}")
}
