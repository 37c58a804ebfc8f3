//! The job of Slurm's that this process runs in: when it ends, and how it is given back.
//!
//! Its daemons may be away or hang: each question has a deadline, and no answer changes nothing.

use crate::guard::nodes::allocation;
use crate::process::call::call;
use camino::Utf8Path;
use std::collections::BTreeMap;
use std::time::Duration;
use supervise_core::id::Ms;

/// An answer is waited for this long; the programs give up by themselves after about ten seconds.
const PATIENCE: Duration = Duration::from_secs(15);
/// Slurm kills what does not end so long after SIGTERM, where its configuration does not say another time.
const KILL_WAIT: Ms = Ms::secs(30);

/// How often Slurm is asked to leave out nodes, and the pause.
const EXCLUSIONS: u32 = 20;
const EXCLUSION: Duration = Duration::from_millis(500);

/// The job that this process runs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmAllocation {
    /// Its number.
    pub job: String,
    /// How often it was requeued.
    pub restarts: u32,
    /// From SIGTERM to SIGKILL.
    pub kill_wait: Ms,
    /// Its end, in seconds since 1970; `None`: it has none, or nobody says.
    pub ends: Option<u64>,
    env: BTreeMap<String, String>,
}

/// Words of Slurm's about a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct SlurmJobInfo {
    ends: Option<u64>,
    is_batch: bool,
    may_requeue: bool,
    state: String,
    reason: String,
    /// Nodes that it is not started on, as Slurm writes them.
    excluded: String,
}

/// A request that was cut off is known so soon.
const HEARD: Duration = Duration::from_secs(1);

impl SlurmAllocation {
    /// By the variables of this process; asks when it ends and how it is ended.
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

    /// Asks when it ends; without an answer that is what it was.
    pub fn look(&mut self) {
        if let Ok(said) = self.said() {
            self.ends = said.ends;
        }
    }

    /// Asks Slurm to start it again, without the nodes that are lost: those are returned. It sends SIGTERM to all of the job at once, this
    /// process too.
    ///
    /// # Errors
    /// Why it is not, in words.
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
        // One that was cancelled is not wanted any more, and one that was preempted goes back by itself.
        if said.state != "RUNNING" && said.reason != "TimeLimit" {
            return Err(format!("it is {} ({}) already", said.state, said.reason));
        }
        // With a single node this process would not be here.
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

    /// Slurm ends all of the job at once, its own command too, which may have been heard before.
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

    /// Slurm takes this of a job that waits alone, which it does a moment later.
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
        // Times as numbers: those of its own form are in a zone that it does not say.
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
        // Whatever a person wrote stands behind it.
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
        // A version that does not know the format of times says nothing that counts.
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
