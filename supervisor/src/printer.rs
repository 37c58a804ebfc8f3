//! All printing. Everything printed is safe for a terminal and free of secrets: see [`terminal`].
//!
//! On a terminal, a run prints one line per decision and keeps a progress bar below: step, rate, resume point, time
//! to the next save. A pipe gets the same lines without the bar, and a progress line once a minute. `--json` prints
//! one object per line. If the output goes to systemd's journal, lines become journal entries with fields. If the
//! reader has gone away, output is dropped and training continues. If the reader stops reading, only the printer
//! thread waits (`queue`).

mod bar;
mod colour;
mod entry;
mod meter;
mod queue;
mod work;

pub use colour::{ColourChoice, choose_colour, has_colours};
pub use meter::{ByteMeter, WaitSpinner};

use crate::environment::wall;
use crate::error::CliError;
use crate::lead::Lead;
use crate::render::last_words::last_words;
use crate::render::ledger::LedgerView;
use crate::render::live::LiveProgress;
use crate::render::progress::ProgressReport;
use crate::render::record;
use crate::render::status::StatusView;
use crate::render::terminal;
use crate::render::time::{clock, day, stamp};
use entry::EntryFields;
use queue::{Queue, StdStream};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use supervise_config::redact_text;
use supervise_core::id::WallMs;
use supervise_core::id::{Step, Tick};
use supervise_core::journal::record::JournalRecord;
use supervise_core::ledger::TimeLedger;
use supervise_core::spec::RunSpec;
use supervise_core::state::RunState;
use supervise_host::journald::Journald;
use work::WorkProgress;

/// Shortest interval between progress lines in a pipe.
const PROGRESS_LINE: Duration = Duration::from_secs(60);

/// Notes remembered to avoid repeating them.
const NOTES: usize = 1000;

/// How much is printed, and in which format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputMode {
    #[default]
    Text,
    /// Only what matters at the end.
    Quiet,
    Json,
}

/// Prints the output of a run.
#[derive(Debug)]
pub struct Printer {
    output: OutputMode,
    has_bar: bool,
    told: Option<Instant>,
    shown: Option<Step>,
    live: Option<LiveProgress>,
    work: Option<WorkProgress>,
    /// The hang that was printed, by when the last progress was.
    late: Option<Tick>,
    last: String,
    /// The day of the last line, in days since 1970.
    day: Option<i64>,
    notes: BTreeSet<String>,
    /// Fields of the next entries in systemd's journal.
    place: EntryFields,
}

impl Printer {
    /// Creates a printer for this terminal or pipe. `tee`: the trainer's output is printed in between, so there is no
    /// bar. From now on nothing waits for printed output.
    #[must_use]
    pub fn new(output: OutputMode, tee: bool) -> Self {
        QUEUE.get_or_init(|| {
            let journal = Journald::behind(io::stdout()).filter(|_| output != OutputMode::Json);
            Queue::new(
                missing,
                journal.map(|j| Box::new(move |entry: &[u8]| j.take(entry)) as _),
            )
        });
        Self {
            output,
            has_bar: output == OutputMode::Text && !tee && is_terminal(),
            told: None,
            shown: None,
            live: None,
            work: None,
            late: None,
            last: String::new(),
            day: None,
            notes: BTreeSet::new(),
            place: EntryFields::default(),
        }
    }

    /// Prints an applied record if it says something new.
    pub fn record(&mut self, r: &JournalRecord, s: &RunState, spec: &RunSpec) {
        self.place = EntryFields::of(s, &spec.run, spec.root.as_deref());
        match self.output {
            OutputMode::Quiet if !record::is_urgent(r) => {}
            OutputMode::Text | OutputMode::Quiet => {
                // Several workers report the same at the same time: print it once.
                if let Some(words) = record::words(r, s).filter(|w| *w != self.last) {
                    let at = self.moment(s.wall);
                    let paragraph = terminal::paragraph(&words);
                    self.line(&at, &paragraph, Some(r));
                    self.last = words;
                }
            }
            OutputMode::Json => {
                if let Some(text) = record::words(r, s) {
                    self.object(&json!({ "at": s.wall, "term": s.term, "text": text, "record": r }));
                }
            }
        }
    }

    /// True if a line on the terminal shows times, and is to be drawn again each second.
    #[must_use]
    pub fn shows_times(&self) -> bool {
        self.has_bar
    }

