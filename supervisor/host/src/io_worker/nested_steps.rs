//! Steps one level below a root, where some releases of trainers saved them: a root that contains them is not empty.

use camino::Utf8Path;

const DIRS: usize = 100;
const ENTRIES: usize = 10_000;

/// Names below the root's directories that only a step has, as a remark. Directories that cannot be listed are
/// skipped.
#[must_use]
pub fn nested_steps(root: &Utf8Path, is_step: &dyn Fn(&str) -> bool) -> Option<String> {
    let dirs = root.read_dir_utf8().ok()?.flatten();
    let dirs = dirs.filter(|e| !e.file_name().starts_with('.') && e.file_type().is_ok_and(|t| t.is_dir()));
    let mut found: Vec<String> = Vec::new();
    for dir in dirs.take(DIRS) {
        let entries = dir.path().read_dir_utf8().into_iter().flatten().flatten();
        let steps = entries.take(ENTRIES).filter(|e| is_step(e.file_name()));
        found.extend(steps.map(|e| format!("{}/{}", dir.file_name(), e.file_name())));
    }
    found.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    let last = found.last()?;
    let (what, stand) = match found.len() {
        1 => (last.clone(), "looks like a step and does not stand"),
        n => (format!("{last} and {} more", n - 1), "look like steps and do not stand"),
    };
    Some(format!(
        "{what} {stand} in the root itself: nothing here is proven of them, and no run resumes from them"
    ))
}
