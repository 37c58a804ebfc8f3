//! Splits a log into runs, and detects whether it continued after a line that looked like its end.

mod restart;

use memchr::memmem::{self, Finder};

pub(super) use restart::RestartDetector;

/// Texts of lines that start or end a run.
pub(super) const TEXTS: [&str; 13] = [
    "nohup: ignoring input",
    "above this job summary",
    "Setting OMP_NUM_THREADS",
    "Started a local Ray instance",
    "Tracking run with wandb",
    "wandb: Syncing run",
    "+ python",
    "+ torchrun",
    "+ srun ",
    "+ accelerate launch",
    "+ deepspeed ",
    "*** JOB ",
    "*** STEP ",
];

/// Lines in a row without trouble that prove the printing process is running.
const CALM: u64 = 100;
/// The same at the end of a log, counting only lines that no dying process prints.
const CALM_END: u64 = 40;
/// The same, after an error that the program logged itself.
const CALM_LOGGED: u64 = 8;
/// A last run with fewer lines, and without a failure, does not count.
const SHORT: u64 = 12;
/// Bytes at the start of a log that are searched for repetitions of its first line.
const LIKE_OTHERS: usize = 1 << 20;
const PLACES: usize = 1024;
/// Bytes of the first line that identify the next run, at least and at most.
const OPENING: std::ops::RangeInclusive<usize> = 16..=80;

#[derive(Debug, Default, Clone)]
pub(super) struct Runs {
    /// First lines of the runs after the first.
    begins: Vec<u64>,
    more: u32,
    /// The last Slurm job whose end was reported, and the line that reported it.
    job: Option<(u64, u64)>,
    /// Whether something in this run may have ended it.
    armed: bool,
    /// Last line of trouble, and the lines of trouble after which the log continued for long.
    trouble: u64,
    calm: Vec<u64>,
    lines: u64,
    /// Lines of running processes after the last trouble, and progress bars since then.
    calm_end: u64,
    bars: u64,
    /// Latest time before the last failure: a later line with an earlier time was printed before it, and held back.
    pub(super) buffered_until: Option<u64>,
    pub(super) restart: RestartDetector,
    opening: Option<Finder<'static>>,
    opened: bool,
    /// Bytes searched so far for repetitions of the first line.
    looked: usize,
}

impl Runs {
    /// Remembers the first line of the log from its first bytes.
    pub(super) fn open(&mut self, bytes: &[u8]) {
        if self.opened {
            return;
        }
        let mut lines = bytes.split(|b| matches!(b, b'\n' | b'\r'));
        let Some(first) = lines.find(|l| !l.trim_ascii().is_empty()) else {
            return;
        };
        self.opened = true;
        let parts = first.split(|b| b.is_ascii_digit() || !b.is_ascii_graphic() && *b != b' ');
        let longest = parts
            .map(<[u8]>::trim_ascii)
            .max_by_key(|p| p.len())
            .unwrap_or_default();
        // A warning may repeat within a run.
        let warns = ["warn", "Warn", "WARN", "File \"", "Traceback", "INFO", "%|"];
        let is_plain = warns.iter().all(|w| memmem::find(first, w.as_bytes()).is_none());
        if longest.len() >= *OPENING.start() && is_plain {
            self.opening = Some(Finder::new(&longest[..longest.len().min(*OPENING.end())]).into_owned());
        }
    }

    /// Notes something that may have ended the run.
    pub(super) fn arm(&mut self) {
        self.armed = true;
    }

    pub(super) fn trouble(&mut self, line: u64) {
        self.restart.take_back();
        if self.trouble > 0 && line > self.trouble + CALM && self.calm.len() < PLACES {
            self.calm.push(self.trouble);
        }
        self.trouble = self.trouble.max(line);
    }

    /// Notes a line that only a dying program prints: what it printed before that is no sign of life.
    pub(super) fn dies(&mut self, line: u64) {
        if self.trouble > 0 {
            self.trouble = self.trouble.max(line);
        }
    }

    /// Offset of a repetition of the first line, after something that may have ended a run.
    pub(super) fn reopens(&mut self, bytes: &[u8]) -> Option<usize> {
        let opening = self.opening.as_ref()?;
        if self.armed {
            return opening.find(bytes);
        }
        // A line that repeats this early marks no new run.
        if self.looked < LIKE_OTHERS {
            let first = if self.looked == 0 {
                opening.find(bytes).map_or(0, |at| at + 1)
            } else {
                0
            };
            self.looked += bytes.len();
            if opening.find(&bytes[first..]).is_some() {
                self.opening = None;
            }
        }
        None
    }

    /// Starts a run at a repetition of the first line. If it repeats too soon, it marks no runs.
    pub(super) fn reopen(&mut self, line: u64) {
        if line < self.begins.last().copied().unwrap_or(1) + SHORT {
            self.opening = None;
        } else {
            self.begin(line);
        }
    }

    pub(super) fn begin(&mut self, line: u64) {
        if line <= self.newest().max(1) {
            return;
        }
        self.armed = false;
        self.restart = RestartDetector::default();
        if self.begins.len() < PLACES {
            self.begins.push(line);
        } else {
            self.more = self.more.saturating_add(1);
            self.begins.rotate_left(1);
            if let Some(last) = self.begins.last_mut() {
                *last = line;
            }
        }
    }

