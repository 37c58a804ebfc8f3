//! Schedulers, operators, hangs, ends that are no failures of the program, and deaths of our own.

use super::row::{Kind, Row, class, holds, line};
use crate::record::Action;

/// A wait of five minutes or more, in the forms that monitors give it: less of it is an ordinary one. The expression before it takes no
/// digit of the number.
macro_rules! long {
    ($before:literal) => {
        long!($before, "")
    };
    ($before:literal, $after:literal) => {
        concat!(
            $before,
            r"(?:[3-9]\d\d|\d{4,}|\d{1,3},\d{3})(?:\.\d+)? ?(?:s\b|sec\w*)",
            $after,
            "|",
            $before,
            r"(?:[5-9]|\d{2,})(?:\.\d+)? ?min(?:utes?|s)?\b",
            $after,
            "|",
            $before,
            r"\d+(?:\.\d+)? ?h(?:ours?|rs?)?\b",
            $after
        )
    };
}
pub(super) use long;

/// The classes.
pub(super) const ROWS: &[Row] = &[
    class(
        "sched.timelimit",
        Kind::Operator,
        Some(Action::Relaunch),
        "Submit the job again: it goes on from its newest step. A longer limit costs fewer restarts.",
    )
    .lines(&[
        holds("DUE TO TIME LIMIT"),
        line("State=TIMEOUT|State: TIMEOUT| TIMEOUT  ", r"\b(?-i:(?:Job)?State)[=:] ?(?-i:TIMEOUT)\b|\b(?-i:TIMEOUT)\s+\d+:\d+\s*$"),
        line("DeadlineExceeded|specified deadline", r"(?:Job|Pod)[^=]{0,80}DeadlineExceeded|reason[:=] ?DeadlineExceeded|active longer than specified deadline"),
        line("walltime", r"walltime .{0,40}exceeded (?:limit|the limit)|exceeded .{0,20}walltime|PBS: job killed: walltime"),
        holds("TERM_RUNLIMIT"),
        line("time limit|is timed-out", r"^(?:salloc|srun|slurmstepd): (?:error: )?Job \d+ has exceeded its time limit|: this job is timed-out"),
    ])
    .examples(
        "slurmstepd: error: *** JOB 48213 ON gpu-003 CANCELLED AT 2026-11-02T04:00:13 DUE TO TIME LIMIT ***",
        "time limit of the job: 2-00:00:00",
    ),
    class(
        "sched.preempt",
        Kind::Operator,
        Some(Action::Relaunch),
        "Nothing: the job goes on from its newest step when it is started again.",
    )
    .lines(&[
        holds("DUE TO PREEMPTION"),
        line("PREEMPTED", r"\b(?-i:PREEMPTED)\s+\d+:\d+\s*$"),
        line("preempt", r"(?:job|pod|node|instance|task|step|workload|VM).{0,60}(?:was|has been|being|is being|will be|got) preempted"),
        line("preempt", r"(?:reason|Reason|status|state)[:=] ?\W?Preempt(?:ed|ing|ion)"),
        holds("DisruptionTarget"),
        holds("PreemptionByScheduler"),
        line("Preempted to accommodate|imminent node shutdown", r"Preempted to accommodate a|imminent node shutdown"),
        line("EventType", r"EventType(?:=|['\x22]?: ?['\x22]?)Preempt\b"),
        line("Preempted", r"Preempted (?:by (?:a )?pod\b|.{0,40}default-scheduler)"),
        line("TaintManager|EvictionAPI", r"TaintManagerEviction|DeletionByTaintManager|EvictionByEvictionAPI"),
        line("spot", r"spot.{0,30}(?:interruption|termination|instance.{0,30}(?:reclaim|terminat|interrupt))"),
    ])
    .examples(
        "slurmstepd: error: *** STEP 48213.0 ON gpu-003 CANCELLED AT 2026-11-02T04:00:13 DUE TO PREEMPTION ***",
        "preemption mode of the engine: recompute (a sequence group was preempted)",
    ),
    class(
        "sched.node_fail",
        Kind::Hardware,
        Some(Action::Node),
        "Relaunch without the node that the scheduler lost.",
    )
    .lines(&[
        line("NODE_FAIL", r"(?-i:NODE_FAIL)\b"),
        holds("DUE TO NODE FAILURE"),
        holds("DUE TO JOB NOT ENDING WITH SIGNALS"),
        line("node fail", r"(?:due to|because of|Node failure on|job .* node) ?.{0,20}node fail(?:ure|ed)?|Node failure on [\w-]+"),
    ])
    .examples(
        "slurmstepd: error: *** JOB 48213 ON gpu-003 CANCELLED AT 2026-11-02T04:00:13 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
        "max_node_failures: 2",
    ),
    class(
        "sched.cancel",
        Kind::Operator,
        Some(Action::Stop),
        "Nothing: somebody cancelled the job. Start it again when it is wanted.",
    )
    .lines(&[
        line("CANCELLED", r"CANCELLED by \d+|(?:JOB|STEP|JobId)\S* .{0,80}CANCELLED AT [0-9T:-]+ (?:\*\*\*|DUE TO SIGNAL)"),
        line("scancel", r"(?:cancell?ed (?:by|with|via)|received|killed by) scancel|scancel: (?:Terminating|signal)"),
        holds("TERM_OWNER"),
        line("has been revoked", r"Job allocation \d+ has been revoked"),
    ])
    .examples(
        "slurmstepd: error: *** JOB 48213 ON gpu-003 CANCELLED AT 2026-11-02T04:00:13 ***",
        "asyncio: task was cancelled while it waited for the next batch",
    ),
    class(
        "sched.launch",
        Kind::Transient,
        Some(Action::RelaunchLater),
        "Ask the scheduler for the state of these nodes, then try again.",
    )
    .lines(&[
        line("Unable to create step", r"Unable to create step"),
        holds("Requested node configuration is not available"),
        line("srun: error", r"srun: error: (?:Task launch for|Unable to (?:allocate|confirm)|Application launch failed|.*Socket timed out|.*Zero Bytes)"),
        line("waiting for task launch", r"srun: error: timeout waiting for task launch"),
        line("pyxis", r"error: pyxis: container start failed"),
        line("daemon has unexpectedly failed", r"(?:ORTE|PRRTE) daemon has unexpectedly failed after launch"),
        holds("Requested nodes are busy"),
        line("Allocate failed due to", r"Allocate failed due to requested number of devices unavailable"),
        line("nodes are available", r"\b0/\d+ nodes are available: "),
        line("ErrImagePull|ImagePullBackOff|pull image", r"(?:\bError: |\breason:?\s+)(?:ErrImagePull|ImagePullBackOff)\b|\bFailed to pull image \x22"),
        holds("Job/step already completing or completed"),
    ])
    .examples(
        "srun: error: Unable to create step for job 48213: Requested node configuration is not available",
        "srun: job 48213 queued and waiting for resources",
    ),
    class(
        "own.guard_lost",
        Kind::Transient,
        Some(Action::Relaunch),
        "Find out what ended the guard: the OOM killer, or somebody's kill.",
    )
    .told_by("the guard of the attempt: it broke off"),
    class(
        "kill.unknown",
        Kind::Unclear,
        Some(Action::RelaunchLater),
        "Look into dmesg, the scheduler's log and the shell history of that machine: SIGKILL comes from outside.",
    )
    .lines(&[
        line("Killed", r"(?-i:^\s*Killed\s*$|^\S+: line \d+:\s+\d+ Killed\b)"),
        line("terminated with signal SIGKILL", r"process \d+ terminated with signal SIGKILL\b"),
    ])
    .examples("Killed", "Killed 2 stale rollout workers of the step before")
    .told_by("SIGKILL, or exit code 137, that nothing else explains"),
    class(
        "op.signal",
        Kind::Operator,
        Some(Action::Stop),
        "Nothing, where you ended it; else look who sent the signal.",
    )
    .lines(&[
        line("SIGTERM|signal 15|signal: 15", r"(?:Received|received|got|Got|caught|Caught) (?:signal:? 15|(?:signal:? )?SIGTERM)\b.{0,60}(?:exit|shut|terminat|stopp)"),
        line("Main process received", r"Main process received SIG(?:INT|TERM), exiting"),
        line("SignalException", r"SignalException: Process \d+ got signal: (?:1|2|15)\b"),
    ])
    .errors(&["KeyboardInterrupt", "SystemExit", "SignalException"])
    .examples("KeyboardInterrupt", "install handlers for SIGTERM and KeyboardInterrupt")
    .told_by("SIGINT, SIGTERM or SIGHUP, exit codes 129, 130 and 143"),
    class(
        "hang.startup",
        Kind::Unclear,
        Some(Action::Kill),
        "Look at the last line of each rank and at the stacks: one of them waits for something that does not come.",
    )
    .lines(&[
        line("initial heartbeat", r"Did not get initial heartbeat"),
        line(
            "first step|first training step|first iteration|start-up|startup",
            r"(?:no (?:first )?(?:training )?(?:step|iteration)|first (?:training )?(?:step|iteration) (?:was )?not (?:reached|finished|seen|logged)).{0,40}(?:within|after|in) .{0,40}\d|\bstart-?up (?:hang|has hung|is stuck|timed? ?out)",
        ),
        line(
            "its first|the first step|a first step|any step",
            r"(?:not|n't|never) (?:yet )?(?:produced?|reach(?:ed)?|logged?|finish(?:ed)?|made?|see|seen|done?|completed?) (?:its first|the first|a first|any) (?:training )?(?:step|iteration).{0,40}\d",
        ),
        line(
            "waiting for",
            long!(r"(?:^|[^t] )waiting (?:for|on) .{0,60}\b(?:engines?|servers?|ranks?|workers?|nodes?|replicas?|actors?|peers?|pods?|cluster|rendezvous)\b.{0,60}(?:\(|\b(?:for|since|after|elapsed|waited|past|already) ?)"),
        ),
        line(
            "waiting for",
            long!(r"(?:^|[^t] )waiting (?:for|on) .{0,60}\b(?:engines?|servers?|ranks?|workers?|nodes?|replicas?|actors?|peers?|pods?|cluster|rendezvous)\b.{0,60}[ ,(]", r",? (?:elapsed|so far|already|passed)"),
        ),
        line(" hang| hung| stuck", r"(?:hang(?:s|ing)?|stuck|hung) (?:at|during|in|while) (?:start-?up|initiali[sz]ation|initiali[sz]ing|loading the model|model loading)\b"),
    ])
    .examples("[RankMonitorServer] Did not get initial heartbeat. Waited 600.04 seconds.", "startup took 41 s, first step within its limit")
    .told_by("the clock of the start: no first step within its limit"),
    class(
        "hang.save",
        Kind::Transient,
        Some(Action::Kill),
        "Look at the file system that the save was written to.",
    )
    .lines(&[
        line("section end|exceeded|timed out", r"\b(?:section|phase) .{0,4}(?:checkpoint|sav)\w*.{0,80}(?:exceeded|timed? ?out)|\bsave phase (?:has )?exceeded"),
        line("save phase", r"\bsave phase \d+ ?s, limit \d"),
        line(
            " open for |writing for|running for|in flight for|in flight since",
            long!(r"\b(?:checkpoint|ckpt|save)\b.{0,40}(?:open|writing|running|in flight)(?: for| since)? "),
        ),
        line(
        " hang| hung| stuck|not finish|not complete|not return|exceeded",
        r"(?:checkpoint|ckpt|\bsav(?:e|ing))\b.{0,60}(?:\b(?:hang(?:s|ing)?|hung|stuck)\b|(?:has |did |was )?not (?:finish(?:ed)?|complete[d]?|returned?) (?:with)?in \d|exceeded .{0,20}(?:limit|timeout) of \d)",
        ),
    ])
    .examples("ERROR: the save of checkpoint 1200 did not finish within 420 s", "the save of checkpoint 1200 finished within 42 s")
    .told_by("the clock of a save"),
    class(
        "hang.step",
        Kind::Transient,
        Some(Action::Kill),
        "Look at the stacks: the rank that is not in the collective is the one that hangs.",
    )
    .lines(&[
        line("hang |hang:|hangs", r"(?:^|[^\so]\s|[^\s\w])hang (?:is |was |has been )?(?:detected|suspected)|\b(?:training|step|rank|worker|iteration|job)\b.{0,40}\bhangs\b|detected .{0,40}\bhang\b"),
        line("subsequent heartbeat", r"Did not get subsequent heartbeat"),
        line("stuck|hung|no progress|without progress", r"(?:[Tt]raining|[Ss]tep|[Ii]teration|[Rr]anks?|[Tt]rainer|[Jj]ob)\b.{0,60}(?:(?:is|are|seems|appears|has been|have been) (?:stuck|hung)|no progress|without progress).{0,40}\d ?(?:s\b|sec|min|ms)"),
        line("no progress|No training progress", r"[Nn]o (?:training )?progress (?:for|in|since) (?:the last |more than )?\d+(?:\.\d+)? ?(?:s\b|sec|min|h\b)"),
        line("section end", r"Did not get (?:subsequent )?section end"),
        line(
            "no step|no iteration|no training step|no new step|no batch",
            long!(r"\bno (?:new )?(?:training )?(?:step|iteration|batch)(?:e?s)?\b.{0,30}(?:for|in|since|within)\b\D{0,20}"),
        ),
        line("running for|in progress for", long!(r"\b(?:step|iteration|iter|batch)\b.{0,24}(?:running|in progress) for\D{1,16}")),
        line("step clock", r"\bstep clock (?:was |has been |has )?(?:exceeded|overrun|expired)"),
        line(
            "heartbeat lost|heartbeats lost|heartbeat timed|heartbeat timeout|heartbeat miss|heartbeat stale|heartbeat expired|no heartbeat|lost heartbeat|missed heartbeat|heartbeat of|heartbeat from",
            long!(r"\b(?:(?:no|lost|missed) heartbeats?|heartbeats?\b.{0,24}(?:lost|missing|missed|stale|expired|overdue|timed? ?out))\b\D{0,60}"),
        ),
        line(
            "not reported|not responded|not checked in|not moved|not advanced|not progressed|not made progress",
            long!(r"\b(?:rank|worker|trainer|step|iteration|training|actor|process|node)\b.{0,60}\bnot (?:reported|responded|checked in|moved|advanced|progressed|made progress)\b\D{0,40}"),
        ),
        line("last progress|last heartbeat|last activity|last seen", long!(r"\blast (?:progress|heartbeat|activity|seen)\b\D{0,30}")),
        line(
            " ago",
            long!(r"\blast (?:step|iteration|update|token|log line|record)\b.{0,40}\D", r" ago\b"),
        ),
        line(
            " ago",
            long!(r"\b(?:step|iteration|iter) \d+ (?:was )?(?:finished|completed|done|ended|printed|seen|reached)\b\D{0,20}", r" ago\b"),
        ),
        line(
            "stuck|hung|stalled|hanging",
            r"\b(?:training|trainer|job|run|rank \d+|step \d+|iteration \d+) (?:is|looks|seems|appears) (?:to be )?(?:stuck|hung|stalled|hanging)(?:\W?$|[:,;(]|\.$)",
        ),
        line("no output|no new output|no log output|silent", long!(r"\b(?:no (?:new |log )?output|(?:log|trainer|training|rank \d+) (?:has been |is )?silent)\b\D{0,20}")),
        line(
            " hung|stuck|stalled|hanging",
            r"\b(?:considered?|considering|declar\w+|marked|marking|deemed|presum\w+)\b.{0,40}\b(?:hung|stuck|stalled|hanging)\b",
        ),
        // Python's own timer for a dump of all stacks, and what py-spy prints of a process that somebody looked into.
        line("Timeout (", r"^(?-i:Timeout) \(\d+:\d\d:\d\d(?:\.\d+)?\)!"),
        line("): \"MainThread\"", r#"^Thread \S+ \((?:active|idle)\S*\): "MainThread""#),
    ])
    .examples("[RankMonitorServer] Did not get subsequent heartbeat. Waited 1800.02 seconds.", "hang detection is on, limit 1800 s")
    .told_by("the clock of a step"),
    class(
        "hang.exit",
        Kind::Transient,
        Some(Action::Kill),
        "Nothing where the last step is saved; else look at the stacks of what did not end.",
    )
    .lines(&[
        line(
            "still alive|still running|still there",
            r"\b(?:process|pid|rank|worker|trainer)\S* .{0,40}\bstill (?:alive|running|there)\b.{0,40}\bafter (?:the )?(?:end\b|training|last step)",
        ),
        line(
        "not exit|not terminate| hang| hung| stuck",
        r"(?:process|rank|worker|trainer)\S* .{0,40}(?:did|does|has|will) not (?:exit(?:ed)?|terminated?).{0,40}(?:\d ?s\b|seconds|after (?:the )?(?:training|end))|(?:hang(?:s|ing)?|hung|stuck) (?:at|in|on) (?:exit|shutdown|destroy_process_group)",
        ),
    ])
    .examples("watchdog: process 4411 did not exit within 300 s after the training ended", "all processes exit within 3 s of the end")
    .told_by("the clock of the exit: the training is over, and a process stays"),
    class(
        "slow.straggler",
        Kind::Report,
        None,
        "Compare the clocks and temperatures of the slow rank's GPU with the others.",
    )
    .told_by("step times by rank"),
    class(
        "end.early_success",
        Kind::Deterministic,
        Some(Action::Stop),
        "Find out why the trainer ended with code 0 before its last step: the data may have ended, or a setting counts otherwise.",
    )
    .told_by("exit code 0 and the planned last step"),
    class(
        "end.budget",
        Kind::Report,
        Some(Action::Stop),
        "Read why the attempts ended; raise `retries` only where these causes go away by themselves.",
    )
    .lines(&[
        holds("BackoffLimitExceeded"),
        line("backoff limit", r"has reached the specified backoff limit"),
        line("backoffLimit", r"\bbackoffLimit \d+ (?:was |is |has been )?(?:reached|exceeded|used up)"),
        line("used up|exhausted", r"\b(?:retries|restarts|relaunches|attempts|(?:retry|restart|relaunch) budget|budget) (?:is |are |was |were |has been |have been )?(?:used up|exhausted|spent)\b"),
        line("budget", r"\b(?:retry|restart|relaunch|failure) budget\b.{0,10}(?:\bempty|\bspent|\bused up|\bexhausted|[:=] ?0\b)"),

        line(
            "no more restart|no more relaunch|no more attempt|no more tries|no restart|no relaunch|no further|no attempts",
            r"\bno (?:more |further )?(?:restarts?|relaunch(?:es)?|attempts|tries)\b.{0,8}(?:left|allowed|remain\w*|available|giving up|,|\.|\s*$)",
        ),
        line("giving up", r"\b(?:restart|relaunch)\w*\b.{0,30}\bgiving up\b"),
        line("not started again|not restarted|not be restarted|will not restart", r"\bfailed \d+ times\b.{0,60}\b(?:not started again|not (?:be )?restarted|will not restart)"),
        line("retries exceeded for|retries reached for", r"\bmax(?:imum)? retries (?:exceeded|reached) for (?:the )?(?:training|job|run|worker)"),
        line("exhausted", r"\bexhausted (?:all |its |the )+(?:\d+ )?(?:restarts|retries|attempts|restart budget)\b"),
        line("max restart|maximum restart|max number of restart|maximum number of restart", r"\breached (?:the )?max(?:imum)? (?:number of )?restart"),
        line("too many", r"\btoo many (?:failures|restarts|crashes|relaunches)\b"),
        line("giving up after|gave up after", r"^.{0,60}\b(?:giving|gave) up after \d+ (?:attempts|restarts|relaunches|retries|tries)\W*$"),
        line("exhausted|used up|exceeded|exceeding|reached", r"(?:max(?:imum)?[ _](?:number of )?(?:restarts?|retry count|failures)|(?:restart|retry|failure) (?:budget|limit))\S{0,6}(?:.{0,29}[^t])?\s(?:exhausted|exceeded|reached|used up)|exceed(?:ed|ing) (?:the )?max(?:imum)?[ _](?:number of )?(?:restarts|failures)|all (?:restarts|retries|attempts) (?:are |have been )?(?:used up|exhausted)"),
    ])
    .examples("Job default/train failed: BackoffLimitExceeded: Job has reached the specified backoff limit", "max_restarts: 3, none used")
    .told_by("the count of attempts without progress"),
    class(
        "exit.unexplained",
        Kind::Unclear,
        Some(Action::RelaunchLater),
        "Read the last lines of the worker that failed first.",
    )
    .told_by("an exit code that nothing explains"),
];
