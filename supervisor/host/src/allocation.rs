//! The Slurm job that this process runs in: when it ends, and how it is requeued.
//!
//! Slurm's daemons may be unreachable or hang: each query has a deadline, and a missing answer changes nothing.

use crate::guard::nodes::allocation;
use crate::process::call::call;
use camino::Utf8Path;
use std::collections::BTreeMap;
use std::time::Duration;
use supervise_core::id::Ms;

/// Deadline of a query; Slurm's commands give up after about ten seconds.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time between SIGTERM and SIGKILL, unless Slurm's configuration says otherwise.
const KILL_WAIT: Ms = Ms::secs(30);

/// How often Slurm is asked to exclude nodes, and the pause.
const EXCLUSIONS: u32 = 20;
const EXCLUSION: Duration = Duration::from_millis(500);

/// The job that this process runs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmAllocation {
    pub job: String,
    pub restarts: u32,
    pub kill_wait: Ms,
    /// Its end, in seconds since 1970; `None`: it has none, or that is unknown.
    pub ends: Option<u64>,
    env: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct SlurmJobInfo {
    ends: Option<u64>,
    is_batch: bool,
    may_requeue: bool,
    state: String,
    reason: String,
    /// Nodes that it must not start on, as Slurm writes them.
    excluded: String,
}

/// Whether an interrupted request was accepted shows within this.
const HEARD: Duration = Duration::from_secs(1);

impl SlurmAllocation {
    /// Finds the job by this process's variables, and asks when and how it ends.
    #[must_use]
    pub fn of_this_process(env: BTreeMap<String, String>) -> Option<Self> {
        let job = env.get("SLURM_JOB_ID")?.clone();
        if job.is_empty() || !job.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let restarts = env.get("SLURM_RESTART_COUNT").and_then(|n| n.trim().parse().ok());
        let mut out = Self {
            job,
            restarts: restarts.unwrap_or_default(),
            kill_wait: KILL_WAIT,
            ends: None,
            env,
        };
        if let Ok(said) = out.ask(&["scontrol", "show", "config"])
            && let Some(wait) = kill_wait(&said)
        {
            out.kill_wait = wait;
        }
        out.look();
        Some(out)
    }

    /// Asks again when it ends; without an answer, the old value stays.
    pub fn look(&mut self) {
        if let Ok(said) = self.said() {
            self.ends = said.ends;
        }
    }

    /// Asks Slurm to requeue the job, without the lost nodes, which are returned. Slurm at once sends SIGTERM to the
    /// whole job, including this process.
    ///
    /// # Errors
    /// Why it is not requeued, for the operator.
    pub fn requeue(&self) -> Result<Vec<String>, String> {
        let said = self.said()?;
        if !said.is_batch {
            return Err("it is no batch job".to_owned());
        }
        if !said.may_requeue {
            return Err(
                "it was submitted with --no-requeue, or the site's JobRequeue=0 holds (sbatch --requeue)".to_owned(),
            );
        }
        // A cancelled job is no longer wanted, and Slurm requeues a preempted one itself.
        if said.state != "RUNNING" && said.reason != "TimeLimit" {
            return Err(format!("it is {} ({}) already", said.state, said.reason));
        }
        // With a single node, this process would not be running.
        let list = self.env.get("SLURM_JOB_NODELIST");
        let has_several = list.is_some_and(|list| list.contains(['[', ',']));
        let lost = match has_several.then(|| allocation::ask(&self.env)) {
            Some(Ok(places)) => places.lost.into_iter().map(|(node, _)| node).collect(),
            _ => Vec::new(),
        };
        if let Err(why) = self.ask(&["scontrol", "requeue", &self.job]) {
            self.was_heard(why)?;
        }
        Ok(self.exclude(lost, &said.excluded))
    }

    /// Slurm stops the whole job at once, including its own command, whose request may have been accepted before.
    fn was_heard(&self, why: String) -> Result<(), String> {
        std::thread::sleep(HEARD);
        let state = self.said().map(|now| now.state).unwrap_or_default();
        match state.as_str() {
            "PENDING" | "REQUEUED" => Ok(()),
            "COMPLETING" => Err(format!(
                "{why}; Slurm ends it all the same: `squeue --jobs {}` tells if it waits for its next start",
                self.job
            )),
            _ => Err(why),
        }
    }

