//! Memory and free disk space.

use crate::hidden_places::HiddenLog;
use crate::process::cgroup::memory_events;
use camino::Utf8Path;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(2);
const SHORT: u64 = 64 << 10;
/// Files about memory of a cgroup, for both versions.
const COUNTERS: [&str; 9] = [
    "memory.current",
    "memory.peak",
    "memory.max",
    "memory.events",
    "memory.swap.current",
    "memory.usage_in_bytes",
    "memory.max_usage_in_bytes",
    "memory.limit_in_bytes",
    "memory.oom_control",
];

#[derive(Debug, Default)]
pub(super) struct MemoryReport {
    /// Free and total bytes of `/dev/shm`.
    pub(super) shm: Option<(u64, u64)>,
    pub(super) disk: Option<(u64, u64)>,
    pub(super) memory: Option<(u64, u64)>,
    parts: Vec<(String, String)>,
}

pub(super) fn look(root: Option<&Utf8Path>) -> MemoryReport {
    let mut room = MemoryReport::default();
    let meminfo = short(Path::new("/proc/meminfo")).unwrap_or_default();
    room.memory = memory(&meminfo);
    if let Some(dir) = memory_events().as_deref().and_then(Path::parent) {
        for name in COUNTERS {
            if let Some(text) = short(&dir.join(name)) {
                room.parts.push((dir.join(name).display().to_string(), text));
            }
        }
    }
    room.parts.push(("/proc/meminfo".to_owned(), meminfo));
    room.shm = space("/dev/shm".into());
    room.disk = root.and_then(|root| space(root.as_str().to_owned()));
    let words = |what: &str, room: Option<(u64, u64)>| match room {
        Some((free, size)) => format!("{what}: {free} bytes free of {size}\n"),
        None => format!("{what}: it did not tell\n"),
    };
    let mut spaces = words("/dev/shm", room.shm);
    if let Some(root) = root {
        spaces.push_str(&words(root.as_str(), room.disk));
    }
    room.parts.push(("room".to_owned(), spaces));
    room
}

impl MemoryReport {
    pub(super) fn text(&self) -> String {
        let part = |(name, text): &(String, String)| format!("# {name}\n{}\n\n", text.trim_end());
        self.parts.iter().map(part).collect()
    }
}

fn short(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(SHORT).read_to_string(&mut text).ok()?;
    Some(text)
}

/// `MemAvailable` and `MemTotal`, in bytes.
fn memory(meminfo: &str) -> Option<(u64, u64)> {
    let of = |name: &str| {
        let rest = meminfo.lines().find_map(|l| l.strip_prefix(name))?;
        let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    Some((of("MemAvailable:")?, of("MemTotal:")?))
}

/// Free and total bytes of a file system; `None` if it does not answer in time.
fn space(path: String) -> Option<(u64, u64)> {
    let (tx, rx) = mpsc::channel();
    let look = move || {
        let found = nix::sys::statvfs::statvfs(path.as_str()).ok().map(|s| {
            let block: u64 = s.fragment_size();
            (
                s.blocks_available().saturating_mul(block),
                s.blocks().saturating_mul(block),
            )
        });
        // The receiver may be gone.
        let _ = tx.send(found);
    };
    // A hanging thread ends with this helper.
    std::thread::Builder::new().spawn(look).ok()?;
    rx.recv_timeout(PATIENCE).ok().flatten()
}

/// The end of a text file, for other modules here.
pub(super) fn tail_of(path: &Utf8Path, bytes: u64) -> Option<(String, std::time::SystemTime)> {
    let mut log = HiddenLog::open(path).ok()?;
    let meta = log.file().metadata().ok()?;
    let from = meta.len().saturating_sub(bytes);
    log.seek(from).ok()?;
    let mut text = Vec::new();
    // `***` may be longer than what it hides.
    log.take(bytes.saturating_mul(3)).read_to_end(&mut text).ok()?;
    // The first line may be incomplete.
    let begin = match text.iter().position(|b| *b == b'\n') {
        Some(at) if from > 0 => at + 1,
        _ => 0,
    };
    let text = String::from_utf8_lossy(text.get(begin..).unwrap_or_default()).into_owned();
    Some((text, meta.modified().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_room_are_told() {
        let text = "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    400 kB\n";
        assert_eq!(memory(text), Some((400 * 1024, 1000 * 1024)));
        assert_eq!(memory("MemTotal: x kB"), None);
        let room = look(Some(Utf8Path::new("/")));
        assert!(room.disk.is_some_and(|(free, size)| free <= size), "{room:?}");
        assert!(room.text().contains("# /proc/meminfo"));
        assert!(space("/no/such/place".to_owned()).is_none());
    }
}
