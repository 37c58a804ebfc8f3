//! Matches many patterns against a line: one search for all their texts, then only the patterns whose text occurs.

use aho_corasick::{AhoCorasick, MatchKind};
use regex::bytes::Regex;
use std::sync::OnceLock;

/// Most patterns that a filter can match; later ones are ignored.
const TRIED: usize = 1024;

pub(crate) struct Filter {
    texts: AhoCorasick,
    /// For each text, the indexes of its patterns.
    owners: Vec<Vec<usize>>,
    patterns: Vec<Pattern>,
}

struct Pattern {
    rule: usize,
    source: String,
    compiled: OnceLock<Option<Regex>>,
}

impl Filter {
    /// Builds a filter from (rule index, texts separated by `|`, expression or nothing).
    ///
    /// # Errors
    /// There are too many texts for an automaton.
    pub(crate) fn new<'a>(
        rules: impl Iterator<Item = (usize, &'a str, &'a str)>,
    ) -> Result<Self, aho_corasick::BuildError> {
        let mut texts: Vec<&str> = Vec::new();
        let mut owners: Vec<Vec<usize>> = Vec::new();
        let mut patterns = Vec::new();
        for (rule, holds, source) in rules {
            for text in holds.split('|').filter(|t| !t.is_empty()) {
                match texts.iter().position(|t| t.eq_ignore_ascii_case(text)) {
                    Some(at) => owners[at].push(patterns.len()),
                    None => {
                        texts.push(text);
                        owners.push(vec![patterns.len()]);
                    }
                }
            }
            patterns.push(Pattern {
                rule,
                source: source.to_owned(),
                compiled: OnceLock::new(),
            });
        }
        let texts = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .build(&texts)?;
        Ok(Self {
            texts,
            owners,
            patterns,
        })
    }

    /// The lowest index of a matching rule. A pattern is tried once, however often its text occurs.
    pub(crate) fn first(&self, line: &[u8]) -> Option<usize> {
        let mut tried = [0u64; TRIED / 64];
        let mut best: Option<usize> = None;
        for found in self.texts.find_overlapping_iter(line) {
            for at in self.owners.get(found.pattern().as_usize()).into_iter().flatten() {
                let Some(pattern) = self.patterns.get(*at) else {
                    continue;
                };
                let Some(word) = tried.get_mut(at / 64) else { continue };
                let bit = 1u64 << (at % 64);
                if *word & bit != 0 || best.is_some_and(|b| b <= pattern.rule) {
                    continue;
                }
                *word |= bit;
                if pattern.matches(line) {
                    best = Some(pattern.rule);
                }
            }
        }
        best
    }
}

impl Pattern {
    fn matches(&self, line: &[u8]) -> bool {
        if self.source.is_empty() {
            return true;
        }
        let compiled = self.compiled.get_or_init(|| Regex::new(&self.source).ok());
        compiled.as_ref().is_some_and(|r| r.is_match(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earlier_rule_counts_wherever_its_text_stands() {
        let rules = [(3, "space", ""), (1, "disk|quota", r"(?i-u)full disk"), (7, "full", "")];
        let filter = Filter::new(rules.into_iter()).unwrap();
        assert_eq!(filter.first(b"no space on a FULL disk"), Some(1));
        assert_eq!(filter.first(b"no Space"), Some(3));
        assert_eq!(filter.first(b"quota: full"), Some(7));
        assert_eq!(filter.first(b"nothing"), None);
    }
}
