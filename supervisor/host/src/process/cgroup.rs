//! The attempt's own cgroup v2 leaf, if the system allows one.
//!
//! With a leaf below our own cgroup, killing a tree is one write without races with forks, and freezing and CPU
//! accounting are exact. It needs root or a delegated subtree; if any step fails, the caller continues without it.

use crate::ownership::OwnIds;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use supervise_core::id::RunId;

/// Nesting that is followed below a leaf: workers rarely create cgroups.
const DEPTH_LIMIT: usize = 8;

const SEARCH_LIMIT: usize = 20_000;

const LIST_LIMIT: u64 = 1 << 20;

/// A cgroup that only holds the workers of one attempt.
#[derive(Debug)]
pub struct CgroupLeaf {
    dir: PathBuf,
}

impl CgroupLeaf {
    /// Creates the leaf `name` below this process's own cgroup.
    ///
    /// # Errors
    /// There is no cgroup v2, or we may not write there.
    pub fn create(name: &str) -> io::Result<Self> {
        let own = own_dir().ok_or(io::ErrorKind::Unsupported)?;
        let dir = own.join(name);
        match fs::create_dir(&dir) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                // Left by a killed guard: rmdir only succeeds if it is empty.
                fs::remove_dir(&dir)?;
                fs::create_dir(&dir)?;
            }
            Err(e) => return Err(e),
        }
        let leaf = Self { dir };
        // A kernel without cgroup.kill (before 5.14) is no better than sweeping.
        leaf.open("cgroup.kill").inspect_err(|_| leaf.remove())?;
        Ok(leaf)
    }

    /// Checks whether a leaf can be created, without creating it.
    ///
    /// # Errors
    /// There is no cgroup v2 with `cgroup.kill`, or we may not write there.
    pub fn could_be_made() -> io::Result<()> {
        let own = own_dir().ok_or(io::ErrorKind::Unsupported)?;
        nix::unistd::access(&own, nix::unistd::AccessFlags::W_OK)?;
        // Only the root cgroup lacks this file.
        let is_top = mount().is_some_and(|top| top == own.components().as_path());
        match is_top || own.join("cgroup.kill").exists() {
            true => Ok(()),
            false => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The open directory, for starting processes in it.
    ///
    /// # Errors
    /// It was removed.
    pub fn directory(&self) -> io::Result<File> {
        File::open(&self.dir)
    }

    /// The file through which processes join the cgroup.
    ///
    /// # Errors
    /// We may not move processes there.
    pub fn entrance(&self) -> io::Result<File> {
        self.open("cgroup.procs")
    }

    /// Kills everything in it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn kill(&self) -> io::Result<()> {
        self.write("cgroup.kill", "1")
    }

    /// Freezes or thaws everything in it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn freeze(&self, frozen: bool) -> io::Result<()> {
        self.write("cgroup.freeze", if frozen { "1" } else { "0" })
    }

    /// CPU time of all processes that were ever in it, in milliseconds.
    #[must_use]
    pub fn cpu_ms(&self) -> Option<u64> {
        let text = read(&self.dir.join("cpu.stat")).ok()?;
        let line = text.lines().find_map(|l| l.strip_prefix("usage_usec "))?;
        Some(line.trim().parse::<u64>().ok()? / 1000)
    }

    /// The processes in it and below it.
    #[must_use]
    pub fn members(&self) -> BTreeSet<i32> {
        let mut found = BTreeSet::new();
        collect(&self.dir, 0, &mut found);
        found
    }

    pub(crate) fn existing(name: &str) -> Option<Self> {
        let dir = own_dir()?.join(name);
        dir.is_dir().then_some(Self { dir })
    }

    /// Removes it; does nothing while it is not empty.
    pub fn remove(&self) {
        remove_below(&self.dir, 0);
    }

    fn open(&self, file: &str) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.dir.join(file))
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        self.open(file)?.write_all(text.as_bytes())
    }
}

/// The name of an attempt's leaf.
#[must_use]
pub fn leaf_name(run: &RunId, term: u32, attempt: u32) -> String {
    format!("{}{term}-{attempt}", leaf_prefix(run))
}

