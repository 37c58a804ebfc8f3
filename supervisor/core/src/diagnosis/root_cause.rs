//! Selection of the root cause: kernel messages beat the program's, causes beat consequences, the first in time beats the loudest, and
//! the exit code counts if nothing was printed.

use super::stall::is_wait;
use crate::event::ExitStatus;
use crate::rulebook::taxonomy::{Class, Family, Weight};

/// Message of torch if a checkpoint could not be loaded or saved on all ranks.
const SUM: &str = "CheckpointException ranks:";

/// Message of a launcher that raises an exception for any end of a job, even success.
pub(crate) const COMPLETED: &str = "JobState.COMPLETED at node local";

/// Steps that a job may do between the scheduler's message and its end.
pub(super) const GRACE: u32 = 8;

/// A line that may explain why a run ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogClue<'a> {
    pub(crate) class: Class,
    pub(crate) text: &'a str,
    /// Whether it ended a traceback that is chained to the one before.
    pub(crate) chained: bool,
    /// Whether it is the last line of a traceback, which no log level precedes.
    pub(crate) raised: bool,
    /// Whether it ended a thread of the program only.
    pub(crate) in_thread: bool,
    /// Whether it is an exception without a traceback, or model text.
    pub(crate) loose: bool,
    /// Whether a rule of the user matched it.
    pub(crate) own: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RootClue {
    /// Index among the clues.
    pub(crate) at: usize,
    pub(crate) weight: Weight,
}

