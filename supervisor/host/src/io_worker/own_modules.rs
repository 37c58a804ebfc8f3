//! The user's own modules: Python packages in a run's working directory, or beside its launch script.

use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use supervise_checkpoint::pickle::danger::is_library;
use supervise_core::checkpoint::CheckpointSummary;
use supervise_core::spec::RunSpec;

const ENTRIES: usize = 4096;
const SCRIPTS: usize = 8;

/// Notes for each step which of the modules it names are the user's own.
pub fn name_own_modules(spec: &RunSpec, steps: &mut [CheckpointSummary]) {
    let words = spec.command.iter().chain(spec.trainer_command());
    let dirs = directories(&spec.cwd, words.map(String::as_str));
    let mut known: BTreeMap<String, bool> = BTreeMap::new();
    let named = steps.iter_mut().filter(|step| !step.unfamiliar.is_empty());
    for step in named {
        let tops = step.unfamiliar.iter().filter_map(|name| Some(name.split_once('.')?.0));
        let mut own: Vec<String> = tops
            .filter(|top| {
                let known = known.entry((*top).to_owned());
                *known.or_insert_with_key(|top| is_own(&dirs, top))
            })
            .map(str::to_owned)
            .collect();
        own.sort_unstable();
        own.dedup();
        step.own_modules = own;
    }
}

fn is_own(dirs: &[Utf8PathBuf], top: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    // A data directory may have a library's name.
    if top.is_empty() || !top.chars().all(is_name) || top.starts_with("__") || is_library(top) {
        return false;
    }
    dirs.iter().any(|dir| holds(dir, top))
}

fn directories<'w>(cwd: &Utf8Path, words: impl Iterator<Item = &'w str>) -> Vec<Utf8PathBuf> {
    let scripts = words.filter(|word| [".py", ".sh"].iter().any(|end| word.ends_with(end)) && !word.starts_with('-'));
    let beside = scripts
        .take(SCRIPTS)
        .filter_map(|script| Some(cwd.join(Utf8Path::new(script).parent()?)));
    let mut out = vec![cwd.to_owned()];
    for dir in beside {
        if !out.contains(&dir) {
            out.push(dir);
        }
    }
    out
}

/// Returns true if there is a package or module of this name that no other user could have put there.
fn holds(dir: &Utf8Path, top: &str) -> bool {
    let is_ours = |path: &Utf8Path| {
        let me = nix::unistd::geteuid().as_raw();
        fs::metadata(path).is_ok_and(|m| m.uid() == me || m.uid() == 0)
    };
    let package = dir.join(top);
    let python = |entry: std::io::Result<camino::Utf8DirEntry>| entry.is_ok_and(|e| e.file_name().ends_with(".py"));
    let is_package = || {
        package
            .read_dir_utf8()
            .is_ok_and(|mut all| all.by_ref().take(ENTRIES).any(python))
    };
    let module = dir.join(format!("{top}.py"));
    (is_ours(&package) && is_package()) || (module.is_file() && is_ours(&module))
}

#[cfg(test)]
mod tests {
    use super::super::temp_dir;
    use super::*;
    use std::os::unix::fs::chown;

    #[test]
    fn packages_and_modules_that_stand_there_are_own() {
        let (_keep, dir) = temp_dir();
        let write = |name: &str| {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        for name in [
            "mine/state.py",
            "single.py",
            "data/part-0.bin",
            "torch/x.py",
            "os/x.py",
            "jobs/beside/x.py",
        ] {
            write(name);
        }
        let dirs = directories(&dir, ["bash", "jobs/train.sh", "--flag.py"].into_iter());
        for (top, own) in [
            ("mine", true),
            ("single", true),
            ("beside", true),
            ("jobs", false),
            ("data", false),
            ("torch", false),
            ("os", false),
            ("nothing", false),
            ("__main__", false),
            ("..", false),
            ("", false),
        ] {
            assert_eq!(is_own(&dirs, top), own, "{top}");
        }
        assert!(!is_own(&[dir], "beside"));
    }

    /// Needs root, to give a file away.
    #[test]
    fn a_module_of_another_user_is_not_own() {
        let (_keep, dir) = temp_dir();
        let path = dir.join("planted.py");
        fs::write(&path, "").unwrap();
        if chown(&path, Some(1000), None).is_err() {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "this needs root");
            return;
        }
        assert!(!is_own(&[dir], "planted"));
    }
}
