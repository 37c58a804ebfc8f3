//! The queue of output for the log writer: bounded, drops the oldest first, never blocks.
//!
//! The log writer is a separate process because a disk can hang forever. The pipe to it is written without blocking;
//! what it does not accept is held here, up to [`HELD_LIMIT`]. What is dropped beyond that is counted, and a line in
//! the output shows where it is missing.

use crate::guard::protocol::GuardOrder;
use crate::log_writer::frame::{FrameHeader, FrameKind, HEADER_LEN, LogOrder, PAYLOAD_LIMIT};
use crate::process::spawn::{SpawnProgram, SpawnWiring, start};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const HELD_LIMIT: usize = 4 << 20;

/// Small reads of one worker's output are joined up to this size.
const JOIN_LIMIT: usize = 64 << 10;

#[derive(Debug)]
struct QueuedFrame {
    kind: FrameKind,
    worker: u32,
    bytes: Vec<u8>,
}

impl QueuedFrame {
    fn new(kind: FrameKind, worker: u32, payload: &[u8]) -> Self {
        let header = FrameHeader {
            kind,
            worker,
            len: payload.len(),
        };
        let mut bytes = Vec::with_capacity(HEADER_LEN + payload.len());
        bytes.extend(header.encode());
        bytes.extend(payload);
        Self { kind, worker, bytes }
    }

    fn payload(&self) -> usize {
        self.bytes.len().saturating_sub(HEADER_LEN)
    }

    fn append(&mut self, more: &[u8]) {
        self.bytes.extend(more);
        let header = FrameHeader {
            kind: self.kind,
            worker: self.worker,
            len: self.payload(),
        };
        for (to, from) in self.bytes.iter_mut().zip(header.encode()) {
            *to = from;
        }
    }
}

