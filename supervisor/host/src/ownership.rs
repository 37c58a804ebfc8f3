//! Who owns a path, and whether we may act on what is there: one type and one check.
//!
//! A command that only shows may read anything. A command that takes settings, a program's name or a PID from a file
//! calls [`OwnedPath::trust`] first, whoever runs it: a file counts if it belongs to us or to root, and no other user
//! may change it. Directories count if the caller lists them. A file in a world-writable directory with the sticky
//! bit needs no list: if another user replaces it, the new file belongs to that user.

use crate::system::{effective_user, user_of};
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;

const ROOT: u32 = 0;
const BY_GROUP: u32 = 0o020;
const BY_ALL: u32 = 0o002;
/// In such a directory, users cannot replace each other's files.
const STICKY: u32 = 0o1000;

/// Errors that mean there is nothing to read.
const UNREACHED: [io::ErrorKind; 3] = [
    io::ErrorKind::NotFound,
    io::ErrorKind::NotADirectory,
    io::ErrorKind::PermissionDenied,
];

/// The users that count as ourselves on a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnIds {
    effective: u32,
    mapped: Option<u32>,
}

impl OwnIds {
    /// `mapped`: the owner of files that we create there, if a network file system gives them to another user.
    #[must_use]
    pub fn new(effective: u32, mapped: Option<u32>) -> Self {
        Self { effective, mapped }
    }

    /// This process, on a file system that does not map users.
    #[must_use]
    pub fn here() -> Self {
        Self::new(effective_user(), None)
    }

    /// Returns true if files of this user are ours.
    #[must_use]
    pub fn owns(&self, uid: u32) -> bool {
        uid == self.effective || Some(uid) == self.mapped
    }

    /// Returns true if files of this user are ours or root's.
    #[must_use]
    pub fn trusts(&self, uid: u32) -> bool {
        uid == ROOT || self.owns(uid)
    }
}

/// Owner and permissions of a directory entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryOwner {
    pub path: Utf8PathBuf,
    pub uid: u32,
    pub mode: u32,
    pub kind: OwnedKind,
}

/// Kinds of entries that differ in who may change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnedKind {
    /// A directory: any user who may write to it may replace its contents.
    Dir,
    /// A link: its permissions mean nothing.
    Link,
    File,
}

impl EntryOwner {
    /// From metadata.
    #[must_use]
    pub fn new(path: &Utf8Path, meta: &Metadata) -> Self {
        Self {
            path: path.to_owned(),
            uid: meta.uid(),
            mode: meta.mode() & 0o7777,
            kind: match () {
                () if meta.is_dir() => OwnedKind::Dir,
                () if meta.is_symlink() => OwnedKind::Link,
                () => OwnedKind::File,
            },
        }
    }

    fn trust(&self, own: OwnIds) -> PathTrust {
        let refused = |why| {
            PathTrust::Refused(PathDistrust {
                entry: self.clone(),
                why,
            })
        };
        if !own.trusts(self.uid) {
            return refused(DistrustReason::OtherOwner);
        }
        match self.kind {
            OwnedKind::Link => PathTrust::Trusted,
            OwnedKind::Dir if self.mode & STICKY != 0 => PathTrust::Trusted,
            _ if self.mode & BY_ALL != 0 => refused(DistrustReason::WorldWritable),
            _ if self.mode & BY_GROUP != 0 => PathTrust::GroupWritable(self.clone()),
            _ => PathTrust::Trusted,
        }
    }
}

/// A path that we act on, with the owner of everything on which its content depends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnedPath {
    entries: Vec<EntryOwner>,
}

impl OwnedPath {
    /// From entries that are known already.
    #[must_use]
    pub fn new(entries: Vec<EntryOwner>) -> Self {
        Self { entries }
    }

    /// The entry at a path and, if that is a link, its target.
    ///
    /// # Errors
    /// The system's.
    pub fn of(path: &Utf8Path) -> io::Result<Self> {
        let entry = fs::symlink_metadata(path)?;
        let mut entries = vec![EntryOwner::new(path, &entry)];
        if entry.is_symlink() {
            entries.push(EntryOwner::new(path, &fs::metadata(path)?));
        }
        Ok(Self { entries })
    }

