//! Evidence of an attempt that failed or stands still: gathered by a helper, waited for a moment, never for long.
//!
//! Of one that failed it is gathered while its tree is killed, and the end of the tree is told once the facts are there. One that
//! stands still is looked at first, and killed then. After [`WAIT`] everything goes on without.

use super::jobs::Seen;
use super::{Driver, Internal};
use std::collections::BTreeMap;
use std::time::Duration;
use supervise_core::event::{EventKind, ExitStatus};
use supervise_core::id::{AttemptNo, Ms, ProcRef, Tick};
use supervise_core::machine::Facts;
use supervise_core::reason::Reason;
use supervise_core::record::{Act, ActKind};
use supervise_core::state::Mode;
use supervise_host::evidence::{DIRECTORY, Order, RECORDS, command};
use supervise_host::guard::protocol::ToGuard;
use supervise_host::process::kill::signal_process;
use supervise_host::process::{list_descendants, proc_stat};
use supervise_host::wire;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;

/// Facts are waited for this long.
const WAIT: Ms = Ms::secs(10);
/// Longest line of facts.
const ANSWER: u64 = 1 << 20;

/// At the end of the run a helper has this long to write down what it has.
const LAST_FILES: Duration = Duration::from_secs(5);
/// One that was killed is reaped within this.
const REAPED: Duration = Duration::from_secs(1);

/// The process of a helper at work, and the task that listens to it and reaps it.
pub(super) struct EvidenceTask {
    helper: Option<ProcRef>,
    task: JoinHandle<()>,
}

/// A helper at work.
pub(super) struct Gathering {
    attempt: AttemptNo,
    /// Its facts are waited for until then; `None`: they came, or not in time.
    until: Option<Tick>,
    /// A kill that comes after them.
    kill: Option<Act>,
    /// The end of the tree that is told after them.
    gone: bool,
    /// Closed when the tree is gone: then it lists how each process ended.
    input: Option<ChildStdin>,
}

impl Driver {
    /// A worker ended. Where it failed by itself, what shows why is gathered while the others are ended: they are told to first.
    pub(super) fn on_worker_end(&mut self, attempt: AttemptNo, status: ExitStatus, event: EventKind) {
        let by_itself = self.state.attempt.as_ref().is_some_and(|a| a.ended_by_us.is_none());
        let runs = self.state.mode == Mode::Running && self.state.stop.is_none();
        self.feed(event);
        if !status.is_success() && by_itself && runs {
            self.gather(attempt, false);
        }
    }

    /// A kill of what stands still waits until it was looked at. `true`: it waits.
    pub(super) fn is_looked_at_first(&mut self, act: &Act, reasons: &[Reason]) -> bool {
        let stalled = reasons.iter().any(|r| r.code.starts_with("stall"));
        let held = self.guard.as_ref().filter(|l| !l.gone).map(|l| l.attempt);
        let (ActKind::KillTree, true, Some(attempt)) = (&act.kind, stalled, held) else {
            return false;
        };
        self.gather(attempt, true);
        match &mut self.gathering {
            Some(g) if g.attempt == attempt && g.until.is_some() => {
                g.kill = Some(act.clone());
                true
            }
            _ => false,
        }
    }

    fn gather(&mut self, attempt: AttemptNo, still: bool) {
        if self.gathering.as_ref().is_some_and(|g| g.attempt == attempt) {
            return;
        }
        let Some(order) = self.order_of_evidence(attempt, still) else {
            return;
        };
        let Ok(line) = wire::encode(&order) else { return };
        let ahead = self.helper_ahead.take();
        let waiting = ahead.and_then(|mut helper| matches!(helper.try_wait(), Ok(None)).then_some(helper));
        let Some(mut helper) = waiting.or_else(|| self.helper()) else {
            return;
        };
        let (Some(input), tx) = (helper.stdin.take(), self.internal.clone()) else {
            return;
        };
        self.gathering = Some(Gathering {
            attempt,
            until: Some(self.now().after(WAIT)),
            kill: None,
            gone: false,
            input: None,
        });
        let process = helper.id().and_then(|pid| proc_stat(i32::try_from(pid).ok()?));
        let task = tokio::spawn(async move {
            let mut input = input;
            let asked = input.write_all(&line).await;
            // The driver may have ended meanwhile.
            let _ = tx.send(Internal::Asking(attempt, input));
            let facts = match asked {
                Ok(()) => answer(&mut helper).await,
                Err(_) => None,
            };
            let _ = tx.send(Internal::Evidence(attempt, facts.map(Box::new)));
            // It is reaped here or, after a sweep, there.
            let _ = helper.wait().await;
        });
        self.evidence_tasks.retain(|t| !t.task.is_finished());
        self.evidence_tasks.push(EvidenceTask {
            helper: process.map(|s| s.proc_ref()),
            task,
        });
    }

