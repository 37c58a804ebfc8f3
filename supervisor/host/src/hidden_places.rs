//! Ranges of a worker's output that must not be shown, listed in `worker-R.log.hide` by the log writer.
//!
//! Readers treat them as byte ranges of the log beside the file. A torn or invalid line is skipped.

use camino::{Utf8Path, Utf8PathBuf};
use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::time::Duration;

/// Most bytes read of one log's ranges; longer files are never written.
const LIMIT: u64 = 32 << 20;
const AGAIN: Duration = Duration::from_millis(2);
const CHUNK: usize = 64 << 10;
const TRIES: u32 = 5;
const HIDDEN: &[u8] = b"***";

/// The file of hidden ranges beside a log.
#[must_use]
pub fn beside(log: &Utf8Path) -> Utf8PathBuf {
    Utf8PathBuf::from(format!("{log}.hide"))
}

/// Hidden ranges of one log, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HiddenPlaces(Vec<Range<u64>>);

impl HiddenPlaces {
    fn add(&mut self, lines: &[u8]) {
        for line in lines.split(|b| *b == b'\n') {
            let place = std::str::from_utf8(line).ok().and_then(|line| {
                let (at, length) = line.split_once(' ')?;
                let (at, length): (u64, u64) = (at.parse().ok()?, length.parse().ok()?);
                (length > 0).then(|| at..at.saturating_add(length))
            });
            self.0.extend(place);
        }
        self.0.sort_by_key(|place| place.start);
        self.0.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
    }

    /// The log's bytes at this offset, with hidden ranges replaced by `***`. `within`: whether the byte before them
    /// is hidden, and `***` was already written for it; updated to the last byte.
    #[must_use]
    pub fn hide<'a>(&self, at: u64, bytes: &'a [u8], within: &mut bool) -> Cow<'a, [u8]> {
        let end = at.saturating_add(length(bytes));
        let first = self.0.partition_point(|place| place.end <= at);
        let mut places = self
            .0
            .iter()
            .skip(first)
            .take_while(|place| place.start < end)
            .peekable();
        if places.peek().is_none() {
            *within &= bytes.is_empty();
            return Cow::Borrowed(bytes);
        }
        let mut out = Vec::with_capacity(bytes.len());
        let mut kept = at;
        let part = |from: u64, to: u64| {
            let index = |place: u64| usize::try_from(place.saturating_sub(at)).unwrap_or(usize::MAX);
            bytes.get(index(from)..index(to)).unwrap_or_default()
        };
        for place in places {
            let from = place.start.max(at);
            out.extend_from_slice(part(kept, from));
            if !(*within && from == at) {
                out.extend_from_slice(HIDDEN);
            }
            kept = place.end.min(end);
            *within = kept == end;
        }
        *within = kept == end;
        out.extend_from_slice(part(kept, end));
        Cow::Owned(out)
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// A log with its hidden ranges, read from the beginning or from any offset.
#[derive(Debug)]
pub struct HiddenLog {
    path: Utf8PathBuf,
    file: File,
    inode: u64,
    notes: Option<File>,
    noted: u64,
    places: HiddenPlaces,
    at: u64,
    within: bool,
    unread: Vec<u8>,
}

impl HiddenLog {
    /// Opens a log and its hidden ranges. It may be rotated at the same time.
    ///
    /// # Errors
    /// It cannot be opened, or is not a file.
    pub fn open(path: &Utf8Path) -> io::Result<Self> {
        let open = |path: &Utf8Path| {
            let mut options = OpenOptions::new();
            options
                .read(true)
                .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
                .open(path)
        };
        for n in 1.. {
            let file = open(path)?;
            let meta = file.metadata()?;
            if !meta.is_file() {
                return Err(io::Error::other("it is not a file"));
            }
            let notes = open(&beside(path))
                .ok()
                .filter(|notes| notes.metadata().is_ok_and(|m| m.is_file()));
            let is_same = std::fs::symlink_metadata(path).is_ok_and(|now| now.ino() == meta.ino());
            if is_same || n == TRIES {
                return Ok(Self {
                    path: path.to_owned(),
                    file,
                    inode: meta.ino(),
                    notes: notes.filter(|_| is_same),
                    noted: 0,
                    places: HiddenPlaces::default(),
                    at: 0,
                    within: false,
                    unread: Vec::new(),
                });
            }
            std::thread::sleep(AGAIN);
        }
        Err(io::ErrorKind::NotFound.into())
    }

