//! `LATEST`, which names the current generation in newer AReaL builds.
//!
//! They write each save into a directory of its own and replace `LATEST` atomically once everything is there. Its content is untrusted: a
//! name in it never leads out of the directory of generations.

use crate::{InspectLimits, json};
use serde::{Deserialize, Serialize};
use supervise_core::id::Step;

/// Name of the tracker, directly in the checkpoint root.
pub const LATEST: &str = "LATEST";
/// The directory of generations next to it.
pub const GENERATIONS: &str = "checkpoint_generations";
/// A tracker has about a hundred bytes; more is not read.
pub const POINTER_LIMIT: u64 = 64 << 10;

/// The only known format.
const FORMAT: u64 = 1;
const PREFIX: &str = "generation_step";
/// The fewest digits of a step in a name.
const DIGITS: usize = 8;
/// The most characters of a wrong value to show.
const SHOWN: usize = 60;

/// The parsed tracker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatestFile {
    /// Steps trained. AReaL's own number is one less.
    pub step: Step,
    pub engines: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct RawPointer {
    engines: Vec<String>,
    format_version: u64,
    generation: String,
    global_step: u64,
}

impl LatestFile {
    /// Parses the tracker as AReaL does, which refuses to start if anything is wrong with it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let raw: RawPointer = json::parse(bytes, &InspectLimits::default()).map_err(|finding| finding.detail)?;
        if raw.format_version != FORMAT {
            return Err(format!(
                "its format is {}, and {FORMAT} is the one that is known",
                raw.format_version
            ));
        }
        let step = Step(raw.global_step.checked_add(1).ok_or("its step is no step")?);
        if generation_name(step) != raw.generation {
            return Err(format!(
                "it names {}, which is not the generation of its global_step {}",
                shown(&raw.generation),
                raw.global_step
            ));
        }
        let mut engines = raw.engines;
        let listed = engines.len();
        engines.sort();
        engines.dedup();
        if engines.is_empty() || engines.len() != listed {
            return Err("it names no engines, or one of them twice".to_owned());
        }
        match engines.iter().find(|name| !is_name(name)) {
            Some(name) => Err(format!("{} is no name of an engine", shown(name))),
            None => Ok(Self { step, engines }),
        }
    }

    /// Returns the content of the file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let raw = RawPointer {
            engines: self.engines.clone(),
            format_version: FORMAT,
            generation: self.generation(),
            global_step: self.step.0.saturating_sub(1),
        };
        // Serializing strings and numbers cannot fail.
        serde_json::to_vec_pretty(&raw).unwrap_or_default()
    }

    /// Returns the name of the generation's directory.
    #[must_use]
    pub fn generation(&self) -> String {
        generation_name(self.step)
    }
}

/// Returns the directory name of a step's generation.
#[must_use]
pub fn generation_name(step: Step) -> String {
    format!("{PREFIX}{:0DIGITS$}", step.0.saturating_sub(1))
}

/// Returns the step of a generation's directory.
#[must_use]
pub fn generation_step(name: &str) -> Option<Step> {
    let digits = name.strip_prefix(PREFIX)?;
    let plain = digits.bytes().all(|b| b.is_ascii_digit());
    let step = Step(digits.parse::<u64>().ok().filter(|_| plain)?.checked_add(1)?);
    (generation_name(step) == name).then_some(step)
}

/// Whether a name is a single path component other than `..`.
fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

fn shown(text: &str) -> String {
    let short: String = text.chars().take(SHOWN).collect();
    format!("{short:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(change: &[(&str, &str)]) -> String {
        let whole = r#"{"engines": ["default"], "format_version": 1, "generation": "generation_step00000005", "global_step": 5}"#;
        change
            .iter()
            .fold(whole.to_owned(), |text, (from, to)| text.replacen(from, to, 1))
    }

    #[test]
    fn a_pointer_says_a_step_and_its_engines() {
        let pointer = LatestFile::read(text(&[]).as_bytes()).unwrap();
        assert_eq!((pointer.step, pointer.engines.len()), (Step(6), 1));
        assert_eq!(pointer.generation(), "generation_step00000005");
        assert_eq!(LatestFile::read(&pointer.to_bytes()), Ok(pointer));
        let more = text(&[("{", "{\"later\": 1, "), ("\"default\"", "\"critic\", \"default\"")]);
        assert_eq!(
            LatestFile::read(more.as_bytes()).unwrap().engines,
            ["critic", "default"]
        );
    }

    #[test]
    fn what_areal_would_refuse_is_refused_and_no_name_leads_out() {
        let whole = text(&[]);
        for end in 0..whole.len() {
            assert!(LatestFile::read(&whole.as_bytes()[..end]).is_err(), "{end}");
        }
        for change in [
            ("generation_step00000005", "../../etc"),
            ("generation_step00000005", "/etc"),
            ("generation_step00000005", "generation_step5"),
            ("generation_step00000005", "generation_step00000006"),
            ("\"default\"", "\"..\""),
            ("\"default\"", "\"a/b\""),
            ("\"default\"", "\"/etc\""),
            ("\"default\"", "\"\""),
            ("\"default\"", "\"a\\u0000\""),
            ("\"default\"", "\"a\", \"a\""),
            ("\"default\"", ""),
            ("[\"default\"]", "\"default\""),
            (": 5}", ": -1}"),
            (": 5}", ": 5.0}"),
            (": 5}", ": true}"),
            (": 5}", ": 18446744073709551615}"),
            ("version\": 1", "version\": 2"),
            ("version\": 1", "version\": true"),
            ("{", "[{"),
        ] {
            assert!(LatestFile::read(text(&[change]).as_bytes()).is_err(), "{change:?}");
        }
        for bytes in [&b""[..], b"null", b"[]", b"{}", b"\xff\xfe", &[0; 300]] {
            assert!(LatestFile::read(bytes).is_err());
        }
    }

    #[test]
    fn names_of_generations_are_the_ones_that_are_written() {
        for (name, step) in [
            ("generation_step00000000", Some(1)),
            ("generation_step00000119", Some(120)),
            ("generation_step123456789", Some(123_456_790)),
            ("generation_step0123456789", None),
            ("generation_step119", None),
            ("generation_step+0000119", None),
            ("generation_step", None),
            ("generation_step99999999999999999999", None),
            ("generation_step00000119.tmp", None),
            ("step_1.0a1b2c3d", None),
        ] {
            assert_eq!(generation_step(name), step.map(Step), "{name}");
        }
    }
}