    /// Processes a line without its launcher prefix, which may start or end a run.
    pub(super) fn note(&mut self, line: u64, text: &[u8]) {
        let opens = |with: &str| text.starts_with(with.as_bytes());
        if opens("nohup: ignoring input") {
            self.begin(line);
        } else if opens("The output (if any) is above this job summary") {
            self.begin(line + 1);
        } else if let Some(job) = job(text) {
            if let Some((last, at)) = self.job
                && last != job
                && self.begins.last().is_none_or(|begin| *begin <= at)
            {
                self.begin(at + 1);
            }
            self.job = Some((job, line));
        } else if self.armed
            && TEXTS[2..11]
                .iter()
                .any(|with| opens(with) || memmem::find(text, with.as_bytes()).is_some_and(|at| at < 40))
        {
            self.begin(line);
        }
    }

    /// Finishes the log, given its number of lines and its tail.
    pub(super) fn end(&mut self, lines: u64, tail: &[u8], time_of: impl Fn(&[u8]) -> Option<u64>) {
        self.lines = lines;
        let first = lines.saturating_sub(memchr::memchr_iter(b'\n', tail).count() as u64);
        self.calm_end = first.saturating_sub(self.trouble);
        let rest = tail.split(|b| *b == b'\n').zip(first..);
        let after = rest.filter(|(_, at)| *at > self.trouble).map(|(line, _)| line);
        let latest = after.clone().filter_map(time_of).max();
        if latest
            .zip(self.buffered_until)
            .is_some_and(|(latest, until)| latest < until)
        {
            self.calm_end = 0;
            return;
        }
        for line in after.take_while(|line| !line.starts_with(b"Sender: LSF System")) {
            match kind_of(line) {
                LineOfEnd::Living => self.calm_end += 1,
                LineOfEnd::Bar => self.bars += 1,
                LineOfEnd::Dying => {}
            }
        }
    }

    /// First line of the newest run, even an empty one.
    pub(super) fn newest(&self) -> u64 {
        self.begins.last().copied().unwrap_or(0)
    }

    pub(super) fn count(&self, found: impl Fn(u64) -> bool) -> u32 {
        let whole = u32::try_from(self.begins.len())
            .unwrap_or(u32::MAX)
            .saturating_add(self.more);
        let empty = self.begins.last().is_some_and(|b| self.is_empty(*b, &found));
        whole.saturating_add(1).saturating_sub(u32::from(empty))
    }

    /// First line of the last run; `found` says whether anything was found from a line on.
    pub(super) fn last(&self, found: impl Fn(u64) -> bool) -> u64 {
        let mut back = self.begins.iter().rev();
        back.find(|b| !self.is_empty(**b, &found)).copied().unwrap_or(0)
    }

    fn is_empty(&self, begin: u64, found: &impl Fn(u64) -> bool) -> bool {
        self.lines < begin + SHORT && !found(begin)
    }

    /// Returns true if the log continued for long after this line without trouble.
    pub(super) fn goes_on_after(&self, line: u64) -> bool {
        self.calm.iter().any(|at| *at >= line)
    }

    /// Returns true if at most this many lines follow.
    pub(super) fn ends_within(&self, line: u64, lines: u64) -> bool {
        self.lines <= line + lines
    }

    /// Returns true if the last trouble is long past.
    pub(super) fn ends_calmly(&self, logged: bool) -> bool {
        match logged {
            true => self.calm_end >= CALM_LOGGED,
            false => self.calm_end + self.bars >= CALM_END,
        }
    }
}

/// Id of the Slurm job whose end the line reports.
fn job(text: &[u8]) -> Option<u64> {
    let after = |with: &str| memmem::find(text, with.as_bytes()).map(|at| at + with.len());
    let at = after("*** JOB ").or_else(|| after("*** STEP "))?;
    let digits = text[at..].iter().take_while(|b| b.is_ascii_digit()).count();
    std::str::from_utf8(&text[at..at + digits]).ok()?.parse().ok()
}

/// What a line at the end of a log says about the process that printed it.
enum LineOfEnd {
    Living,
    /// A progress bar: a few may be closing ones, many are a sign of life.
    Bar,
    /// Printed by a dying process, or by launchers after it.
    Dying,
}

fn kind_of(line: &[u8]) -> LineOfEnd {
    const OF_AN_END: [&[u8]; 20] = [
        b"wandb:",
        b"frame #",
        b"srun:",
        b"slurmstepd:",
        b"Extension modules",
        b"====",
        b"----",
        b"real",
        b"user",
        b"sys",
        b"[rank",
        b"***",
        b"#",
        b"/",
        b"swanlab",
        b"mlflow",
        b"Fatal",
        b"File \"",
        b"at ",
        b"Thread 0x",
    ];
    const WITHIN: [&[u8]; 11] = [
        b"NCCL INFO",
        b"rror",
        b"xception",
        b"subprocess",
        b"\xe2\x94\x82",
        b"leaked",
        b"warn",
        b"Traceback",
        b"shutdown",
        b"elastic",
        b"closing signal",
    ];
    let plain = crate::event::scan::strip(&line[..line.len().min(400)]);
    let plain = plain.trim_ascii();
    let holds = |what: &[u8]| memmem::find(plain, what).is_some();
    let dies = plain.is_empty()
        || OF_AN_END.iter().any(|with| plain.starts_with(with))
        || WITHIN.iter().any(|what| holds(what));
    match dies {
        true => LineOfEnd::Dying,
        false if holds(b"%|") || holds(b"it/s") || holds(b"s/it") => LineOfEnd::Bar,
        false => LineOfEnd::Living,
    }
}
