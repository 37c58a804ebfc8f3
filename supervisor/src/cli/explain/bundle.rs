//! `supervise explain --bundle`: what a bug report needs, in one file, without secrets.
//!
//! The archive holds the bounded ends of text files that this program wrote, with secrets hidden when they were written. Workers'
//! own output is left out, because this command may not know their secrets. The archive has mode 0600, and never replaces another
//! file.

use crate::error::CliError;
use crate::path_access;
use camino::{Utf8Path, Utf8PathBuf};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use supervise_config::redact_lines;

/// Maximum number of bytes kept of a file, from its end; more of journals.
const FILE: u64 = 256 << 10;
const JOURNAL: u64 = 8 << 20;
/// Maximum number of bytes of all files.
const ALL: usize = 64 << 20;
/// Number of newest attempts of which more than the launch is kept.
const ATTEMPTS: usize = 5;
/// Maximum number of files of a directory.
const ENTRIES: usize = 1000;
const BLOCK: usize = 512;

/// Writes the archive. Returns the number of files in it and its size.
pub(super) fn write(to: &Utf8Path, run_dir: &Utf8Path, made: &[(&str, String)]) -> Result<(usize, usize), CliError> {
    if to.file_name().is_none_or(|name| !name.ends_with(".tar.zst")) {
        return Err(CliError::usage(format!("{to}: the archive is one of tar and zstd"))
            .hint("give it a name that ends with .tar.zst"));
    }
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::AlreadyExists => CliError::usage(format!("{to} is there already, and is not overwritten"))
            .hint("give the archive another name"),
        _ => CliError::environment(format!("{to} cannot be written: {e}")),
    };
    let mut options = OpenOptions::new();
    let mut out = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)
        .map_err(failed)?;
    let mut tar = Tar::default();
    for (name, text) in made {
        tar.add(name, text.as_bytes());
    }
    // Check first, so that a hanging mount does not block.
    if path_access::exists(run_dir) {
        gather(run_dir, &mut tar);
    }
    let files = tar.files;
    let packed = compress_to_vec(tar.end().as_slice(), CompressionLevel::Fastest);
    let written = out.write_all(&packed).and_then(|()| out.sync_all());
    written.map_err(failed)?;
    Ok((files, packed.len()))
}

/// Adds journals, specifications, evidence (including the ends of outputs) and launches.
fn gather(run_dir: &Utf8Path, tar: &mut Tar) {
    for (dir, limit) in [("journal", JOURNAL), ("spec", FILE)] {
        for path in files(&run_dir.join(dir)) {
            add(run_dir, &path, limit, tar);
        }
    }
    let mut attempts: Vec<Utf8PathBuf> = entries(&run_dir.join("attempts")).collect();
    attempts.sort();
    for dir in attempts.iter().rev().take(ATTEMPTS) {
        let both = files(dir).into_iter().chain(files(&dir.join("evidence")));
        for path in both.filter(|path| !is_of_worker(path)) {
            add(run_dir, &path, FILE, tar);
        }
    }
}

/// Returns true for files that a worker wrote: its output, torch's error report, the flight recorder.
fn is_of_worker(path: &Utf8Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    ["worker-", "error-", "nccl_trace"]
        .iter()
        .any(|of| name.starts_with(of))
}

fn add(run_dir: &Utf8Path, path: &Utf8Path, limit: u64, tar: &mut Tar) {
    let name = path.strip_prefix(run_dir).unwrap_or(path).as_str();
    // Secrets in memory dumps and other binary files cannot be found.
    if let Ok(text) = end(path, limit) {
        let text: String = redact_lines(text.lines())
            .iter()
            .map(|line| format!("{line}\n"))
            .collect();
        tar.add(name, text.as_bytes());
    }
}

fn end(path: &Utf8Path, limit: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let from = file.metadata()?.len().saturating_sub(limit);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    if bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // The first line may be the end of one, and of a secret.
    let begin = match bytes.iter().position(|b| *b == b'\n') {
        Some(at) if from > 0 => at + 1,
        _ => 0,
    };
    Ok(String::from_utf8_lossy(bytes.get(begin..).unwrap_or_default()).into_owned())
}