    /// Slurm only accepts this for a pending job, which it becomes a moment later.
    fn exclude(&self, lost: Vec<String>, before: &str) -> Vec<String> {
        if lost.is_empty() {
            return lost;
        }
        let before = Some(before).filter(|list| !list.is_empty());
        let list: Vec<&str> = before.into_iter().chain(lost.iter().map(String::as_str)).collect();
        let (job, list) = (format!("JobId={}", self.job), format!("ExcNodeList={}", list.join(",")));
        for _ in 0..EXCLUSIONS {
            if self.ask(&["scontrol", "update", &job, &list]).is_ok() {
                return lost;
            }
            std::thread::sleep(EXCLUSION);
        }
        Vec::new()
    }

    fn said(&self) -> Result<SlurmJobInfo, String> {
        let text = self.ask(&["scontrol", "--oneliner", "show", "job", &self.job])?;
        Ok(read(&text))
    }

    fn ask(&self, argv: &[&str]) -> Result<String, String> {
        let mut env = self.env.clone();
        // Times as numbers: Slurm's default format has no time zone.
        env.insert("SLURM_TIME_FORMAT".to_owned(), "%s".to_owned());
        env.retain(|name, _| !name.starts_with("SCONTROL_"));
        let said = call(argv, env, Utf8Path::new("/"), &[], PATIENCE)?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }
}

fn read(text: &str) -> SlurmJobInfo {
    let mut out = SlurmJobInfo::default();
    for (name, value) in text.split_whitespace().filter_map(|word| word.split_once('=')) {
        match name {
            "EndTime" => out.ends = value.parse().ok(),
            "BatchFlag" => out.is_batch = value != "0",
            "Requeue" => out.may_requeue = value != "0",
            "JobState" => value.clone_into(&mut out.state),
            "Reason" => value.clone_into(&mut out.reason),
            "ExcNodeList" if value != "(null)" => value.clone_into(&mut out.excluded),
            _ => {}
        }
        // What follows may contain text of the user.
        if name == "Command" {
            break;
        }
    }
    out
}

fn kill_wait(config: &str) -> Option<Ms> {
    let line = config.lines().find(|l| l.starts_with("KillWait"))?;
    let seconds = line.split_once('=')?.1.split_whitespace().next()?;
    seconds.parse().ok().map(Ms::secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "JobId=1 JobName=b UserId=root(0) JobState=RUNNING Reason=None Requeue=1 Restarts=0 BatchFlag=1 \
        StartTime=1795574648 EndTime=1795575848 Deadline=N/A Command=/x/EndTime=5 WorkDir=/w";

    #[test]
    fn a_job_is_read_as_slurm_22_05_prints_it() {
        let said = read(JOB);
        assert_eq!(
            (said.ends, said.is_batch, said.may_requeue),
            (Some(1_795_575_848), true, true)
        );
        assert_eq!((said.state.as_str(), said.reason.as_str()), ("RUNNING", "None"));
        assert_eq!(read("ExcNodeList=n[2-3] Command=/x").excluded, "n[2-3]");
        assert_eq!(read("ExcNodeList=(null)").excluded, "");
        let pending = read("JobState=PENDING EndTime=Unknown BatchFlag=0 Requeue=0");
        assert_eq!(
            (pending.ends, pending.is_batch, pending.may_requeue),
            (None, false, false)
        );
        // A version that does not know this time format yields no end.
        assert_eq!(read("EndTime=2026-11-25T02:44:11").ends, None);
    }

    #[test]
    fn the_time_to_the_kill_is_read() {
        assert_eq!(
            kill_wait("KillOnBadExit = 0\nKillWait                = 5 sec\n"),
            Some(Ms::secs(5))
        );
        assert_eq!(kill_wait("x"), None);
    }

    #[test]
    fn outside_of_a_job_there_is_none() {
        assert_eq!(SlurmAllocation::of_this_process(BTreeMap::new()), None);
        let odd = BTreeMap::from([("SLURM_JOB_ID".to_owned(), "1; x".to_owned())]);
        assert_eq!(SlurmAllocation::of_this_process(odd), None);
    }
}
