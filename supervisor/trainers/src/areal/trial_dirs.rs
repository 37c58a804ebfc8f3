//! Directories of a trial: its only checkpoint, the copies of it, its records.

use super::call;
use super::fields::TEXT;
use crate::kit::ConfigReader;
use crate::read::ReadInput;
use camino::Utf8PathBuf;

/// Variables from which Python takes the user's name, in this order.
const USER: [&str; 4] = ["LOGNAME", "USER", "LNAME", "USERNAME"];

pub(super) struct TrialDirs {
    pub(super) root: Utf8PathBuf,
    pub(super) store: Utf8PathBuf,
    pub(super) user: String,
}

pub(super) fn place(v: &mut ConfigReader<'_>, input: &ReadInput<'_>) -> Option<TrialDirs> {
    let parts = ["fileroot", "experiment_name", "trial_name"].map(|key| v.needed(&format!("recover.{key}"), TEXT));
    let [Some(fileroot), Some(experiment), Some(trial)] = parts else {
        return None;
    };
    for (key, text) in [
        ("fileroot", &fileroot),
        ("experiment_name", &experiment),
        ("trial_name", &trial),
    ] {
        if text.is_empty() {
            v.problem(&format!("recover.{key}"), "it is empty", "give a value");
            return None;
        }
    }
    for (key, text) in [("experiment_name", &experiment), ("trial_name", &trial)] {
        if text.starts_with('/') || text.split('/').any(|part| part == "..") {
            v.problem(
                &format!("recover.{key}"),
                format!("`{text}` leads out of recover.fileroot"),
                "choose a plain name",
            );
            return None;
        }
    }
    let named = USER
        .iter()
        .find_map(|name| call::env(input, name).filter(|v| !v.is_empty()));
    let Some(user) = named.or_else(|| input.user.map(str::to_owned)) else {
        v.problem(
            "recover.fileroot",
            "the user's name is a part of the checkpoint root, and neither LOGNAME, USER, LNAME, USERNAME nor the password database has one",
            "set LOGNAME",
        );
        return None;
    };
    let base = input.cwd.join(&fileroot);
    let below = |name: &str| -> Utf8PathBuf {
        let path = base.join(name).join(&user).join(&experiment).join(&trial);
        path.components().collect()
    };
    Some(TrialDirs {
        root: below("checkpoints"),
        store: below("supervise"),
        user,
    })
}

/// The directory of this trial's records: `<record root>/<user>/<experiment>/<trial>`.
pub(super) fn names(v: &mut ConfigReader<'_>, input: &ReadInput<'_>, user: &str) -> Option<Utf8PathBuf> {
    if v.needed("cluster.name_resolve.type", TEXT)? != "nfs" {
        return None;
    }
    let root = v
        .needed("cluster.name_resolve.nfs_record_root", TEXT)
        .filter(|r| !r.is_empty())?;
    let parts = [v.needed("experiment_name", TEXT)?, v.needed("trial_name", TEXT)?];
    let plain = |part: &String| !part.is_empty() && !part.starts_with('/') && part.split('/').all(|p| p != "..");
    let path = input.cwd.join(root).join(user);
    parts
        .iter()
        .all(plain)
        .then(|| parts.iter().fold(path, |path, part| path.join(part)))
}
