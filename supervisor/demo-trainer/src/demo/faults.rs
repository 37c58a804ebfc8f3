//! The faults of a demo: which, when, and the ledger that remembers it.
//!
//! Rank 0 decides at the start of each step which faults are due and tells all ranks, so
//! that a fault that needs them all finds them all. A fault is due once over the whole
//! run: its file in the ledger is created exclusively, and a relaunch that finds it there
//! passes the step in peace. With `repeat_fault` each attempt has its own file.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::random::Random;

/// Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One rank is killed in the middle of a step.
    KillRank,
    /// All ranks are killed in the middle of a save: one model shard is cut in half,
    /// `fsdp_config.json` is there already, the tracker is empty.
    KillAllMidSave,
    /// One rank raises.
    Exception,
    /// One rank raises what CUDA says of memory that is broken.
    BrokenGpu,
    /// One rank sleeps for ever; the others wait for it.
    Hang,
    /// One rank computes for ever.
    Spin,
    /// One rank computes for ever, a twentieth of the time.
    Trickle,
    /// One rank prints a line every second, for ever.
    Heartbeat,
    /// One rank sleeps for ever in a save.
    HangSave,
    /// All ranks leave with exit code 0 before the end.
    Exit0Early,
    /// One rank starts a process that hides from its parents and lives on.
    RetitleSetsidFork,
    /// After the save, a bit of one model shard flips, then all ranks are killed.
    FlipByte,
    /// All weights become no numbers at the end of a step.
    Nan,
    /// After the save, the tracker is lost, then all ranks are killed.
    LoseTracker,
}

impl Kind {
    /// The kind as it is spelled in settings.
    pub fn name(self) -> &'static str {
        match self {
            Kind::KillRank => "kill_rank",
            Kind::KillAllMidSave => "kill_all_mid_save",
            Kind::Exception => "exception",
            Kind::BrokenGpu => "broken_gpu",
            Kind::Hang => "hang",
            Kind::Spin => "spin",
            Kind::Trickle => "trickle",
            Kind::Heartbeat => "heartbeat",
            Kind::HangSave => "hang_save",
            Kind::Exit0Early => "exit0_early",
            Kind::RetitleSetsidFork => "retitle_setsid_fork",
            Kind::FlipByte => "flip_byte",
            Kind::Nan => "nan",
            Kind::LoseTracker => "lose_tracker",
        }
    }

    /// Returns true if the fault needs a save at its step.
    pub fn needs_save(self) -> bool {
        matches!(self, Kind::KillAllMidSave | Kind::FlipByte | Kind::LoseTracker)
    }
}

/// One thing that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Event.
    pub kind: Kind,
    /// At which step; chosen by the seed where missing.
    #[serde(default)]
    pub step: Option<u64>,
    /// To which rank; the last where missing.
    #[serde(default)]
    pub rank: Option<usize>,
}

impl Fault {
    /// The rank this happens to.
    pub fn victim(&self, world: usize) -> usize {
        self.rank.unwrap_or(world - 1).min(world - 1)
    }

    fn step(&self, index: usize, seed: u64, total: u64) -> u64 {
        self.step
            .unwrap_or_else(|| 1 + Random::new(seed, 5000 + index as u64).below(total.max(1) as usize) as u64)
    }
}

/// Enters into the ledger, and returns, the faults due at a step.
pub fn due(ledger: &Path, faults: &[Fault], now: &Moment<'_>) -> Result<Vec<Fault>, Failure> {
    let mut due = Vec::new();
    for (index, fault) in faults.iter().enumerate() {
        if fault.step(index, now.seed, now.total) != now.step {
            continue;
        }
        let mut name = format!("{index:02}-{}-step_{}", fault.kind.name(), now.step);
        if now.repeat {
            name = format!("{name}.{}", now.attempt);
        }
        let path = ledger.join(name);
        match enter(&path, fault, now) {
            Ok(()) => due.push(fault.clone()),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Failure::file("enter_fault", &path, &e)),
        }
    }
    Ok(due)
}

/// Place where the run stands when it asks for faults.
#[derive(Debug)]
pub struct Moment<'a> {
    /// The step about to be trained.
    pub step: u64,
    /// The last step of the run.
    pub total: u64,
    /// The seed of the run.
    pub seed: u64,
    /// The name of the attempt.
    pub attempt: &'a str,
    /// True if faults happen again in each attempt.
    pub repeat: bool,
}

fn enter(path: &Path, fault: &Fault, now: &Moment<'_>) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let line = serde_json::json!({
        "kind": fault.kind, "step": now.step, "rank": fault.rank, "attempt": now.attempt,
    });
    writeln!(file, "{line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_due_once_over_the_run_unless_it_repeats() {
        let folder = tempfile::tempdir().unwrap();
        let faults = [
            Fault {
                kind: Kind::Hang,
                step: Some(3),
                rank: None,
            },
            Fault {
                kind: Kind::KillRank,
                step: Some(4),
                rank: Some(1),
            },
        ];
        let ask = |step, attempt, repeat| {
            let now = Moment {
                step,
                total: 9,
                seed: 1,
                attempt,
                repeat,
            };
            due(folder.path(), &faults, &now).unwrap().len()
        };
        assert_eq!(ask(2, "a", false), 0);
        assert_eq!(ask(3, "a", false), 1);
        assert_eq!(ask(3, "b", false), 0);
        assert_eq!([ask(4, "a", true), ask(4, "a", true), ask(4, "b", true)], [1, 0, 1]);
    }

    #[test]
    fn names_are_those_of_the_settings() {
        for kind in [Kind::KillAllMidSave, Kind::Exit0Early, Kind::RetitleSetsidFork] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