fn leaf_prefix(run: &RunId) -> String {
    format!("supervise-{run}-")
}

/// The leaves of a run, wherever they were created: a new login or a new service has another cgroup than the last
/// one.
#[must_use]
pub fn leaves_of_run(run: &RunId) -> Vec<CgroupLeaf> {
    let mut found = Vec::new();
    if let Some(top) = mount() {
        search(&top, &leaf_prefix(run), &mut found);
    }
    found
}

pub(crate) fn members_of_run(run: &RunId) -> BTreeSet<i32> {
    leaves_of_run(run).iter().flat_map(CgroupLeaf::members).collect()
}

/// Searches everything below a cgroup, level by level, so that the upper levels come first if there are too many.
fn search(top: &Path, prefix: &str, found: &mut Vec<CgroupLeaf>) {
    let mut open = std::collections::VecDeque::from([top.to_owned()]);
    for _ in 0..SEARCH_LIMIT {
        let Some(dir) = open.pop_front() else { return };
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|t| t.is_dir()) {
                continue;
            }
            let dir = entry.path();
            match entry.file_name().to_string_lossy().starts_with(prefix) {
                // A leaf created by another user holds that user's processes, whatever its name.
                true if !is_ours(&entry) => {}
                true => found.push(CgroupLeaf { dir }),
                false => open.push_back(dir),
            }
        }
    }
}

fn is_ours(entry: &fs::DirEntry) -> bool {
    entry.metadata().is_ok_and(|m| OwnIds::here().trusts(m.uid()))
}

fn collect(dir: &Path, depth: usize, found: &mut BTreeSet<i32>) {
    if let Ok(text) = read(&dir.join("cgroup.procs")) {
        found.extend(text.lines().filter_map(|l| l.parse::<i32>().ok()));
    }
    for below in below(dir, depth) {
        collect(&below, depth + 1, found);
    }
}

fn remove_below(dir: &Path, depth: usize) {
    for below in below(dir, depth) {
        remove_below(&below, depth + 1);
    }
    // Refused while populated: then it stays, and is found by its name.
    let _ = fs::remove_dir(dir);
}

fn below(dir: &Path, depth: usize) -> Vec<PathBuf> {
    if depth >= DEPTH_LIMIT {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
        .map(|e| e.path())
        .collect()
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LIST_LIMIT).read_to_string(&mut text)?;
    Ok(text)
}

fn own_dir() -> Option<PathBuf> {
    let mounts = read(Path::new("/proc/self/mountinfo")).ok()?;
    let own = read(Path::new("/proc/self/cgroup")).ok()?;
    locate(&mounts, &own)
}

/// The topmost visible cgroup v2 directory.
fn mount() -> Option<PathBuf> {
    let mounts = read(Path::new("/proc/self/mountinfo")).ok()?;
    mounted(&mounts, is_second)
        .next()
        .map(|(_, point)| Path::new(point).components().collect())
}

/// The cgroup that counts a process's memory, of either version, and the topmost visible directory of its hierarchy.
pub(crate) fn memory_group(pid: i32) -> Option<(PathBuf, PathBuf)> {
    let mounts = read(Path::new("/proc/self/mountinfo")).ok()?;
    let own = read(format!("/proc/{pid}/cgroup").as_ref()).ok()?;
    let first = own.lines().find_map(|l| {
        let (controllers, path) = l.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|c| c == "memory").then_some(path)
    });
    let is_first = |kind: &str, options: &str| kind == "cgroup" && has(options, "memory");
    let found = match first {
        Some(path) => (place(&mounts, path, is_first)?, mounted(&mounts, is_first).next()?.1),
        None => (locate(&mounts, &own)?, mounted(&mounts, is_second).next()?.1),
    };
    Some((found.0, PathBuf::from(found.1)))
}

