//! Lists ranges of secrets in one worker's output, as it is written.
//!
//! The log holds the trainer's bytes unchanged, secrets included. A later reader does not need to know the secret
//! values, because their ranges are listed while they are known: in `worker-R.log.hide`, one `OFFSET LENGTH` per
//! line, for the file beside it. No value, no hash and no exact length of a value is stored: ranges cover whole
//! words, up to the blanks around them, and of a long word whole blocks of [`BLOCK`] bytes.
//!
//! A range is written before its bytes. If it cannot be written, those bytes are written as `*`: a log never contains
//! a secret that readers would not hide.

use camino::{Utf8Path, Utf8PathBuf};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use supervise_config::NeedleSet;

/// Of a longer word, blocks of this many bytes are hidden.
const BLOCK: u64 = 64;
/// This many bytes of a value at the end of a write are enough to hide them before the rest arrives.
const BEGUN: usize = 6;
/// Offset of a byte that is no longer in the file.
const GONE: u64 = u64::MAX;
/// Largest file of ranges. Beyond it values are written as `*`.
const LIMIT: u64 = 16 << 20;

#[derive(Debug, Default)]
pub(super) struct Hider {
    needles: Arc<NeedleSet>,
    /// The last bytes without line ends, and their offsets, to find a value that spans two writes or two lines.
    text: Vec<u8>,
    at: Vec<u64>,
    end: u64,
    /// A hidden word may continue up to here.
    open: u64,
}

impl Hider {
    pub(super) fn new(needles: Arc<NeedleSet>) -> Self {
        Self {
            needles,
            ..Self::default()
        }
    }

    pub(super) fn know(&mut self, needles: Arc<NeedleSet>) {
        self.needles = needles;
    }

    /// The ranges to hide once these bytes are written at this offset; some may lie before it.
    pub(super) fn places(&mut self, place: u64, bytes: &[u8]) -> Vec<Range<u64>> {
        if self.needles.is_empty() {
            return Vec::new();
        }
        if place != self.end {
            // Another file, or lost bytes: nothing continues.
            self.text.clear();
            self.at.clear();
            self.open = 0;
        }
        let known = self.text.len();
        for (n, byte) in (place..).zip(bytes) {
            if !matches!(byte, b'\n' | b'\r') {
                self.text.push(*byte);
                self.at.push(n);
            }
        }
        self.end = place.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let mut found = self.needles.ranges(&self.text);
        found.retain(|range| range.end > known);
        found.extend(
            self.needles
                .begun(&self.text, BEGUN)
                .map(|(from, _)| from..self.text.len()),
        );
        let mut places = Vec::new();
        let opened = std::mem::take(&mut self.open);
        if opened > place && self.at.get(known) == Some(&place) {
            let end = self.word_end(known, opened);
            self.note(known..end, &mut places);
            self.goes_on(end, opened);
        }
        for mut range in found {
            // What is in a rotated log was listed there.
            range.start += self.at.iter().skip(range.start).take_while(|at| **at == GONE).count();
            let Some((first, last)) = self.at.get(range.start).zip(self.at.get(range.end - 1)) else {
                continue;
            };
            let (first, last) = (first / BLOCK * BLOCK, (last / BLOCK + 1) * BLOCK);
            let word = self.word_start(range.start, first)..self.word_end(range.end, last);
            self.goes_on(word.end, last);
            self.note(word, &mut places);
        }
        let kept = self
            .needles
            .longest()
            .saturating_add(usize::try_from(BLOCK).unwrap_or_default());
        let gone = self.text.len().saturating_sub(kept);
        self.text.drain(..gone);
        self.at.drain(..gone);
        merged(places)
    }

    /// A word that is hidden up to this index may continue in the next write, up to this offset.
    fn goes_on(&mut self, index: usize, last: u64) {
        if index == self.text.len() && self.at.last().is_some_and(|at| at + 1 == self.end) && self.end < last {
            self.open = self.open.max(last);
        }
    }

    /// The next write begins another file; a value may continue there.
    pub(super) fn rotated(&mut self) {
        self.at.fill(GONE);
        (self.end, self.open) = (0, 0);
    }

    /// Start of the word that contains this index, not before this offset.
    fn word_start(&self, index: usize, first: u64) -> usize {
        let mut start = index;
        while let Some(before) = start.checked_sub(1) {
            let follows = |(a, b): (&u64, &u64)| *a != GONE && a + 1 == *b && *a >= first;
            let follows = self.at.get(before).zip(self.at.get(start)).is_some_and(follows);
            if !follows || self.text.get(before).is_none_or(u8::is_ascii_whitespace) {
                break;
            }
            start = before;
        }
        start
    }

    /// End of the word that contains this index, not behind this offset.
    fn word_end(&self, index: usize, last: u64) -> usize {
        let mut end = index;
        while let Some(at) = self.at.get(end) {
            let before = end.checked_sub(1).and_then(|before| self.at.get(before));
            let follows = before.is_none_or(|before| *before == GONE || before + 1 == *at);
            if !follows || *at >= last || self.text.get(end).is_none_or(u8::is_ascii_whitespace) {
                break;
            }
            end += 1;
        }
        end
    }

