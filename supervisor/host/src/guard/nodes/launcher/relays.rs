//! The launcher's side of the relays: one connection for each rank.

use crate::address::is_trusted;
use crate::guard::nodes::lines::Splitter;
use crate::guard::nodes::relay::{self, FromRelay, OUTPUT};
use nix::poll::{PollFd, PollFlags};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use supervise_core::event::ExitStatus;

/// Bytes that wait for a relay: with more, `srun` is not read. The guard reads without end.
const ROOM: usize = 4 << 20;

pub(super) struct Relays {
    socket: UnixListener,
    count: u32,
    newcomers: Vec<Relay>,
    known: BTreeMap<u32, Relay>,
    /// Messages for those that have not come yet.
    early: BTreeMap<u32, Vec<u8>>,
    ended: BTreeMap<u32, ()>,
    /// That have come so far.
    seen: u32,
}

struct Relay {
    stream: UnixStream,
    lines: Splitter,
    unsent: VecDeque<u8>,
    gone: bool,
}

impl Relay {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            lines: FromRelay::splitter(),
            unsent: VecDeque::new(),
            gone: false,
        })
    }

    fn hear(&mut self) -> Vec<FromRelay> {
        let mut buffer = [0_u8; 1024];
        let mut said = Vec::new();
        while !self.gone {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.gone = true,
                Ok(n) => {
                    let lines = self.lines.push(buffer.get(..n).unwrap_or(&[]));
                    said.extend(lines.iter().filter_map(|line| FromRelay::read(line)));
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => break,
                Err(_) => self.gone = true,
            }
        }
        said
    }

    fn flush(&mut self) {
        while !self.gone && !self.unsent.is_empty() {
            let (first, _) = self.unsent.as_slices();
            match self.stream.write(first) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
                Err(_) => self.gone = true,
            }
        }
    }
}

impl Relays {
    pub(super) fn new(socket: UnixListener, count: u32) -> Self {
        Self {
            socket,
            count,
            newcomers: Vec::new(),
            known: BTreeMap::new(),
            early: BTreeMap::new(),
            ended: BTreeMap::new(),
            seen: 0,
        }
    }

    /// All have come.
    pub(super) fn are_complete(&self) -> bool {
        self.seen >= self.count
    }

    /// All have come and gone; `late`: whoever has not come yet will not.
    pub(super) fn are_gone(&self, late: bool) -> bool {
        (late || self.are_complete()) && self.known.values().all(|r| r.gone)
    }

    pub(super) fn have_room(&self) -> bool {
        let waiting = |r: &Relay| if r.gone { 0 } else { r.unsent.len() };
        self.known.values().map(waiting).sum::<usize>() < ROOM
    }

    pub(super) fn watch<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        fds.push(PollFd::new(self.socket.as_fd(), PollFlags::POLLIN));
        for relay in self.known.values().chain(&self.newcomers).filter(|r| !r.gone) {
            let wish = match relay.unsent.is_empty() {
                true => PollFlags::POLLIN,
                false => PollFlags::POLLIN | PollFlags::POLLOUT,
            };
            fds.push(PollFd::new(relay.stream.as_fd(), wish));
        }
    }

    /// Takes new relays, and returns the signals that their ranks are sent.
    pub(super) fn hear(&mut self) -> Vec<(u32, i32)> {
        while let Ok((stream, _)) = self.socket.accept() {
            if is_trusted(&stream)
                && let Ok(relay) = Relay::new(stream)
            {
                self.newcomers.push(relay);
            }
        }
        let mut signals = Vec::new();
        let mut sort = |rank: u32, said: Vec<FromRelay>| {
            for word in said {
                if let FromRelay::Signal(signal) = word {
                    signals.push((rank, signal));
                }
            }
        };
        for mut relay in std::mem::take(&mut self.newcomers) {
            let mut said = relay.hear();
            match said.first() {
                Some(FromRelay::Rank(rank)) if *rank < self.count && !self.known.contains_key(rank) => {
                    let rank = *rank;
                    relay.unsent.extend(self.early.remove(&rank).unwrap_or_default());
                    sort(rank, said.split_off(1));
                    self.known.insert(rank, relay);
                    self.seen = self.seen.saturating_add(1);
                }
                None if !relay.gone => self.newcomers.push(relay),
                _ => {}
            }
        }
        for (rank, relay) in &mut self.known {
            sort(*rank, relay.hear());
        }
        signals
    }

    pub(super) fn print(&mut self, rank: u32, bytes: &[u8]) {
        for piece in bytes.chunks(32 << 10) {
            self.send(rank, &relay::message(OUTPUT, piece));
        }
    }

    /// Tells a rank's end, the first time.
    pub(super) fn end(&mut self, rank: u32, status: ExitStatus) {
        if self.ended.insert(rank, ()).is_none() {
            self.send(rank, &relay::end(status));
        }
    }

    /// A rank's end will not be told: nothing is known but that.
    pub(super) fn lose(&mut self, rank: u32, words: &str) {
        if !self.ended.contains_key(&rank) {
            self.print(rank, format!("\n{words}\n").as_bytes());
            self.end(rank, ExitStatus::Code(1));
        }
    }

    pub(super) fn say_all(&mut self, words: &str) {
        (0..self.count).for_each(|rank| self.print(rank, format!("{words}\n").as_bytes()));
    }

    fn send(&mut self, rank: u32, bytes: &[u8]) {
        match self.known.get_mut(&rank) {
            Some(relay) => relay.unsent.extend(bytes),
            None if rank < self.count => self.early.entry(rank).or_default().extend(bytes),
            None => {}
        }
    }

    pub(super) fn flush(&mut self) {
        self.known.values_mut().for_each(Relay::flush);
    }
}
