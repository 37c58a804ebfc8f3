//! Targets that are texts: configurations, overrides, our own journal and records.

use crate::memory::within;
use std::collections::BTreeMap;
use std::fmt::Debug;
use supervise_checkpoint::{InspectLimits, proof_record as proof};
use supervise_config::compose::{ConfigLoader, GroupChoice, GroupOverride, LoadResult, compose as composed};
use supervise_config::interpolation::InterpolationResolver;
use supervise_config::{
    ConfigError, ConfigNode, ConfigTree, ConfigValue, MAX_DEPTH, MAX_NODES, parse_supervisor_yaml, parse_trainer_yaml,
};
use supervise_core::journal::{self, ParsedLine};
use supervise_trainers::hydra as grammar;

/// Proof of a step, as it stands on disk.
pub(crate) fn record(bytes: &[u8]) {
    let limits = InspectLimits {
        record_bytes: 1 << 20,
        record_memory: 4 << 20,
        ..InspectLimits::default()
    };
    let most = 8 * limits.record_memory + 64 * bytes.len();
    let read = |bytes: &[u8]| {
        let Ok(record) = within(most, || proof::decode(bytes, &limits)) else {
            return;
        };
        let mut again = Vec::new();
        proof::encode(&record, &mut again).expect("memory takes everything");
        let back = proof::decode(&again, &limits).expect("what was written is read");
        assert_eq!(back, record);
    };
    read(bytes);
    // Whatever stands in the lines, with an end that fits them.
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let cut = body.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let last = String::from_utf8_lossy(&body[cut..]).into_owned();
    let start = last.split(",\"crc\":").next().unwrap_or_default();
    let end = format!("{start},\"crc\":{}}}\n", crc32fast::hash(&body[..cut]));
    read(&[&body[..cut], end.as_bytes()].concat());
}