    /// Adds ranges for a word; line ends inside it stay visible.
    fn note(&self, word: Range<usize>, places: &mut Vec<Range<u64>>) {
        for at in self.at.get(word).unwrap_or_default() {
            match places.last_mut().filter(|last| last.end == *at) {
                Some(last) => last.end = at + 1,
                None => places.push(*at..at + 1),
            }
        }
    }
}

/// Sorted, with overlapping or adjacent ranges merged.
fn merged(mut places: Vec<Range<u64>>) -> Vec<Range<u64>> {
    places.sort_by_key(|place| place.start);
    let mut out: Vec<Range<u64>> = Vec::with_capacity(places.len());
    for place in places {
        match out.last_mut().filter(|last| last.end >= place.start) {
            Some(last) => last.end = last.end.max(place.end),
            None => out.push(place),
        }
    }
    out
}

#[derive(Debug)]
pub(super) struct PlacesFile {
    path: Utf8PathBuf,
    file: Option<File>,
    size: u64,
}

impl PlacesFile {
    pub(super) fn beside(log: &Utf8Path) -> Self {
        Self {
            path: crate::hidden_places::beside(log),
            file: None,
            size: 0,
        }
    }

    /// Appends ranges. The file is created with the first one.
    ///
    /// # Errors
    /// The disk refuses, or the file has reached its limit.
    pub(super) fn note(&mut self, places: &[Range<u64>]) -> io::Result<()> {
        if places.is_empty() {
            return Ok(());
        }
        let lines: String = places
            .iter()
            .map(|p| format!("{} {}\n", p.start, p.end - p.start))
            .collect();
        let noted = self.append(lines.as_bytes());
        if noted.is_err() {
            // The next try reopens it, after a line that may be incomplete.
            self.file = None;
        }
        noted
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            let file = OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&self.path)?;
            self.size = file.metadata()?.len();
            self.file = Some(file);
            if self.size > 0 {
                self.append(b"\n")?;
            }
        }
        let length = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        let Some(file) = self.file.as_mut().filter(|_| self.size.saturating_add(length) <= LIMIT) else {
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        file.write_all(lines)?;
        self.size = self.size.saturating_add(length);
        Ok(())
    }

    /// Renames the file with its log: before the log, so that no reader uses it for the next log.
    pub(super) fn rename(&mut self, from: &Utf8Path, to: &Utf8Path) {
        self.file = None;
        let (from, to) = (crate::hidden_places::beside(from), crate::hidden_places::beside(to));
        // Most logs have none; then the overwritten log must not keep one either.
        if fs::rename(&from, &to).is_err() {
            drop(fs::remove_file(&to));
        }
    }

    pub(super) fn remove(&mut self) {
        self.file = None;
        drop(fs::remove_file(&self.path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &[u8] = b"sEcret-value-1234";

    fn hider() -> Hider {
        Hider::new(Arc::new(NeedleSet::new([VALUE.to_vec()])))
    }

    /// The text with hidden bytes as `#`, for any write size.
    fn hidden(text: &str, size: usize) -> String {
        let mut hider = hider();
        let mut out = text.as_bytes().to_vec();
        let mut place = 0;
        for part in text.as_bytes().chunks(size) {
            for hide in hider.places(place, part) {
                assert!(hide.end <= place + part.len() as u64);
                out[hide.start as usize..hide.end as usize].fill(b'#');
            }
            place += part.len() as u64;
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn whole_words_are_noted_however_the_bytes_come() {
        for (text, wanted) in [
            ("a sEcret-value-1234 b\n", "a ################# b\n"),
            ("a x=sEcret-value-1234&y b", "a ##################### b"),
            ("a sEcret-va\nlue-1234 b", "a #########\n######## b"),
            ("a sEcret-va\r\nlue-1234. b\n", "a #########\r\n######### b\n"),
            ("sEcret-value-123", "################"),
            ("sEcret-value-12 34", "sEcret-value-12 34"),
        ] {
            for size in 1..text.len() + 1 {
                let shown = hidden(text, size);
                if text == "sEcret-value-12 34" {
                    // It was hidden as long as it might have become one.
                    assert!(shown.ends_with(" 34"), "{size}: {shown}");
                } else {
                    assert_eq!(shown, wanted, "{size}");
                }
            }
        }
    }

    #[test]
    fn of_a_long_word_whole_blocks_are_noted() {
        let text = format!("{}sEcret-value-1234{}", "a".repeat(200), "b".repeat(300));
        for size in [1, 7, 64, 1000] {
            let shown = hidden(&text, size);
            let wanted = format!("{}{}{}", "a".repeat(192), "#".repeat(64), "b".repeat(517 - 256));
            assert_eq!(shown, wanted, "{size}");
        }
    }

    #[test]
    fn nothing_goes_on_behind_bytes_that_were_lost() {
        let mut hider = hider();
        let noted = hider.places(0, b"x sEcret-va");
        assert_eq!(noted.first(), Some(&(2..11)));
        assert!(hider.places(500, b"lue-1234 y ").is_empty());
        assert_eq!(hider.places(511, b"sEcret-value-1234 ").first(), Some(&(511..528)));
        hider.places(529, b"x sEcret-va");
        hider.rotated();
        assert_eq!(hider.places(0, b"lue-1234 y").first(), Some(&(0..8)));
        assert!(hider.at.len() <= VALUE.len() + BLOCK as usize);
    }
}
