//! Rules of the house that no compiler holds: they are read from the sources.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "it reads the sources")]

mod circles;
mod seam;
mod sizes;

use std::fs;
use std::path::{Path, PathBuf};

/// Sources of the crates that make the program.
const CRATES: [&str; 8] = [
    "config/src",
    "supervisor/core/src",
    "supervisor/checkpoint/src",
    "supervisor/trainers/src",
    "supervisor/host/src",
    "supervisor/demo-trainer/src",
    "supervisor/simulate/src",
    "supervisor/src",
];

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .to_owned()
}

/// All sources below a folder.
fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// Text of a file without the tests at its end.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.split("#[cfg(test)]\nmod ").next().unwrap().to_owned()
}