/// A term's journal.
pub(crate) fn journal(bytes: &[u8]) {
    for text in [bytes.to_vec(), with_sums(bytes)] {
        let read = within((1 << 20) + 2048 * text.len(), || journal::read(&text));
        assert_eq!(read, journal::read(&text), "two looks at the same bytes");
        let whole = usize::try_from(read.whole).expect("it lies in memory");
        assert!(!text[whole..].contains(&b'\n'), "whole lines count");
        let seqs: Vec<_> = read
            .lines
            .iter()
            .flat_map(|(line, _)| [line.seq, line.last()])
            .collect();
        assert!(seqs.is_sorted(), "in order");
        let lines = text.iter().filter(|b| **b == b'\n').count();
        assert!(read.lines.len() + read.damaged.len() + read.unknown as usize <= lines);
        for (line, records) in &read.lines {
            let again = journal::encode_all(line.seq, line.tick, line.wall, records).expect("it was JSON");
            match journal::decode(&again[..again.len() - 1]) {
                ParsedLine::Known(l, r) => assert_eq!((l.seq, &r), (line.seq, records)),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// The lines with sums that fit, so that more than the sum is looked at.
fn with_sums(bytes: &[u8]) -> Vec<u8> {
    const TAIL: usize = r#","crc":"00000000"}"#.len();
    let mut out = Vec::new();
    for line in bytes.split(|b| *b == b'\n') {
        let mut body = line[..line.len().saturating_sub(TAIL)].to_vec();
        body.push(b'}');
        let crc = crc32fast::hash(&body);
        body.pop();
        out.extend(body);
        out.extend(format!(",\"crc\":\"{crc:08x}\"}}\n").bytes());
    }
    out
}

/// Two looks at the same text. What holds something that is no number does not even equal itself.
fn same<T: PartialEq + Debug>(first: &T, second: &T) {
    let equal = T::eq;
    assert!(
        equal(first, second) || !equal(first, first),
        "two looks at the same text: {first:?} {second:?}"
    );
}

fn environment(name: &str) -> Option<String> {
    (name != "NONE").then(|| format!("{name}: [1, ${{a}}]"))
}

/// A configuration and its interpolations.
pub(crate) fn yaml(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let most = (64 << 20) + 4096 * text.len();
    let parsed = within(most, || parse_trainer_yaml(text, "file"));
    same(&parsed, &parse_trainer_yaml(text, "file"));
    within(most, || drop(parse_supervisor_yaml(text, "file")));
    match parsed {
        Err(error) => explained(&error, text),
        Ok(node) => {
            let (count, depth) = size(&node);
            assert!(
                count <= 2 * MAX_NODES && depth <= MAX_DEPTH + 2,
                "{count} values, {depth} deep"
            );
            within(most, || resolved(node));
        }
    }
}

fn resolved(node: ConfigNode) {
    let tree = ConfigTree::new(node);
    let resolver = InterpolationResolver::new(&tree, &environment);
    if let Ok(all) = resolver.resolve_all() {
        let (count, _) = size(&all.root);
        assert!(count <= 16 * MAX_NODES, "{count} values");
    }
    for path in ["a", "a.b", "a.0", "b[c]"] {
        let _ = resolver.get(path);
    }
}

/// How many values, and how deep.
fn size(node: &ConfigNode) -> (usize, usize) {
    let all = |(count, depth): (usize, usize), child: &ConfigNode| {
        let (n, d) = size(child);
        (count + n, depth.max(d + 1))
    };
    match &node.value {
        ConfigValue::Map(map) => map.iter().map(|(_, n)| n).fold((1, 1), all),
        ConfigValue::List(items) => items.iter().fold((1, 1), all),
        _ => (1, 1),
    }
}

/// An error has a place in the text and says something.
fn explained(error: &ConfigError, text: &str) {
    let breaks = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];
    let lines = text.split(breaks).count();
    assert!(!error.message.is_empty());
    let inside = error.line.is_none_or(|l| (1..=lines + 1).contains(&(l as usize)));
    assert!(inside, "{error:?} of {lines} lines");
}

/// Several configurations, each behind a line `=== name`.
struct Texts(BTreeMap<String, String>);

impl Texts {
    fn of(text: &str) -> Self {
        let mut texts = BTreeMap::new();
        for (n, part) in text.split("=== ").enumerate() {
            let (name, body) = match n {
                0 => ("main", part),
                _ => part.split_once('\n').unwrap_or((part, "")),
            };
            texts.insert(name.trim().to_owned(), body.to_owned());
        }
        Self(texts)
    }
}

impl ConfigLoader for Texts {
    fn load(&self, config: &str) -> Result<LoadResult, ConfigError> {
        Ok(match self.0.get(config) {
            Some(text) => LoadResult::Text {
                text: text.clone(),
                file: config.to_owned(),
            },
            None if config.starts_with("own/") => LoadResult::ByTrainer,
            None => LoadResult::Missing,
        })
    }
}

/// Defaults lists.
pub(crate) fn compose(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let texts = Texts::of(text);
    let chosen = [GroupOverride::Append {
        group: "db".to_owned(),
        package: None,
        choice: GroupChoice::Name("other".to_owned()),
    }];
    for overrides in [&[][..], &chosen] {
        let run = || composed(&texts, "main", overrides);
        let found = within((64 << 20) + 8192 * text.len(), run);
        same(&found, &run());
        match found {
            Ok(found) => {
                let (count, _) = size(&found.tree.root);
                assert!(count <= 64 * MAX_NODES, "{count} values");
            }
            Err(error) => assert!(!error.message.is_empty()),
        }
    }
}

/// One override of the command line.
pub(crate) fn hydra(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let parsed = within((1 << 20) + 4096 * text.len(), || grammar::parse(text));
    same(&parsed, &grammar::parse(text));
    match parsed {
        Err(error) => assert!(!error.message.is_empty()),
        Ok(change) => {
            assert_eq!(change.text, text);
            let base = parse_trainer_yaml("a: {b: 1, c: [1, {d: 2}]}\nb: x\nc: null", "base").expect("it is YAML");
            for strict in [false, true] {
                let mut tree = ConfigTree::new(base.clone());
                let _ = grammar::apply(&mut tree, &change, strict);
            }
            let _ = change.as_group(|name| name == "b");
        }
    }
    // What is quoted comes back as it was; only interpolations get an escape of their own.
    if !text.contains(['\n', '\r', '\0', '$']) {
        let quoted = grammar::parse(&format!("key={}", grammar::encode_str(text)));
        let value = quoted.expect("a quoted text can be read").value;
        assert_eq!(value, Some(ConfigValue::Str(text.to_owned())));
    }
}
