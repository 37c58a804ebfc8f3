//! Patterns that only the log reader needs: timestamps, starts, exits, exceptions outside of tracebacks.

use crate::observe::line_time::LineClock;
use regex::bytes::Regex;

/// Texts for these patterns.
pub(super) const OTHERS: [&str; 43] = [
    "Uvicorn running on",
    "Application startup complete",
    "Running on http://",
    "Serving Flask app",
    "Traceback (most recent",
    "  File \"",
    "Exception ignored",
    "Exception in thread",
    "Error:",
    "Exception:",
    "the above exception",
    "The above exception",
    "from scratch",
    "resumed experiment",
    "No dataloader state found",
    "Checkpoint does not exist",
    "start from random",
    "resume",
    "Load from checkpoint",
    "last good",
    "total steps",
    "total training steps",
    "_training_steps",
    "total optimization steps",
    "number of training iterations",
    "running training",
    "training ...",
    "the start of training",
    "recovered",
    "is back",
    "are back",
    " again",
    "no running processes",
    "not found in /proc",
    "[not found]",
    "NodeTerminated",
    "Started container",
    "Successfully ",
    "NodeReady",
    "wandb: Run ",
    "wandb: Synced ",
    DUMPED,
    OF_HYDRA,
];

/// A dying interpreter writes this above the stack of each thread.
const DUMPED: &str = "(most recent call first)";
/// Hydra's last line after an exception that ended the program.
const OF_HYDRA: &str = "HYDRA_FULL_ERROR=1";

/// Returns true if only a program that ends prints this line.
pub(super) fn is_of_an_end(text: &[u8]) -> bool {
    [DUMPED, OF_HYDRA]
        .iter()
        .any(|what| memchr::memmem::find(text, what.as_bytes()).is_some())
}

/// Name of a kind of processes, and an id.
pub(super) type ProcessName = (Vec<u8>, u64);

pub(super) struct Patterns {
    pub(super) loose: Regex,
    /// The last line of an interpreter, whatever is above it.
    pub(super) last: Regex,
    pub(super) serves: Regex,
    pub(super) served: Regex,
    pub(super) answered: Regex,
    pub(super) shut: Regex,
    /// The experiment tracker has all of the run.
    pub(super) tracked: Regex,
    time: LineClock,
    /// The prefixes of Ray, of torch and glog, and of NCCL.
    pid: Regex,
    pub(super) scratch: Regex,
    pub(super) partly: Regex,
    pub(super) resumes: Regex,
    pub(super) over: Regex,
    pub(super) exited: Regex,
    done: Regex,
    pub(super) wanted: Regex,
    pub(super) denied: Regex,
    pub(super) healthy: Regex,
    pub(super) relieved: Regex,
    pub(super) pod_started: Regex,
    pub(super) node_ready: Regex,
    pub(super) began: Regex,
    pub(super) orphan: Regex,
    pub(super) node_gone: Regex,
    pub(super) node: Regex,
    planned: Regex,
    /// The same, with warmup steps.
    planned_with_warmup: Regex,
    saved: Regex,
    world: Regex,
}

