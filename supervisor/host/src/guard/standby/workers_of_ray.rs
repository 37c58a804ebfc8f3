//! The workers of a driver's own Ray: one interpreter that pre-imports what they imported, to be forked for each.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// PID of the process that a Ray worker exits with; Ray's library reads it when it is loaded. A pre-importing
/// interpreter loads it before there is a raylet, so it names the driver: the raylet runs as long as the driver does,
/// and without the driver the tree is killed.
pub(super) const RAYLET: &str = "RAY_RAYLET_PID";
const OF_SHELLS: &[&str] = &["_", "OLDPWD", "PWD", "SHLVL"];

/// How to start the interpreter that is forked, taken from the previous workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkersOfRay {
    pub argv: Vec<String>,
    /// Variables that all of them had, and the driver lacked or had with another value.
    pub set: Vec<(String, String)>,
    pub unset: Vec<String>,
    pub differs: Vec<String>,
    /// Imports that all of them made, in the order of the worker with the most, in the format of the recorded
    /// imports.
    pub imports: String,
}

#[derive(Default)]
struct Noted<'a> {
    lines: Vec<&'a str>,
    argv: Vec<String>,
    env: BTreeMap<&'a str, &'a str>,
}

impl<'a> Noted<'a> {
    fn take(&mut self, line: &'a str) {
        match line.split_once(' ') {
            Some(("c", word)) => self.argv.push(word.to_owned()),
            Some(("E", variable)) => self.env.extend(variable.split_once('=')),
            _ => self.lines.push(line),
        }
    }

    /// A variable's values between two imports; `None` if it was unset.
    fn changed(&self, key: &str) -> Vec<Option<&'a str>> {
        let value = |line: &&'a str| match line.split_once(' ')? {
            ("e", rest) => rest.split_once('=').filter(|(k, _)| *k == key).map(|(_, v)| Some(v)),
            ("u", rest) => (rest == key).then_some(None),
            _ => None,
        };
        self.lines.iter().filter_map(value).collect()
    }
}

/// An import's line, whether or not it was nested in another import.
fn without_depth(line: &str) -> &str {
    line.strip_prefix("i ")
        .or_else(|| line.strip_prefix("j "))
        .unwrap_or(line)
}

impl WorkersOfRay {
    /// Adds the variables for which workers were refused: they differ between attempts.
    pub fn refused(&mut self, notes: &str) {
        for key in notes.lines().filter_map(|line| line.strip_prefix("v ")) {
            self.set.retain(|(k, _)| k != key);
            self.unset.retain(|k| k != key);
            if !self.differs.iter().any(|k| k == key) {
                self.differs.push(key.to_owned());
            }
        }
    }
}

/// The workers that Ray started, from an attempt's recorded imports; `None` if there are none, or several kinds.
/// `given`: the variables with which that attempt's driver was started.
///
/// Format: lines of `sitecustomize.py`; a worker's have the prefix `w<pid> ` (`ray.py`). A NUL stands for a newline
/// in a variable.
pub fn workers_of_ray(notes: &str, given: &[(String, String)]) -> Option<WorkersOfRay> {
    let mut all: BTreeMap<&str, Noted<'_>> = BTreeMap::new();
    for line in notes.lines() {
        if let Some((pid, line)) = line.strip_prefix('w').and_then(|rest| rest.split_once(' ')) {
            all.entry(pid).or_default().take(line);
        }
    }
    let most = all.values().max_by_key(|w| w.lines.len())?;
    // Skips idle workers that Ray has not assigned yet.
    let alike: Vec<&Noted<'_>> = all.values().filter(|w| w.lines.len() * 2 >= most.lines.len()).collect();
    if most.argv.len() != 2 || alike.iter().any(|w| w.argv != most.argv) {
        return None;
    }
    let (mut set, mut unset) = (Vec::new(), Vec::new());
    let mut differs: Vec<String> = vec![RAYLET.to_owned()];
    let given: BTreeMap<&str, &str> = given.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let theirs = alike.iter().flat_map(|w| w.env.keys());
    let mut keys: Vec<&str> = given.keys().chain(theirs).copied().collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        if key == RAYLET || OF_SHELLS.contains(&key) {
            continue;
        }
        let (value, before) = (most.env.get(key), given.get(key));
        match value {
            _ if alike.iter().any(|w| w.env.get(key) != value) => differs.push(key.to_owned()),
            Some(value) if Some(value) != before => set.push((key.to_owned(), value.replace('\0', "\n"))),
            None if before.is_some() => unset.push(key.to_owned()),
            _ => {}
        }
    }
    // Imports that all of them made, and what these changed overall.
    let lines: Vec<BTreeSet<&str>> = alike
        .iter()
        .map(|w| w.lines.iter().map(|l| without_depth(l)).collect())
        .collect();
    let mut imports = String::new();
    for line in &most.lines {
        match line.split_once(' ') {
            Some(("e" | "u", rest)) => {
                let key = rest.split_once('=').map_or(rest, |(key, _)| key);
                let mine = most.changed(key);
                if alike.iter().any(|w| w.changed(key) != mine) && !differs.iter().any(|k| k == key) {
                    differs.push(key.to_owned());
                }
                if differs.iter().any(|k| k == key) {
                    continue;
                }
            }
            Some(("i" | "j" | "n", _)) if !lines.iter().all(|w| w.contains(without_depth(line))) => continue,
            _ => {}
        }
        imports.push_str(line);
        imports.push('\n');
    }
    Some(WorkersOfRay {
        argv: most.argv.clone(),
        set,
        unset,
        differs,
        imports,
    })
}