    /// An open file: what is read from it is what was checked. `path` led to it.
    ///
    /// # Errors
    /// The system's.
    pub fn of_open(path: &Utf8Path, file: &File) -> io::Result<Self> {
        let entry = fs::symlink_metadata(path)?;
        let link = entry.is_symlink().then(|| EntryOwner::new(path, &entry));
        let open = EntryOwner::new(path, &file.metadata()?);
        Ok(Self {
            entries: link.into_iter().chain([open]).collect(),
        })
    }

    /// Adds a path that this one depends on. An entry that does not exist, or that we cannot reach, has no content
    /// for us.
    ///
    /// # Errors
    /// The system's.
    pub fn add(&mut self, path: &Utf8Path) -> io::Result<()> {
        match Self::of(path) {
            Ok(more) => self.entries.extend(more.entries),
            Err(e) if UNREACHED.contains(&e.kind()) => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// The same for an open file: see [`OwnedPath::of_open`].
    ///
    /// # Errors
    /// The system's.
    pub fn add_open(&mut self, path: &Utf8Path, file: &File) -> io::Result<()> {
        self.entries.extend(Self::of_open(path, file)?.entries);
        Ok(())
    }

    /// Whether we may act on the path. The worst of its entries decides.
    #[must_use]
    pub fn trust(&self, own: OwnIds) -> PathTrust {
        let mut worst = PathTrust::Trusted;
        for entry in &self.entries {
            match entry.trust(own) {
                PathTrust::Trusted => {}
                refused @ PathTrust::Refused(_) => return refused,
                writable => worst = writable,
            }
        }
        worst
    }
}

/// Result of [`OwnedPath::trust`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathTrust {
    /// Only we and root can have written it.
    Trusted,
    /// The group of this entry may write to it, too.
    GroupWritable(EntryOwner),
    /// Another user wrote it, or could have.
    Refused(PathDistrust),
}

impl PathTrust {
    /// Why the path is not trusted.
    #[must_use]
    pub fn refusal(self) -> Option<PathDistrust> {
        match self {
            Self::Refused(why) => Some(why),
            Self::Trusted | Self::GroupWritable(_) => None,
        }
    }
}

/// Why an entry is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DistrustReason {
    /// It belongs to neither us nor root.
    OtherOwner,
    WorldWritable,
    /// Its group may write to it, and we are root.
    GroupWritable,
}

/// An entry that is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathDistrust {
    pub entry: EntryOwner,
    pub why: DistrustReason,
}

impl fmt::Display for PathDistrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EntryOwner { path, uid, mode, kind } = &self.entry;
        let user = user_words(*uid);
        let into = if *kind == OwnedKind::Dir { " in it" } else { " it" };
        match self.why {
            DistrustReason::OtherOwner => write!(f, "{path} belongs to {user}"),
            DistrustReason::WorldWritable => {
                write!(
                    f,
                    "{path} belongs to {user}, and everybody may write{into} (mode {mode:03o})"
                )
            }
            DistrustReason::GroupWritable => {
                write!(
                    f,
                    "{path} belongs to {user}, and its group may write{into} (mode {mode:03o})"
                )
            }
        }
    }
}

