//! Writes to systemd's journal in its own protocol: entries with fields, which `journalctl` can filter by.
//!
//! Source: systemd.exec(5) on `JOURNAL_STREAM`, and systemd's "Native Journal Protocol". An entry is one datagram of
//! `NAME=VALUE` lines; a value with line breaks has its length before it. Nothing here blocks; if an entry is not
//! accepted, the caller prints it.

use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

const SOCKET: &str = "/run/systemd/journal/socket";
/// Device and inode of the stream to the journal that the service manager gave this process.
const STREAM: &str = "JOURNAL_STREAM";

/// The connection to journald.
#[derive(Debug)]
pub struct Journald {
    socket: UnixDatagram,
    at: PathBuf,
}

impl Journald {
    /// The journal, if this output goes to it. Anything else (a file, a pipe) must get the lines itself.
    #[must_use]
    pub fn behind(output: impl AsFd) -> Option<Self> {
        Self::by(&std::env::var(STREAM).ok()?, output, Path::new(SOCKET))
    }

    fn by(stream: &str, output: impl AsFd, at: &Path) -> Option<Self> {
        let (device, inode) = stream.split_once(':')?;
        let there = rustix::fs::fstat(output).ok()?;
        if device.parse() != Ok(there.st_dev) || inode.parse() != Ok(there.st_ino) {
            return None;
        }
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(Self {
            socket,
            at: at.to_owned(),
        })
    }

    /// Sends an entry. Returns false if it is not accepted now or is too long.
    #[must_use]
    pub fn take(&self, entry: &[u8]) -> bool {
        self.socket.send_to(entry, &self.at).is_ok()
    }
}

/// Encodes an entry. Names may contain capitals, digits and underscores: journald drops others.
#[must_use]
pub fn entry(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.extend(name.as_bytes());
        if value.contains('\n') {
            out.push(b'\n');
            out.extend((value.len() as u64).to_le_bytes());
        } else {
            out.push(b'=');
        }
        out.extend(value.as_bytes());
        out.push(b'\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    fn name_of(file: &File) -> String {
        let meta = file.metadata().unwrap();
        format!("{}:{}", meta.dev(), meta.ino())
    }

    #[test]
    fn an_entry_arrives_as_it_was_made_and_what_nobody_takes_is_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let (at, file) = (dir.path().join("socket"), tempfile::tempfile().unwrap());
        let journal = Journald::by(&name_of(&file), &file, &at).unwrap();
        let said = entry(&[("MESSAGE", "one\ntwo"), ("PRIORITY", "4")]);
        assert_eq!(said, b"MESSAGE\n\x07\0\0\0\0\0\0\0one\ntwo\nPRIORITY=4\n");
        assert!(!journal.take(&said));
        let theirs = UnixDatagram::bind(&at).unwrap();
        assert!(journal.take(&said));
        let mut got = [0; 100];
        let n = theirs.recv(&mut got).unwrap();
        assert_eq!(got[..n], said);
        // Longer than a datagram may be, and a listener that reads nothing: neither blocks.
        assert!(!journal.take(&vec![b'x'; 64 << 20]));
        assert!((0..100_000).any(|_| !journal.take(&said)));
        drop(theirs);
        std::fs::remove_file(&at).unwrap();
        let theirs = UnixDatagram::bind(&at).unwrap();
        assert!(journal.take(&said) && theirs.recv(&mut got).is_ok());
    }

    #[test]
    fn an_output_that_is_not_the_journals_stream_keeps_its_lines() {
        let (ours, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let at = Path::new(SOCKET);
        assert!(Journald::by(&name_of(&ours), &ours, at).is_some());
        for stream in [name_of(&other).as_str(), "", "1", ":", "1:", "-1:7", "a:b"] {
            assert!(Journald::by(stream, &ours, at).is_none(), "{stream}");
        }
    }
}
