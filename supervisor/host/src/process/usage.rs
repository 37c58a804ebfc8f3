//! How much of their limits the workers use: memory of their cgroup if it has a limit, of the machine, `/dev/shm`,
//! open files.

use super::cgroup::memory_group;
use super::stat::proc_stat;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use supervise_core::observe::creep::{ResourceUsage, WatchedResource};

const SHORT: u64 = 64 << 10;
/// A limit beyond this means none.
const NONE: u64 = 1 << 60;

/// Resource usage as this process of the attempt sees it. Reads only `/proc`, cgroupfs and `/dev/shm`. `ray`: the
/// fraction of memory beyond which Ray kills its workers.
#[must_use]
pub fn usage(pid: i32, ray: Option<f64>) -> Vec<ResourceUsage> {
    let group = memory_group(pid).and_then(|(dir, top)| of_group(&dir, &top));
    let node = read(Path::new("/proc/meminfo")).and_then(|text| of_node(&text));
    let shm = nix::sys::statvfs::statvfs("/dev/shm").ok().map(|s| {
        let block: u64 = s.fragment_size();
        let (size, free) = (
            s.blocks().saturating_mul(block),
            s.blocks_available().saturating_mul(block),
        );
        ResourceUsage {
            what: WatchedResource::Shm,
            used: size.saturating_sub(free),
            of: size,
        }
    });
    let ray = ray.and_then(|share| of_ray(share, group, node));
    [group, node, ray, shm].into_iter().flatten().collect()
}

/// Ray uses the cgroup's limit if that is lower, otherwise the machine's memory.
fn of_ray(share: f64, group: Option<ResourceUsage>, node: Option<ResourceUsage>) -> Option<ResourceUsage> {
    let counted = group.into_iter().chain(node).min_by_key(|u| u.of)?;
    Some(ResourceUsage {
        what: WatchedResource::Ray,
        used: counted.used,
        of: (counted.of as f64 * share) as u64,
    })
}

pub(crate) fn open_files(pids: impl Iterator<Item = i32>) -> Option<ResourceUsage> {
    let all = pids.filter_map(|pid| {
        let limits = read(&PathBuf::from(format!("/proc/{pid}/limits")))?;
        let of = limits.lines().find_map(|l| l.strip_prefix("Max open files"))?;
        Some(ResourceUsage {
            what: WatchedResource::Files,
            used: files_of(pid)?,
            of: of.split_ascii_whitespace().next()?.parse().ok()?,
        })
    });
    all.filter(|u| u.of > 0)
        .max_by(|a, b| (a.used as f64 / a.of as f64).total_cmp(&(b.used as f64 / b.of as f64)))
}

/// Since Linux 6.2, the directory's size is the number of files.
fn files_of(pid: i32) -> Option<u64> {
    let dir = format!("/proc/{pid}/fd");
    match std::fs::metadata(&dir).ok()?.len() {
        0 => Some(std::fs::read_dir(&dir).ok()?.count() as u64),
        size => Some(size),
    }
}

/// Signs of progress of a process: bytes read and written, and CPU time in clock ticks. None of them changes while it
/// waits for a file system. `None`: there is no such process.
#[must_use]
pub fn headway(pid: i32) -> Option<(u64, u64)> {
    let stat = proc_stat(pid)?;
    let io = read(&PathBuf::from(format!("/proc/{pid}/io"))).unwrap_or_default();
    let of = |name: &str| {
        let rest = io.lines().find_map(|l| l.strip_prefix(name))?;
        rest.trim().parse::<u64>().ok()
    };
    let bytes = ["rchar:", "wchar:"]
        .into_iter()
        .filter_map(of)
        .fold(0, u64::saturating_add);
    Some((bytes, stat.cpu))
}

