//! Kind of the file system under a path: whether it reports changes made elsewhere, and how precise its clock is.

use camino::Utf8Path;
use rustix::fs::statfs;
use std::time::{SystemTime, UNIX_EPOCH};
use supervise_core::checkpoint::FileFact;

/// If set to `poll`, changes are polled for instead of watched.
const FORCE: &str = "SUPERVISE_WATCH";
/// File systems that do not report changes made on other machines, by magic number.
const UNTOLD: &[(u32, &str)] = &[
    (0x6969, "nfs"),
    (0x0BD0_0BD0, "lustre"),
    (0x6573_5546, "fuse"),
    (0x4750_4653, "gpfs"),
    (0x1983_0326, "beegfs"),
    (0xFF53_4D42, "cifs"),
    (0xFE53_4D42, "smb"),
    (0x517B, "smb"),
    (0x0102_1997, "9p"),
    (0x5346_414F, "afs"),
    (0x6B41_4653, "afs"),
    (0x00C3_6400, "ceph"),
    (0x7461_636F, "ocfs2"),
    (0x0116_1970, "gfs2"),
    (0xAAD7_AAEA, "panfs"),
    (0x2003_0528, "orangefs"),
    (0x7375_7245, "coda"),
];
/// Two writes within this time may carry the same timestamp: two ticks of a slow kernel. In nanoseconds.
const TICK: i64 = 20_000_000;
/// The same if the clock may be coarse, or is another machine's. In nanoseconds.
const COARSE: i64 = 2_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FsKind {
    /// The file system's name, if it does not report changes made elsewhere.
    pub(super) untold: Option<&'static str>,
}

impl FsKind {
    pub(super) fn of(root: &Utf8Path) -> Self {
        if std::env::var_os(FORCE).is_some_and(|v| v == "poll") {
            return Self {
                untold: Some("listening is switched off"),
            };
        }
        // If the root cannot be queried, polling is always correct.
        let untold = match statfs(root.as_std_path()) {
            Ok(fs) => named(fs.f_type as u32),
            Err(_) => Some("unknown"),
        };
        Self { untold }
    }

    /// The same for a root that may not exist yet, from its nearest existing ancestor.
    pub(super) fn near(root: &Utf8Path) -> Self {
        let there = root
            .ancestors()
            .find(|dir| !matches!(statfs(dir.as_std_path()), Err(rustix::io::Errno::NOENT)));
        Self::of(there.unwrap_or(root))
    }

    pub(super) fn clock(self) -> FsClock {
        FsClock {
            fine: self.untold.is_none(),
        }
    }
}

/// Returns true if the file system under a path may give what we create there to another user. Local ones do not.
pub(super) fn maps_users(path: &Utf8Path) -> bool {
    statfs(path.as_std_path()).is_ok_and(|fs| named(fs.f_type as u32).is_some())
}

fn named(magic: u32) -> Option<&'static str> {
    UNTOLD.iter().find(|(m, _)| *m == magic).map(|(_, name)| *name)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FsClock {
    fine: bool,
}

impl FsClock {
    #[expect(clippy::unused_self, reason = "one clock is as good as the other for this")]
    pub(super) fn now(self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |d| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX))
    }

    /// How long after its last change a file must be read, so that any later write shows in its timestamps.
    pub(super) fn margin(self, fact: &FileFact) -> i64 {
        let whole = |t: i64| t % 1_000_000_000 == 0;
        match self.fine && !(whole(fact.mtime) && whole(fact.ctime)) {
            true => TICK,
            false => COARSE,
        }
    }

    /// Returns true if a file read at `read` may have been written again without a trace.
    pub(super) fn is_racy(self, fact: &FileFact, read: i64) -> bool {
        read.saturating_sub(fact.mtime.max(fact.ctime)) < self.margin(fact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise_core::checkpoint::EntryKind;

    #[test]
    fn network_file_systems_are_not_listened_to() {
        for (magic, name) in [(0x6969, "nfs"), (0x0BD0_0BD0, "lustre"), (0x6573_5546, "fuse")] {
            assert_eq!(named(magic), Some(name));
        }
        for local in [0xEF53, 0x0102_1994, 0x5846_5342, 0x794C_7630] {
            assert_eq!(named(local), None);
        }
    }

    #[test]
    fn a_file_read_in_the_tick_of_its_write_is_doubtful() {
        let fact = |at| FileFact {
            path: "x".into(),
            kind: EntryKind::File,
            size: 1,
            mtime: at,
            ctime: at,
            dev: 1,
            ino: 1,
            uid: 0,
        };
        let fine = FsClock { fine: true };
        let at = 1_700_000_000_123_456_789;
        assert!(fine.is_racy(&fact(at), at + 1_000_000));
        assert!(!fine.is_racy(&fact(at), at + TICK));
        // Whole seconds: a clock that counts in seconds.
        let second = 1_700_000_000_000_000_000;
        assert!(fine.is_racy(&fact(second), second + TICK));
        assert!(FsClock { fine: false }.is_racy(&fact(at), at + TICK));
        // A file from the future proves nothing.
        assert!(fine.is_racy(&fact(at + COARSE), at));
    }
}