    /// The first of an attempt reads the kernel's log on from the launch. Two files of one opening would share their place in it, and
    /// the second reader miss what the first has read: later ones open their own.
    fn helper(&mut self) -> Option<Child> {
        let log = self.guard.as_mut().and_then(|l| l.kernel_log.take());
        Command::from(command(self.exe.as_std_path(), log)).spawn().ok()
    }

    /// A program takes longer to load than a failed attempt to be ended: one waits for its order while workers run. It ends by
    /// itself when we do.
    pub(super) fn helper_stands_by(&mut self) {
        if self.helper_ahead.is_none() {
            self.helper_ahead = self.helper();
        }
    }

    /// No helper outlives the run. One that is at work has a moment for its last files; then it is killed with what it started.
    pub(super) async fn end_evidence(&mut self) {
        // It writes them when its input is closed.
        self.gathering = None;
        let mut tasks = std::mem::take(&mut self.evidence_tasks);
        if tokio::time::timeout(LAST_FILES, all_done(&mut tasks)).await.is_err() {
            let left = tasks.iter().filter(|t| !t.task.is_finished());
            for helper in left.filter_map(|t| t.helper) {
                for process in list_descendants(helper.pid).into_iter().chain([helper]) {
                    // It may have ended meanwhile.
                    let _ = signal_process(process, libc::SIGKILL);
                }
            }
            // One that hangs in the kernel dies with what it waits for.
            let _ = tokio::time::timeout(REAPED, all_done(&mut tasks)).await;
        }
        if let Some(mut ahead) = self.helper_ahead.take() {
            let _ = tokio::time::timeout(REAPED, ahead.kill()).await;
        }
    }

    fn order_of_evidence(&self, attempt: AttemptNo, still: bool) -> Option<Order> {
        let a = self.state.attempt.as_ref().filter(|a| a.no == attempt)?;
        let scratch = self.scratch.iter().flat_map(|dir| [dir.clone(), dir.join("ray")]);
        Some(Order {
            attempt: self.spec.run_dir.join(format!("attempts/{:04}", attempt.0)),
            run: self.spec.run.clone(),
            known: a.guard.into_iter().chain(a.workers.iter().copied()).collect(),
            workers: a.workers.clone(),
            argv: a.argv.clone(),
            age_ms: self.now().since(a.launched?).0,
            root: self.spec.root.clone(),
            still,
            slurm_job: std::env::var("SLURM_JOB_ID")
                .ok()
                .filter(|id| id.bytes().all(|b| b.is_ascii_digit())),
            ray: scratch.chain(["/tmp/ray".into()]).collect(),
            secrets: supervise_config::known_secrets(),
        })
    }

    /// The helper has its order: its input is held until the tree is gone.
    pub(super) fn on_asking(&mut self, attempt: AttemptNo, input: ChildStdin) {
        if let Some(g) = self.gathering.as_mut().filter(|g| g.attempt == attempt) {
            g.input = Some(input);
        }
    }

    /// Facts came, or none will.
    pub(super) fn on_evidence(&mut self, attempt: AttemptNo, facts: Option<Facts>) {
        if self
            .gathering
            .as_ref()
            .is_none_or(|g| g.attempt != attempt || g.until.is_none())
        {
            return;
        }
        if let Some(facts) = facts {
            self.feed(EventKind::Evidence { attempt, facts });
        }
        self.go_on();
    }

    /// No process is left: told at once, or once the facts are there. Nobody who wants an end waits for them.
    pub(super) fn on_guard_saw_it_gone(&mut self, attempt: AttemptNo) {
        match &mut self.gathering {
            Some(g) if g.attempt == attempt && g.until.is_some() && !self.state.is_to_stop() => g.gone = true,
            _ => self.all_gone(attempt),
        }
    }

    /// The moment at which nothing is waited for any more.
    pub(super) fn evidence_due(&self) -> Option<Tick> {
        self.gathering.as_ref().and_then(|g| g.until)
    }

