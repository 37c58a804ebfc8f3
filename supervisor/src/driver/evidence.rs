//! Gathers evidence of a failed or stalled attempt with a helper process, and waits for it only briefly.
//!
//! For a failed attempt it is gathered while the process tree is being killed, and the end of the tree is reported once the facts
//! arrived. A stalled attempt is examined first and killed then. The logs of an attempt that is to be diagnosed are read after its
//! last process exited. After [`WAIT`] the run continues without evidence.

use super::jobs::ExitWitness;
use super::{Driver, DriverMessage};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::time::Duration;
use supervise_core::event::{EventKind, ExitStatus};
use supervise_core::id::{AttemptNo, Ms, ProcRef, Tick};
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::{Act, ActKind, AfterStop};
use supervise_core::observe::machine::MachineFacts;
use supervise_core::rulebook::log_cause::LogCause;
use supervise_core::state::{RunMode, STALLED};
use supervise_host::evidence::{CompletedAttempt, DIRECTORY, EvidenceOrder, RECORDS, command, error_file};
use supervise_host::guard::protocol::ToGuard;
use supervise_host::process::kill::signal_process;
use supervise_host::process::{list_descendants, proc_stat};
use supervise_host::wire;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

const WAIT: Ms = Ms::secs(10);
/// Longest line of facts, in bytes.
const ANSWER: u64 = 1 << 20;

/// Time for a helper to write its files at the end of the run.
const LAST_FILES: Duration = Duration::from_secs(5);
/// A killed helper is reaped within this.
const REAPED: Duration = Duration::from_secs(1);

/// A running helper, and the task that reads its output and reaps it.
struct EvidenceTask {
    helper: Option<ProcRef>,
    task: JoinHandle<()>,
}

type Answers = BufReader<tokio::io::Take<ChildStdout>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EvidenceQuestion {
    Failed,
    Still,
    /// It exited without having been examined.
    LogsAlone,
}

/// The next answer of a helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EvidenceAnswer {
    Facts,
    /// The cause found in the logs, after the last process exited.
    Logs,
}

#[derive(Default)]
pub(super) struct EvidenceState {
    helper: Option<EvidenceHelper>,
    tasks: Vec<EvidenceTask>,
    /// The process that will gather the next evidence.
    ahead: Option<tokio::process::Child>,
}

struct EvidenceHelper {
    attempt: AttemptNo,
    next: EvidenceAnswer,
    /// How long to wait for it; `None`: not yet started, or no longer waited for.
    until: Option<Tick>,
    /// The logs were requested, or will be once its input is connected.
    asked: bool,
    /// A kill to perform once the facts arrived.
    kill: Option<Act>,
    /// The tree exited; to be reported once the facts arrived.
    gone: bool,
    /// Closed when the tree exited: the helper then lists how each process ended.
    input: Option<ChildStdin>,
}

impl Driver {
    /// Handles the exit of a worker. If it failed on its own, evidence is gathered while the others are being stopped.
    pub(super) fn on_worker_end(&mut self, attempt: AttemptNo, status: ExitStatus, event: EventKind) {
        let by_itself = self.state.attempt.as_ref().is_some_and(|a| a.end.ended_by_us.is_none());
        let runs = self.state.mode == RunMode::Running && self.state.requests.stop.is_none();
        self.feed(event);
        if !status.is_success() && by_itself && runs {
            self.gather(attempt, EvidenceQuestion::Failed);
        }
    }

    /// Delays a kill of a stalled attempt until it was examined. Returns true if the kill waits.
    pub(super) fn is_looked_at_first(&mut self, act: &Act, reasons: &[Reason]) -> bool {
        let stalled = reasons.iter().any(|r| r.code == STALLED);
        let held = self.guard.as_ref().filter(|l| !l.gone).map(|l| l.attempt);
        let (ActKind::KillTree, true, Some(attempt)) = (&act.kind, stalled, held) else {
            return false;
        };
        self.gather(attempt, EvidenceQuestion::Still);
        match &mut self.evidence.helper {
            Some(g) if g.attempt == attempt && g.until.is_some() => {
                g.kill = Some(act.clone());
                true
            }
            _ => false,
        }
    }

