//! A model's directory, whose files are opened safely.
//!
//! Any user who may write to the directory chooses where a link in it leads, and the target may be readable for us
//! alone. A link is followed only to a file in the directory that the user named, or to a blob of the Hugging Face
//! cache that this directory is a snapshot in. A linked directory is never entered. The path is resolved first and
//! then opened one component after the other, none of which may be a link, so an exchange in between ends with an
//! error.

use camino::{Utf8Component, Utf8Path, Utf8PathBuf};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

/// A directory of a model.
#[derive(Debug)]
pub struct ModelFolder {
    /// The directory that the user named: links may lead anywhere in it.
    root: OpenFolder,
    below: Utf8PathBuf,
    /// The blobs of the cache that the root is a snapshot in.
    blobs: Option<OpenFolder>,
}

#[derive(Debug)]
struct OpenFolder {
    real: Utf8PathBuf,
    dir: OwnedFd,
}

/// A regular file of a model.
#[derive(Debug)]
pub struct ModelFile {
    pub file: File,
    /// Its path, without links.
    pub real: Utf8PathBuf,
    pub is_linked: bool,
    pub len: u64,
    pub mode: u32,
}

/// Why a file is not opened.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    /// A link that leads out of the directory.
    #[error("a symbolic link to {to}, which is outside of {root}: it is not followed")]
    Outside {
        to: Utf8PathBuf,
        /// The directory that the user named.
        root: Utf8PathBuf,
    },
    #[error("a symbolic link to a directory: it is not followed")]
    LinkedDir,
    /// A dangling link.
    #[error("a symbolic link that leads to nothing")]
    Dangling,
    #[error("a directory, a FIFO, a socket or a device, and no file")]
    NotAFile,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl NotOpened {
    /// Returns true if nothing of that name exists.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io(e) if e.kind() == io::ErrorKind::NotFound)
    }
}

impl From<Errno> for NotOpened {
    fn from(e: Errno) -> Self {
        Self::Io(e.into())
    }
}

impl ModelFolder {
    /// A directory that the user named, possibly through a link.
    ///
    /// # Errors
    /// It is not a directory, or cannot be read.
    pub fn named(root: &Utf8Path) -> Result<Self, NotOpened> {
        let real = root.canonicalize_utf8()?;
        let dir = open_dir(CWD, &real)?;
        let blobs = blobs_of(&real);
        Ok(Self {
            root: OpenFolder { real, dir },
            below: Utf8PathBuf::new(),
            blobs,
        })
    }

    /// A directory in one that the user named. Other directories found beside it count as named, too.
    ///
    /// # Errors
    /// It is reached through a link, is not a directory, or cannot be read.
    pub fn inside(root: &Utf8Path, dir: &Utf8Path) -> Result<Self, NotOpened> {
        let Ok(below) = dir.strip_prefix(root) else {
            return match dir.symlink_metadata()?.is_symlink() {
                true => Err(NotOpened::LinkedDir),
                false => Self::named(dir),
            };
        };
        let mut folder = Self::named(root)?;
        walk(&folder.root.dir, below)?;
        folder.below = below.to_owned();
        Ok(folder)
    }

    /// The path of one of its files, for messages.
    #[must_use]
    pub fn path(&self, name: &Utf8Path) -> Utf8PathBuf {
        self.root.real.join(&self.below).join(name)
    }