    pub(super) fn check_evidence(&mut self, now: Tick) {
        let late = self.evidence_due().is_some_and(|due| due <= now);
        let wanted = self.gathering.as_ref().is_some_and(|g| g.gone && g.until.is_some());
        if late || wanted && self.state.is_to_stop() {
            self.go_on();
        }
    }

    /// Does the act that waited for the facts.
    fn go_on(&mut self) {
        let Some(g) = &mut self.gathering else { return };
        g.until = None;
        let (attempt, gone) = (g.attempt, std::mem::take(&mut g.gone));
        // Of a tree that is gone nothing is to be killed: who would look for it without its guard ends whatever is started next.
        if let Some(act) = g.kill.take().filter(|_| !gone) {
            self.safety(act);
        }
        if gone {
            self.all_gone(attempt);
        }
    }

    fn all_gone(&mut self, attempt: AttemptNo) {
        // With its input closed the helper writes down how each process ended.
        self.gathering.take_if(|g| g.attempt == attempt);
        if let Some(link) = self.guard.as_mut().filter(|l| l.attempt == attempt) {
            link.say(&ToGuard::Bye);
        }
        self.on_tree_gone(attempt, Vec::new(), Seen::ByGuard);
    }
}

async fn all_done(tasks: &mut [EvidenceTask]) {
    for running in tasks.iter_mut().filter(|t| !t.task.is_finished()) {
        let _ = (&mut running.task).await;
    }
}

/// Its facts, a line; `None` where it gave none.
async fn answer(helper: &mut Child) -> Option<Facts> {
    let output = helper.stdout.take()?;
    let mut line = String::new();
    BufReader::new(output.take(ANSWER)).read_line(&mut line).await.ok()?;
    serde_json::from_slice(line.as_bytes()).ok()
}

/// Variables that make the workers leave evidence of their own in the attempt's directory. One that the user set stays, by whichever of its
/// names: newer versions of torch have others, and heed the first.
pub(super) fn helping_variables(
    attempt: &camino::Utf8Path,
    rank: Option<u32>,
    plain: bool,
    env: &BTreeMap<String, String>,
) -> Vec<(String, String)> {
    let dir = attempt.join(DIRECTORY);
    let records = dir.join(RECORDS).into_string();
    let wanted: [(&[&str], &str); 4] = [
        // An interpreter that hangs says where it stands before it is killed; one that crashes in native code does, too.
        (&["PYTHONFAULTHANDLER"], "1"),
        (&["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"], "2000"),
        (&["TORCH_NCCL_DUMP_ON_TIMEOUT"], "1"),
        (
            &["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"],
            &records,
        ),
    ];
    let unset = wanted
        .iter()
        .filter(|(names, _)| !(plain && names.contains(&"PYTHONFAULTHANDLER")))
        .filter(|(names, _)| !names.iter().any(|name| env.contains_key(*name)));
    let all = unset.flat_map(|(names, value)| names.iter().map(|name| ((*name).to_owned(), (*value).to_owned())));
    let error = rank.map(|rank| {
        let file = dir.join(format!("error-{rank}.json")).into_string();
        ("TORCHELASTIC_ERROR_FILE".to_owned(), file)
    });
    all.chain(error.filter(|(name, _)| !env.contains_key(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_set_stays_by_whichever_name() {
        let given = |env: &[(&str, &str)]| {
            let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let all = helping_variables("/run/attempts/0001".into(), Some(3), false, &env);
            all.into_iter().collect::<BTreeMap<String, String>>()
        };
        let all = given(&[]);
        assert_eq!(all.len(), 7);
        assert_eq!(
            all["TORCH_FR_DUMP_TEMP_FILE"],
            "/run/attempts/0001/evidence/nccl_trace_rank_"
        );
        assert!(all["TORCHELASTIC_ERROR_FILE"].ends_with("error-3.json"));
        let some = given(&[("TORCH_NCCL_TRACE_BUFFER_SIZE", "0"), ("TORCHELASTIC_ERROR_FILE", "x")]);
        let names: Vec<&str> = some.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "PYTHONFAULTHANDLER",
                "TORCH_FR_DUMP_TEMP_FILE",
                "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
                "TORCH_NCCL_DUMP_ON_TIMEOUT"
            ]
        );
    }
}