fn files(dir: &Utf8Path) -> Vec<Utf8PathBuf> {
    let mut found: Vec<Utf8PathBuf> = entries(dir)
        .filter(|path| path.symlink_metadata().is_ok_and(|m| m.is_file()))
        .collect();
    found.sort();
    found
}

fn entries(dir: &Utf8Path) -> impl Iterator<Item = Utf8PathBuf> {
    let all = dir.read_dir_utf8().ok().into_iter().flatten().flatten();
    all.take(ENTRIES).map(camino::Utf8DirEntry::into_path)
}

/// An archive in the POSIX ustar format.
#[derive(Default)]
struct Tar {
    bytes: Vec<u8>,
    files: usize,
}

impl Tar {
    fn add(&mut self, name: &str, content: &[u8]) {
        let name = name.as_bytes();
        if name.len() > 100 || self.bytes.len().saturating_add(content.len()) > ALL {
            return;
        }
        let mut head = [0_u8; BLOCK];
        let mut put = |at: usize, field: &[u8]| {
            if let Some(to) = head.get_mut(at..at + field.len()) {
                to.copy_from_slice(field);
            }
        };
        put(0, name);
        put(100, b"0000600\0");
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", content.len()).as_bytes());
        put(136, b"00000000000\0");
        // The checksum field itself counts as blanks.
        put(148, b"        ");
        put(156, b"0");
        put(257, b"ustar\x0000");
        let sum: u32 = head.iter().map(|b| u32::from(*b)).sum();
        if let Some(to) = head.get_mut(148..156) {
            to.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(content);
        self.pad();
        self.files += 1;
    }

    fn pad(&mut self) {
        let over = self.bytes.len() % BLOCK;
        if over > 0 {
            self.bytes.resize(self.bytes.len() + BLOCK - over, 0);
        }
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_bundle_holds_what_is_there_without_secrets_and_is_never_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        let run = dir.join("run");
        for (name, text) in [
            ("journal/1.jsonl", "{\"why\":\"401 for hf_abcdefghijklmnopqrstuvwx\"}\n"),
            ("attempts/0001/tree", "export API_KEY=abcdef0123456789\n"),
            ("attempts/0001/worker-0.log", "a value of no form\n"),
            ("attempts/0001/worker-0.log.1", "a value of no form\n"),
            ("attempts/0001/evidence/error-0.json", "\"a value of no form\"\n"),
            ("attempts/0001/evidence/tail-0.log", "step 1\n"),
            ("attempts/0001/evidence/kernel.txt", "nothing\n"),
            ("attempts/0001/evidence/nccl_trace_rank_0", "a\0b"),
        ] {
            let path = run.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let to = dir.join("b.tar.zst");
        let (files, _) = write(&to, &run, &[("explain.json", "{}".to_owned())]).unwrap();
        assert_eq!(files, 5);
        assert_eq!(std::fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
        let packed = std::fs::read(&to).unwrap();
        let mut plain = Vec::new();
        let mut reader = ruzstd::decoding::StreamingDecoder::new(packed.as_slice()).unwrap();
        reader.read_to_end(&mut plain).unwrap();
        let text = String::from_utf8_lossy(&plain);
        assert!(
            text.contains("journal/1.jsonl") && text.contains("explain.json") && text.contains("evidence/tail-0.log"),
            "{text}"
        );
        assert!(!text.contains("of no form") && !text.contains("worker-0.log"), "{text}");
        assert!(!text.contains("hf_abc") && !text.contains("abcdef0123456789"), "{text}");
        assert!(plain.len().is_multiple_of(BLOCK));
        assert!(write(&to, &run, &[]).unwrap_err().message.contains("not overwritten"));
        assert!(
            write(&dir.join("b.zip"), &run, &[])
                .unwrap_err()
                .message
                .contains("tar and zstd")
        );
    }
}
