//! Slurm jobs submitted by a trainer: they outlive the process that submitted them. Recognizes this run's jobs and
//! parses `squeue`.
//!
//! A name proves nothing: two runs of one user may name their jobs alike. Each job that an attempt submits gets a
//! comment that names the attempt and a key that is stored only in the run's directory. Only such a job, with a name
//! of the trainer's workers, is ever cancelled.

use camino::Utf8PathBuf;
use serde::{Deserialize, Serialize};
use supervise_core::id::{AttemptNo, RunId, Term};

/// Fields requested from `squeue`: number, state, comment, script, name. The name is last because it may contain
/// anything.
pub const FORMAT: &str = "%A|%T|%k|%o|%j";
/// Jobs read at most; a user has hundreds.
const JOBS: usize = 100_000;

/// What a run's jobs look like. It proves nothing: names and scripts are free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmJobs {
    pub prefix: String,
    /// Directory of the submitted scripts.
    pub scripts: Utf8PathBuf,
}

/// The mark that proves a job to be this run's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOwnership {
    /// Stored only in the run directory.
    pub key: String,
    pub run: RunId,
}

impl JobOwnership {
    /// The comment for the jobs that an attempt submits.
    #[must_use]
    pub fn comment(&self, term: Term, attempt: AttemptNo) -> String {
        format!("{}{term}/{attempt}", self.head())
    }

    fn head(&self) -> String {
        format!("supervise:{}/{}/", self.key, self.run)
    }

    /// The attempt of this run that a comment names.
    fn attempt(&self, comment: &str) -> Option<AttemptNo> {
        let (term, attempt) = comment.strip_prefix(&self.head())?.split_once('/')?;
        let _: u32 = term.parse().ok()?;
        attempt.parse().ok().filter(|_| !self.key.is_empty()).map(AttemptNo)
    }
}

/// A job that is queued or running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmJob {
    pub id: u64,
    pub state: String,
    pub name: String,
    /// The attempt of this run that submitted it; `None` if its origin is unproven.
    pub attempt: Option<AttemptNo>,
}

impl std::fmt::Display for SlurmJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}, {})", self.id, self.name, self.state)
    }
}

/// Lists jobs as text.
#[must_use]
pub fn words(jobs: &[SlurmJob]) -> String {
    jobs.iter().map(SlurmJob::to_string).collect::<Vec<_>>().join(", ")
}

/// Parses the jobs of this run and those that only look like them; all others are dropped.
///
/// # Errors
/// A line could not be parsed: then nothing is known.
pub fn read(output: &str, proof: &JobOwnership, known: &SlurmJobs) -> Result<Vec<SlurmJob>, String> {
    let is_title = |line: &&str| line.starts_with("CLUSTER:");
    if output.lines().filter(is_title).count() > 1 {
        return Err(
            "several clusters answer (SLURM_CLUSTERS), and a job's number does not tell which is meant".to_owned(),
        );
    }
    let lines = output
        .lines()
        .filter(|line| !line.trim().is_empty() && !is_title(line))
        .take(JOBS);
    let jobs: Result<Vec<Option<SlurmJob>>, String> = lines.map(|line| job(line, proof, known)).collect();
    Ok(jobs?.into_iter().flatten().collect())
}

