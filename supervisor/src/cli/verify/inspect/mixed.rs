//! Finds saves that contain files of another save, without a proof record: by neighboring saves and by times.
//!
//! Weights carry no step, so a shard of another save looks as whole as the right one. The remaining clues only raise doubts: bytes
//! equal to the same file of another save although related files differ; a table written for another directory; a time far from
//! that of all other files. Copies have other times, and untrained parts have equal bytes.

mod course;

use camino::{Utf8Path, Utf8PathBuf};
use course::FileCounters;
use std::collections::{BTreeMap, BTreeSet};
use supervise_checkpoint::source::{ByteSource, fill};
use supervise_checkpoint::torch::TorchFacts;
use supervise_checkpoint::{FileKind, InspectLimits, inspect};
use supervise_core::checkpoint::{EntryKind, FileFact, Finding};
use supervise_host::io_worker::{FileSource, walk};

/// Number of nearest saves to compare with.
const BESIDE: usize = 2;
/// Bytes compared at each of these many offsets of two files, and at their ends.
const WINDOW: u64 = 16 << 10;
const PLACES: u64 = 16;
/// Allowed time difference within one save (ns) before a file counts as foreign, and as a multiple of the spread of the others.
const SLACK: i64 = 60_000_000_000;
const OFTEN: i64 = 10;
/// The part that all Megatron ranks share.
const COMMON: &str = "common.pt";
/// The table of a distributed checkpoint.
const METADATA: &str = ".metadata";
/// Maximum number of files named individually.
const NAMED: usize = 4;

/// A save: its directory, its state files, and small files with counters.
struct Save {
    dir: Utf8PathBuf,
    files: BTreeMap<Utf8PathBuf, FileFact>,
    counted: BTreeMap<Utf8PathBuf, FileFact>,
}

impl Save {
    fn read(dir: &Utf8Path) -> Option<Self> {
        let mut facts = Vec::new();
        walk(dir, Utf8Path::new(""), &mut facts).ok()?;
        let those = |wanted: fn(&Utf8Path) -> bool| {
            let files = facts.iter().filter(|f| f.kind == EntryKind::File && wanted(&f.path));
            files.map(|f| (f.path.clone(), f.clone())).collect()
        };
        Some(Self {
            dir: dir.to_owned(),
            files: those(is_state),
            counted: those(is_counted),
        })
    }

    fn name(&self) -> &str {
        self.dir.file_name().unwrap_or(self.dir.as_str())
    }

    /// The earliest and the latest time, ignoring one file.
    fn times(&self, but: &Utf8Path) -> Option<(i64, i64)> {
        let times = || self.files.values().filter(|f| f.path != but).map(|f| f.mtime);
        Some((times().min()?, times().max()?))
    }
}

/// Returns true for files that each save rewrites. A common file and a data position may be equal in two saves.
fn is_state(path: &Utf8Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    let shard = name.contains("_world_size_") && name.ends_with(".pt");
    shard || name == METADATA || name.ends_with(".distcp") || name.ends_with(".safetensors")
}

/// Returns true for small files with counters. Other ranks have equal counts or are reported: the first is enough.
fn is_counted(path: &Utf8Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    let first = name.ends_with("_rank_0.pt") && (name.starts_with("extra_state_") || name.starts_with("optim_"));
    let data = name.starts_with("data") && name.ends_with(".pt");
    first || data || name == COMMON
}

/// Doubts about the save in a directory. `memory`: bytes to use for reading its files.
pub(super) fn doubts(dir: &Utf8Path, memory: u64) -> Vec<Finding> {
    let limits = InspectLimits {
        memory: usize::try_from(memory).unwrap_or(usize::MAX),
        ..InspectLimits::default()
    };
    let Some(own) = Save::read(dir) else {
        return Vec::new();
    };
    let others: Vec<Save> = beside(dir).iter().filter_map(|d| Save::read(d)).collect();
    let mut found: BTreeMap<Utf8PathBuf, String> = BTreeMap::new();
    for (path, why) in elsewhere(&own, &others, &limits)
        .into_iter()
        .chain(counts(&own, &others, &limits))
    {
        found.entry(path).or_insert(why);
    }
    for other in &others {
        for (path, why) in same(&own, other, &limits) {
            found.entry(path).or_insert(why);
        }
    }
    for (path, why) in astray(&own, &others) {
        found.entry(path).or_insert(why);
    }
    let more = found.len().saturating_sub(NAMED);
    let mut out: Vec<Finding> = found
        .into_iter()
        .take(NAMED)
        .map(|(path, why)| Finding::warning("mixed_save_suspected", why).in_file(path))
        .collect();
    if let Some(last) = out.last_mut().filter(|_| more > 0) {
        last.detail = format!("{} (and {more} more files)", last.detail);
    }
    out
}

