//! The mark that `supervise.saved()` leaves beside a checkpoint: an empty file whose name says everything.
//!
//! It appears at once or not at all, so that a save that was killed has none. Its content is never read.

use supervise_core::id::Step;

const START: &str = "saved.";
/// Steps as reports print them.
const LARGEST: u64 = 9_999_999_999_999_999;

/// What a mark says: `saved.NAME.STEP-FILES-BYTES-NEWEST`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedMark {
    pub step: Step,
    pub files: u64,
    pub bytes: u64,
    /// When the newest file was written, in nanoseconds since 1970; marks of older releases do not say it.
    pub newest: Option<i64>,
}

impl SavedMark {
    /// The checkpoint that a file of this name marks, directly under the root.
    #[must_use]
    pub fn parse(file: &str) -> Option<(&str, Self)> {
        let (name, numbers) = file.strip_prefix(START)?.rsplit_once('.')?;
        let (step, rest) = numbers.split_once('-')?;
        let (files, rest) = rest.split_once('-')?;
        let (bytes, newest) = match rest.split_once('-') {
            Some((bytes, newest)) => (bytes, Some(i64::try_from(number(newest)?).ok()?)),
            None => (rest, None),
        };
        let mark = Self {
            step: Step(number(step).filter(|step| *step <= LARGEST)?),
            files: number(files)?,
            bytes: number(bytes)?,
            newest,
        };
        let is_name = !name.is_empty() && !name.starts_with('.') && !name.starts_with(START);
        is_name.then_some((name, mark))
    }
}

/// A number in its only spelling.
fn number(text: &str) -> Option<u64> {
    let is_canonical = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_names_checkpoint_step_files_and_bytes() {
        let mark = SavedMark {
            step: Step(20),
            files: 1,
            bytes: 5000,
            newest: Some(1_795_577_117_763_000_001),
        };
        let found = SavedMark::parse("saved.ckpt-20.pt.20-1-5000-1795577117763000001");
        assert_eq!(found, Some(("ckpt-20.pt", mark.clone())));
        let older = SavedMark { newest: None, ..mark };
        assert_eq!(
            SavedMark::parse("saved.ckpt-20.pt.20-1-5000"),
            Some(("ckpt-20.pt", older))
        );
        for other in [
            "ckpt-20.pt",
            "saved.",
            "saved.x",
            "saved.x.1-2",
            "saved.x.01-1-1",
            "saved.x.+1-1-1",
            "saved.x.1-1-1-1-1",
            "saved.x.1-1-1-",
            "saved.x.1-1-1-99999999999999999999",
            "saved.x.1-1-",
            "saved..1-1-1",
            "saved..hidden.1-1-1",
            "saved.saved.x.1-1-1.1-1-1",
            "saved.x.99999999999999999-1-1",
            "saved.x.1-1-99999999999999999999",
        ] {
            assert_eq!(SavedMark::parse(other), None, "{other}");
        }
    }
}
