//! How often AReaL saves, exports and evaluates after a resume.
//!
//! A resume restores the frequencies in effect when the save was made, and they override the configuration: to change
//! one across a relaunch, the files next to the checkpoint must be edited too.

use super::fields::INT;
use crate::kit::ConfigReader;
use std::collections::BTreeMap;
use std::ops::Range;
use supervise_checkpoint::Frequencies;

/// Files next to the checkpoint, and the configuration section of each.
const FILES: [(&str, &str); 3] = [
    ("checkpoint_info.json", "recover"),
    ("saver_info.json", "saver"),
    ("evaluator_info.json", "evaluator"),
];

/// A file edited to match the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditedFile {
    /// Only frequencies have changed.
    pub bytes: Vec<u8>,
    pub what: String,
}

pub(super) fn wanted(v: &mut ConfigReader<'_>) -> BTreeMap<String, Frequencies> {
    let mut of = |section: &str| {
        let mut get = |key: &str| v.get(&format!("{section}.{key}"), INT);
        Frequencies {
            epochs: get("freq_epochs"),
            steps: get("freq_steps"),
            secs: get("freq_secs"),
        }
    };
    FILES
        .iter()
        .map(|(file, section)| ((*file).to_owned(), of(section)))
        .collect()
}

/// Edits the frequencies in a file; `None` if they match already.
///
/// # Errors
/// Why the file cannot be changed: AReaL did not write it like this.
pub fn with_frequencies(bytes: &[u8], wanted: &Frequencies) -> Result<Option<EditedFile>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    let places = [
        ("epoch", "frequency_steps", "freq_epochs", wanted.epochs),
        ("step", "frequency_steps", "freq_steps", wanted.steps),
        ("time", "frequence_seconds", "freq_secs", wanted.secs),
    ];
    let (mut edits, mut what) = (Vec::new(), Vec::new());
    for (section, key, name, wanted) in places {
        let at = value_of(text, section, key).ok_or_else(|| format!("it has no `{section}.{key}`"))?;
        let said = &text[at.clone()];
        let wanted = wanted.map_or_else(|| "null".to_owned(), |n| n.to_string());
        if said != "null" && said.parse::<i64>().is_err() {
            return Err(format!("`{section}.{key}` is `{said}`, not a whole number"));
        }
        if said != wanted {
            what.push(format!("{name} is {said} there and {wanted} in the configuration"));
            edits.push((at, wanted));
        }
    }
    if edits.is_empty() {
        return Ok(None);
    }
    let mut out = text.to_owned();
    edits.sort_by_key(|(at, _)| at.start);
    for (at, wanted) in edits.into_iter().rev() {
        out.replace_range(at, &wanted);
    }
    Ok(Some(EditedFile {
        bytes: out.into_bytes(),
        what: what.join("; "),
    }))
}

/// The byte range of the scalar `section.key` in a JSON text of two levels.
fn value_of(text: &str, section: &str, key: &str) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0_u32, 0);
    let (mut outer, mut inner) = ("", "");
    while at < bytes.len() {
        match bytes[at] {
            b'{' => depth += 1,
            b'}' => depth = depth.checked_sub(1)?,
            b'"' => {
                let end = at + 1 + text[at + 1..].find('"')?;
                let name = &text[at + 1..end];
                let names_key = text[end + 1..].trim_start().starts_with(':');
                match depth {
                    1 if names_key => outer = name,
                    2 if names_key => inner = name,
                    _ => {}
                }
                at = end;
            }
            b':' if depth == 2 && outer == section && inner == key => {
                let rest = &text[at + 1..];
                let start = at + 1 + (rest.len() - rest.trim_start().len());
                let length = text[start..].find([',', '}', '\n', '\r', ' '])?;
                return Some(start..start + length);
            }
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const REAL: &str = include_str!(
        "../../../../tests/fixtures/areal_sft_w2/checkpoints/trainer/real/t0/recover_info/checkpoint_info.json"
    );

    fn steps(n: i64) -> Frequencies {
        Frequencies {
            steps: Some(n),
            ..Frequencies::default()
        }
    }

    #[test]
    fn the_frequencies_of_a_real_file_are_changed_and_nothing_else() {
        assert_eq!(with_frequencies(REAL.as_bytes(), &steps(1)).unwrap(), None);
        let edited = with_frequencies(REAL.as_bytes(), &steps(20)).unwrap().unwrap();
        assert_eq!(edited.what, "freq_steps is 1 there and 20 in the configuration");
        let text = String::from_utf8(edited.bytes).unwrap();
        assert_eq!(
            text.replacen("\"frequency_steps\": 20", "\"frequency_steps\": 1", 1),
            REAL
        );
        let all = Frequencies {
            epochs: Some(1),
            steps: None,
            secs: Some(3600),
        };
        let edited = with_frequencies(REAL.as_bytes(), &all).unwrap().unwrap();
        let again = with_frequencies(&edited.bytes, &steps(1)).unwrap().unwrap();
        assert_eq!(again.bytes, REAL.as_bytes(), "and back");
    }

    #[test]
    fn what_areal_did_not_write_is_left_alone() {
        for text in ["", "{", "{}", "[1]", "{\"step\": {\"frequency_steps\": 1}}"] {
            assert!(with_frequencies(text.as_bytes(), &steps(2)).is_err(), "{text}");
        }
        let odd = REAL.replacen("\"frequency_steps\": 1", "\"frequency_steps\": \"1\"", 1);
        assert!(
            with_frequencies(odd.as_bytes(), &steps(2))
                .unwrap_err()
                .contains("not a whole number")
        );
        let cut = &REAL[..REAL.len() / 2];
        assert!(with_frequencies(cut.as_bytes(), &steps(2)).is_err());
    }
}
