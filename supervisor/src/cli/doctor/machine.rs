//! Checks the machine: memory, processors, kernel, cgroups, watches, file systems.

use super::{Check, Health};
use crate::render::bytes;
use crate::render::plan::OPEN_CASE;
use camino::Utf8Path;
use supervise_host::process::cgroup::CgroupLeaf;
use supervise_host::system::{FsSpace, fs_magic, kernel_release, space};
use sysinfo::System;

/// Minimum of shared memory, in bytes, for PyTorch's data loaders and NCCL.
const SHM: u64 = 1 << 30;
/// One watch for each directory of a checkpoint root.
const WATCHES: u64 = 8192;

pub(super) fn checks() -> Vec<Check> {
    vec![memory(), processors(), shm(), kernel(), cgroup(), inotify(), gpus()]
}

fn memory() -> Check {
    let Ok(mut system) = System::new() else {
        return Check::new("memory", Health::Note, "it cannot be read on this system");
    };
    system.refresh_memory();
    let limit = system
        .cgroup_limits()
        .map(|l| l.total_memory)
        .filter(|t| *t > 0 && *t < system.total_memory());
    let text = match limit {
        Some(limit) => format!(
            "{} of {} free; this control group may use {}",
            bytes(system.available_memory()),
            bytes(system.total_memory()),
            bytes(limit)
        ),
        None => format!(
            "{} of {} free",
            bytes(system.available_memory()),
            bytes(system.total_memory())
        ),
    };
    let tight = system.available_memory().saturating_mul(10) < system.total_memory();
    Check::new("memory", if tight { Health::Warning } else { Health::Ok }, text)
}

fn processors() -> Check {
    match std::thread::available_parallelism() {
        Ok(n) => Check::new("processors", Health::Ok, n.to_string()),
        Err(e) => Check::new("processors", Health::Note, format!("cannot be counted: {e}")),
    }
}

fn shm() -> Check {
    match space(Utf8Path::new("/dev/shm")) {
        Ok(FsSpace { size, free, .. }) => {
            let text = format!("{} of {} free", bytes(free), bytes(size));
            if size < SHM {
                let more = "; data loaders and NCCL need more (docker run --shm-size=16g)";
                return Check::new("/dev/shm", Health::Warning, text + more);
            }
            Check::new("/dev/shm", Health::Ok, text)
        }
        Err(e) => Check::new("/dev/shm", Health::Warning, format!("not usable: {e}")),
    }
}

/// The guard needs pidfd, pidfd polling and `close_range`, which newer kernels have.
fn kernel() -> Check {
    let Some(release) = kernel_release() else {
        return Check::new("kernel", Health::Note, "its version cannot be read");
    };
    let mut parts = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|p| p.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if version < (5, 9) {
        return Check::new(
            "kernel",
            Health::Warning,
            format!("{release} is older than 5.9: pidfd or close_range is missing"),
        );
    }
    let kill = if version >= (5, 14) {
        ""
    } else {
        "; cgroup.kill came with 5.14, trees are killed process by process"
    };
    Check::new("kernel", Health::Ok, format!("{release}: pidfd, close_range{kill}"))
}

fn cgroup() -> Check {
    match CgroupLeaf::create(&format!("supervise-doctor-{}", std::process::id())) {
        Ok(leaf) => {
            leaf.remove();
            Check::new(
                "cgroup",
                Health::Ok,
                "a group of our own can be made: trees are killed as one",
            )
        }
        Err(e) => Check::new(
            "cgroup",
            Health::Note,
            format!("no group of our own ({e}): trees are killed by repeated sweeps; {OPEN_CASE}"),
        ),
    }
}

fn inotify() -> Check {
    let read = |name: &str| -> Option<u64> {
        std::fs::read_to_string(format!("/proc/sys/fs/inotify/{name}"))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let (Some(watches), Some(instances)) = (read("max_user_watches"), read("max_user_instances")) else {
        return Check::new(
            "inotify",
            Health::Note,
            "its limits cannot be read: checkpoints are looked for at intervals",
        );
    };
    let health = if watches < WATCHES || instances < 16 {
        Health::Note
    } else {
        Health::Ok
    };
    Check::new(
        "inotify",
        health,
        format!("{watches} watches, {instances} instances per user"),
    )
}

fn gpus() -> Check {
    let count = (0..64)
        .filter(|n| std::path::Path::new(&format!("/dev/nvidia{n}")).exists())
        .count();
    match count {
        0 => Check::new("GPUs", Health::Note, "no /dev/nvidia0"),
        n => Check::new("GPUs", Health::Ok, n.to_string()),
    }
}

/// File systems on which remote changes cause no notifications.
fn is_remote(kind: i64) -> Option<&'static str> {
    Some(match kind {
        0x6969 => "NFS",
        0x0bd0_0bd0 => "Lustre",
        0x6573_5546 => "FUSE",
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => "SMB",
        0x0102_1997 => "9p",
        0x00c3_6400 => "Ceph",
        0x4750_4653 | 0x4747_5053 => "GPFS",
        0x1983_0326 => "BeeGFS",
        0x0187 => "autofs",
        _ => return None,
    })
}

/// The file system of the checkpoint root: type, space, change notifications.
pub(super) fn file_system(place: &Utf8Path) -> Check {
    let here = place.ancestors().find(|p| p.exists()).unwrap_or(place);
    let (Ok(kind), Ok(FsSpace { free, .. })) = (fs_magic(here), space(here)) else {
        return Check::new(
            "checkpoints",
            Health::Warning,
            format!("{here}: its file system does not tell what it is"),
        );
    };
    let (health, told) = match is_remote(kind) {
        Some(name) => (
            Health::Note,
            format!("{name}: changes made on other machines are not told, checkpoints are looked for at intervals"),
        ),
        None => (Health::Ok, "local: changes are told at once".to_owned()),
    };
    Check::new("checkpoints", health, format!("{place}: {told}; {} free", bytes(free)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described_in_full() {
        let found = checks();
        assert_eq!(found.len(), 7);
        assert!(found.iter().all(|c| !c.text.is_empty()));
    }

    #[test]
    fn remote_file_systems_are_known() {
        assert_eq!(is_remote(0x6969), Some("NFS"));
        assert_eq!(is_remote(0xef53), None);
        let here = file_system(Utf8Path::new("/proc/no/such"));
        assert!(here.text.starts_with("/proc/no/such: "), "{}", here.text);
    }
}
