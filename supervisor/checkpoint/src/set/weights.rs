//! Weights: one file, or an index and the parts that it names.

use super::SetCheck;
use crate::detail::FileDescription;
use crate::kind::FileKind;
use crate::required_file::RequiredFile;
use std::collections::{BTreeMap, BTreeSet};
use supervise_core::checkpoint::{Finding, Verdict};

/// The model's architecture.
const CONFIG: &str = "config.json";
/// Files that writers save together with the configuration.
const BESIDE: [&str; 2] = ["generation_config.json", "tokenizer_config.json"];
/// Files that may accompany weights and are loaded with them: tokenizer and generation settings.
const READ_WITH: [&str; 14] = [
    "generation_config.json",
    "tokenizer_config.json",
    "tokenizer.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "processor_config.json",
    "chat_template.json",
    "chat_template.jinja",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
];
/// An adapter's counterpart of a configuration.
const ADAPTER: &str = "adapter_config.json";
/// The most parts that a name may promise.
const PARTS: u32 = 100_000;

/// Whether a file of this name belongs to a set of weights.
pub(super) fn belongs(name: &str) -> bool {
    !name.contains('/')
        && match FileKind::of(name) {
            FileKind::Safetensors | FileKind::SafetensorsIndex => true,
            FileKind::TorchZip => name.ends_with(".bin"),
            _ => false,
        }
}

/// Returns the index of files with this extension: `model.safetensors.index.json` for `.safetensors`.
fn index_for<'a>(names: impl Iterator<Item = &'a str>, part: &str) -> Option<&'a str> {
    let ending = part.rsplit_once('.').map_or("", |(_, ending)| ending);
    let tail = format!(".{ending}.index.json");
    let mut found = names.filter(|n| n.ends_with(&tail));
    // If there are several, each describes its own family, and none describes all.
    found.next().filter(|_| found.next().is_none())
}

pub(super) fn needs(names: &BTreeSet<&str>) -> Vec<RequiredFile> {
    let of_kind = |index: bool| {
        names
            .iter()
            .filter(|n| belongs(n))
            .map(|n| (*n, FileKind::of(n)))
            .filter(move |(_, kind)| (*kind == FileKind::SafetensorsIndex) == index)
    };
    let described = |(name, kind): (&str, FileKind)| {
        let need = RequiredFile::new(name, kind);
        match index_for(names.iter().copied(), name) {
            Some(index) => need.described_by(index),
            None => need,
        }
    };
    let first = of_kind(true).map(|(name, kind)| RequiredFile::new(name, kind));
    let mut out: Vec<RequiredFile> = first.chain(of_kind(false).map(described)).collect();
    // A configuration alone is not a set of weights.
    if !out.is_empty() {
        let beside = std::iter::once(&CONFIG)
            .chain(&READ_WITH)
            .filter(|n| names.contains(**n));
        out.extend(beside.map(|n| RequiredFile::new(*n, FileKind::of(n))));
    }
    out
}

/// Whether a file of this name is loaded together with weights: a tokenizer's, or generation settings.
#[must_use]
pub fn read_with_weights(name: &str) -> bool {
    READ_WITH.contains(&name)
}

