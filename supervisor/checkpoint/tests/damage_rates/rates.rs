//! The contract: what is caught always, and what is never called damaged.

use crate::fixtures::{self, Fixture};
use crate::mutate::{KINDS, Kind, Others, mutate};
use crate::prove::{PIN, Region, Victim, judge, reports};
use crate::random::Random;
use crate::table::Table;
use std::collections::BTreeMap;
use std::sync::Arc;
use supervise_checkpoint::proof_record::{ProofValidity, compare, trust};
use supervise_checkpoint::{FileDescription, FileKind, FilePin, InspectLimits, inspect};
use supervise_core::checkpoint::{Depth, FindingLevel, Verdict};

/// Changes per kind.
const EACH: usize = 400;

/// The files that describe others, by their directory.
fn descriptions(files: &[Fixture]) -> BTreeMap<String, Arc<FileDescription>> {
    let describe = |f: &Fixture| inspect(f.kind(), &f.bytes, &InspectLimits::default()).description;
    let metadata = files.iter().filter(|f| f.kind() == FileKind::DcpMetadata);
    metadata
        .filter_map(|f| Some((format!("{}/{}", f.set, f.path.parent()?), describe(f)?)))
        .collect()
}

/// Formats that are known and not read: compressed parts, and weights in pieces. By name, so that an alarm over any other
/// whole file is seen.
fn is_not_read(f: &Fixture) -> bool {
    f.set == "torch_dcp_zstd" && f.kind() == FileKind::Distcp
        || f.path.as_str().contains("sharded/shard-")
        || f.path.as_str().starts_with("sharded/")
}

fn victims() -> Vec<Victim> {
    let files = fixtures::all();
    let descriptions = descriptions(&files);
    let described = |f: &Fixture| descriptions.get(&format!("{}/{}", f.set, f.path.parent()?)).cloned();
    let victims: Vec<Victim> = files
        .into_iter()
        .filter(|f| f.set != "README.md" && !f.bytes.is_empty())
        .map(|f| {
            let description = described(&f).filter(|_| f.kind() == FileKind::Distcp);
            (f, description)
        })
        // A file of tensors that nothing describes says nothing about itself.
        .filter(|(f, d)| f.kind() != FileKind::Distcp || d.is_some())
        .filter(|(f, _)| !is_not_read(f))
        .map(|(f, d)| Victim::new(f, d))
        .collect();
    assert!(victims.len() > 150, "{} files", victims.len());
    victims
}

/// The files that stand beside this one for another rank, and at its place in another step.
fn others<'a>(of: &Victim, all: &'a [Victim]) -> Others<'a> {
    let name = |path: &str, words: [&str; 3]| {
        let mut out = path.to_owned();
        for word in words {
            if let Some((before, after)) = path.split_once(word) {
                let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
                out = format!("{before}{word}*{rest}");
            }
        }
        out
    };
    let ranks = ["_rank_", "/__", "data_"];
    let steps = ["global_step_", "step_", "\0"];
    let same = |words: [&'static str; 3]| {
        let mine = name(of.file.path.as_str(), words);
        all.iter()
            .filter(move |v| v.file.set == of.file.set && v.file.path != of.file.path)
            .filter(move |v| mine.contains('*') && name(v.file.path.as_str(), words) == mine)
            .map(|v| v.file.bytes.as_slice())
            .collect::<Vec<_>>()
    };
    Others {
        ranks: same(ranks),
        steps: same(steps),
    }
}

/// Returns true if bytes with a checksum are no longer what they were, at their place.
fn touches_covered(victim: &Victim, changed: &[u8]) -> bool {
    let differs = |r: &std::ops::Range<usize>| changed.get(r.clone()) != Some(&victim.file.bytes[r.clone()]);
    victim.covered.iter().any(differs)
}

/// Returns true if the format says how long the file is.
fn knows_its_size(file: FileKind) -> bool {
    matches!(file, FileKind::TorchZip | FileKind::Safetensors | FileKind::Distcp)
}

fn first_change(a: &[u8], b: &[u8]) -> usize {
    a.iter()
        .zip(b)
        .position(|(x, y)| x != y)
        .unwrap_or(a.len().min(b.len()))
}

