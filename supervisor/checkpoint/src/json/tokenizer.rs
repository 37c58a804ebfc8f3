//! Checks `tokenizer.json`, which has no checksum, for parts that contradict each other.
//!
//! A vocabulary has hundreds of thousands of entries, so words are kept as a hash and a number. Reported are files that the library
//! rejects (a merge of missing words) and the traces of a single changed byte: an ID that does not fit between its neighbours', a word
//! that differs from its other occurrence by a byte, a known key or name with a byte changed.

use super::JsonValue;
use super::config::{alike, changed, one_byte};
use super::python::{JsonError, JsonParser, RetainMode};
use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{HashMap, HashSet};
use std::hash::Hasher;

const OUTERMOST: &[&str] = &[
    "version",
    "truncation",
    "padding",
    "added_tokens",
    "normalizer",
    "pre_tokenizer",
    "post_processor",
    "decoder",
    "model",
];
/// Keys of an added token, which are all written.
const TOKEN: &[&str] = &[
    "id",
    "content",
    "single_word",
    "lstrip",
    "rstrip",
    "normalized",
    "special",
];
const MODEL: &[&str] = &[
    "type",
    "dropout",
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "fuse_unk",
    "byte_fallback",
    "ignore_merges",
    "vocab",
    "merges",
    "max_input_chars_per_word",
    "unk_id",
];
/// Keys of everything else.
const PARTS: &[&str] = &[
    "type",
    "normalizers",
    "pretokenizers",
    "processors",
    "decoders",
    "pattern",
    "Regex",
    "String",
    "behavior",
    "invert",
    "content",
    "add_prefix_space",
    "trim_offsets",
    "use_regex",
    "prepend",
    "prepend_scheme",
    "replacement",
    "split",
    "single",
    "pair",
    "special_tokens",
    "Sequence",
    "SpecialToken",
    "type_id",
    "tokens",
    "lowercase",
    "strip_accents",
    "clean_text",
    "handle_chinese_chars",
    "strip_left",
    "strip_right",
    "cleanup",
    "prefix",
    "suffix",
    "individual_digits",
    "precompiled_charsmap",
    "start",
    "stop",
    "max_length",
    "strategy",
    "stride",
    "direction",
    "pad_id",
    "pad_type_id",
    "pad_token",
    "pad_to_multiple_of",
    "word_delimiter_token",
    "str_rep",
];
/// Names of all component types and their options.
const KINDS: &[&str] = &[
    "BPE",
    "WordPiece",
    "WordLevel",
    "Unigram",
    "Sequence",
    "Split",
    "ByteLevel",
    "Metaspace",
    "Whitespace",
    "WhitespaceSplit",
    "Digits",
    "Punctuation",
    "BertPreTokenizer",
    "BertNormalizer",
    "BertProcessing",
    "RobertaProcessing",
    "TemplateProcessing",
    "CharDelimiterSplit",
    "UnicodeScripts",
    "FixedLength",
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Lowercase",
    "Nmt",
    "Precompiled",
    "Prepend",
    "Replace",
    "Strip",
    "StripAccents",
    "ByteFallback",
    "Fuse",
    "CTC",
    "BPEDecoder",
];
const BEHAVIOURS: &[&str] = &[
    "Isolated",
    "Removed",
    "MergedWithPrevious",
    "MergedWithNext",
    "Contiguous",
];
const SCHEMES: &[&str] = &["always", "never", "first"];
/// Keys below which any name may occur.
const NAMES: &[&str] = &["special_tokens", "vocab"];
/// Bytes that a word of the vocabulary takes.
const WORD: usize = 64;

/// Finds a contradiction in the text, using at most `budget` bytes; `None` if the text is not an object.
pub(super) fn look(text: &[u8], budget: usize) -> Result<Option<String>, JsonError> {
    let mut parser = JsonParser::new(text, budget);
    let mut seen = TokenizerCheck::default();
    let mut keys = Vec::new();
    parser.space();
    if parser.peek() != Some(b'{') {
        return Ok(None);
    }
    parser.members(true, &mut |p, key| {
        match key.as_str() {
            "model" => seen.model(p)?,
            "added_tokens" => seen.added = p.value(RetainMode::All, 1)?,
            _ => {
                let part = p.value(RetainMode::All, 1)?;
                seen.note(parts(&part));
            }
        }
        keys.push(key);
        Ok(())
    })?;
    seen.note(changed(keys.iter(), OUTERMOST));
    if !keys.iter().any(|k| k == "model") {
        seen.note(Some("it has no `model`: no tokenizer can be made of it".to_owned()));
    }
    if let Some(at) = seen.merges {
        seen.look_at_merges(&mut JsonParser::from(text, at, budget))?;
    }
    let added = seen.added_wrong();
    seen.note(added);
    Ok(seen.wrong)
}