fn job(line: &str, proof: &JobOwnership, known: &SlurmJobs) -> Result<Option<SlurmJob>, String> {
    let mut parts = line.splitn(5, '|');
    let mut next = || parts.next().map(str::trim);
    let (id, state, comment, script) = (next(), next(), next(), next());
    let name: Option<String> = next().map(|name| name.chars().filter(|c| !c.is_control()).take(200).collect());
    let id = id.and_then(|id| id.parse().ok());
    let (Some(id), Some(state), Some(comment), Some(script), Some(name)) = (id, state, comment, script, name) else {
        let shown: String = line.chars().filter(|c| !c.is_control()).take(200).collect();
        return Err(format!("squeue prints what cannot be understood: {shown}"));
    };
    let is_word = state.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    // Other jobs that the user's script submits may continue.
    let attempt = proof.attempt(comment).filter(|_| name.starts_with(&known.prefix));
    // Another supervised run marks its jobs too; a mark with our key but another run is this run before it was moved.
    let anothers = comment.starts_with("supervise:") && !comment.starts_with(&format!("supervise:{}/", proof.key));
    // AReaL submits a script from its log directory: one below another file root belongs to another run.
    let elsewhere = script.starts_with('/') && !script.starts_with(&format!("{}/", known.scripts));
    let namesake = name.starts_with(&known.prefix) && !elsewhere;
    let seen = attempt.is_some() || namesake && !anothers;
    Ok(seen.then(|| SlurmJob {
        id,
        state: if is_word { state.to_owned() } else { "?".to_owned() },
        name,
        attempt,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof() -> JobOwnership {
        JobOwnership {
            key: "0123".to_owned(),
            run: RunId("00ff".to_owned()),
        }
    }

    fn known() -> SlurmJobs {
        SlurmJobs {
            prefix: "exp_t0:".to_owned(),
            scripts: "/files/logs/me/exp/t0".into(),
        }
    }

    #[test]
    fn only_the_comment_makes_a_job_ours() {
        let ours = proof().comment(Term(2), AttemptNo(7));
        assert_eq!(ours, "supervise:0123/00ff/2/7");
        let attempt = Some(Some(AttemptNo(7)));
        let script = "/files/logs/me/exp/t0/actor.sh";
        for (comment, script, name, seen) in [
            (ours.as_str(), script, "exp_t0:actor", attempt),
            (ours.as_str(), "/elsewhere/x.sh", "exp_t0:my|job", attempt),
            // Submitted by the trainer's script, but not a worker.
            (ours.as_str(), script, "evaluation", None),
            // Started by hand, or by an `sbatch` that was called by its path.
            ("(null)", script, "exp_t0:actor", Some(None)),
            ("mine", "(null)", "exp_t0:actor", Some(None)),
            // Other runs with the same names: below another root, or supervised from another directory.
            ("(null)", "/other/logs/me/exp/t0/actor.sh", "exp_t0:actor", None),
            ("(null)", "/files/logs/me/exp/t0x/actor.sh", "exp_t0:actor", None),
            ("supervise:4567/00ff/2/7", script, "exp_t0:actor", None),
            // This run, before its root was moved.
            ("supervise:0123/00fe/2/7", script, "exp_t0:actor", Some(None)),
            ("(null)", script, "exp_t01:actor", None),
            ("supervise:0123/00ff/2/", script, "other", None),
            ("supervise:0123/00ff/2/7x", script, "other", None),
        ] {
            let line = format!("12|RUNNING|{comment}|{script}|{name}\n");
            let read = read(&line, &proof(), &known()).unwrap();
            assert_eq!(read.first().map(|job| job.attempt), seen, "{line}");
        }
    }

    #[test]
    fn a_run_without_a_key_has_no_jobs_of_its_own() {
        let nobody = JobOwnership {
            key: String::new(),
            ..proof()
        };
        let line = format!("12|RUNNING|{}|/x.sh|exp_t0:a", nobody.comment(Term(1), AttemptNo(1)));
        assert_eq!(read(&line, &nobody, &known()), Ok(Vec::new()));
    }

    #[test]
    fn what_cannot_be_understood_is_no_answer() {
        for line in ["slurm_load_jobs error", "x|RUNNING|a|b|c", "12|RUNNING|a|b"] {
            assert!(read(line, &proof(), &known()).is_err(), "{line}");
        }
        for line in ["\n", "CLUSTER: one\n"] {
            assert_eq!(read(line, &proof(), &known()), Ok(Vec::new()));
        }
        assert!(read("CLUSTER: one\nCLUSTER: two\n", &proof(), &known()).is_err());
        let jobs = read("7|RUN\u{1b}|(null)|(null)|exp_t0:a\u{1b}[1m\n", &proof(), &known()).unwrap();
        assert_eq!(words(&jobs), "7 (exp_t0:a[1m, ?)");
    }
}