/// Saves whose names differ only in their number, nearest first.
fn beside(dir: &Utf8Path) -> Vec<Utf8PathBuf> {
    let Some((stem, own)) = dir.file_name().and_then(numbered) else {
        return Vec::new();
    };
    let entries = dir
        .parent()
        .and_then(|p| p.read_dir_utf8().ok())
        .into_iter()
        .flatten()
        .flatten();
    let mut found: Vec<(u64, Utf8PathBuf)> = entries
        .filter_map(|e| {
            let (other, n) = numbered(e.file_name())?;
            (other == stem && n != own).then(|| (n, e.into_path()))
        })
        .collect();
    found.sort_unstable_by_key(|(n, _)| (n.abs_diff(own), *n));
    found.into_iter().take(BESIDE).map(|(_, path)| path).collect()
}

/// `global_step_12` as `global_step_` and 12.
fn numbered(name: &str) -> Option<(&str, u64)> {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name.get(stem.len()..)?.parse().ok()?;
    stem.ends_with(['_', '-']).then_some((stem, number))
}

/// The group of files that were written together: one directory, one kind of content.
fn together(path: &Utf8Path) -> (Utf8PathBuf, String) {
    let dir = path.parent().unwrap_or(Utf8Path::new("")).to_owned();
    let name = path.file_name().unwrap_or_default();
    let content = match name {
        METADATA => METADATA,
        _ => name.split("_world_size_").next().filter(|n| *n != name).unwrap_or(""),
    };
    (dir, content.to_owned())
}

/// The directory for which a table was written. Torch versions that record it also give each save its own ID.
fn written_for(dir: &Utf8Path, limits: &InspectLimits) -> Option<Utf8PathBuf> {
    let source = FileSource::open(&dir.join(METADATA)).ok()?;
    let found = inspect(FileKind::DcpMetadata, &source, limits);
    found.facts.dcp?.written_for.map(Utf8PathBuf::from)
}

/// Files equal to another save's: all of a group, or some while others differ.
fn same(own: &Save, other: &Save, limits: &InspectLimits) -> Vec<(Utf8PathBuf, String)> {
    let mut groups: BTreeMap<(Utf8PathBuf, String), (Vec<Utf8PathBuf>, usize)> = BTreeMap::new();
    let mut roles: BTreeMap<Utf8PathBuf, BTreeSet<bool>> = BTreeMap::new();
    for (path, fact) in &own.files {
        let Some(theirs) = other.files.get(path) else { continue };
        let alike = fact.size == theirs.size && equal(&own.dir.join(path), &other.dir.join(path), fact.size);
        let key = together(path);
        // Random states do not show whether the model was trained; a table contains an ID of its save.
        if key.1 != "extra_state" && key.1 != METADATA {
            roles.entry(key.0.clone()).or_default().insert(alike);
        }
        let group = groups.entry(key).or_default();
        match alike {
            true => group.0.push(path.clone()),
            false => group.1 += 1,
        }
    }
    let is_mixed = |(dir, content): &(Utf8PathBuf, String), alike: usize, differ: usize| {
        let kinds = roles.get(dir);
        match content.as_str() {
            METADATA => kinds.is_some_and(|k| k.contains(&false)) && written_for(&own.dir.join(dir), limits).is_some(),
            // If each value has its own file, many are equal in every save.
            _ if differ > 0 => alike == 1 || 4 * alike <= differ,
            _ => kinds.is_some_and(|k| k.len() > 1),
        }
    };
    let all = roles.values().all(|kinds| !kinds.contains(&false));
    let mixed = groups.into_iter().filter(|(key, (alike, differ))| {
        let counts = all && key.1 != METADATA && key.1 != "extra_state";
        !alike.is_empty() && (counts || is_mixed(key, alike.len(), *differ))
    });
    let rest = match all {
        true => "and so are those of all files: nothing was trained between, or they are of that save",
        false => "and those of files that are written with it are not: perhaps it is of that save",
    };
    let why = format!("its bytes are those of the same file in {}, {rest}", other.name());
    mixed
        .flat_map(|(_, (alike, _))| alike)
        .map(|path| (path, why.clone()))
        .collect()
}

/// Returns true if two files of one length are equal at both ends and at some offsets between. An unreadable file is not equal.
fn equal(a: &Utf8Path, b: &Utf8Path, len: u64) -> bool {
    let (Ok(a), Ok(b)) = (FileSource::open(a), FileSource::open(b)) else {
        return false;
    };
    let read = |source: &dyn ByteSource, at: u64| -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(WINDOW.min(len - at)).ok()?];
        fill(source, len, at, &mut bytes).ok()?;
        Some(bytes)
    };
    let last = len.saturating_sub(WINDOW);
    // An archive's directory is at its end, with the checksums of all entries.
    let places = std::iter::once(last).chain((0..PLACES).map(|n| last / PLACES * n));
    len > 0
        && places
            .into_iter()
            .all(|at| matches!((read(&a, at), read(&b, at)), (Some(x), Some(y)) if x == y))
}