    fn gather(&mut self, attempt: AttemptNo, look: EvidenceQuestion) {
        if self.evidence.helper.as_ref().is_some_and(|g| g.attempt == attempt) {
            return;
        }
        let Some(order) = self.order_of_evidence(attempt, look) else {
            return;
        };
        let Ok(line) = wire::encode(&order) else { return };
        let ahead = self.evidence.ahead.take();
        let waiting = ahead.and_then(|mut helper| matches!(helper.try_wait(), Ok(None)).then_some(helper));
        let Some(mut helper) = waiting.or_else(|| self.helper()) else {
            return;
        };
        let (Some(input), tx) = (helper.stdin.take(), self.internal.clone()) else {
            return;
        };
        let logs_alone = look == EvidenceQuestion::LogsAlone;
        self.evidence.helper = Some(EvidenceHelper {
            attempt,
            next: if logs_alone {
                EvidenceAnswer::Logs
            } else {
                EvidenceAnswer::Facts
            },
            until: (!logs_alone).then(|| self.now().after(WAIT)),
            asked: false,
            kill: None,
            gone: false,
            input: None,
        });
        let process = helper.id().and_then(|pid| proc_stat(i32::try_from(pid).ok()?));
        let task = tokio::spawn(async move {
            let mut input = input;
            let asked = input.write_all(&line).await;
            // The driver may have exited meanwhile.
            let _ = tx.send(DriverMessage::Asking(attempt, input));
            let output = helper.stdout.take().filter(|_| asked.is_ok());
            let mut lines = output.map(|output| BufReader::new(output.take(2 * ANSWER)));
            if !logs_alone {
                let facts = answer(&mut lines).await;
                let _ = tx.send(DriverMessage::Evidence(attempt, facts.map(Box::new)));
            }
            let logs = answer(&mut lines).await;
            let _ = tx.send(DriverMessage::Logs(attempt, logs.map(Box::new)));
            // Reaped here or, after a sweep, there.
            let _ = helper.wait().await;
        });
        self.evidence.tasks.retain(|t| !t.task.is_finished());
        self.evidence.tasks.push(EvidenceTask {
            helper: process.map(|s| s.proc_ref()),
            task,
        });
    }

    /// The first helper of an attempt continues reading the kernel log from the launch. Later ones open their own file: descriptors
    /// of one opening share their offset, so a second reader would miss what the first has read.
    fn helper(&mut self) -> Option<Child> {
        let log = self.guard.as_mut().and_then(|l| l.kernel_log.take());
        Command::from(command(self.exe.as_std_path(), log)).spawn().ok()
    }

    /// Starts a helper ahead while workers run, because loading the program takes longer than ending a failed attempt. It exits
    /// when this process does.
    pub(super) fn helper_stands_by(&mut self) {
        if self.evidence.ahead.is_none() {
            self.evidence.ahead = self.helper();
        }
    }

    /// Ends all helpers. A running one gets a moment for its last files; then it is killed with its children.
    pub(super) async fn end_evidence(&mut self) {
        // A helper writes them when its input is closed.
        self.evidence.helper = None;
        let mut tasks = std::mem::take(&mut self.evidence.tasks);
        if tokio::time::timeout(LAST_FILES, all_done(&mut tasks)).await.is_err() {
            let left = tasks.iter().filter(|t| !t.task.is_finished());
            for helper in left.filter_map(|t| t.helper) {
                for process in list_descendants(helper.pid).into_iter().chain([helper]) {
                    // It may have exited meanwhile.
                    let _ = signal_process(process, libc::SIGKILL);
                }
            }
            // A helper that hangs in the kernel exits when the kernel releases it.
            let _ = tokio::time::timeout(REAPED, all_done(&mut tasks)).await;
        }
        if let Some(mut ahead) = self.evidence.ahead.take() {
            let _ = tokio::time::timeout(REAPED, ahead.kill()).await;
        }
    }