#[test]
fn changes_are_caught() {
    let victims = victims();
    let mut by_region: BTreeMap<Region, Vec<(usize, std::ops::Range<usize>)>> = BTreeMap::new();
    for (n, victim) in victims.iter().enumerate() {
        for (range, region) in &victim.regions {
            by_region.entry(*region).or_default().push((n, range.clone()));
        }
    }
    let regions: Vec<Region> = by_region.keys().copied().collect();
    assert_eq!(regions.len(), 7, "{regions:?}");
    let mut table = Table::default();
    let mut r = Random::new(42);
    for kind in KINDS {
        let mut left = EACH;
        let mut tries = 0;
        while left > 0 && tries < 40 * EACH {
            tries += 1;
            let region = *r.pick(&regions);
            let (n, range) = r.pick(&by_region[&region]).clone();
            let victim = &victims[n];
            let beside = match kind {
                Kind::OtherRank | Kind::OtherStep => others(victim, &victims),
                _ => Others::default(),
            };
            let Some(changed) = mutate(kind, &victim.file.bytes, &range, &beside, &mut r) else {
                continue;
            };
            left -= 1;
            check(victim, kind, &changed, &mut table);
        }
    }
    assert!(table.count() > 5000, "{} changes", table.count());
    keep(&table.text());
}

/// Judges one changed file and holds the result against the contract.
fn check(victim: &Victim, kind: Kind, changed: &[u8], table: &mut Table) {
    let (caught, full) = judge(victim, changed);
    let at = first_change(&victim.file.bytes, changed);
    let place = || format!("{}: {kind:?} at {at}: {:?}", victim.file.name(), full.findings);
    // Without a record: every change of bytes that have a checksum, every size that the format knows better.
    let other = matches!(kind, Kind::OtherRank | Kind::OtherStep);
    if !other && kind.keeps_size() && touches_covered(victim, changed) {
        assert!(caught.full, "{}", place());
    }
    if !other && changed.len() != victim.file.bytes.len() && knows_its_size(victim.file.kind()) {
        assert!(caught.structure, "{}", place());
    }
    // With one: everything.
    assert!(caught.record, "{}", place());
    assert!(
        full.crc.is_none_or(|crc| crc == crc32fast::hash(changed)),
        "{}",
        place()
    );
    let region = victim.region_at(at);
    table.add(kind, region, caught);
}

#[expect(clippy::disallowed_methods, reason = "whoever wants the table names a file for it")]
/// The page that people read shows this table: with `UPDATE_DOCS=1` it is written there, else it must be the one there.
fn keep(table: &str) {
    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/catch-rates.md");
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once("<!-- catch:begin -->\n").unwrap();
    let (there, after) = rest.split_once("<!-- catch:end -->").unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let page = format!("{before}<!-- catch:begin -->\n{table}<!-- catch:end -->{after}");
        std::fs::write(PAGE, page).unwrap();
        return;
    }
    assert_eq!(
        there, table,
        "docs/catch-rates.md is out of date: run this test with UPDATE_DOCS=1"
    );
}

#[test]
fn whole_files_raise_no_alarm() {
    for victim in victims() {
        for report in reports(&victim.file, victim.description.as_deref(), &victim.file.bytes) {
            let errors: Vec<_> = report
                .findings
                .iter()
                .filter(|f| f.level == FindingLevel::Error)
                .collect();
            assert!(errors.is_empty(), "{}: {errors:?}", victim.file.name());
            assert_eq!(report.verdict, Verdict::Whole, "{}", victim.file.name());
        }
        assert_eq!(victim.known.report.proven, Depth::Full, "{}", victim.file.name());
        assert!(victim.known.report.crc.is_some(), "{}", victim.file.name());
    }
}

#[test]
fn copies_with_other_times_raise_no_alarm() {
    let mut r = Random::new(7);
    for victim in victims() {
        let [_, again] = reports(&victim.file, victim.description.as_deref(), &victim.file.bytes);
        assert_eq!(again, victim.known.report, "{}", victim.file.name());
        let crc = again.crc.unwrap();
        for _ in 0..20 {
            let mut time = || PIN.mtime + (r.next() as i64 % 4_000_000_000_000_000);
            let copied = FilePin {
                dev: 77,
                ino: 78,
                mtime: time(),
                ctime: time(),
                ..victim.known.pin
            };
            assert_eq!(trust(&victim.known, &copied, Depth::Full, true), ProofValidity::Reread);
            assert_eq!(compare(&victim.known, &copied, crc), None, "{}", victim.file.name());
        }
    }
}
