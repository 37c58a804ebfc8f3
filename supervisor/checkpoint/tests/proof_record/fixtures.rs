//! The files of real checkpoints.

use camino::{Utf8Path, Utf8PathBuf};
use supervise_checkpoint::FileKind;

/// A file of a fixture: the set, its path there, its bytes.
pub(crate) struct Fixture {
    pub(crate) set: String,
    pub(crate) path: Utf8PathBuf,
    pub(crate) bytes: Vec<u8>,
}

impl Fixture {
    pub(crate) fn kind(&self) -> FileKind {
        FileKind::of(self.path.as_str())
    }

    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.set, self.path)
    }
}

/// Sets that are no checkpoints.
const OTHERS: [&str; 3] = ["activity", "logs", "screens"];

/// All files of all sets, in order.
pub(crate) fn all() -> Vec<Fixture> {
    let root = Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let mut out = Vec::new();
    for set in names(&root) {
        let dir = root.join(&set);
        if !OTHERS.contains(&set.as_str()) && dir.is_dir() {
            below(&dir, Utf8Path::new(""), &set, &mut out);
        }
    }
    assert!(out.len() > 100, "{} files", out.len());
    out
}

#[expect(clippy::disallowed_methods, reason = "tests bring the files")]
fn names(dir: &Utf8Path) -> Vec<String> {
    let mut out: Vec<String> = std::fs::read_dir(dir)
        .unwrap_or_else(|e| panic!("{dir}: {e}"))
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    out.sort();
    out
}

#[expect(clippy::disallowed_methods, reason = "tests bring the bytes")]
fn below(root: &Utf8Path, dir: &Utf8Path, set: &str, out: &mut Vec<Fixture>) {
    for name in names(&root.join(dir)) {
        let path = dir.join(name);
        if root.join(&path).is_dir() {
            below(root, &path, set, out);
        } else {
            let bytes = std::fs::read(root.join(&path)).unwrap_or_else(|e| panic!("{path}: {e}"));
            out.push(Fixture {
                set: set.to_owned(),
                path,
                bytes,
            });
        }
    }
}