    /// Names in a subdirectory that is not a link; empty if it does not exist.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn names(&self, dir: &Utf8Path) -> Result<Vec<String>, NotOpened> {
        let path = self.below.join(dir);
        let open = match walk(&self.root.dir, &path) {
            Err(e) if e.is_missing() => return Ok(Vec::new()),
            open => open?,
        };
        let listed = match &open {
            Some(open) => rustix::fs::Dir::read_from(open)?,
            None => rustix::fs::Dir::read_from(&self.root.dir)?,
        };
        let mut names = Vec::new();
        for entry in listed {
            // No library looks for a name that is not UTF-8.
            if let Ok(name) = entry?.file_name().to_str()
                && !matches!(name, "." | "..")
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns true for a directory that is not a link.
    #[must_use]
    pub fn is_dir(&self, name: &Utf8Path) -> bool {
        walk(&self.root.dir, &self.below.join(name)).is_ok()
    }

    /// Opens a file for reading, by its path in the directory. Never blocks.
    ///
    /// # Errors
    /// It does not exist, is not a file, or is a link that is not followed.
    pub fn open(&self, name: &Utf8Path) -> Result<ModelFile, NotOpened> {
        let path = self.below.join(name);
        match open_file(&self.root.dir, &path) {
            Err(NotOpened::Io(e)) if e.raw_os_error() == Some(libc::ELOOP) => self.follow(&path),
            opened => Ok(ModelFile::of(opened?, self.root.real.join(&path), false)?),
        }
    }

    fn follow(&self, path: &Utf8Path) -> Result<ModelFile, NotOpened> {
        let real = match self.root.real.join(path).canonicalize_utf8() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(NotOpened::Dangling),
            real => real?,
        };
        let place = std::iter::once(&self.root)
            .chain(&self.blobs)
            .find_map(|folder| Some((&folder.dir, real.strip_prefix(&folder.real).ok()?)));
        let Some((dir, inside)) = place else {
            return Err(match real.is_dir() {
                true => NotOpened::LinkedDir,
                false => NotOpened::Outside {
                    to: real,
                    root: self.root.real.clone(),
                },
            });
        };
        match open_file(dir, inside) {
            Err(NotOpened::NotAFile) if real.is_dir() => Err(NotOpened::LinkedDir),
            opened => Ok(ModelFile::of(opened?, real.clone(), true)?),
        }
    }
}

impl ModelFile {
    fn of(file: File, real: Utf8PathBuf, is_linked: bool) -> io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self {
            file,
            real,
            is_linked,
            len: meta.len(),
            mode: meta.mode() & 0o777,
        })
    }
}

/// The blobs of a Hugging Face cache: `models--ORG--NAME/blobs` for a directory in
/// `models--ORG--NAME/snapshots/REVISION`.
fn blobs_of(real: &Utf8Path) -> Option<OpenFolder> {
    let is_cached = |dir: &&Utf8Path| dir.file_name().is_some_and(|name| name.starts_with("models--"));
    let snapshots = real
        .ancestors()
        .skip(1)
        .find(|dir| dir.file_name() == Some("snapshots"))?;
    let model = snapshots.parent().filter(is_cached)?;
    let above = open_dir(CWD, model).ok()?;
    Some(OpenFolder {
        real: model.join("blobs"),
        dir: open_dir(&above, Utf8Path::new("blobs")).ok()?,
    })
}

fn open_dir(above: impl rustix::fd::AsFd, name: &Utf8Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(above, name.as_std_path(), flags, Mode::empty())
}

/// Enters a directory below an open one, through no link. `None` for the open directory itself.
fn walk(root: &OwnedFd, path: &Utf8Path) -> Result<Option<OwnedFd>, NotOpened> {
    let mut here: Option<OwnedFd> = None;
    for component in path.components() {
        let Utf8Component::Normal(name) = component else {
            return Err(NotOpened::NotAFile);
        };
        let above = here.as_ref().unwrap_or(root);
        here = Some(match open_dir(above, Utf8Path::new(name)) {
            // With both flags, a link gives the same error as a file.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let is_link = statat(above, name, AtFlags::SYMLINK_NOFOLLOW)
                    .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
                return Err(if is_link {
                    NotOpened::LinkedDir
                } else {
                    Errno::NOTDIR.into()
                });
            }
            opened => opened?,
        });
    }
    Ok(here)
}