    fn order_of_evidence(&self, attempt: AttemptNo, look: EvidenceQuestion) -> Option<EvidenceOrder> {
        let a = self.state.attempt.as_ref().filter(|a| a.no == attempt)?;
        let scratch = self
            .launch
            .scratch
            .iter()
            .flat_map(|dir| [dir.clone(), dir.join("ray")]);
        Some(EvidenceOrder {
            attempt: self.spec.run_dir.join(format!("attempts/{:04}", attempt.0)),
            run: self.spec.run.clone(),
            known: a
                .launch
                .guard
                .into_iter()
                .chain(a.launch.workers.iter().copied())
                .collect(),
            workers: a.launch.workers.clone(),
            argv: a.launch.argv.clone(),
            age_ms: self.now().since(a.launch.launched?).0,
            root: self.spec.root.clone(),
            still: look == EvidenceQuestion::Still,
            slurm_job: std::env::var("SLURM_JOB_ID")
                .ok()
                .filter(|id| id.bytes().all(|b| b.is_ascii_digit())),
            ray: scratch.chain(["/tmp/ray".into()]).collect(),
            secrets: supervise_config::known_secrets(),
            rules: self.spec.policy.failure.lines.clone(),
            logs_alone: look == EvidenceQuestion::LogsAlone,
        })
    }

    /// The helper has its order or was asked for the logs: its input is kept open until the tree exited.
    pub(super) fn on_asking(&mut self, attempt: AttemptNo, input: ChildStdin) {
        let Some(g) = self.evidence.helper.as_mut().filter(|g| g.attempt == attempt) else {
            return;
        };
        g.input = Some(input);
        if g.next == EvidenceAnswer::Logs && g.gone && !g.asked {
            self.ask_for_logs();
        }
    }

    /// Handles facts; `None`: there will be none.
    pub(super) fn on_evidence(&mut self, attempt: AttemptNo, facts: Option<MachineFacts>) {
        if !self.waits_for(attempt, EvidenceAnswer::Facts) {
            return;
        }
        if let Some(facts) = facts {
            self.feed(EventKind::Evidence { attempt, facts });
        }
        self.go_on();
    }

    /// Handles the cause found in the logs; `None`: they were not read.
    pub(super) fn on_logs(&mut self, attempt: AttemptNo, logs: Option<LogCause>) {
        if !self.waits_for(attempt, EvidenceAnswer::Logs) {
            return;
        }
        self.end_with_logs(
            attempt,
            logs.unwrap_or_else(|| LogCause::unread("nobody read the logs")),
        );
    }

    fn waits_for(&self, attempt: AttemptNo, what: EvidenceAnswer) -> bool {
        let waits = |g: &EvidenceHelper| g.attempt == attempt && g.next == what && g.until.is_some();
        self.evidence.helper.as_ref().is_some_and(waits)
    }

    /// Reports the end of the tree, at once or after facts and logs arrived. A requested stop does not wait for them.
    pub(super) fn on_guard_saw_it_gone(&mut self, attempt: AttemptNo) {
        // It keeps what the trainer's interpreters reported, and exits.
        self.look_for_trainer(true);
        if self.state.is_to_stop() || !self.is_to_be_diagnosed(attempt) {
            return self.all_gone(attempt);
        }
        self.gather(attempt, EvidenceQuestion::LogsAlone);
        match &mut self.evidence.helper {
            Some(g) if g.attempt == attempt => g.gone = true,
            _ => return self.all_gone(attempt),
        }
        if self.evidence.helper.as_ref().is_some_and(|g| g.until.is_none()) {
            self.ask_for_logs();
        }
    }

    /// Returns true if the attempt failed and its cause is to be found.
    fn is_to_be_diagnosed(&self, attempt: AttemptNo) -> bool {
        let then = match &self.state.mode {
            RunMode::Running => Some(AfterStop::Diagnose),
            RunMode::Stopping { then, .. } | RunMode::Draining { then, .. } => Some(*then),
            _ => None,
        };
        let failed = self
            .state
            .attempt
            .as_ref()
            .is_some_and(|a| a.no == attempt && !a.succeeded());
        failed && then == Some(AfterStop::Diagnose)
    }