impl Patterns {
    pub(super) fn new() -> Result<Self, regex::Error> {
        let regex = Regex::new;
        Ok(Self {
            loose: regex(r"^(?-u:(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)(?:\(\w+\))?: )")?,
            last: regex(r"^(?-u:(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)(?:\(\w+\))?(?:: .*)?\s*$)")?,
            serves: regex(
                r"(?-u)Uvicorn running on http|Application startup complete|Running on http://|Serving Flask app",
            )?,
            served: regex(r#"(?-u)"(?:GET|POST|PUT) (?:/[^h" ]|/h[^e" ]|/ )[^"]*" 2\d\d\b"#)?,
            answered: regex(r#"(?-u)"(?:GET|POST|PUT) [^"]*" 5\d\d\b"#)?,
            tracked: regex(r"(?-u)^wandb: (?:Run (?:history|summary):|Synced )")?,
            shut: regex(
                r"(?-u)Shutting down FastAPI HTTP server|^INFO: +(?:Shutting down\b|Application shutdown complete)",
            )?,
            time: LineClock::new()?,
            pid: regex(
                r"(?-u)^.{0,40}?\((\w+) pid=(\d+)|^\[?[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ (\d+) |^[\w.-]+:(\d+):\d+ \[\d+\] NCCL",
            )?,
            scratch: regex(
                r"(?i-u)training from scratch|should not be a resumed experiment|will start from scratch|start(?:ing)? from random",
            )?,
            partly: regex(
                r"(?-u)No dataloader state found at|Checkpoint does not exist: |Failed to load recover info",
            )?,
            resumes: regex(
                r#"(?-u)\bresume\w*['"]?\s*[:=]\s*['"]?(?:/|True|\w*_path\b)|--resume(?:[-_]from\S*)?[ =]\S*/|\bresume (?:is )?(?:required|ordered|requested|expected)|\blast good (?:step|checkpoint)|Load from checkpoint folder|[Rr]esum(?:e|ing) (?:training )?from (?:the )?(?:checkpoint|step|/|global)"#,
            )?,
            over: regex(
                r"(?i-u)train(?:ing|er)? (?:is |has )?(?:finished|complete|completed|done|ended|exiting)|(?:data|dataset|data ?loader|iterator).{0,20}(?:exhausted|is empty|has ended|ran out)|training ends\b|no more (?:data|batches)|(?:run|job) (?:finished|completed)|exiting (?:cleanly|gracefully|training)",
            )?,
            done: regex(
                r"(?i-u)final validation metrics|'train_runtime'|(?:^|[:\]|-] *)training (?:is |has |was )?(?:finished|complete[sd]?|done|ended)(?:[.!]|\s*$)",
            )?,
            exited: regex(
                r"(?i-u)\bexit(?:ed)?(?: with)?(?: code)?:? ?0\b|\brc=0\b|wandb: (?:Synced|Run finished|.{0,8}View run)|\bfit\(\) returned|final validation metrics|'train_runtime'|\bpod \S+ (?:completed|succeeded)",
            )?,
            denied: regex(
                r#"(?i-u)\bno (?:\w+ ){0,2}(?:early.?stop|stop|limit)|\bnot reached|stop\w*['"]?\s*[:=]\s*(?:false|none|null)\b"#,
            )?,
            wanted: regex(
                r"(?i-u)early.?stop|target .{0,30}reached|reached .{0,30}target|goal .{0,30}reached|stop(?:ping|ped) training early|stopping as configured|as (?:asked|requested)|\bpatience\b|SIGUSR|max(?:imum)?[ _](?:time|duration|wall)|time limit|by the user",
            )?,
            relieved: regex(
                r"(?i-u)\b(?:recovered|is back|are back|healthy again|(?:progress(?:es)?|moving|running|alive) again|resumed)\b",
            )?,
            began: regex(
                r"(?i-u)\*{3,} ?running training|before the start of training|^(?:\d+: ?)?training \.\.\.\s*$",
            )?,
            orphan: regex(r"(?i-u)no running processes found|not found in /proc|\[not found\]")?,
            node_gone: regex(r"(?i-u)\bNodeTerminated\b|\bnodes? (?:was |is |are )?lost\b")?,
            node: regex(r"(?:^|[^\w-])(?-u:(?:node|host|worker|gpu|compute)-?\w*\d+(?:-\d+)?: )")?,
            planned: regex(
                r"(?i-u)\b(?:total[ _](?:training|optimization)[ _]steps|number of training iterations)\W{1,6}(\d[\d,]*)",
            )?,
            planned_with_warmup: regex(r"(?-u)\btotal steps (\d+) \(warmup")?,
            saved: regex(
                r"(?i-u)\bsav(?:ed|ing)\b.{0,80}\b(?:checkpoint-|global_step_?|from iteration\s+|at (?:step|iteration)\s+|iter_0*|step[-_=])(\d+)\b",
            )?,
            world: regex(r"(?-u)_world_size_(\d+)_rank_\d")?,
            pod_started: regex(r"(?-u)\b(?:Started container|Successfully (?:assigned|pulled))\b")?,
            node_ready: regex(r"(?-u)\bNodeReady\b")?,
            healthy: regex(r#"(?-u)/health_generate\b.{0,20}" 200\b"#)?,
        })
    }

    /// Returns true if the line says that training ended as planned.
    pub(super) fn says_done(&self, line: &[u8]) -> bool {
        // Chinese for "training ended" and "training completed"; 中断 ("interrupted") on the same line negates it.
        let says = |what: &str| memchr::memmem::find(line, what.as_bytes()).is_some();
        !says("中断") && (self.done.is_match(line) || says("训练结束") || says("训练完成"))
    }

    pub(super) fn planned(&self, line: &[u8]) -> Option<u64> {
        number(&self.planned, line).or_else(|| number(&self.planned_with_warmup, line))
    }

    pub(super) fn saved(&self, line: &[u8]) -> Option<u64> {
        number(&self.saved, line)
    }

    /// World size in the name of a checkpoint shard.
    pub(super) fn world(&self, line: &[u8]) -> Option<u64> {
        number(&self.world, line)
    }

    /// Timestamp in ms from month, day and time of day: few formats have a year.
    pub(super) fn time_of(&self, line: &[u8]) -> Option<u64> {
        let t = self.time.of(line)?;
        let seconds = ((t.month * 31 + t.day) * 24 + t.hour) * 3600 + t.minute * 60 + t.second;
        Some(u64::from(seconds) * 1000 + u64::from(t.ms))
    }

    /// Process id in a line's prefix, with the name that the prefix has.
    pub(super) fn pid_of(&self, line: &[u8]) -> Option<ProcessName> {
        let c = self.pid.captures(&line[..line.len().min(160)])?;
        let name = c.get(1).map_or_else(Vec::new, |m| m.as_bytes().to_vec());
        let digits = c.get(2).or(c.get(3)).or(c.get(4))?.as_bytes();
        Some((name, std::str::from_utf8(digits).ok()?.parse().ok()?))
    }
}

/// The matched number, which may have thousands separators.
fn number(of: &Regex, line: &[u8]) -> Option<u64> {
    let digits = of.captures(line)?.get(1)?.as_bytes();
    std::str::from_utf8(digits).ok()?.replace(',', "").parse().ok()
}
