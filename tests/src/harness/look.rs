//! Remains of a run, and those that still live.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use supervise_core::journal::{self, Body, LineHeader};

use super::{PATIENCE, Scene, alive, eventually, in_scene, names, until};

impl Scene {
    /// Names in a folder of the run directory, sorted; empty where there is none.
    #[must_use]
    pub fn names(&self, below_run_dir: &str) -> Vec<String> {
        names(&self.run_dir().join(below_run_dir))
    }

    /// How many attempts were made.
    #[must_use]
    pub fn attempts(&self) -> usize {
        self.names("attempts").len()
    }

    /// Command of attempt `n`.
    #[must_use]
    pub fn launch(&self, n: u32) -> Value {
        let path = self.run_dir().join(format!("attempts/{n:04}/launch.json"));
        let text = eventually(&format!("{} is written", path.display()), || {
            fs::read_to_string(&path).ok()
        });
        serde_json::from_str(&text).unwrap()
    }

    /// The step that attempt `n` resumed from; `None`: from scratch.
    #[must_use]
    pub fn resumed(&self, n: u32) -> Option<u64> {
        self.launch(n)["from"]["step"]["step"].as_u64()
    }

    /// All that was moved aside, as paths below `aside/`.
    #[must_use]
    pub fn aside(&self) -> Vec<String> {
        let aside = self.root().join(".supervise/aside");
        let mut found = Vec::new();
        collect_steps(&aside, &aside, &mut found);
        found.sort();
        found
    }

    /// Faults that happened.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        names(&self.root().parent().unwrap().join("faults"))
    }

    /// All records of the journal, oldest first, with everything that their lines leave out.
    #[must_use]
    pub fn journal(&self) -> Vec<Value> {
        let mut terms: Vec<u32> = self
            .names("journal")
            .iter()
            .filter_map(|n| n.split('.').next()?.parse().ok())
            .collect();
        terms.sort_unstable();
        let read = |t: u32| fs::read_to_string(self.run_dir().join(format!("journal/{t}.jsonl"))).unwrap_or_default();
        let text: String = terms.into_iter().map(read).collect();
        let told = |(l, bodies): (LineHeader, Vec<Body>)| {
            let (v, tick, wall) = (l.v, l.tick, l.wall);
            let numbered = (l.seq.0..).zip(bodies);
            let one = move |(seq, (kind, body))| json!({"v": v, "seq": seq, "tick": tick, "wall": wall, "kind": kind, "body": body});
            numbered.map(one).collect::<Vec<_>>()
        };
        let records = |l: &str| journal::bodies(l.as_bytes()).map(told).unwrap_or_default();
        text.lines().flat_map(records).collect()
    }

    /// The highest step that the journal calls proven.
    #[must_use]
    pub fn proven(&self) -> u64 {
        let step = |line: &Value| line.pointer("/body/what/mark/step").and_then(Value::as_u64);
        self.journal().iter().filter_map(step).max().unwrap_or(0)
    }

    /// The trainer never saw another one, and no process of the scene is left.
    pub fn assert_alone(&self) {
        let violations = self.root().parent().unwrap().join("writers/violations");
        let told = fs::read_to_string(&violations).unwrap_or_default();
        assert!(told.is_empty(), "two trainers were alive at once: {told}");
        let left = || {
            let left = self.living();
            left.is_empty().then_some(()).ok_or(left)
        };
        // I/O workers end when their pipe does, a moment after the supervisor.
        until(PATIENCE, left).unwrap_or_else(|left| panic!("processes are left: {left:?}"));
    }

    /// Processes of the scene: by their mark, and those that hide from it by what they wrote.
    #[must_use]
    pub fn living(&self) -> Vec<(i32, String)> {
        let mut found = in_scene(&self.mark());
        let escaped = self.root().parent().unwrap().join("escaped");
        for name in names(&escaped) {
            let text = fs::read_to_string(escaped.join(name)).unwrap_or_default();
            let pid = text.lines().next().and_then(|l| l.parse::<i32>().ok());
            found.extend(pid.filter(|p| alive(*p)).map(|p| (p, "escaped".to_owned())));
        }
        found
    }

    /// Process ids of living trainers, sorted.
    #[must_use]
    pub fn workers(&self) -> Vec<i32> {
        let is_worker = |c: &str| {
            c.split(' ')
                .next()
                .is_some_and(|p| p.ends_with("demo_trainer") || p.ends_with("fake_worker"))
        };
        let mut pids: Vec<i32> = in_scene(&self.mark())
            .into_iter()
            .filter(|(_, c)| is_worker(c))
            .map(|(p, _)| p)
            .collect();
        pids.sort_unstable();
        pids
    }

    /// Process ids of living helpers for files, by their name.
    #[must_use]
    pub fn io_workers(&self, name: &str) -> Vec<i32> {
        let words = format!(" __io_worker {name}");
        let is_io_worker = |(_, c): &(i32, String)| c.ends_with(&words);
        in_scene(&self.mark())
            .into_iter()
            .filter(is_io_worker)
            .map(|(p, _)| p)
            .collect()
    }

    /// Process ids of living guards.
    #[must_use]
    pub fn guards(&self) -> Vec<i32> {
        self.helpers("supervise-guard")
    }

    /// Process ids of living keepers.
    #[must_use]
    pub fn keepers(&self) -> Vec<i32> {
        self.helpers("supervise-keep")
    }

    /// A guard, its keeper and one that waits for its order are one program, and tell themselves apart by name.
    fn helpers(&self, name: &str) -> Vec<i32> {
        let is_one = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c.trim_end() == name);
        let guards = in_scene(&self.mark())
            .into_iter()
            .filter(|(_, c)| c.contains(" __guard"));
        guards.map(|(p, _)| p).filter(is_one).collect()
    }
}

fn collect_steps(base: &Path, folder: &Path, found: &mut Vec<String>) {
    for name in names(folder) {
        let path = folder.join(&name);
        if !path.is_dir() {
            continue;
        }
        if name.starts_with("global_step_") {
            found.push(path.strip_prefix(base).unwrap().display().to_string());
        } else {
            collect_steps(base, &path, found);
        }
    }
}