/// Opens a regular file below an open directory, through no link: a link in its last component gives `ELOOP`.
fn open_file(root: &OwnedFd, path: &Utf8Path) -> Result<File, NotOpened> {
    let name = path.file_name().ok_or(NotOpened::NotAFile)?;
    let above = walk(root, path.parent().unwrap_or(Utf8Path::new("")))?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match openat(above.as_ref().unwrap_or(root), name, flags, Mode::empty()) {
        Err(Errno::NXIO) => return Err(NotOpened::NotAFile),
        opened => File::from(opened?),
    };
    match opened.metadata()?.is_file() {
        true => Ok(opened),
        false => Err(NotOpened::NotAFile),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn temp_dir() -> (tempfile::TempDir, Utf8PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::from_path_buf(dir.path().to_owned()).unwrap();
        (dir, path)
    }

    fn read(folder: &ModelFolder, name: &str) -> Result<String, NotOpened> {
        let mut text = String::new();
        folder.open(Utf8Path::new(name))?.file.read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn a_link_is_followed_within_the_directory_that_was_named_and_nowhere_else() {
        let (_keep, dir) = temp_dir();
        let step = dir.join("step");
        let model = step.join("actor/huggingface");
        fs::create_dir_all(&model).unwrap();
        fs::write(dir.join("secret"), "secret").unwrap();
        fs::write(step.join("shared"), "shared").unwrap();
        fs::set_permissions(step.join("shared"), fs::Permissions::from_mode(0o640)).unwrap();
        fs::create_dir(step.join("templates")).unwrap();
        fs::write(step.join("templates/x"), "x").unwrap();
        for (name, to) in [
            ("out", "../../../secret"),
            ("in", "../../shared"),
            ("twice", "in"),
            ("nowhere", "no/such"),
            ("itself", "itself"),
            ("folder", "../../templates"),
            ("elsewhere", "/proc/self"),
            ("by_handle", "/proc/self/cwd/x"),
        ] {
            symlink(to, model.join(name)).unwrap();
        }
        let folder = ModelFolder::inside(&step, &model).unwrap();
        assert_eq!(read(&folder, "in").unwrap(), "shared");
        assert_eq!(read(&folder, "twice").unwrap(), "shared");
        let opened = folder.open(Utf8Path::new("in")).unwrap();
        assert_eq!((opened.is_linked, opened.mode, opened.len), (true, 0o640, 6));
        let outside = read(&folder, "out");
        assert!(matches!(outside, Err(NotOpened::Outside { .. })), "{outside:?}");
        assert!(matches!(read(&folder, "nowhere"), Err(NotOpened::Dangling)));
        assert!(matches!(read(&folder, "folder"), Err(NotOpened::LinkedDir)));
        assert!(matches!(read(&folder, "elsewhere"), Err(NotOpened::LinkedDir)));
        for name in [
            "itself",
            "by_handle",
            "folder/x",
            "elsewhere/environ",
            "../huggingface/in",
        ] {
            assert!(read(&folder, name).is_err(), "{name}");
        }
        assert!(folder.open(Utf8Path::new("gone")).unwrap_err().is_missing());
        // A path through a linked directory that stays in the directory the user named.
        symlink("folder/x", model.join("through")).unwrap();
        assert_eq!(read(&folder, "through").unwrap(), "x");
        let alone = ModelFolder::named(&model).unwrap();
        assert!(matches!(read(&alone, "in"), Err(NotOpened::Outside { .. })));
    }

    #[test]
    fn the_model_itself_is_not_reached_through_a_link_that_nobody_named() {
        let (_keep, dir) = temp_dir();
        fs::create_dir_all(dir.join("other/huggingface")).unwrap();
        fs::create_dir(dir.join("step")).unwrap();
        symlink("../other/huggingface", dir.join("step/huggingface")).unwrap();
        symlink("other", dir.join("by_name")).unwrap();
        let inside = ModelFolder::inside(&dir.join("step"), &dir.join("step/huggingface"));
        assert!(matches!(inside, Err(NotOpened::LinkedDir)), "{inside:?}");
        let beside = ModelFolder::inside(&dir.join("other"), &dir.join("step/huggingface"));
        assert!(matches!(beside, Err(NotOpened::LinkedDir)), "{beside:?}");
        ModelFolder::inside(&dir.join("by_name"), &dir.join("by_name/huggingface")).unwrap();
    }

    #[test]
    fn a_snapshot_of_a_cache_reaches_its_own_blobs() {
        let (_keep, hub) = temp_dir();
        for model in ["models--org--one", "models--org--two"] {
            let snapshot = hub.join(model).join("snapshots/abc");
            fs::create_dir_all(&snapshot).unwrap();
            fs::create_dir(hub.join(model).join("blobs")).unwrap();
            fs::write(hub.join(model).join("blobs/123"), model).unwrap();
            symlink("../../blobs/123", snapshot.join("config.json")).unwrap();
            symlink("../../../models--org--two/blobs/123", snapshot.join("vocab.json")).unwrap();
        }
        let one = ModelFolder::named(&hub.join("models--org--one/snapshots/abc")).unwrap();
        assert_eq!(read(&one, "config.json").unwrap(), "models--org--one");
        assert!(matches!(read(&one, "vocab.json"), Err(NotOpened::Outside { .. })));
        // Blobs elsewhere do not belong to this cache.
        let two = hub.join("models--org--two");
        fs::rename(two.join("blobs"), hub.join("private")).unwrap();
        symlink("../private", two.join("blobs")).unwrap();
        let two = ModelFolder::named(&two.join("snapshots/abc")).unwrap();
        assert!(matches!(read(&two, "config.json"), Err(NotOpened::Outside { .. })));
    }
}