/// Torch tables that were written for a directory with the number of another save.
fn elsewhere(own: &Save, others: &[Save], limits: &InspectLimits) -> Vec<(Utf8PathBuf, String)> {
    let Some((stem, number)) = numbered(own.name()) else {
        return Vec::new();
    };
    let tables = own.files.keys().filter(|p| p.file_name() == Some(METADATA));
    let told = |path: &Utf8PathBuf| {
        let inside = path.parent().unwrap_or(Utf8Path::new(""));
        let id = written_for(&own.dir.join(inside), limits)?;
        // The directory that was in the place of this save's own.
        let there = id.ancestors().nth(inside.components().count())?.file_name()?;
        let (other, n) = numbered(there)?;
        (other == stem && n != number).then(|| there.to_owned())
    };
    let known = |name: &str| others.iter().any(|o| o.name() == name);
    tables
        .filter_map(|path| {
            let there = told(path)?;
            let beside = if known(&there) { ", which is here as well" } else { "" };
            let why = format!("it was written for {there}{beside}: perhaps it is of that save");
            Some((path.clone(), why))
        })
        .collect()
}

/// Files whose counters contradict the neighboring saves, or equal those of one of them byte for byte.
fn counts(own: &Save, others: &[Save], limits: &InspectLimits) -> Vec<(Utf8PathBuf, String)> {
    let Some((_, number)) = numbered(own.name()) else {
        return Vec::new();
    };
    let look = |save: &Save, path: &Utf8Path| -> Option<(u64, FileCounters)> {
        let fact = save.counted.get(path)?;
        let source = FileSource::open(&save.dir.join(path)).ok()?;
        let found = inspect(FileKind::of(fact.path.as_str()), &source, limits);
        Some((numbered(save.name())?.1, counted(&found.facts.torch?)))
    };
    let odd = |(path, fact): (&Utf8PathBuf, &FileFact)| {
        let (_, ours) = look(own, path)?;
        let theirs: Vec<(u64, FileCounters)> = others.iter().filter_map(|o| look(o, path)).collect();
        let copied = || {
            let same = |o: &&Save| {
                let size = o.counted.get(path).map(|f| f.size);
                size == Some(fact.size) && equal(&own.dir.join(path), &o.dir.join(path), fact.size)
            };
            let other = others.iter().filter(|_| ours.moved()).find(same)?;
            Some(format!(
                "its bytes are those of the same file in {}, and it counts updates: perhaps it is of that save",
                other.name()
            ))
        };
        let why = course::odd(number, ours, &theirs).or_else(copied)?;
        Some((path.clone(), why))
    };
    own.counted.iter().filter_map(odd).collect()
}

fn counted(facts: &TorchFacts) -> FileCounters {
    FileCounters {
        optimizer: facts.optimizer_steps.iter().max().copied(),
        schedule: facts.scheduler_steps,
        batches: facts.batches,
    }
}

/// Files whose time is far from all others: close to another save's, or much older than the rest differ among themselves.
fn astray(own: &Save, others: &[Save]) -> Vec<(Utf8PathBuf, String)> {
    let mut out = Vec::new();
    for (path, fact) in own.files.iter().filter(|_| own.files.len() > 2) {
        let Some((first, last)) = own.times(path) else { continue };
        let away = (first.saturating_sub(fact.mtime)).max(fact.mtime.saturating_sub(last));
        let of = others.iter().find(|o| {
            let theirs = o.times(path);
            theirs.is_some_and(|(from, to)| (from..=to).contains(&fact.mtime) && (to < first || from > last))
        });
        let spread = last.saturating_sub(first);
        let far = fact.mtime < first && away > SLACK.max(spread.saturating_mul(OFTEN));
        let seconds = away / 1_000_000_000;
        if let Some(other) = of.filter(|_| away > 0) {
            let why = format!(
                "its time is {seconds} s from that of the other files and falls into the save of {}",
                other.name()
            );
            out.push((path.clone(), why));
        } else if far {
            let why = format!(
                "it is {seconds} s older than all other files of this save: perhaps it is of another one, or they were copied"
            );
            out.push((path.clone(), why));
        }
    }
    // If half of the files are apart, times prove nothing.
    if 2 * out.len() > own.files.len() {
        Vec::new()
    } else {
        out
    }
}