/// The driver's own lines among all those of an attempt.
pub fn own_notes(notes: &str) -> String {
    let own = |line: &&str| !line.starts_with('w') && !line.starts_with("v ");
    notes
        .lines()
        .filter(own)
        .fold(String::new(), |all, line| all + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTES: &str = "b 1 100.5\ni torch\n\
        w7 b 7 101.0\nw7 c /v/python\nw7 c /r/default_worker.py\nw7 E HOME=/h\nw7 E RANK=0\nw7 E NCCL=a\0b\nw7 E RAY_RAYLET_PID=12\nw7 E PWD=/b\n\
        w9 b 9 101.5\nw9 c /v/python\nw9 c /r/default_worker.py\nw9 E HOME=/h\nw9 E NCCL=a\0b\nw9 E RAY_RAYLET_PID=12\n\
        w7 p /cwd\nw7 i ray\nw9 i ray\nw7 e BREAK=x\nw9 e BREAK=x\nw7 e DEVICE=0\nw9 e DEVICE=1\nw7 i torch\nw9 i torch\nw7 i verl\n\
        w7 n UV=0\nw9 n UV=0\nw7 n HOST=a\nw9 n HOST=b\nw7 j verl.x\nw9 i verl.x\n\
        w11 b 11 99\nw11 c /v/other\nw11 c /r/default_worker.py\nw11 i ray\n";

    fn given() -> Vec<(String, String)> {
        [("HOME", "/h"), ("CUDA", "1"), ("OLD", "1"), ("PWD", "/a")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .to_vec()
    }

    #[test]
    fn workers_that_are_alike_tell_how_the_next_are_started() {
        let found = workers_of_ray(NOTES, &given()).unwrap();
        assert_eq!(found.argv, ["/v/python", "/r/default_worker.py"]);
        assert_eq!(found.set, [("NCCL".to_owned(), "a\nb".to_owned())]);
        assert_eq!(found.unset, ["CUDA", "OLD"]);
        assert_eq!(found.differs, ["RAY_RAYLET_PID", "RANK", "DEVICE"]);
        assert_eq!(
            found.imports,
            "b 7 101.0\np /cwd\ni ray\ne BREAK=x\ni torch\nn UV=0\nj verl.x\n"
        );
    }

    #[test]
    fn a_variable_by_which_workers_were_refused_is_theirs() {
        let mut found = workers_of_ray(NOTES, &given()).unwrap();
        found.refused("b 1 100.5\nv NCCL\nw8 v OTHER\nv OLD\nv NCCL\n");
        assert_eq!(found.set, []);
        assert_eq!(found.unset, ["CUDA"]);
        assert_eq!(found.differs, ["RAY_RAYLET_PID", "RANK", "DEVICE", "NCCL", "OLD"]);
    }

    #[test]
    fn the_drivers_notes_stand_apart() {
        assert_eq!(own_notes(NOTES), "b 1 100.5\ni torch\n");
    }

    #[test]
    fn none_is_made_of_workers_of_two_kinds_or_of_none() {
        assert_eq!(workers_of_ray("b 1 100.5\ni torch\n", &given()), None);
        assert_eq!(
            workers_of_ray(&NOTES.replace("w9 c /v/python", "w9 c /u/python"), &given()),
            None
        );
        assert_eq!(workers_of_ray(&NOTES.replace("w7 c /v/python\n", ""), &given()), None);
    }
}
