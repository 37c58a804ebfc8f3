//! The launcher's side of the relays: one connection per rank, and where the rank's output goes.
//!
//! A rank's output is written past its relay: the guard kills relays as it kills workers, and the output of a rank
//! that failed on another node may still be on its way then.

use crate::address::{is_trusted, peer};
use crate::guard::nodes::lines::Splitter;
use crate::guard::nodes::relay::{self, FromRelay};
use nix::poll::{PollFd, PollFlags};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use supervise_core::event::ExitStatus;

/// Bytes of output waiting to be written; with more, `srun` is not read. The guard always keeps reading.
const ROOM: usize = 4 << 20;

pub(super) struct Relays {
    socket: UnixListener,
    count: u32,
    newcomers: Vec<Relay>,
    ranks: BTreeMap<u32, Rank>,
}

#[derive(Default)]
struct Rank {
    relay: Option<Relay>,
    unwritten: VecDeque<u8>,
    is_deaf: bool,
    end: Option<ExitStatus>,
    is_told: bool,
}

struct Relay {
    stream: UnixStream,
    /// Its standard output, reopened: the original may block.
    output: File,
    lines: Splitter,
    gone: bool,
}

impl Relay {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let pid = peer(&stream).ok_or_else(|| io::Error::other("a relay of no process"))?;
        let mut open = File::options();
        open.write(true).custom_flags(libc::O_NONBLOCK);
        Ok(Self {
            stream,
            output: open.open(format!("/proc/{pid}/fd/1"))?,
            lines: FromRelay::splitter(),
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
                Err(e) if is_later(&e) => break,
                Err(_) => self.gone = true,
            }
        }
        said
    }
}

impl Rank {
    /// Writes what can be written now, and the exit after it.
    fn flush(&mut self) {
        let Some(relay) = &mut self.relay else { return };
        while !self.is_deaf && !self.unwritten.is_empty() {
            let (first, _) = self.unwritten.as_slices();
            match relay.output.write(first) {
                Ok(n) => drop(self.unwritten.drain(..n)),
                Err(e) if is_later(&e) => return,
                Err(_) => self.is_deaf = true,
            }
        }
        if let Some(status) = self.end.filter(|_| !self.is_told && !relay.gone) {
            match relay.stream.write(relay::end(status).as_bytes()) {
                Ok(_) => self.is_told = true,
                Err(e) if is_later(&e) => {}
                Err(_) => relay.gone = true,
            }
        }
    }

    fn waiting(&self) -> usize {
        if self.is_deaf { 0 } else { self.unwritten.len() }
    }
}

fn is_later(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl Relays {
    pub(super) fn new(socket: UnixListener, count: u32) -> Self {
        Self {
            socket,
            count,
            newcomers: Vec::new(),
            ranks: BTreeMap::new(),
        }
    }

    fn come(&self) -> impl Iterator<Item = &Relay> {
        self.ranks.values().filter_map(|rank| rank.relay.as_ref())
    }

    pub(super) fn are_complete(&self) -> bool {
        usize::try_from(self.count).is_ok_and(|count| self.come().count() >= count)
    }

    /// Returns true if all relays have connected and exited; `late`: relays that have not connected yet never will.
    pub(super) fn are_gone(&self, late: bool) -> bool {
        (late || self.are_complete()) && self.come().all(|relay| relay.gone)
    }

    pub(super) fn have_room(&self) -> bool {
        self.ranks.values().map(Rank::waiting).sum::<usize>() < ROOM
    }

    pub(super) fn have_unwritten(&self) -> bool {
        let mut with = self.ranks.values().filter(|rank| rank.relay.is_some());
        with.any(|rank| rank.waiting() > 0)
    }

    pub(super) fn watch<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        fds.push(PollFd::new(self.socket.as_fd(), PollFlags::POLLIN));
        for relay in self.come().chain(&self.newcomers).filter(|relay| !relay.gone) {
            fds.push(PollFd::new(relay.stream.as_fd(), PollFlags::POLLIN));
        }
        for rank in self.ranks.values().filter(|rank| rank.waiting() > 0) {
            let output = rank.relay.as_ref().map(|relay| relay.output.as_fd());
            fds.extend(output.map(|fd| PollFd::new(fd, PollFlags::POLLOUT)));
        }
    }

    /// Accepts new relays, and returns the signals to send to their ranks.
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
                Some(FromRelay::Rank(number)) if *number < self.count => {
                    let number = *number;
                    let rank = self.ranks.entry(number).or_default();
                    if rank.relay.is_none() {
                        sort(number, said.split_off(1));
                        rank.relay = Some(relay);
                    }
                }
                None if !relay.gone => self.newcomers.push(relay),
                _ => {}
            }
        }
        for (number, rank) in &mut self.ranks {
            if let Some(relay) = &mut rank.relay {
                sort(*number, relay.hear());
            }
        }
        signals
    }

    fn rank(&mut self, number: u32) -> Option<&mut Rank> {
        (number < self.count).then(|| self.ranks.entry(number).or_default())
    }

    pub(super) fn print(&mut self, rank: u32, bytes: &[u8]) {
        if let Some(rank) = self.rank(rank).filter(|rank| !rank.is_deaf) {
            rank.unwritten.extend(bytes);
        }
    }

    pub(super) fn end(&mut self, rank: u32, status: ExitStatus) {
        if let Some(rank) = self.rank(rank) {
            rank.end.get_or_insert(status);
        }
    }

    /// Reports that a rank is lost: its exit status will never be known.
    pub(super) fn lose(&mut self, rank: u32, words: &str) {
        if self.rank(rank).is_some_and(|rank| rank.end.is_none()) {
            self.print(rank, format!("\n{words}\n").as_bytes());
            self.end(rank, ExitStatus::Code(1));
        }
    }

    pub(super) fn say_all(&mut self, words: &str) {
        (0..self.count).for_each(|rank| self.print(rank, format!("{words}\n").as_bytes()));
    }

    pub(super) fn flush(&mut self) {
        self.ranks.values_mut().for_each(Rank::flush);
    }
}