/// The nearest group with a limit, without memory that the kernel can reclaim.
fn of_group(dir: &Path, top: &Path) -> Option<ResourceUsage> {
    let number = |path: PathBuf| read(&path)?.trim().parse::<u64>().ok();
    let dirs = dir.ancestors().take_while(|d| d.starts_with(top));
    dirs.into_iter().find_map(|dir| {
        let limit = number(dir.join("memory.max")).or_else(|| number(dir.join("memory.limit_in_bytes")));
        let of = limit.filter(|n| *n < NONE)?;
        let all = number(dir.join("memory.current")).or_else(|| number(dir.join("memory.usage_in_bytes")))?;
        let stat = read(&dir.join("memory.stat")).unwrap_or_default();
        let of_stat = |name: &str| {
            let rest = stat.lines().find_map(|l| l.strip_prefix(name))?;
            rest.trim().parse::<u64>().ok()
        };
        let cache = of_stat("total_inactive_file ").or_else(|| of_stat("inactive_file "));
        Some(ResourceUsage {
            what: WatchedResource::Memory,
            used: all.saturating_sub(cache.unwrap_or_default()),
            of,
        })
    })
}

fn of_node(meminfo: &str) -> Option<ResourceUsage> {
    let of = |name: &str| {
        let rest = meminfo.lines().find_map(|l| l.strip_prefix(name))?;
        let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    let (all, free) = (of("MemTotal:")?, of("MemAvailable:")?);
    Some(ResourceUsage {
        what: WatchedResource::Node,
        used: all.saturating_sub(free),
        of: all,
    })
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(SHORT).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_limit_counts_and_no_cache() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("a/b/memory.max", "max\n");
        write("a/memory.max", "1000\n");
        write("a/memory.current", "600\n");
        write("a/memory.stat", "anon 5\ninactive_file 100\n");
        let found = of_group(&inner, dir.path()).unwrap();
        assert_eq!((found.used, found.of), (500, 1000));
        write("a/memory.max", "max\n");
        assert_eq!(of_group(&inner, dir.path()), None);
    }

    #[test]
    fn this_machine_has_memory() {
        let all = usage(super::super::own_ref().pid, Some(0.95));
        let node = all.iter().find(|u| u.what == WatchedResource::Node).unwrap();
        assert!(node.used > 0 && node.used < node.of);
        let ray = all.iter().find(|u| u.what == WatchedResource::Ray).unwrap();
        assert!(ray.of < node.of);
    }

    #[test]
    fn ray_counts_by_the_lower_limit() {
        let of = |what, used, of| Some(ResourceUsage { what, used, of });
        let node = of(WatchedResource::Node, 500, 2000);
        assert_eq!(
            of_ray(0.95, of(WatchedResource::Memory, 300, 1000), node),
            of(WatchedResource::Ray, 300, 950)
        );
        assert_eq!(of_ray(0.5, None, node), of(WatchedResource::Ray, 500, 1000));
        assert_eq!(of_ray(0.95, None, None), None);
    }

    #[test]
    fn open_files_are_counted_against_the_soft_limit() {
        let piped = std::process::Stdio::piped();
        let mut child = std::process::Command::new("cat").stdin(piped).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let found = open_files([pid, i32::MAX].into_iter()).unwrap();
        // Includes what it inherited from this process.
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(
            open >= 3 && found.used == open as u64 && found.of > found.used,
            "{found:?}, {open}"
        );
        assert_eq!(open_files(std::iter::empty()), None);
    }

    #[test]
    fn a_process_that_waits_gets_on_with_nothing() {
        let piped = || std::process::Stdio::piped();
        let mut child = std::process::Command::new("cat");
        let mut child = child.stdin(piped()).stdout(piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut echo = |text: &[u8]| {
            use std::io::Write;
            input.write_all(text).unwrap();
            let mut back = vec![0; text.len()];
            child.stdout.as_mut().unwrap().read_exact(&mut back).unwrap();
        };
        echo(b"begun");
        let before = headway(pid).unwrap();
        echo(&[b'x'; 3000]);
        let after = headway(pid).unwrap();
        assert!(after.0 >= before.0 + 6000, "{before:?} {after:?}");
        drop(input);
        child.wait().unwrap();
        assert_eq!(headway(pid), None);
    }
}