    /// The log itself, as it was opened.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The inode of the log.
    #[must_use]
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Offset of the next byte.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Moves to an offset.
    ///
    /// # Errors
    /// The file cannot be read there.
    pub fn seek(&mut self, at: u64) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(at))?;
        (self.at, self.within) = (at, false);
        Ok(())
    }

    /// The next bytes unchanged; empty: the log ends here for now.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_raw(&mut self, limit: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; limit];
        let n = loop {
            match self.file.read(&mut bytes) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        bytes.truncate(n);
        self.at = self.at.saturating_add(length(&bytes));
        Ok(bytes)
    }

    /// The next bytes without hidden ranges. `Some` of an empty vector: all of them are hidden and `***` was already
    /// returned; `None`: the log ends here for now.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&mut self, limit: usize) -> io::Result<Option<Vec<u8>>> {
        let at = self.at;
        let bytes = self.read_raw(limit)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        // Ranges are written before their bytes.
        self.look();
        Ok(Some(self.places.hide(at, &bytes, &mut self.within).into_owned()))
    }

    /// Removes hidden ranges from bytes that were read at this offset.
    #[must_use]
    pub fn hide(&mut self, at: u64, bytes: &[u8]) -> Vec<u8> {
        self.look();
        self.places.hide(at, bytes, &mut false).into_owned()
    }

    /// Reads new hidden ranges. What cannot be read hides nothing.
    fn look(&mut self) {
        if self.notes.is_none() {
            // The first range of this log may have been added after it was opened.
            let Ok(notes) = File::open(beside(&self.path)) else {
                return;
            };
            if !std::fs::symlink_metadata(&self.path).is_ok_and(|now| now.ino() == self.inode) {
                return;
            }
            self.notes = Some(notes);
        }
        let Some(notes) = &mut self.notes else { return };
        if notes.metadata().is_ok_and(|m| m.len() <= self.noted) {
            return;
        }
        let mut lines = Vec::new();
        let read = notes
            .seek(SeekFrom::Start(self.noted))
            .and_then(|_| notes.take(LIMIT.saturating_sub(self.noted)).read_to_end(&mut lines));
        let Some(whole) = lines.iter().rposition(|b| *b == b'\n').filter(|_| read.is_ok()) else {
            return;
        };
        let lines = lines.get(..=whole).unwrap_or_default();
        self.noted = self.noted.saturating_add(length(lines));
        self.places.add(lines);
    }
}

impl Read for HiddenLog {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        // `***` may be longer than what it hides.
        while self.unread.is_empty() {
            match HiddenLog::read(self, CHUNK)? {
                Some(bytes) => self.unread = bytes,
                None => return Ok(0),
            }
        }
        let n = self.unread.len().min(to.len());
        for (to, from) in to.iter_mut().zip(self.unread.drain(..n)) {
            *to = from;
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    fn hidden(places: &str, text: &str, size: usize) -> String {
        let mut of = HiddenPlaces::default();
        of.add(places.as_bytes());
        let (mut at, mut within, mut out) = (0, false, Vec::new());
        for part in text.as_bytes().chunks(size) {
            out.extend_from_slice(&of.hide(at, part, &mut within));
            at += part.len() as u64;
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn places_are_hidden_once_each_however_the_bytes_come() {
        for size in 1..20 {
            assert_eq!(hidden("2 3\n", "ab012cd", size), "ab***cd", "{size}");
            assert_eq!(hidden("5 2\n\n0 2\n1 1\n", "ab012cd", size), "***012***", "{size}");
            assert_eq!(hidden("0 2\n2 2\n9 9\n", "ab012cd", size), "***2cd", "{size}");
            for nonsense in [
                "",
                "x y\n",
                "3\n",
                "-1 2\n",
                "1 0\n",
                "99999999999999999999 1\n",
                "# 2 3\n",
            ] {
                assert_eq!(hidden(nonsense, "ab012cd", size), "ab012cd", "{nonsense}");
            }
        }
        assert_eq!(hidden("2 18446744073709551615\n", "ab012cd", 3), "ab***");
    }

    #[test]
    fn a_torn_line_counts_once_it_is_whole_and_a_rotated_log_keeps_its_places() {
        let dir = tempfile::tempdir().unwrap();
        let log = Utf8PathBuf::from_path_buf(dir.path().join("worker-0.log")).unwrap();
        fs::write(&log, "one two three").unwrap();
        let mut open = HiddenLog::open(&log).unwrap();
        assert_eq!(open.read(4).unwrap().unwrap(), b"one ");
        fs::write(beside(&log), "4 3\n8 ").unwrap();
        assert_eq!(open.read(4).unwrap().unwrap(), b"*** ");
        let mut notes = OpenOptions::new().append(true).open(beside(&log)).unwrap();
        notes.write_all(b"5\n").unwrap();
        fs::rename(beside(&log), beside(&log.with_extension("log.1"))).unwrap();
        fs::rename(&log, log.with_extension("log.1")).unwrap();
        fs::write(&log, "next file").unwrap();
        fs::write(beside(&log), "0 9\n").unwrap();
        assert_eq!(open.read(9).unwrap().unwrap(), b"***");
        assert_eq!(open.read(9).unwrap(), None);
        let mut text = String::new();
        HiddenLog::open(&log.with_extension("log.1"))
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "one *** ***");
        assert!(HiddenLog::open(Utf8Path::from_path(dir.path()).unwrap()).is_err());
    }
}