    fn ask_for_logs(&mut self) {
        let until = self.now().after(WAIT);
        let first = self.state.attempt.as_ref().and_then(|a| a.end.first_failure);
        let exit = first.and_then(|(_, status)| status.number());
        let Some(g) = &mut self.evidence.helper else { return };
        (g.next, g.until) = (EvidenceAnswer::Logs, Some(until));
        let (Some(mut input), Ok(line)) = (g.input.take(), wire::encode(&CompletedAttempt { exit })) else {
            // The logs are requested once it has its order.
            return;
        };
        g.asked = true;
        let (attempt, tx) = (g.attempt, self.internal.clone());
        tokio::spawn(async move {
            // A helper that exited does not answer: its output ends.
            let _ = input.write_all(&line).await;
            let _ = tx.send(DriverMessage::Asking(attempt, input));
        });
    }

    pub(super) fn evidence_due(&self) -> Option<Tick> {
        self.evidence.helper.as_ref().and_then(|g| g.until)
    }

    pub(super) fn check_evidence(&mut self, now: Tick) {
        let late = self.evidence_due().is_some_and(|due| due <= now);
        let wanted = self.evidence.helper.as_ref().filter(|g| g.gone && g.until.is_some());
        if late || wanted.is_some() && self.state.is_to_stop() {
            self.go_on();
        }
    }

    /// Performs the act that waited for the answer, which arrived or timed out.
    fn go_on(&mut self) {
        let now = self.now();
        let Some(g) = &mut self.evidence.helper else { return };
        let late = g.until.take().is_some_and(|until| until <= now);
        let (attempt, next, gone) = (g.attempt, g.next, g.gone);
        // Do not kill in a tree that exited: without its guard, the search would end whatever is started next.
        if let Some(act) = g.kill.take().filter(|_| !gone) {
            self.safety(act);
        }
        if !gone {
            return;
        }
        if self.state.is_to_stop() {
            self.all_gone(attempt);
        } else if late || next == EvidenceAnswer::Logs {
            // A helper that hangs does not read.
            self.end_with_logs(attempt, LogCause::unread("the logs were not read in time"));
        } else {
            self.ask_for_logs();
        }
    }

    fn end_with_logs(&mut self, attempt: AttemptNo, logs: LogCause) {
        let facts = MachineFacts {
            logs: Some(logs),
            ..MachineFacts::default()
        };
        self.feed(EventKind::Evidence { attempt, facts });
        self.all_gone(attempt);
    }

    fn all_gone(&mut self, attempt: AttemptNo) {
        // When its input closes, the helper writes down how each process ended.
        self.evidence.helper.take_if(|g| g.attempt == attempt);
        if let Some(link) = self.guard.as_mut().filter(|l| l.attempt == attempt) {
            link.say(&ToGuard::Bye);
        }
        self.on_tree_gone(attempt, Vec::new(), ExitWitness::ByGuard);
    }
}

async fn all_done(tasks: &mut [EvidenceTask]) {
    for running in tasks.iter_mut().filter(|t| !t.task.is_finished()) {
        let _ = (&mut running.task).await;
    }
}

/// The helper's next line; `None` if there is none.
async fn answer<T: DeserializeOwned>(lines: &mut Option<Answers>) -> Option<T> {
    let mut line = String::new();
    lines.as_mut()?.read_line(&mut line).await.ok()?;
    serde_json::from_str(&line).ok()
}

/// Variables that make the workers leave evidence in the attempt's directory. One that the user set is kept under any of its names:
/// newer versions of torch have new names and prefer them.
pub(super) fn helping_variables(
    attempt: &camino::Utf8Path,
    rank: Option<u32>,
    plain: bool,
    env: &BTreeMap<String, String>,
) -> Vec<(String, String)> {
    let dir = attempt.join(DIRECTORY);
    let records = dir.join(RECORDS).into_string();
    let wanted: [(&[&str], &str); 4] = [
        // An interpreter prints its stack if it is killed while hanging or crashes in native code.
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
        let file = attempt.join(error_file(rank)).into_string();
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