    /// Updates the progress display.
    pub fn progress(&mut self, s: &RunState, spec: &RunSpec, ledger: &TimeLedger) {
        if self.output != OutputMode::Text {
            return;
        }
        let now = wall();
        let report = ProgressReport::of(s, spec, ledger, true, now);
        if self.has_bar {
            let line = match &self.work {
                Some(work) => work.line(Instant::now()),
                None => LiveProgress::of(s, spec, &report, now),
            };
            if self.live.as_ref() != Some(&line) {
                self.live = Some(line.clone());
                QUEUE.get().into_iter().for_each(|q| q.show(line.clone()));
            }
            return;
        }
        let since = s.live().map(|a| a.training.last_progress).filter(|_| report.is_late());
        if let Some(words) = report.late_words().filter(|_| since != self.late) {
            self.progress_line(s, spec, now, &words);
        }
        self.late = since;
        let step = s.live().and_then(|a| a.training.step);
        if step.is_none() || step == self.shown {
            return;
        }
        self.shown = step;
        let now = Instant::now();
        let is_due = |at| now.saturating_duration_since(at) >= PROGRESS_LINE;
        if self.told.is_none_or(is_due)
            && let Some(words) = report.step_words()
        {
            self.told = Some(now);
            self.progress_line(s, spec, s.wall, &words);
        }
    }

    fn progress_line(&mut self, s: &RunState, spec: &RunSpec, at: WallMs, words: &str) {
        let at = self.moment(at);
        self.place = EntryFields::of(s, &spec.run, spec.root.as_deref());
        self.line(&at, words, None);
    }

    /// Progress of a long operation, as bytes done and in total; `None`: it has finished.
    pub fn working(&mut self, so_far: Option<(u64, u64)>) {
        self.work = so_far.map(|so_far| WorkProgress::on(self.work.take(), so_far, Instant::now()));
    }

    /// The time of day, with the date on the first line of each day.
    fn moment(&mut self, at: WallMs) -> String {
        let day = Some(day(at));
        match std::mem::replace(&mut self.day, day) == day {
            true => clock(at),
            false => stamp(at),
        }
    }

    /// Prints a note that is no record, unless it was printed before.
    pub fn note(&mut self, text: &str) {
        if self.output != OutputMode::Quiet {
            self.last_word(text);
        }
    }

    /// Prints a note even in quiet mode.
    pub fn last_word(&mut self, text: &str) {
        if self.notes.len() < NOTES && !self.notes.insert(text.to_owned()) {
            return;
        }
        match self.output {
            OutputMode::Json => self.object(&json!({ "note": text })),
            OutputMode::Text | OutputMode::Quiet => self.line(Lead::Note.words(), &terminal::line(text), None),
        }
    }

    /// Prints the summary at the end of a term.
    pub fn finish(&mut self, s: &RunState, ledger: &TimeLedger, spec: &RunSpec) {
        let Some(queue) = QUEUE.get() else { return };
        if std::mem::take(&mut self.has_bar) {
            queue.end_bar();
        }
        let text = match self.output {
            OutputMode::Json => {
                let mut view = StatusView::of(&spec.run.0, s, Some(spec), Default::default());
                view.ledger = LedgerView::of(ledger, Some(spec), None, false);
                terminal::json(&json!({ "finish": view }).to_string()) + "\n"
            }
            OutputMode::Text | OutputMode::Quiet => terminal::block(&redact_text(&last_words(s, spec))).into_owned(),
        };
        queue.last_text(StdStream::Out, text.as_bytes());
    }

    fn object(&self, value: &serde_json::Value) {
        // A reader that has gone away is no reason to stop training.
        let _ = out_json(&value.to_string());
    }

    /// Prints a line; `head`: the prefix, which systemd's journal does not need.
    fn line(&self, head: &str, text: &str, of: Option<&JournalRecord>) {
        let line = format!("{head} {text}\n");
        match QUEUE.get().filter(|queue| queue.has_journal()) {
            Some(queue) => queue.entry(self.place.entry(text, of), printable(&line).as_bytes()),
            None => out(&line),
        }
    }
}

/// The width of the terminal that standard output goes to.
pub fn columns() -> Option<usize> {
    let size = io::stdout().is_terminal().then(ratatui::crossterm::terminal::size)?;
    size.ok()
        .map(|(columns, _)| usize::from(columns))
        .filter(|columns| *columns > 0)
}

/// Whether the locale says that a terminal shows more than ASCII.
pub fn takes_blocks() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

