//! Running the demo trainer under `supervise`, and what comes of it.
//!
//! Each run gets a folder with its own copy of the trainer's YAML, in which only the
//! checkpoint root and, for the run without faults, the list of faults differ. What is
//! reported afterwards comes from the trainer's own files (digest, ledger, violations)
//! and from `supervise status --json`; nothing is parsed out of words meant for people.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// A run of a second each that takes this long will not end.
const LIMIT: Duration = Duration::from_secs(180);
/// How long `supervise` gets to stop its run before it is killed.
const GRACE: Duration = Duration::from_secs(60);

/// State that all runs of one demo share.
#[derive(Debug)]
pub struct Showcase {
    yaml: Value,
    folder: PathBuf,
    programs: PathBuf,
    proof: bool,
}

/// How one run ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The digest the trainer left, if it came to the end.
    pub digest: Option<String>,
    /// The exit code of `supervise`; `None` where it was killed.
    pub exit_code: Option<i32>,
    /// Attempts made, by `supervise status --json`.
    pub attempts: u64,
    /// Faults in the ledger, by name.
    pub faults: Vec<String>,
    /// Steps that were refused and moved aside.
    pub refused: Vec<String>,
    /// Lines in which a trainer says that it was not alone.
    pub violations: usize,
    /// True if the run was stopped because it went on for too long.
    pub overdue: bool,
}

impl Showcase {
    /// Prepares runs of `config` under `folder`; the programs are those beside this one.
    pub fn new(config: &Path, folder: &Path, proof: bool) -> io::Result<Self> {
        let text = fs::read_to_string(config).map_err(|e| io::Error::other(format!("{}: {e}", config.display())))?;
        let yaml = serde_yaml::from_str(&text).map_err(io::Error::other)?;
        let own = std::env::current_exe()?;
        let programs = own.parent().unwrap_or(Path::new(".")).to_owned();
        for name in ["supervise", "demo_trainer"] {
            if !programs.join(name).exists() {
                return Err(io::Error::other(format!(
                    "{} is not there; build all programs first: cargo build -p supervise-tests --bins",
                    programs.join(name).display()
                )));
            }
        }
        Ok(Showcase {
            yaml,
            folder: folder.to_owned(),
            programs,
            proof,
        })
    }

    /// Runs the trainer to the end, printing each line of `supervise` after `name`.
    pub fn run(&self, name: &str, faults: bool) -> io::Result<Outcome> {
        let folder = self.folder.join(name);
        let root = folder.join("checkpoints");
        fs::create_dir_all(&folder)?;
        let mut yaml = self.yaml.clone();
        yaml["trainer"]["default_local_dir"] = json!(root);
        if !faults {
            yaml["demo"]["faults"] = json!([]);
        }
        let config = folder.join("demo.yaml");
        fs::write(&config, serde_yaml::to_string(&yaml).map_err(io::Error::other)?)?;

        let mut child = self
            .supervise()
            .arg("run")
            .arg(&config)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let readers = [echo(name, child.stdout.take()), echo(name, child.stderr.take())];
        let mut outcome = Outcome::default();
        (outcome.exit_code, outcome.overdue) = wait(&mut child)?;
        // Readers end when the last process that holds the pipes does. A process that
        // escaped may hold them on, so an overdue run is not waited for.
        if !outcome.overdue {
            readers.into_iter().flatten().for_each(|r| drop(r.join()));
        }
        self.look(&folder, &root, &mut outcome);
        Ok(outcome)
    }

    fn supervise(&self) -> Command {
        let mut command = Command::new(self.programs.join("supervise"));
        let mut path = vec![self.programs.clone()];
        path.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
        if let Ok(path) = std::env::join_paths(path) {
            command.env("PATH", path);
        }
        if !self.proof {
            command.env("SUPERVISE_PROOF__ENABLED", "false");
        }
        command
    }

    /// Collects what the run left behind.
    fn look(&self, folder: &Path, root: &Path, outcome: &mut Outcome) {
        let digest = fs::read_to_string(folder.join("digest.txt")).ok();
        outcome.digest = digest.map(|d| d.trim().to_owned());
        outcome.faults = names(&folder.join("faults"));
        let violations = fs::read_to_string(folder.join("writers/violations"));
        outcome.violations = violations.map_or(0, |v| v.lines().count());
        let run = root.join(".supervise");
        outcome.attempts = self
            .status(root)
            .and_then(|status| attempts(&status))
            .unwrap_or_else(|| names(&run.join("attempts")).len() as u64);
        outcome.refused = steps_below(&run.join("aside"), 4);
    }

    fn status(&self, root: &Path) -> Option<Value> {
        let output = self.supervise().arg("status").arg(root).arg("--json").output().ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }
}

/// The number of attempts in a status: a number, or a list with one entry for each.
fn attempts(status: &Value) -> Option<u64> {
    match status {
        Value::Array(runs) => runs.iter().find_map(attempts),
        Value::Object(fields) => match fields.get("attempts") {
            Some(Value::Number(n)) => n.as_u64(),
            Some(Value::Array(list)) => Some(list.len() as u64),
            _ => fields.get("runs").or(fields.get("run")).and_then(attempts),
        },
        _ => None,
    }
}

