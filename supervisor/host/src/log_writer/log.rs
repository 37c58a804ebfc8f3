//! A growing file: rotated, or limited in size.
//!
//! A write that the disk refuses is lost and counted; the next successful one reports how much.

use crate::log_writer::frame::LogOrder;
use crate::log_writer::hide::{Hider, PlacesFile};
use camino::{Utf8Path, Utf8PathBuf};
use std::borrow::Cow;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::sync::Arc;
use supervise_config::NeedleSet;

const KEEP_LIMIT: u32 = 1000;

#[derive(Debug)]
pub(crate) struct RotatedLog {
    path: Utf8PathBuf,
    file: Option<File>,
    size: u64,
    limit: u64,
    /// Rotated files to keep; `None`: the file stops growing.
    keep: Option<u32>,
    lost: u64,
    hider: Hider,
    places: PlacesFile,
}

impl RotatedLog {
    /// A worker's output. A size of zero means that it is never rotated.
    pub(crate) fn rotated(dir: &Utf8Path, name: &str, order: &LogOrder) -> Self {
        let limit = match order.output_max {
            0 => u64::MAX,
            n => n,
        };
        let mut log = Self::new(dir, name, limit, Some(order.output_keep.min(KEEP_LIMIT)));
        log.hider = Hider::new(supervise_config::known_needles());
        log
    }

    pub(crate) fn know(&mut self, needles: Arc<NeedleSet>) {
        self.hider.know(needles);
    }

    pub(crate) fn limited(dir: &Utf8Path, name: &str, limit: u64) -> Self {
        Self::new(dir, name, limit, None)
    }

    fn new(dir: &Utf8Path, name: &str, limit: u64, keep: Option<u32>) -> Self {
        let path = dir.join(name);
        Self {
            places: PlacesFile::beside(&path),
            hider: Hider::default(),
            path,
            file: None,
            size: 0,
            limit,
            keep,
            lost: 0,
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        if self.try_write(bytes).is_err() {
            // The mount may have been replaced: reopen the file next time.
            self.file = None;
            self.lost = self.lost.saturating_add(length(bytes));
        }
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            self.open()?;
        }
        if self.size > 0 && self.size.saturating_add(length(bytes)) > self.limit {
            match self.keep {
                Some(keep) => self.rotate(keep)?,
                None => return Ok(()),
            }
        }
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 && self.keep.is_some() {
            let line = format!("\n[supervise: {lost} bytes of output were dropped: the disk did not take them]\n");
            self.append(line.as_bytes()).inspect_err(|_| self.lost = lost)?;
        }
        let bytes = self.noted(bytes);
        self.append(&bytes)
    }

    /// The bytes, once the ranges of values in them are written; if they cannot be, without the values.
    fn noted<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let places = self.hider.places(self.size, bytes);
        if self.places.note(&places).is_ok() {
            return Cow::Borrowed(bytes);
        }
        let mut safe = bytes.to_vec();
        for at in places.into_iter().flatten() {
            let index = at.checked_sub(self.size).and_then(|at| usize::try_from(at).ok());
            if let Some(byte) = index.and_then(|at| safe.get_mut(at)) {
                *byte = b'*';
            }
        }
        Cow::Owned(safe)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Err(io::ErrorKind::NotFound.into());
        };
        file.write_all(bytes)?;
        self.size = self.size.saturating_add(length(bytes));
        Ok(())
    }

    fn open(&mut self) -> io::Result<()> {
        if let Some(dir) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&self.path)?;
        self.size = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    /// `log.1` becomes `log.2`, `log` becomes `log.1`; the oldest is overwritten.
    fn rotate(&mut self, keep: u32) -> io::Result<()> {
        self.file = None;
        if keep == 0 {
            fs::remove_file(&self.path)?;
            self.places.remove();
        } else {
            for n in (1..keep).rev() {
                // Most of them do not exist yet.
                let _ = self.rename(&self.numbered(n), &self.numbered(n + 1));
            }
            self.rename(&self.path.clone(), &self.numbered(1))?;
        }
        self.hider.rotated();
        self.open()
    }

    fn rename(&mut self, from: &Utf8Path, to: &Utf8Path) -> io::Result<()> {
        if !from.exists() {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.places.rename(from, to);
        fs::rename(from, to).inspect_err(|_| self.places.rename(to, from))
    }

    fn numbered(&self, n: u32) -> Utf8PathBuf {
        Utf8PathBuf::from(format!("{}.{n}", self.path))
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_write_is_said_when_the_disk_takes_again() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Utf8PathBuf::from_path_buf(temp.path().join("d")).unwrap();
        let order = LogOrder {
            dir: dir.clone(),
            workers: 1,
            output_max: 0,
            output_keep: 0,
            secrets: Vec::new(),
        };
        // A file where the directory should be: every open fails.
        fs::write(&dir, "").unwrap();
        let mut log = RotatedLog::rotated(&dir, "worker-0.log", &order);
        log.write(b"lost");
        fs::remove_file(&dir).unwrap();
        log.write(b"kept\n");
        let text = fs::read_to_string(dir.join("worker-0.log")).unwrap();
        assert!(text.contains("[supervise: 4 bytes of output were dropped"));
        assert!(text.ends_with("kept\n"));
    }

    #[test]
    fn a_limited_file_stops_growing() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Utf8PathBuf::from_path_buf(temp.path().to_path_buf()).unwrap();
        let mut log = RotatedLog::limited(&dir, "tree", 10);
        for _ in 0..10 {
            log.write(b"12345\n");
        }
        assert_eq!(fs::read(dir.join("tree")).unwrap().len(), 6);
    }
}
