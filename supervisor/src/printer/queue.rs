//! The output of a run: a separate thread writes it, so that nothing waits for a reader who stopped reading.
//!
//! If a terminal stopped by ^S or a full pipe takes no output, up to [`LIMIT`] is kept; more is dropped, and a line
//! in its place says how many lines are missing. The journal has everything in any case.

use super::bar::Bar;
use crate::render::live::LiveProgress;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use supervise_host::system::write_some;

/// Bytes kept for a reader that does not read.
const LIMIT: usize = 4 << 20;
/// Bytes per write: a completed write shows that the reader is reading.
const PIECE: usize = 4096;
/// How long to wait at the end for a reader that takes nothing.
const STILL: Duration = Duration::from_secs(1);
/// How long to wait at the end for a slow reader.
const SLOW: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StdStream {
    Out,
    Err,
}

#[derive(Debug, PartialEq, Eq)]
enum QueueItem {
    Text(StdStream, Vec<u8>),
    /// An entry of systemd's journal, and the text to write if the journal does not take it.
    Entry(Vec<u8>, Vec<u8>),
    EndBar,
}

impl QueueItem {
    fn len(&self) -> usize {
        match self {
            Self::Text(_, bytes) => bytes.len(),
            Self::Entry(entry, text) => entry.len() + text.len(),
            Self::EndBar => 0,
        }
    }
}

pub(super) type Sink = Box<dyn FnMut(StdStream, &[u8]) -> io::Result<usize> + Send>;

/// Systemd's journal, if the output goes there; returns false if it did not take the entry.
pub(super) type JournaldSink = Box<dyn FnMut(&[u8]) -> bool + Send>;

pub(super) type DroppedLinesFn = fn(u64) -> String;

#[derive(Debug, Default)]
struct QueueState {
    items: VecDeque<QueueItem>,
    bytes: usize,
    bar: Option<LiveProgress>,
    dropping: bool,
    dropped: u64,
    writing: bool,
}

impl QueueState {
    fn push(&mut self, item: QueueItem, limit: usize, missing: DroppedLinesFn) {
        // Once full, the queue takes nothing until it is half empty.
        self.dropping = match self.dropping {
            true => self.bytes > limit / 2,
            false => self.bytes + item.len() > limit && self.bytes > 0,
        };
        if self.dropping {
            self.dropped += 1;
        } else {
            self.push_always(item, missing);
        }
    }

    fn push_always(&mut self, item: QueueItem, missing: DroppedLinesFn) {
        self.say_missing(missing);
        self.bytes += item.len();
        self.items.push_back(item);
    }

    fn say_missing(&mut self, missing: DroppedLinesFn) {
        if self.dropped > 0 {
            let text = missing(std::mem::take(&mut self.dropped));
            self.bytes += text.len();
            self.items.push_back(QueueItem::Text(StdStream::Out, text.into_bytes()));
        }
    }

    fn is_idle(&self) -> bool {
        self.items.is_empty() && self.bar.is_none() && self.dropped == 0 && !self.writing
    }
}

struct QueueShared {
    waiting: Mutex<QueueState>,
    changed: Condvar,
    /// Writes that completed.
    taken: AtomicU64,
    screen: Mutex<TerminalState>,
    limit: usize,
    missing: DroppedLinesFn,
}

/// Bar and outputs: only the writing thread touches them.
struct TerminalState {
    sink: Sink,
    journal: Option<JournaldSink>,
    bar: Bar,
}

impl QueueShared {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the next item; `false`: there was none.
    fn step(&self) -> bool {
        let mut waiting = self.lock();
        if waiting.items.is_empty() {
            waiting.say_missing(self.missing);
        }
        let item = waiting.items.pop_front();
        let bar = if item.is_none() { waiting.bar.take() } else { None };
        waiting.writing = item.is_some() || bar.is_some();
        drop(waiting);
        let mut screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        let TerminalState {
            sink,
            journal,
            bar: shown,
        } = &mut *screen;
        let len = item.as_ref().map_or(0, QueueItem::len);
        let any = match (item, bar) {
            (Some(QueueItem::Text(to, bytes)), _) => {
                shown.suspend(|| write(sink, to, &bytes, &self.taken));
                true
            }
            (Some(QueueItem::Entry(entry, text)), _) => {
                if !journal.as_mut().is_some_and(|takes| takes(&entry)) {
                    shown.suspend(|| write(sink, StdStream::Out, &text, &self.taken));
                }
                true
            }
            (Some(QueueItem::EndBar), _) => {
                shown.end();
                true
            }
            (None, Some(bar)) => {
                shown.show(&bar);
                true
            }
            (None, None) => false,
        };
        drop(screen);
        let mut waiting = self.lock();
        waiting.bytes -= len;
        waiting.writing = false;
        drop(waiting);
        self.changed.notify_all();
        any
    }