#[derive(Debug)]
pub(crate) struct LogQueue {
    order: Option<LogOrder>,
    pipe: Option<File>,
    waiting: VecDeque<QueuedFrame>,
    held: usize,
    current: Option<(QueuedFrame, usize)>,
    lost: BTreeMap<u32, Lost>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Lost {
    unsaid: u64,
    total: u64,
    told: u64,
}

impl LogQueue {
    /// Creates a queue without a log writer; without an order it accepts nothing.
    pub(crate) fn new(order: Option<LogOrder>) -> Self {
        Self {
            order,
            pipe: None,
            waiting: VecDeque::new(),
            held: 0,
            current: None,
            lost: BTreeMap::new(),
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.order.is_some()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.pipe.is_some()
    }

    /// Connects a new log writer and sends it its order first.
    pub(crate) fn connect(&mut self, pipe: OwnedFd) {
        self.disconnect();
        let order = self.order.as_ref().map(|o| (serde_json::to_vec(o), o));
        let Some(json) = order.and_then(|(json, o)| match json {
            // Secrets in which every character is escaped would not fit.
            Ok(json) if json.len() > PAYLOAD_LIMIT => serde_json::to_vec(&without_values(o)).ok(),
            json => json.ok(),
        }) else {
            return;
        };
        self.pipe = Some(pipe.into());
        self.current = Some((QueuedFrame::new(FrameKind::Order, 0, &json), 0));
    }

    /// Forgets a log writer that has exited. A frame that was partly sent is lost.
    pub(crate) fn disconnect(&mut self) {
        self.pipe = None;
        if let Some((frame, _)) = self.current.take() {
            self.count_lost(&frame);
        }
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.is_wanted()
            && (self.current.is_some() || !self.waiting.is_empty() || self.lost.values().any(|l| l.unsaid > 0))
    }

    /// Returns true if enough is held to start the log writer now.
    pub(crate) fn is_full_of_output(&self) -> bool {
        self.held > JOIN_LIMIT
    }

    pub(crate) fn output(&mut self, worker: u32, bytes: &[u8]) {
        if !self.is_wanted() {
            return;
        }
        let last = self
            .waiting
            .back_mut()
            .filter(|f| f.kind == FrameKind::Output && f.worker == worker && f.payload() + bytes.len() <= JOIN_LIMIT);
        self.held += bytes.len();
        match last {
            Some(frame) => frame.append(bytes),
            None => {
                for part in bytes.chunks(PAYLOAD_LIMIT) {
                    self.waiting
                        .push_back(QueuedFrame::new(FrameKind::Output, worker, part));
                }
            }
        }
        self.make_room();
    }

    pub(crate) fn tree(&mut self, mut line: String) {
        if !self.is_wanted() || line.len() >= PAYLOAD_LIMIT {
            return;
        }
        line.push('\n');
        self.held += line.len();
        self.waiting
            .push_back(QueuedFrame::new(FrameKind::Tree, 0, line.as_bytes()));
        self.make_room();
    }

    /// Sets all secret values known so far; they are redacted in what is written from here on.
    pub(crate) fn secrets(&mut self, values: Vec<String>) {
        let Some(order) = &mut self.order else { return };
        let Ok(json) = serde_json::to_vec(&values) else { return };
        // A later log writer gets them with its order.
        order.secrets = values;
        if self.pipe.is_some() && json.len() <= PAYLOAD_LIMIT {
            self.held += json.len();
            self.waiting.push_back(QueuedFrame::new(FrameKind::Secrets, 0, &json));
        }
    }

    fn make_room(&mut self) {
        while self.held > HELD_LIMIT {
            let Some(frame) = self.waiting.pop_front() else {
                return;
            };
            self.held = self.held.saturating_sub(frame.payload());
            self.count_lost(&frame);
        }
    }

    fn count_lost(&mut self, frame: &QueuedFrame) {
        if frame.kind == FrameKind::Output {
            let bytes = u64::try_from(frame.payload()).unwrap_or(u64::MAX);
            let lost = self.lost.entry(frame.worker).or_default();
            lost.unsaid = lost.unsaid.saturating_add(bytes);
            lost.total = lost.total.saturating_add(bytes);
        }
    }

    /// Workers that lost output since the last call, each with its total.
    pub(crate) fn take_lost(&mut self) -> Vec<(u32, u64)> {
        let mut news = Vec::new();
        for (worker, lost) in &mut self.lost {
            if lost.total > lost.told {
                lost.told = lost.total;
                news.push((*worker, lost.total));
            }
        }
        news
    }

    pub(crate) fn has_untold_loss(&self) -> bool {
        self.lost.values().any(|l| l.total > l.told)
    }

    /// Writes what the pipe accepts now.
    ///
    /// # Errors
    /// The log writer has exited.
    pub(crate) fn pump(&mut self) -> io::Result<()> {
        loop {
            if self.pipe.is_none() {
                return Ok(());
            }
            if self.current.is_none() {
                self.current = self.next().map(|f| (f, 0));
            }
            let (Some(pipe), Some((frame, sent))) = (&mut self.pipe, &mut self.current) else {
                return Ok(());
            };
            match pipe.write(frame.bytes.get(*sent..).unwrap_or(&[])) {
                Ok(n) => *sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if *sent >= frame.bytes.len() {
                self.current = None;
            }
        }
    }

    /// The next frame. A loss is reported right before what came after it.
    fn next(&mut self) -> Option<QueuedFrame> {
        let unsaid = match self.waiting.front() {
            Some(frame) if frame.kind == FrameKind::Output => Some(frame.worker),
            Some(_) => None,
            None => self.lost.iter().find(|(_, l)| l.unsaid > 0).map(|(w, _)| *w),
        };
        let unsaid = unsaid.and_then(|w| Some((w, self.lost.get_mut(&w)?)));
        if let Some((worker, lost)) = unsaid.filter(|(_, l)| l.unsaid > 0) {
            let line = format!(
                "\n[supervise: {} bytes of output were dropped: the disk did not take them]\n",
                lost.unsaid
            );
            lost.unsaid = 0;
            return Some(QueuedFrame::new(FrameKind::Output, worker, line.as_bytes()));
        }
        let frame = self.waiting.pop_front()?;
        self.held = self.held.saturating_sub(frame.payload());
        Some(frame)
    }
}

fn without_values(order: &LogOrder) -> LogOrder {
    LogOrder {
        secrets: Vec::new(),
        ..order.clone()
    }
}

pub(crate) fn log_writer_order(order: &GuardOrder) -> Option<LogOrder> {
    Some(LogOrder {
        dir: order.dir.clone()?,
        workers: u32::try_from(order.workers.len()).ok()?,
        output_max: order.output_max,
        output_keep: order.output_keep,
        secrets: order.secrets.clone(),
    })
}

/// Starts the log writer; returns its PID and the writing end of its pipe.
pub(crate) fn start_log_writer(order: &GuardOrder) -> io::Result<(i32, OwnedFd)> {
    let argv = ["supervise", "__log_writer"].map(str::to_owned);
    let files = ["/proc/self/exe", order.exe.as_str()];
    let program = SpawnProgram::first_of(&files, &argv, &[])?;
    let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    set_nonblocking(&writer)?;
    // A smaller pipe only means that less fits into it.
    let _ = fcntl(&writer, FcntlArg::F_SETPIPE_SZ(1 << 20));
    let null = null()?;
    let wiring = SpawnWiring {
        input: reader.as_fd(),
        output: null.as_fd(),
        errors: null.as_fd(),
        cgroup: None,
        // It writes what it was given even after the guard was killed.
        dies_with_creator: false,
        gate: None,
    };
    Ok((start(&program, &wiring)?.pid, writer))
}

pub(crate) fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

pub(crate) fn null() -> io::Result<File> {
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn order() -> LogOrder {
        LogOrder {
            dir: "/nowhere".into(),
            workers: 1,
            output_max: 1,
            output_keep: 0,
            secrets: Vec::new(),
        }
    }

    fn pipe() -> (File, OwnedFd) {
        let flags = nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK;
        let (reader, writer) = nix::unistd::pipe2(flags).unwrap();
        (reader.into(), writer)
    }

    fn drain(log_queue: &mut LogQueue, reader: &mut File) -> Vec<(FrameKind, u32, Vec<u8>)> {
        let mut bytes = Vec::new();
        loop {
            log_queue.pump().unwrap();
            if reader.read_to_end(&mut bytes).is_err() && !log_queue.has_unsent() {
                break;
            }
        }
        let mut rest = bytes.as_slice();
        let mut frames = Vec::new();
        while let Some((head, tail)) = rest.split_first_chunk::<HEADER_LEN>() {
            let header = FrameHeader::decode(*head).unwrap();
            let (payload, tail) = tail.split_at(header.len);
            frames.push((header.kind, header.worker, payload.to_vec()));
            rest = tail;
        }
        frames
    }

    #[test]
    fn what_a_hanging_log_writer_does_not_take_is_dropped_counted_and_said() {
        let mut log_queue = LogQueue::new(Some(order()));
        let (mut reader, writer) = pipe();
        log_queue.connect(writer);
        let chunk = [b'x'; 50_000];
        for _ in 0..1000 {
            log_queue.output(0, &chunk);
            log_queue.pump().unwrap();
            assert!(log_queue.held <= HELD_LIMIT);
        }
        let lost = log_queue.take_lost();
        assert_eq!(lost.len(), 1);
        assert!(log_queue.take_lost().is_empty());
        let frames = drain(&mut log_queue, &mut reader);
        assert_eq!(frames[0].0, FrameKind::Order);
        let said: Vec<_> = frames
            .iter()
            .filter_map(|f| std::str::from_utf8(&f.2).ok()?.strip_prefix("\n[supervise: "))
            .collect();
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with(&format!("{} bytes", lost[0].1)));
        let kept: usize = frames[1..].iter().map(|f| f.2.len()).sum();
        let kept = u64::try_from(kept - said[0].len() - 13).unwrap();
        assert_eq!(kept + lost[0].1, 50_000_000);
    }

    #[test]
    fn a_new_log_writer_is_told_its_order_and_gets_whole_frames() {
        let mut log_queue = LogQueue::new(Some(order()));
        let (first, writer) = pipe();
        log_queue.connect(writer);
        for _ in 0..10 {
            log_queue.output(3, &[b'y'; 60_000]);
        }
        log_queue.pump().unwrap();
        drop(first);
        assert!(log_queue.pump().is_err());
        log_queue.disconnect();
        let (mut second, writer) = pipe();
        log_queue.connect(writer);
        let frames = drain(&mut log_queue, &mut second);
        assert_eq!(frames[0].0, FrameKind::Order);
        assert!(frames[1..].iter().all(|f| f.1 == 3));
    }

    #[test]
    fn without_an_order_nothing_is_held() {
        let mut log_queue = LogQueue::new(None);
        log_queue.output(0, &[1; 1000]);
        log_queue.tree("x".into());
        assert!(!log_queue.has_unsent());
        assert_eq!(log_queue.held, 0);
    }
}