#[derive(Default)]
struct TokenizerCheck {
    /// Word IDs by the hash of the word.
    vocab: HashMap<u64, u64>,
    added: JsonValue,
    /// Where the merges begin in the text.
    merges: Option<usize>,
    /// Length of the prefix that marks a word as a continuation.
    prefix: usize,
    /// Words of the vocabulary that share an ID with an added token.
    twins: HashMap<u64, String>,
    wrong: Option<String>,
}

impl TokenizerCheck {
    /// Only the first error counts.
    fn note(&mut self, wrong: Option<String>) {
        if self.wrong.is_none() {
            self.wrong = wrong;
        }
    }

    fn model(&mut self, p: &mut JsonParser<'_>) -> Result<(), JsonError> {
        p.space();
        if p.peek() != Some(b'{') {
            p.value(RetainMode::Nothing, 1)?;
            self.note(Some("its `model` is no object".to_owned()));
            return Ok(());
        }
        let mut keys = Vec::new();
        p.members(true, &mut |p, key| {
            p.space();
            match (key.as_str(), p.peek()) {
                ("vocab", Some(b'{')) => self.read_vocab(p)?,
                ("merges", Some(b'[')) => {
                    self.merges = Some(p.at());
                    p.value(RetainMode::Nothing, 2)?;
                }
                // Words of another kind have a score each.
                ("vocab", _) => drop(p.value(RetainMode::Nothing, 2)?),
                _ => {
                    let value = p.value(RetainMode::All, 2)?;
                    if key == "continuing_subword_prefix" {
                        self.prefix = value.text().map_or(0, str::len);
                    }
                    self.note(named(&key, &value));
                }
            }
            keys.push(key);
            Ok(())
        })?;
        self.note(changed(keys.iter(), MODEL));
        Ok(())
    }

    /// IDs are in order, with gaps where words were removed.
    fn read_vocab(&mut self, p: &mut JsonParser<'_>) -> Result<(), JsonError> {
        let mut last: [Option<u64>; 2] = [None; 2];
        let added: HashSet<u64> = self.added.list().unwrap_or_default().iter().filter_map(id_of).collect();
        p.members(true, &mut |p, word| {
            p.spend(WORD)?;
            p.give_back(word.len());
            let Some(id) = number(&p.value(RetainMode::Nothing, 3)?) else {
                self.note(Some(format!(
                    "the identifier of {:?} is none",
                    crate::raw::shown(&word)
                )));
                return Ok(());
            };
            if let [Some(before), Some(between)] = last {
                self.note(between_neighbours(before, between, id));
            }
            last = [last[1], Some(id)];
            match self.vocab.entry(hash(&word)) {
                // A replacement character stands for many different ones.
                Entry::Occupied(_) if word.contains(char::REPLACEMENT_CHARACTER) => {}
                Entry::Occupied(_) => {
                    let twice = format!("the word {:?} is twice in its vocabulary", crate::raw::shown(&word));
                    self.note(Some(twice));
                }
                Entry::Vacant(place) => drop(place.insert(id)),
            }
            if added.contains(&id) {
                self.twins.insert(id, word);
            }
            Ok(())
        })
    }

    /// A merge joins two words. All three must be in the vocabulary, or the library rejects the tokenizer.
    fn look_at_merges(&mut self, p: &mut JsonParser<'_>) -> Result<(), JsonError> {
        let mut wrong = None;
        p.items(&mut |p| {
            p.space();
            let (mut pair, before) = (Vec::new(), p.budget());
            match p.peek() {
                Some(b'[') => p.items(&mut |p| {
                    let piece = p.value(RetainMode::All, 4)?;
                    pair.extend(piece.text().map(str::to_owned));
                    Ok(())
                })?,
                _ => {
                    let line = p.value(RetainMode::All, 3)?;
                    let line = line.text().unwrap_or_default();
                    if line.starts_with("#version") {
                        return Ok(());
                    }
                    pair.extend(line.split(' ').map(str::to_owned));
                }
            }
            p.give_back(before.saturating_sub(p.budget()));
            if wrong.is_none() {
                wrong = self.unknown_in(&pair);
            }
            Ok(())
        })?;
        self.note(wrong);
        Ok(())
    }

