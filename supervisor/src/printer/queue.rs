//! Output of a run on its way to the reader: a thread of its own writes it, so that nothing waits for a reader who stopped reading.
//!
//! Output that a terminal held by ^S or a full pipe does not take is kept up to [`LIMIT`], then dropped and counted; how many lines
//! are missing is said where they would stand. The journal holds everything, whoever reads.

use super::bar::Bar;
use crate::render::live::LiveProgress;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use supervise_host::system::write_some;

/// Bytes that are kept for a reader who does not read.
const LIMIT: usize = 4 << 20;
/// Bytes written at once: so much is a sign that somebody reads.
const PIECE: usize = 4096;
/// At the end a reader who takes nothing is waited for so long.
const STILL: Duration = Duration::from_secs(1);
/// And one who takes a little now and then so long.
const SLOW: Duration = Duration::from_secs(5);
/// How often it is looked, where no word of it comes.
const LOOK: Duration = Duration::from_millis(20);

/// One of the two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StdStream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Something to be written.
#[derive(Debug, PartialEq, Eq)]
enum QueueItem {
    Text(StdStream, Vec<u8>),
    /// An entry of the system's journal, and the text that is written where it is not taken.
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

/// Takes bytes as `write(2)` does.
pub(super) type Sink = Box<dyn FnMut(StdStream, &[u8]) -> io::Result<usize> + Send>;

/// The system's journal, where the lines of the run go to one: takes an entry, or does not.
pub(super) type JournaldSink = Box<dyn FnMut(&[u8]) -> bool + Send>;

/// How many lines are missing, in the form of the output.
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
        // What is full takes nothing before there is room for more than one line.
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
    /// Pieces that somebody took.
    taken: AtomicU64,
    screen: Mutex<TerminalState>,
    limit: usize,
    missing: DroppedLinesFn,
}

/// Bar and outputs: only whoever writes touches them.
struct TerminalState {
    sink: Sink,
    journal: Option<JournaldSink>,
    bar: Bar,
}

impl QueueShared {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is next; `false`: there is nothing.
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
                // Woken for nothing, it finds nothing.
                drop(self.changed.wait(waiting));
            }
        }
    }
}

/// Writes everything, or nothing more where the reader is gone: that is no reason to end a training.
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
            // Whoever shares the output made it so.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(LOOK),
            Err(_) => return,
        }
    }
}

/// The queue and its thread.
pub(super) struct Queue {
    shared: Arc<QueueShared>,
    threaded: bool,
    has_journal: bool,
}

impl Queue {
    /// Onto standard output and standard error, and into the system's journal.
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
        // Where no thread can be made, whoever prints writes.
        let threaded = thread.spawn(move || its.work()).is_ok();
        Self {
            shared,
            threaded,
            has_journal,
        }
    }

    /// Text for one of the outputs, dropped where too much waits already.
    pub(super) fn text(&self, to: StdStream, bytes: &[u8]) {
        let item = QueueItem::Text(to, bytes.to_vec());
        self.with(|w, limit, missing| w.push(item, limit, missing));
    }

    /// Lines of a run are entries of the system's journal.
    pub(super) fn has_journal(&self) -> bool {
        self.has_journal
    }

    /// An entry of the system's journal, dropped as a text is.
    pub(super) fn entry(&self, entry: Vec<u8>, text: &[u8]) {
        let item = QueueItem::Entry(entry, text.to_vec());
        self.with(|w, limit, missing| w.push(item, limit, missing));
    }

    /// Text that is never dropped: how a run ended.
    pub(super) fn last_text(&self, to: StdStream, bytes: &[u8]) {
        let item = QueueItem::Text(to, bytes.to_vec());
        self.with(|w, _, missing| w.push_always(item, missing));
    }

    /// The bar, which shows the newest alone.
    pub(super) fn show(&self, shown: LiveProgress) {
        self.with(|w, _, _| w.bar = Some(shown));
    }

    /// Takes the bar off the terminal.
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

    /// Waits until everything is written, for as long as somebody takes it.
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

    /// A queue whose reader takes what it is let take, one write at a time.
    fn held(limit: usize) -> (Queue, mpsc::Sender<()>, mpsc::Receiver<String>) {
        let (go, held) = mpsc::channel::<()>();
        let (told, heard) = mpsc::channel();
        let sink = move |_, bytes: &[u8]| {
            // Without somebody who lets it go on, it goes on.
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
        // The thread takes the room off its account after the write.
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