/// A user's name and UID, for messages.
#[must_use]
pub fn user_words(uid: u32) -> String {
    match user_of(uid) {
        Some(name) => format!("user {name} (uid {uid})"),
        None => format!("uid {uid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OwnedKind::{Dir, File, Link};

    const ME: u32 = 1001;
    const OTHER: u32 = 1000;

    fn entry(uid: u32, mode: u32, kind: OwnedKind) -> EntryOwner {
        EntryOwner {
            path: "/place/file".into(),
            uid,
            mode,
            kind,
        }
    }

    fn told(own: OwnIds, entries: &[EntryOwner]) -> String {
        match OwnedPath::new(entries.to_vec()).trust(own) {
            PathTrust::Trusted => "trusted".into(),
            PathTrust::GroupWritable(_) => "group".into(),
            PathTrust::Refused(refused) => format!("{:?}", refused.why),
        }
    }

    #[test]
    fn only_our_files_and_roots_that_nobody_else_may_write_pass() {
        let own = OwnIds::new(ME, None);
        for (uid, mode, kind, says) in [
            (ME, 0o600, File, "trusted"),
            (0, 0o644, File, "trusted"),
            (OTHER, 0o600, File, "OtherOwner"),
            (OTHER, 0o777, Link, "OtherOwner"),
            (ME, 0o777, Link, "trusted"),
            (ME, 0o664, File, "group"),
            (0, 0o666, File, "WorldWritable"),
            (ME, 0o775, Dir, "group"),
            (ME, 0o777, Dir, "WorldWritable"),
            // Its contents are checked themselves, and cannot be replaced afterwards.
            (ME, 0o1777, Dir, "trusted"),
            (OTHER, 0o1777, Dir, "OtherOwner"),
            // The sticky bit means nothing for a file.
            (ME, 0o1666, File, "WorldWritable"),
        ] {
            assert_eq!(told(own, &[entry(uid, mode, kind)]), says, "{uid} {mode:o} {kind:?}");
        }
    }

    #[test]
    fn the_worst_entry_decides_in_any_order() {
        let own = OwnIds::new(ME, None);
        let (fine, group, foreign) = (
            entry(ME, 0o600, File),
            entry(ME, 0o660, File),
            entry(OTHER, 0o600, File),
        );
        assert_eq!(told(own, &[fine.clone(), group.clone(), foreign.clone()]), "OtherOwner");
        assert_eq!(told(own, &[foreign, fine.clone(), group.clone()]), "OtherOwner");
        assert_eq!(told(own, &[group, fine]), "group");
        assert_eq!(told(own, &[]), "trusted");
    }

    #[test]
    fn a_squashed_root_owns_what_the_server_makes_of_it_and_root_trusts_no_other_user() {
        let nobody = 65_534;
        let file = entry(nobody, 0o600, File);
        assert_eq!(told(OwnIds::new(0, None), std::slice::from_ref(&file)), "OtherOwner");
        assert_eq!(told(OwnIds::new(0, Some(nobody)), &[file]), "trusted");
        assert_eq!(
            told(OwnIds::new(0, Some(nobody)), &[entry(OTHER, 0o600, File)]),
            "OtherOwner"
        );
    }

    #[test]
    fn a_refusal_names_file_owner_and_mode() {
        let refused = |entry: EntryOwner, why| PathDistrust { entry, why }.to_string();
        assert_eq!(
            refused(entry(4_000_000, 0o644, File), DistrustReason::OtherOwner),
            "/place/file belongs to uid 4000000"
        );
        assert_eq!(
            refused(entry(0, 0o777, Dir), DistrustReason::WorldWritable),
            "/place/file belongs to user root (uid 0), and everybody may write in it (mode 777)"
        );
    }

    #[test]
    fn a_link_and_what_it_leads_to_are_both_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Utf8Path::from_path(dir.path()).unwrap();
        fs::write(dir.join("file"), "x").unwrap();
        std::os::unix::fs::symlink(dir.join("file"), dir.join("link")).unwrap();
        let kinds = |path: &OwnedPath| path.entries.iter().map(|e| e.kind).collect::<Vec<_>>();
        assert_eq!(kinds(&OwnedPath::of(&dir.join("link")).unwrap()), [Link, File]);
        let open = fs::File::open(dir.join("link")).unwrap();
        assert_eq!(
            kinds(&OwnedPath::of_open(&dir.join("link"), &open).unwrap()),
            [Link, File]
        );
        let mut path = OwnedPath::of(dir).unwrap();
        path.add(&dir.join("none")).unwrap();
        path.add(&dir.join("file/below")).unwrap();
        assert_eq!(kinds(&path), [Dir]);
    }
}