    fn work(&self) {
        loop {
            while self.step() {}
            let waiting = self.lock();
            if waiting.is_idle() {
                // A spurious wakeup is harmless.
                drop(self.changed.wait(waiting));
            }
        }
    }
}

/// Writes everything, or stops if the reader has gone away: that is no reason to stop training.
fn write(sink: &mut Sink, to: StdStream, bytes: &[u8], taken: &AtomicU64) {
    let mut left = bytes;
    while !left.is_empty() {
        let piece = left.get(..PIECE).unwrap_or(left);
        match sink(to, piece) {
            Ok(n) => {
                left = left.get(n..).unwrap_or_default();
                taken.fetch_add(1, Ordering::Relaxed);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // Another process sharing the output made it nonblocking.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(LOOK),
            Err(_) => return,
        }
    }
}

pub(super) struct Queue {
    shared: Arc<QueueShared>,
    threaded: bool,
    has_journal: bool,
}

impl Queue {
    pub(super) fn new(missing: DroppedLinesFn, journal: Option<JournaldSink>) -> Self {
        let sink = |to, bytes: &[u8]| match to {
            StdStream::Out => write_some(io::stdout(), bytes),
            StdStream::Err => write_some(io::stderr(), bytes),
        };
        Self::onto(Box::new(sink), journal, LIMIT, missing)
    }

    fn onto(sink: Sink, journal: Option<JournaldSink>, limit: usize, missing: DroppedLinesFn) -> Self {
        let has_journal = journal.is_some();
        let shared = Arc::new(QueueShared {
            waiting: Mutex::default(),
            changed: Condvar::new(),
            taken: AtomicU64::new(0),
            screen: Mutex::new(TerminalState {
                sink,
                journal,
                bar: Bar::default(),
            }),
            limit,
            missing,
        });
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("printer".to_owned());
        // If no thread can be started, the printing thread writes.
        let threaded = thread.spawn(move || its.work()).is_ok();
        Self {
            shared,
            threaded,
            has_journal,
        }
    }

    pub(super) fn text(&self, to: StdStream, bytes: &[u8]) {
        let item = QueueItem::Text(to, bytes.to_vec());
        self.with(|w, limit, missing| w.push(item, limit, missing));
    }

    pub(super) fn has_journal(&self) -> bool {
        self.has_journal
    }

    /// Queues an entry of systemd's journal; dropped like text.
    pub(super) fn entry(&self, entry: Vec<u8>, text: &[u8]) {
        let item = QueueItem::Entry(entry, text.to_vec());
        self.with(|w, limit, missing| w.push(item, limit, missing));
    }

    /// Queues text that is never dropped: how a run ended.
    pub(super) fn last_text(&self, to: StdStream, bytes: &[u8]) {
        let item = QueueItem::Text(to, bytes.to_vec());
        self.with(|w, _, missing| w.push_always(item, missing));
    }

    /// Shows the bar; only the newest state is kept.
    pub(super) fn show(&self, shown: LiveProgress) {
        self.with(|w, _, _| w.bar = Some(shown));
    }

    pub(super) fn end_bar(&self) {
        self.with(|w, _, missing| {
            w.bar = None;
            w.push_always(QueueItem::EndBar, missing);
        });
    }

    fn with(&self, change: impl FnOnce(&mut QueueState, usize, DroppedLinesFn)) {
        change(&mut self.shared.lock(), self.shared.limit, self.shared.missing);
        self.shared.changed.notify_all();
        if !self.threaded {
            while self.shared.step() {}
        }
    }

    /// Waits until everything is written, as long as the reader keeps reading.
    pub(super) fn flush(&self) {
        let end = Instant::now() + SLOW;
        let mut seen = self.shared.taken.load(Ordering::Relaxed);
        let mut until = Instant::now() + STILL;
        let mut waiting = self.shared.lock();
        while !waiting.is_idle() {
            let now = Instant::now();
            let taken = self.shared.taken.load(Ordering::Relaxed);
            if taken != seen {
                (seen, until) = (taken, now + STILL);
            }
            if now >= until.min(end) {
                return;
            }
            let woken = self.shared.changed.wait_timeout(waiting, LOOK);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn words(n: u64) -> String {
        format!("{n} missing\n")
    }

    /// A queue whose reader takes one write per `go`.
    fn held(limit: usize) -> (Queue, mpsc::Sender<()>, mpsc::Receiver<String>) {
        let (go, held) = mpsc::channel::<()>();
        let (told, heard) = mpsc::channel();
        let sink = move |_, bytes: &[u8]| {
            // If the test has dropped the sender, continue.
            let _ = held.recv();
            let _ = told.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        };
        (Queue::onto(Box::new(sink), None, limit, words), go, heard)
    }

    #[test]
    fn what_a_reader_does_not_take_is_counted_and_told_in_its_place() {
        let (queue, go, heard) = held(100);
        for n in 0..60 {
            queue.text(StdStream::Out, format!("line {n:04}\n").as_bytes());
        }
        queue.last_text(StdStream::Out, b"the end\n");
        let began = Instant::now();
        queue.flush();
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        drop(go);
        queue.flush();
        let lines: Vec<String> = heard.try_iter().collect();
        let expected: Vec<String> = (0..10).map(|n| format!("line {n:04}\n")).collect();
        assert_eq!(lines[..10], expected[..]);
        assert_eq!(lines[10..], ["50 missing\n".to_owned(), "the end\n".to_owned()]);
    }

    #[test]
    fn lines_are_taken_again_once_half_of_the_room_is_free() {
        let (queue, go, heard) = held(40);
        for n in 0..10 {
            queue.text(StdStream::Out, format!("line {n:04}\n").as_bytes());
        }
        for _ in 0..2 {
            go.send(()).unwrap();
            heard.recv().unwrap();
        }
        // The thread updates the count after the write.
        while queue.shared.lock().bytes > 20 {
            std::thread::yield_now();
        }
        queue.text(StdStream::Out, b"again\n");
        drop(go);
        queue.flush();
        let rest: Vec<String> = heard.try_iter().collect();
        assert_eq!(rest, ["line 0002\n", "line 0003\n", "6 missing\n", "again\n"]);
    }

    #[test]
    fn an_entry_that_the_journal_does_not_take_is_written_in_its_place() {
        let (told, heard) = mpsc::channel();
        let taken = told.clone();
        let sink = move |to, bytes: &[u8]| {
            let _ = told.send((Some(to), String::from_utf8_lossy(bytes).into_owned()));
            Ok(bytes.len())
        };
        let journal = move |entry: &[u8]| {
            let takes = entry != b"refused";
            takes && taken.send((None, String::from_utf8_lossy(entry).into_owned())).is_ok()
        };
        let queue = Queue::onto(Box::new(sink), Some(Box::new(journal)), LIMIT, words);
        queue.entry(b"taken".to_vec(), b"12:00:00 taken\n");
        queue.entry(b"refused".to_vec(), b"12:00:01 refused\n");
        queue.text(StdStream::Err, b"an error\n");
        queue.flush();
        let got: Vec<_> = heard.try_iter().collect();
        let expected = [
            (None, "taken"),
            (Some(StdStream::Out), "12:00:01 refused\n"),
            (Some(StdStream::Err), "an error\n"),
        ];
        assert_eq!(got, expected.map(|(to, text)| (to, text.to_owned())));
    }

    #[test]
    fn a_slow_reader_gets_everything() {
        let (told, heard) = mpsc::channel();
        let sink = move |_, bytes: &[u8]| {
            std::thread::sleep(Duration::from_millis(10));
            let _ = told.send(bytes.len());
            Ok(bytes.len())
        };
        let queue = Queue::onto(Box::new(sink), None, LIMIT, words);
        let bytes = vec![b'x'; 150 * PIECE];
        queue.text(StdStream::Err, &bytes);
        queue.flush();
        assert_eq!(heard.try_iter().sum::<usize>(), bytes.len());
    }
}
