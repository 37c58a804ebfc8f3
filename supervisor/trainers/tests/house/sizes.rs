//! A file is one concept: none is longer than a reader remembers.

use super::{sources, top};
use std::fs;

/// Lines of the longest file.
const LIMIT: usize = 500;

#[test]
fn no_file_has_over_500_lines() {
    let mut files = Vec::new();
    for dir in ["config", "supervisor", "tests"] {
        sources(&top().join(dir), &mut files);
    }
    assert!(files.len() > 400, "the sources are not where they are looked for");
    let lines = |path: &std::path::PathBuf| fs::read_to_string(path).unwrap().lines().count();
    let long: Vec<_> = files.iter().filter(|path| lines(path) > LIMIT).collect();
    assert!(long.is_empty(), "split by concept, or say less: {long:#?}");
}