/// Checks that every tensor in an index is present; without an index, that no numbered part is missing.
pub(super) fn judge(seen: &mut SetCheck<'_>) {
    let files = seen.files;
    let mut parts: BTreeSet<&str> = files.keys().map(String::as_str).filter(|n| belongs(n)).collect();
    let indexes: Vec<&str> = parts
        .iter()
        .copied()
        .filter(|n| FileKind::of(n) == FileKind::SafetensorsIndex)
        .collect();
    let mut missing = Vec::new();
    for index in &indexes {
        seen.belongs(index);
        parts.remove(index);
        let Some(report) = seen.report(index) else {
            continue;
        };
        seen.tensors = seen.tensors.saturating_add(report.facts.tensors.unwrap_or(0));
        for shard in &report.facts.shards {
            seen.belongs(shard);
            if seen.has(shard) {
                continue;
            }
            let holds = match report.description.as_deref() {
                Some(FileDescription::Weights(i)) => i.files.get(shard).map_or(0, Vec::len),
                _ => 0,
            };
            let tensors = if holds > 0 {
                format!("; it should hold {holds} tensors")
            } else {
                String::new()
            };
            let detail = format!("the index names the file, but it is not there{tensors}");
            let f = Finding::error("weights_missing", Verdict::Incomplete, detail);
            missing.push(f.in_file(shard.as_str()));
        }
    }
    seen.say_each(missing);
    config(seen);
    for name in READ_WITH {
        if seen.has(name) {
            seen.belongs(name);
        }
    }
    let described: BTreeSet<&str> = indexes
        .iter()
        .filter_map(|i| seen.report(i))
        .flat_map(|r| r.facts.shards.iter().map(String::as_str))
        .collect();
    let rest: Vec<&str> = parts.into_iter().filter(|p| !described.contains(p)).collect();
    alone(seen, &rest, indexes.is_empty());
}

/// A Hugging Face directory has a configuration; torch's own writer of such weights writes none.
fn config(seen: &mut SetCheck<'_>) {
    if seen.has(CONFIG) {
        seen.belongs(CONFIG);
    } else if !seen.has(ADAPTER) && BESIDE.iter().any(|n| seen.has(n)) {
        seen.belongs(CONFIG);
        let detail = "the configuration of the model is not there, but files that are written with it";
        let f = Finding::error("config_missing", Verdict::Incomplete, detail);
        seen.say(f.in_file(CONFIG));
    }
}

/// Judges files that no index names.
fn alone<'a>(seen: &mut SetCheck<'a>, rest: &[&'a str], no_index: bool) {
    for name in rest {
        let sound = seen.report(name);
        if no_index || sound.is_some() {
            seen.belongs(name);
        }
        let tensors = sound.and_then(|r| r.facts.tensors.or_else(|| Some(r.facts.torch.as_ref()?.tensors)));
        if no_index {
            seen.tensors = seen.tensors.saturating_add(tensors.unwrap_or(0));
        }
    }
    if !no_index {
        return;
    }
    let mut families: BTreeMap<Family<'_>, BTreeSet<u32>> = BTreeMap::new();
    for name in rest {
        if let Some((family, number)) = numbered(name) {
            families.entry(family).or_default().insert(number);
        }
    }
    for ((stem, of, ending), there) in families {
        let count = of.parse().unwrap_or(0_u32).min(PARTS);
        let gone: Vec<u32> = (1..=count).filter(|n| !there.contains(n)).collect();
        if let Some(first) = gone.first() {
            let detail = format!(
                "{} of {count} parts of {stem} are not there, the first is number {first}",
                gone.len()
            );
            let first = format!("{stem}-{first:0width$}-of-{of}.{ending}", width = of.len());
            let f = Finding::error("weights_missing", Verdict::Incomplete, detail);
            seen.say(f.in_file(first));
        } else if count > 1 && !stem.starts_with("shard-") {
            let detail = format!("the {count} parts of {stem} have no index: the save broke off before it was written");
            let f = Finding::error("weights_index_missing", Verdict::Incomplete, detail);
            seen.say(f.in_file(format!("{stem}.{ending}.index.json")));
        }
    }
}

/// Stem, text for the number of parts, and extension.
type Family<'a> = (&'a str, &'a str, &'a str);

/// Splits `model-00002-of-00005.safetensors` into its family and its number.
fn numbered(name: &str) -> Option<(Family<'_>, u32)> {
    let (front, ending) = name.rsplit_once('.')?;
    let (front, of) = front.rsplit_once("-of-")?;
    let (stem, number) = front.rsplit_once('-')?;
    let digits = |s: &str| !s.is_empty() && s.len() <= 9 && s.bytes().all(|b| b.is_ascii_digit());
    (digits(of) && digits(number)).then(|| Some(((stem, of, ending), number.parse().ok()?)))?
}