fn is_terminal() -> bool {
    let free = !SCREEN_TAKEN.load(Ordering::Relaxed);
    free && io::stderr().is_terminal()
        && io::stdout().is_terminal()
        && std::env::var_os("TERM").is_some_and(|t| t != "dumb")
}

/// Only the output of a run goes through here; other commands print directly.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Text shown in place of dropped lines.
fn missing(lines: u64) -> String {
    let lines = crate::render::count(lines, "line");
    let text = format!("{lines} not shown: nobody read the output; `supervise explain` has everything");
    match ERRORS_AS_JSON.load(Ordering::Relaxed) {
        true => terminal::json(&json!({ "note": text }).to_string()) + "\n",
        false => format!("{} {text}\n", Lead::Note),
    }
}

/// Waits briefly for the reader when the program exits.
pub fn flush() {
    QUEUE.get().into_iter().for_each(Queue::flush);
}

/// Writes lines to standard output.
pub fn out(text: &str) {
    // A reader that has gone away is no reason to stop training.
    let _ = out_text(text);
}

/// Writes lines to standard output and reports failures.
///
/// # Errors
/// The reader has gone away, or the file cannot take more.
pub fn out_text(text: &str) -> io::Result<()> {
    out_bytes(colour::painted(&printable(text), &io::stdout()).as_bytes())
}

fn printable(text: &str) -> String {
    terminal::block(&redact_text(text)).into_owned()
}

/// Writes one JSON text and a newline to standard output.
///
/// # Errors
/// The reader has gone away.
pub fn out_json(text: &str) -> io::Result<()> {
    out_bytes((terminal::json(text) + "\n").as_bytes())
}

/// Writes trainer output, or bytes of our own, unchanged.
///
/// # Errors
/// The reader has gone away.
pub fn out_bytes(bytes: &[u8]) -> io::Result<()> {
    if let Some(queue) = QUEUE.get() {
        queue.text(StdStream::Out, bytes);
        return Ok(());
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush())
}

/// Writes lines to standard error.
pub fn err(text: &str) {
    if SCREEN_TAKEN.load(Ordering::Relaxed) {
        return;
    }
    let text = redact_text(text);
    let text = colour::painted(&terminal::block(&text), &io::stderr()).into_owned();
    if let Some(queue) = QUEUE.get() {
        return queue.text(StdStream::Err, text.as_bytes());
    }
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Writes a note to standard error.
pub fn note(text: &str) {
    err(&format!("{} {text}\n", Lead::Note));
}

/// Writes a note to standard error that is never dropped: nothing else reports it.
pub fn last_note(text: &str) {
    last_err(&format!("{} {text}\n", Lead::Note));
}

/// Writes lines to standard error that are never dropped: nothing else reports them.
pub fn last_err(text: &str) {
    match QUEUE.get() {
        Some(queue) => {
            let text = redact_text(text);
            queue.last_text(
                StdStream::Err,
                colour::painted(&terminal::block(&text), &io::stderr()).as_bytes(),
            );
        }
        None => err(text),
    }
}

/// The whole screen is in use: lines and bars would corrupt it.
static SCREEN_TAKEN: AtomicBool = AtomicBool::new(false);

/// Suppresses other output while the whole screen is in use.
pub fn screen_is_taken(yes: bool) {
    SCREEN_TAKEN.store(yes, Ordering::Relaxed);
}

/// Errors are printed as JSON, because of `--json`.
static ERRORS_AS_JSON: AtomicBool = AtomicBool::new(false);

/// Sets whether errors are printed as JSON.
pub fn errors_as_json(yes: bool) {
    ERRORS_AS_JSON.store(yes, Ordering::Relaxed);
}

/// Writes an error to standard error, as text or JSON.
pub fn fail(e: &CliError) {
    match ERRORS_AS_JSON.load(Ordering::Relaxed) {
        true => last_err(&(terminal::json(&e.json()) + "\n")),
        false => last_err(&e.render()),
    }
}

/// A writer of lines to standard error, for log output.
#[derive(Debug)]
pub struct StderrWriter;

impl Write for StderrWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        err(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Asks on the terminal; anything but yes means no.
///
/// # Errors
/// The answer cannot be read.
pub(crate) fn confirm(question: &str) -> Result<bool, CliError> {
    err(question);
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .map_err(|e| CliError::environment(format!("the answer cannot be read: {e}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