    fn unknown_in(&self, pair: &[String]) -> Option<String> {
        let [first, second] = pair else {
            return Some(format!("a merge has {} parts instead of 2", pair.len()));
        };
        let made = second.get(self.prefix..).map(|rest| format!("{first}{rest}"));
        let words = [Some(first.clone()), Some(second.clone()), made];
        let unknown = words
            .into_iter()
            .flatten()
            .find(|w| !self.vocab.contains_key(&hash(w)))?;
        Some(format!(
            "the merge of {:?} and {:?} needs the word {:?}, which is not in its vocabulary",
            crate::raw::shown(first),
            crate::raw::shown(second),
            crate::raw::shown(&unknown)
        ))
    }

    /// Added tokens are in order of their IDs, and match the vocabulary if they are in it too.
    fn added_wrong(&self) -> Option<String> {
        let tokens = self.added.list()?;
        let mut last: [Option<u64>; 2] = [None; 2];
        for token in tokens {
            let Some(token) = token.object() else {
                return Some("a token that was added is no object".to_owned());
            };
            let wrong = changed(token.keys(), TOKEN).or_else(|| token.iter().find_map(|(k, v)| flag(k, v)));
            if wrong.is_some() {
                return wrong;
            }
            let Some(content) = token.get("content").and_then(JsonValue::text) else {
                return Some("a token that was added has no content".to_owned());
            };
            let Some(id) = token.get("id").and_then(number) else {
                return Some(format!(
                    "the added token {:?} has no identifier",
                    crate::raw::shown(content)
                ));
            };
            if let [Some(before), Some(between)] = last
                && let Some(wrong) = between_neighbours(before, between, id)
            {
                return Some(wrong);
            }
            last = [last[1], Some(id)];
            if let Some(word) = self.twins.get(&id).filter(|word| alike(content, word)) {
                return Some(one_byte(content, word));
            }
            if let Some(known) = self.vocab.get(&hash(content)).filter(|known| one_digit(**known, id)) {
                return Some(format!(
                    "the added token {:?} is {id}, and {known} in the vocabulary",
                    crate::raw::shown(content)
                ));
            }
        }
        None
    }
}

/// Reports an ID that differs by a digit from the one that belongs between its neighbours.
fn between_neighbours(before: u64, id: u64, after: u64) -> Option<String> {
    let wanted = before.checked_add(1)?;
    (after == wanted + 1 && one_digit(wanted, id))
        .then(|| format!("the identifier {id} is between {before} and {after}: a digit was changed"))
}

fn number(value: &JsonValue) -> Option<u64> {
    match value {
        JsonValue::Whole(n) => u64::try_from(*n).ok(),
        _ => None,
    }
}

fn id_of(token: &JsonValue) -> Option<u64> {
    token.get("id").and_then(number)
}

fn one_digit(a: u64, b: u64) -> bool {
    let (a, b) = (a.to_string(), b.to_string());
    a.len() == b.len() && a.bytes().zip(b.bytes()).filter(|(x, y)| x != y).count() == 1
}

fn hash(word: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(word.as_bytes());
    hasher.finish()
}

/// Returns what is wrong in a normalizer, a decoder and so on, and in those nested in it.
fn parts(part: &JsonValue) -> Option<String> {
    if let Some(items) = part.list() {
        return items.iter().find_map(parts);
    }
    let object = part.object()?;
    let inner = |(key, value): (&String, &JsonValue)| match NAMES.contains(&key.as_str()) {
        true => None,
        false => named(key, value).or_else(|| flag(key, value)).or_else(|| parts(value)),
    };
    changed(object.keys(), PARTS).or_else(|| object.iter().find_map(inner))
}

/// Finds a known type with a byte changed.
fn named(key: &str, value: &JsonValue) -> Option<String> {
    let known = match key {
        "type" => KINDS,
        "behavior" => BEHAVIOURS,
        "prepend_scheme" => SCHEMES,
        _ => return None,
    };
    let Some(text) = value.text() else {
        return (key == "type").then(|| format!("a `type` is {}, and a string is expected", value.kind()));
    };
    let near = known
        .iter()
        .find(|k| alike(text, k))
        .filter(|_| !known.contains(&text))?;
    Some(format!(
        "{key} is {:?}, and {near:?} but for a byte",
        crate::raw::shown(text)
    ))
}

/// Checks fields that are booleans in all versions.
fn flag(key: &str, value: &JsonValue) -> Option<String> {
    let flags = [
        "single_word",
        "lstrip",
        "rstrip",
        "normalized",
        "special",
        "add_prefix_space",
        "trim_offsets",
        "use_regex",
        "invert",
    ];
    let wrong = flags.contains(&key) && !matches!(value, JsonValue::Bool(_));
    wrong.then(|| format!("{key} is {}, and true or false is expected", value.kind()))
}