/// Chooses the root cause: the strongest clue, and the first of equals.
pub(crate) fn choose(clues: &[LogClue<'_>]) -> Option<RootClue> {
    let all = clues.iter().enumerate();
    let weighed = all.map(|(at, clue)| RootClue {
        at,
        weight: match [is_usage, is_wrapped, is_handling, is_summed_up, is_detail]
            .iter()
            .any(|adds_nothing| adds_nothing(clues, at))
        {
            true => Weight::Hint,
            false => weight(clue),
        },
    });
    // A manual stop explains all failures after it.
    let by_hand = |c: &LogClue<'_>| c.class == Class::OpSignal && !c.loose && c.text.contains("KeyboardInterrupt");
    let first = clues.iter().position(|c| weight(c) <= Weight::Effect);
    let stopped = first.filter(|at| clues.get(*at).is_some_and(by_hand));
    let weighed = weighed.map(|c| match stopped {
        Some(at) if c.at == at => RootClue {
            weight: Weight::Cause,
            ..c
        },
        Some(at) if c.at > at && c.weight > Weight::Machine => RootClue {
            weight: c.weight.max(Weight::Symptom),
            ..c
        },
        _ => c,
    });
    let order = |c: &RootClue| (c.weight, rank(clues, c), c.at);
    let first = weighed.clone().min_by_key(order)?;
    // Ray only saw that a process had exited; the abort message explains it.
    let dead = clues.get(first.at).is_some_and(|c| c.class == Class::RayActorDied);
    let abort = weighed.filter(|c| c.weight == Weight::Abort && clues[c.at].class == Class::NativeCrash);
    abort.min_by_key(order).filter(|_| dead).or(Some(first))
}

/// Orders clues of equal weight: symptoms that name a failure of their own come before echoes of a lost connection.
fn rank(clues: &[LogClue<'_>], choice: &RootClue) -> u8 {
    let Some(class) = clues.get(choice.at).map(|c| c.class) else {
        return 0;
    };
    match (choice.weight, class) {
        (Weight::Symptom, Class::CommNcclTimeout) => 0,
        (Weight::Symptom, Class::EngineVllmDead) => 1,
        (Weight::Symptom, Class::CommNcclRemote) => 2,
        (Weight::Symptom, Class::RayActorDied) => 3,
        (Weight::Symptom, _) => 4,
        // The kernel says what happened to the GPU that a program misses.
        (Weight::Machine, Class::GpuDriver) => 1,
        // A stack dump of a hang that another line reports.
        (Weight::Effect, Class::HangStep) if clues.get(choice.at).is_some_and(|c| c.text.starts_with("Thread ")) => 1,
        _ => 0,
    }
}

/// Returns true for a general exception that a later, chained one explains: a cache miss, for example, whose fallback failed.
fn is_wrapped(clues: &[LogClue<'_>], at: usize) -> bool {
    let Some(first) = clues.get(at) else { return false };
    let general = matches!(first.class, Class::CodeException | Class::FileMissing);
    if !general && first.class.family() != Family::Code {
        return false;
    }
    let machine = |class: Class| matches!(class.family(), Family::Mem | Family::Gpu | Family::Disk);
    let says = |class: Class| class != first.class && class.family() != Family::Code && (general || machine(class));
    let mut chain = clues.iter().skip(at + 1).take_while(|c| c.chained);
    let least = if first.class == Class::CodeException {
        Weight::Effect
    } else {
        Weight::Cause
    };
    chain.any(|c| weight(c) <= least && says(c.class))
}

/// Returns true for an error of the program that was raised while it handled a failure of another kind.
fn is_handling(clues: &[LogClue<'_>], at: usize) -> bool {
    let of_program = |c: &LogClue<'_>| c.class.family() == Family::Code;
    if !clues.get(at).is_some_and(|c| c.chained && of_program(c)) {
        return false;
    }
    // The chain, from its end to the first exception, which is not chained.
    let mut is_first = false;
    let back = clues[..at].iter().rev();
    let mut chain = back.take_while(|c| !std::mem::replace(&mut is_first, !c.chained) && c.raised);
    chain.any(|c| !of_program(c) && weight(c) <= Weight::Effect)
}

/// Returns true for a usage text that precedes the actual argument error.
fn is_usage(clues: &[LogClue<'_>], at: usize) -> bool {
    let usage = |c: &LogClue<'_>| c.class == Class::CfgArgs && c.text.trim_start().starts_with("usage: ");
    clues.get(at).is_some_and(usage) && clues[at + 1..].iter().any(|c| c.class == Class::CfgArgs && !usage(c))
}

/// Returns true for a general exception below the failure that caused it, which adds nothing.
fn is_detail(clues: &[LogClue<'_>], at: usize) -> bool {
    let general = |c: &&LogClue<'_>| matches!(c.class, Class::CodeException | Class::CodeTypeKey);
    let Some((detail, before)) = clues.get(at).filter(general).zip(clues.get(..at)) else {
        return false;
    };
    let of_engine = |c: &LogClue<'_>| c.text.contains("Scheduler hit an exception");
    let of_save = |c: &LogClue<'_>| c.class == Class::CkptSaveFailed && c.text.contains(SUM);
    !detail.chained && before.last().is_some_and(of_engine) || before.iter().any(of_save)
}

/// Returns true for the summary of a failed load or save on all ranks, if a rank's own error below explains it.
fn is_summed_up(clues: &[LogClue<'_>], at: usize) -> bool {
    let Some(first) = clues.get(at).filter(|c| c.text.contains(SUM)) else {
        return false;
    };
    let below = clues.iter().skip(at + 1).find(|c| !c.text.contains(SUM));
    below.is_some_and(|c| {
        weight(c) <= Weight::Cause && !matches!(c.class, Class::CodeException) && c.class != first.class
    })
}

pub(crate) fn weight(clue: &LogClue<'_>) -> Weight {
    let text = clue.text;
    if clue.own && !clue.loose {
        return Weight::Machine;
    }
    // torch's launcher stops the other workers with warnings.
    if clue.class == Class::CommLauncherTeardown || text.ends_with(COMPLETED) {
        return Weight::Report;
    }
    // A scheduler announces its actions as warnings, and a slow disk yields nothing but warnings.
    let given = clue.class == Class::RewardServer && text.contains("default");
    let warned = !clue.raised && is_leveled(text) && !given && !is_only_warned_of(clue.class);
    if clue.loose || warned || is_retried(text) {
        return Weight::Hint;
    }
    // A program survives a thread and its tracker; both fail when the program is ended.
    let is_general = matches!(
        clue.class,
        Class::CodeException | Class::CodeTypeKey | Class::CodeAtStart
    );
    if clue.in_thread && is_general || clue.class == Class::LoggerRemote && text.starts_with("wandb: ERROR ") {
        return Weight::Symptom;
    }
    // That a step ignores its signals does not explain why it was signalled.
    if is_of_another(clue) || is_tried_by_kubernetes(text) || text.contains("NOT ENDING WITH SIGNALS") {
        return Weight::Symptom;
    }
    let own = clue.class.row().tier;
    // A runtime that aborts says why on another line.
    if clue.class == Class::NativeCrash && is_abort(text) {
        return Weight::Abort;
    }
    // The step of a job is cancelled because one of its tasks failed.
    if clue.class == Class::SchedCancel && text.contains("STEP") {
        return Weight::Abort;
    }
    own
}

/// Returns true for what a pod waits for at startup. Kubernetes retries it, so any later message says more.
pub(super) fn is_tried_by_kubernetes(text: &str) -> bool {
    const WAITS: [&str; 6] = [
        " nodes are available: ",
        "Failed to pull image",
        "ErrImagePull",
        "ImagePullBackOff",
        " failed for volume ",
        "Unable to attach or mount volumes",
    ];
    WAITS.iter().any(|words| text.contains(words))
}

/// Returns true for classes that monitors report as warnings because no operation fails.
fn is_only_warned_of(class: Class) -> bool {
    is_wait(class) || class.family() == Family::Sched || matches!(class, Class::DiskSlow | Class::GpuSdcSuspect)
}

/// Returns true if a program reports the death of its part, or a network that of a peer, without the cause.
fn is_of_another(clue: &LogClue<'_>) -> bool {
    const PARTS: [&str; 9] = [
        "worker",
        "engine",
        "server",
        "actor",
        "replica",
        "scheduler",
        "subprocess",
        "child",
        "rollout",
    ];
    const GONE: [&str; 7] = [
        " died",
        " is dead",
        " crashed",
        " exited",
        " is gone",
        " was killed",
        " not alive",
    ];
    match clue.class {
        Class::NodeLost => clue.text.starts_with("Call to "),
        Class::CodeException => {
            let text = clue.text.to_ascii_lowercase();
            // Ray's timeout: the cause is elsewhere, if it is printed at all.
            text.contains("gettimeouterror: get timed out")
                || PARTS.iter().any(|p| text.contains(p)) && GONE.iter().any(|g| text.contains(g))
        }
        _ => false,
    }
}

fn is_abort(text: &str) -> bool {
    [
        "terminate called",
        "Aborted",
        "SIGABRT",
        "core dumped",
        "Signal 6",
        "signal 6",
    ]
    .iter()
    .any(|w| text.contains(w))
        && !text.contains("Segmentation")
}

/// Returns true if the line has a log level below error.
fn is_leveled(text: &str) -> bool {
    let opens = |with: &str| text.trim_start().starts_with(with);
    let levels = [
        "WARNING", "INFO ", "DEBUG ", "[WARN", "WARN:", "WARN ", "[W ", "warn:", "W0", "W1",
    ];
    let says = [
        " WARNING ",
        "[WARNING]",
        "(WARNING)",
        ":WARNING:",
        " - WARNING - ",
        "|WARNING|",
        "| WARNING ",
        " WARN ",
        "WARNING:",
        "NCCL INFO",
        ": W tensorflow/",
    ];
    // NCCL prints its errors at this level.
    if text.contains("NCCL WARN") {
        return false;
    }
    // torch prints the month after the letter, in one or two digits.
    let of_torch = || {
        text.trim_start()
            .strip_prefix("[W")
            .is_some_and(|t| t.starts_with(|c: char| c.is_ascii_digit()))
    };
    levels.iter().any(|w| opens(w)) || of_torch() || says.iter().any(|w| text.contains(w))
}

/// Returns true if the line has a log level that reports no failure.
pub(super) fn is_informed(text: &str) -> bool {
    let head = text.get(..text.floor_char_boundary(100)).unwrap_or(text);
    if ["ERROR", "CRITICAL", "FATAL", "Error", "WARN"]
        .iter()
        .any(|w| head.contains(w))
        || text.contains("NCCL")
    {
        return false;
    }
    ["INFO", "DEBUG"].iter().any(|level| {
        head.match_indices(level).any(|(at, _)| {
            let edge = |c: Option<char>| c.is_none_or(|c| matches!(c, ' ' | ']' | '[' | ':' | '|' | '-' | ')' | '('));
            edge(head[..at].chars().next_back()) && edge(head[at + level.len()..].chars().next())
        })
    }) || ["[I] ", "I0", "I1"].iter().any(|w| head.starts_with(w)) && !head.starts_with("I0 ")
        || head.contains(" [I] ")
}

/// Returns true for a failure that is retried.
fn is_retried(text: &str) -> bool {
    let again = [
        "retrying",
        "Retrying",
        "will retry",
        "will be retried",
        "retry in ",
        "Retry ",
        "trying again",
        "tried again",
        "in use, trying",
        "falling back",
        "Falling back",
        " recovered",
        "is ignored",
        "ignoring",
        "Ignoring",
        "skipping",
        "Skipping",
        "skipped",
    ];
    !text.contains("NCCL WARN") && again.iter().any(|w| text.contains(w))
}

/// The class of an exit without any output that explains it.
pub(crate) fn class_of(status: ExitStatus) -> Class {
    match status {
        ExitStatus::Signal(9) | ExitStatus::Code(137) => Class::KillUnknown,
        // Ray's SIGTERM handler exits the driver with the signal number as exit code.
        ExitStatus::Signal(1 | 2 | 15) | ExitStatus::Code(15 | 129 | 130 | 143) => Class::OpSignal,
        ExitStatus::Signal(7) | ExitStatus::Code(135) => Class::MemShm,
        ExitStatus::Signal(_) | ExitStatus::Code(132 | 134 | 136 | 139) => Class::NativeCrash,
        ExitStatus::Code(126 | 127) => Class::CfgCommand,
        ExitStatus::Code(2) => Class::CfgArgs,
        // NVRx: restart limit reached.
        ExitStatus::Code(93) => Class::EndBudget,
        ExitStatus::Code(_) => Class::ExitUnexplained,
        ExitStatus::Unknown => Class::KillUnknown,
    }
}

/// Returns true if the exit says more than a symptom: only the process itself, or its killer, causes it.
pub(crate) fn is_telling(status: ExitStatus) -> bool {
    !matches!(class_of(status), Class::ExitUnexplained) && !is_aborted(status)
}

/// Returns true if the process aborted, as on an uncaught C++ exception or by NCCL's watchdog.
pub(crate) fn is_aborted(status: ExitStatus) -> bool {
    matches!(status, ExitStatus::Signal(6) | ExitStatus::Code(134))
}

#[cfg(test)]
mod tests;