fn echo<R: Read + Send + 'static>(name: &str, pipe: Option<R>) -> Option<thread::JoinHandle<()>> {
    let (name, mut lines) = (name.to_owned(), BufReader::new(pipe?));
    Some(thread::spawn(move || {
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line);
            let _ = writeln!(io::stdout(), "{name:>8} | {}", text.trim_end());
            line.clear();
        }
    }))
}

/// Waits for a child; asks it to stop when it is overdue, and kills it if it does not.
fn wait(child: &mut Child) -> io::Result<(Option<i32>, bool)> {
    let began = Instant::now();
    let mut asked = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status.code(), asked));
        }
        if !asked && began.elapsed() > LIMIT {
            asked = true;
            let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
            kill(Pid::from_raw(pid), Signal::SIGTERM)?;
        }
        if began.elapsed() > LIMIT + GRACE {
            child.kill()?;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn steps_below(folder: &Path, depth: u8) -> Vec<String> {
    let mut steps = Vec::new();
    for name in names(folder) {
        let path = folder.join(&name);
        // Beside each step lies a file that says why it is there.
        if !path.is_dir() {
            continue;
        }
        if name.starts_with("global_step_") {
            steps.push(name);
        } else if depth > 0 {
            steps.extend(steps_below(&path, depth - 1));
        }
    }
    steps
}

/// The two runs side by side.
#[derive(Debug)]
pub struct Table {
    /// The run without faults.
    pub straight: Outcome,
    /// The run with faults.
    pub faulted: Outcome,
}

impl Table {
    /// Returns true if both runs ended, with the same weights.
    pub fn equal(&self) -> bool {
        self.straight.digest.is_some() && self.straight.digest == self.faulted.digest
    }

    /// The table for people.
    pub fn render(&self) -> String {
        let row = |what: &str, cell: fn(&Outcome) -> String| {
            format!("{what:<22}{:<24}{}\n", cell(&self.straight), cell(&self.faulted))
        };
        let mut text = format!("{:<22}{:<24}with faults\n", "", "uninterrupted");
        text += &row("final digest", |o| {
            o.digest
                .as_ref()
                .map_or("none".to_owned(), |d| d.chars().take(16).collect())
        });
        text += &row("exit code", |o| match (o.exit_code, o.overdue) {
            (Some(code), false) => code.to_string(),
            (Some(code), true) => format!("{code}, stopped: did not end"),
            (None, _) => "killed: did not end".to_owned(),
        });
        text += &row("attempts", |o| o.attempts.to_string());
        text += &row("faults", |o| o.faults.len().to_string());
        text += &row("checkpoints refused", |o| o.refused.len().to_string());
        text += &row("two writers at once", |o| o.violations.to_string());
        for (what, list) in [("fault", &self.faulted.faults), ("refused", &self.faulted.refused)] {
            list.iter().for_each(|item| text += &format!("  {what}: {item}\n"));
        }
        text + if self.equal() {
            "digests are EQUAL\n"
        } else {
            "digests DIFFER\n"
        }
    }

    /// Faults.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut require = |holds: bool, text: &str| {
            if !holds {
                complaints.push(text.to_owned());
            }
        };
        require(self.equal(), "the digests differ");
        require(
            self.straight.exit_code == Some(0),
            "the run without faults did not end with 0",
        );
        require(
            self.faulted.exit_code == Some(0),
            "the run with faults did not end with 0",
        );
        require(!self.faulted.faults.is_empty(), "no fault was seen");
        require(self.straight.faults.is_empty(), "the run without faults had faults");
        require(self.faulted.attempts > self.straight.attempts, "attempts did not grow");
        let violations = self.straight.violations + self.faulted.violations;
        require(violations == 0, "two trainers were alive at once");
        complaints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(digest: &str, attempts: u64, faults: &[&str]) -> Outcome {
        Outcome {
            digest: Some(digest.to_owned()),
            exit_code: Some(0),
            attempts,
            faults: faults.iter().map(|f| f.to_string()).collect(),
            ..Outcome::default()
        }
    }

    #[test]
    fn only_equal_digests_after_faults_and_new_attempts_are_good() {
        let good = Table {
            straight: outcome("a", 1, &[]),
            faulted: outcome("a", 3, &["kill"]),
        };
        assert_eq!(good.complaints(), Vec::<String>::new());
        let bad = |faulted: Outcome| {
            Table {
                straight: outcome("a", 1, &[]),
                faulted,
            }
            .complaints()
            .len()
        };
        assert_eq!(bad(outcome("b", 3, &["kill"])), 1);
        assert_eq!(bad(outcome("a", 1, &["kill"])), 1);
        assert_eq!(bad(outcome("a", 3, &[])), 1);
        assert_eq!(
            bad(Outcome {
                violations: 1,
                ..outcome("a", 3, &["kill"])
            }),
            1
        );
        assert_eq!(
            bad(Outcome {
                exit_code: None,
                digest: None,
                ..outcome("", 3, &["kill"])
            }),
            2
        );
    }

    #[test]
    fn attempts_are_found_in_several_shapes_of_a_status() {
        assert_eq!(attempts(&json!({"attempts": 4})), Some(4));
        assert_eq!(attempts(&json!({"runs": [{"attempts": [{}, {}]}]})), Some(2));
        assert_eq!(attempts(&json!({"state": "Finished"})), None);
    }
}