/// The file in which the kernel counts OOM kills in our own cgroup, of either version.
pub(crate) fn memory_events() -> Option<PathBuf> {
    let mounts = read(Path::new("/proc/self/mountinfo")).ok()?;
    let own = read(Path::new("/proc/self/cgroup")).ok()?;
    let first = own.lines().find_map(|l| {
        let (controllers, path) = l.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|c| c == "memory").then_some(path)
    });
    let first = first.and_then(|path| {
        place(&mounts, path, |kind, options| {
            kind == "cgroup" && has(options, "memory")
        })
    });
    if let Some(file) = first.map(|dir| dir.join("memory.oom_control")).filter(|f| f.is_file()) {
        return Some(file);
    }
    // If the controller is off for a group, its parent counts for it; the root counts nothing.
    let second = locate(&mounts, &own)?;
    let mut above = second.ancestors().map(|dir| dir.join("memory.events"));
    above.find(|file| file.is_file())
}

fn has(options: &str, name: &str) -> bool {
    options.split(',').any(|o| o == name)
}

fn locate(mounts: &str, own: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|l| l.strip_prefix("0::"))?;
    place(mounts, path, is_second)
}

fn is_second(kind: &str, _: &str) -> bool {
    kind == "cgroup2"
}

/// Directory of a group in the hierarchy that `is` selects by type and options.
fn place(mounts: &str, path: &str, is: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    if path.split('/').any(|part| part == "..") {
        return None;
    }
    mounted(mounts, is).find_map(|(root, point)| {
        let below = Path::new(path).strip_prefix(root).ok()?;
        Some(Path::new(point).join(below))
    })
}

/// The mounts of a hierarchy: mounted path and mount point.
fn mounted(mounts: &str, is: impl Fn(&str, &str) -> bool) -> impl Iterator<Item = (&str, &str)> {
    mounts.lines().filter_map(move |line| {
        let (head, tail) = line.split_once(" - ")?;
        let mut of = tail.split(' ');
        let (kind, options) = (of.next()?, of.nth(1).unwrap_or_default());
        if !is(kind, options) {
            return None;
        }
        let mut fields = head.split(' ').skip(3);
        Some((fields.next()?, fields.next()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_own_directory_is_found_on_a_hybrid_machine() {
        let own = "9:name=systemd:/\n0::/user.slice/a.scope\n";
        let found = locate(HYBRID, own).unwrap();
        assert_eq!(found, Path::new("/sys/fs/cgroup/unified/user.slice/a.scope"));
        let root = locate(HYBRID, "0::/\n").unwrap();
        assert_eq!(root, Path::new("/sys/fs/cgroup/unified/"));
    }

    #[test]
    fn a_hierarchy_of_version_one_is_told_by_its_options() {
        let of = |name: &'static str| {
            place(HYBRID, "/a/b", move |kind, options| {
                kind == "cgroup" && has(options, name)
            })
        };
        assert_eq!(of("cpu").unwrap(), Path::new("/sys/fs/cgroup/cpu/a/b"));
        assert_eq!(of("memory"), None);
    }

    #[test]
    fn a_mount_of_a_part_shortens_the_path() {
        let mounts = "41 31 0:38 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        let found = locate(mounts, "0::/docker/x/y\n").unwrap();
        assert_eq!(found, Path::new("/sys/fs/cgroup/y"));
        assert_eq!(locate(mounts, "0::/elsewhere\n"), None);
    }

    #[test]
    fn the_leaves_of_a_run_are_found_wherever_they_stand() {
        let base = tempfile::tempdir().unwrap();
        let run = RunId("ab".into());
        let (own, other) = (leaf_name(&run, 1, 2), leaf_name(&RunId("abc".into()), 1, 2));
        for dir in [format!("user.slice/s1/{own}/deeper"), format!("system.slice/{other}")] {
            fs::create_dir_all(base.path().join(dir)).unwrap();
        }
        let mut found = Vec::new();
        search(base.path(), &leaf_prefix(&run), &mut found);
        let dirs: Vec<PathBuf> = found.iter().map(|l| l.dir.clone()).collect();
        assert_eq!(dirs, [base.path().join("user.slice/s1").join(own)]);
        found[0].remove();
        assert!(!dirs[0].exists());
    }

    #[test]
    fn a_cgroup_outside_our_namespace_or_version_one_is_none() {
        assert_eq!(locate(HYBRID, "0::/../x\n"), None);
        assert_eq!(locate(HYBRID, "4:memory:/x\n"), None);
        assert_eq!(locate("", "0::/\n"), None);
    }
}
