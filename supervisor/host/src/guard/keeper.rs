//! The keeper: the guard's parent, which outlives it.
//!
//! A guard that has its order forks: the parent becomes the keeper, the child works as the guard. The keeper only
//! waits. It is a subreaper, so the processes that a killed guard leaves behind become its descendants, whatever
//! their session, environment or age. It kills them at once, since the workers die with their guard anyway, and exits
//! when none is running. It needs no supervisor for that. Its socket shows that it is running; until it is closed, no
//! attempt is launched.

use crate::address::{self, SocketRole};
use crate::guard::protocol::GuardOrder;
use crate::process::boottime_ms;
use crate::process::cgroup::{CgroupLeaf, leaf_name};
use crate::process::kill::{hunt, signal_process};
use crate::process::reap::{reap_one, reap_some};
use crate::process::spawn::split;
use crate::process::stat::{command_line, proc_stat};
use crate::process::tree::{
    KEEPER_NAME, children, is_card_reader, is_launcher, is_log_writer, list_descendants, spare_helpers,
};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;
use supervise_core::event::ExitStatus;
use supervise_core::id::RunId;

/// Pauses between rounds of killing: while processes still exit, and while the rest takes time to die.
const PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// A process still running after this hangs in the kernel; it is waited for with longer pauses.
const LASTING_MS: u64 = 5000;
const LASTING_PAUSE: Duration = Duration::from_secs(1);
/// How often all descendants are searched: those below an unkillable process are not reparented to us.
const WALK_MS: u64 = 50;
const VISITORS: usize = 64;
const LOOK_MS: u16 = 100;
const BIRTHS: usize = 500;
/// How long a keeper started early may take to answer.
const NAMED_WITHIN: Duration = Duration::from_secs(3);
const NAME: u64 = 4096;
const REMOVALS: usize = 50;

pub(crate) enum ForkSide {
    Guard(KeeperPipe),
    Keeper(Keeper),
}

#[derive(Debug)]
pub(crate) struct KeeperPipe(File);

impl KeeperPipe {
    /// Names the run to a keeper that was started early. Its socket exists before anything is created that it would
    /// kill.
    ///
    /// # Errors
    /// The keeper has exited, or cannot create its socket.
    pub(crate) fn name(&mut self, order: &GuardOrder) -> io::Result<()> {
        let leaf = order
            .cgroup
            .then(|| leaf_name(&order.run, order.term.0, order.attempt.0));
        let mut line = serde_json::to_vec(&(&order.run, leaf))?;
        line.push(b'\n');
        self.0.write_all(&line)?;
        self.0.read_exact(&mut [0])?;
        nix::sys::prctl::set_pdeathsig(None)?;
        Ok(())
    }

    /// The tree is confirmed gone, so there is no need to wait for the keeper.
    pub(crate) fn release(mut self) {
        // If the keeper was killed, there is nothing to release.
        let _ = self.0.write_all(b".");
    }
}

pub(crate) struct Keeper {
    guard: i32,
    tether: Option<File>,
    socket: Option<UnixListener>,
    leaf: Option<String>,
}

/// Forks this process into keeper and guard.
///
/// # Errors
/// No process, pipe or socket can be created.
pub(crate) fn part(order: &GuardOrder) -> io::Result<ForkSide> {
    let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    // Created by the parent: peers that connect see the keeper as the other end.
    let socket = address::listen(&address::fresh(&order.run, SocketRole::Keeper)?)?;
    socket.set_nonblocking(true)?;
    Ok(match split()? {
        None => ForkSide::Guard(KeeperPipe(writer.into())),
        Some(guard) => ForkSide::Keeper(Keeper {
            guard,
            tether: Some(reader.into()),
            socket: Some(socket),
            leaf: order
                .cgroup
                .then(|| leaf_name(&order.run, order.term.0, order.attempt.0)),
        }),
    })
}

/// Forks this process before there is an order; the keeper is told later which run it belongs to. Until then the
/// guard dies with it: accepting an order without a keeper would make the launch fail.
///
/// # Errors
/// No process or socket can be created.
pub(crate) fn part_early() -> io::Result<ForkSide> {
    let (ours, theirs) = UnixStream::pair()?;
    theirs.set_read_timeout(Some(NAMED_WITHIN))?;
    Ok(match split()? {
        None => {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            ForkSide::Guard(KeeperPipe(File::from(OwnedFd::from(theirs))))
        }
        Some(guard) => ForkSide::Keeper(Keeper {
            guard,
            tether: Some(File::from(OwnedFd::from(ours))),
            socket: None,
            leaf: None,
        }),
    })
}

impl Keeper {
    /// Waits until there is an order, or until none can come any more; then works like any keeper.
    pub(crate) fn wait_for_order(mut self) -> Self {
        let _ = SigSet::all().thread_block();
        if let Err(e) = self.be_named() {
            // If the guard is still running it gets no answer and exits; that is noticed below.
            tracing::debug!("a keeper was not named: {e}");
            self.tether = None;
        }
        self
    }

    fn be_named(&mut self) -> io::Result<()> {
        let tether = self.tether.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let mut line = String::new();
        io::BufReader::new(tether.take(NAME)).read_line(&mut line)?;
        let (run, leaf): (RunId, Option<String>) = serde_json::from_slice(line.as_bytes())?;
        // Cleanup recognizes the keeper by this name as soon as it can be found.
        let _ = nix::sys::prctl::set_name(KEEPER_NAME);
        let socket = address::listen(&address::fresh(&run, SocketRole::Keeper)?)?;
        socket.set_nonblocking(true)?;
        self.socket = Some(socket);
        self.leaf = leaf;
        tether.write_all(b".")?;
        fcntl(&*tether, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(())
    }

    pub(crate) fn keep(mut self) -> i32 {
        // Only SIGKILL can end the keeper. None of these calls is important enough to stop for an error.
        let _ = SigSet::all().thread_block();
        let _ = nix::sys::prctl::set_name(KEEPER_NAME);
        let _ = std::fs::write("/proc/self/oom_score_adj", "-500");
        let code = self.wait();
        self.end();
        code
    }

    fn wait(&mut self) -> i32 {
        let pidfd: Option<OwnedFd> =
            Pid::from_raw(self.guard).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        loop {
            while let Ok(Some((pid, status))) = reap_one() {
                if pid == self.guard {
                    return match status {
                        ExitStatus::Code(code) => code,
                        _ => 70,
                    };
                }
            }
            let fds = [
                pidfd.as_ref().map(AsFd::as_fd),
                self.tether.as_ref().map(AsFd::as_fd),
                self.socket.as_ref().map(AsFd::as_fd),
            ];
            let mut fds: Vec<PollFd<'_>> = fds
                .into_iter()
                .flatten()
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
                .collect();
            let timeout = match pidfd {
                Some(_) => PollTimeout::NONE,
                None => PollTimeout::from(LOOK_MS),
            };
            // An error is treated like a wakeup.
            let _ = poll(&mut fds, timeout);
            self.hear();
        }
    }

    fn hear(&mut self) {
        let mut word = [0_u8; 1];
        match self.tether.as_mut().map(|t| t.read(&mut word)) {
            Some(Ok(1)) => {
                self.socket = None;
                self.tether = None;
            }
            Some(Ok(_)) => self.tether = None,
            _ => {}
        }
        for _ in 0..VISITORS {
            if self.socket.as_ref().is_none_or(|s| s.accept().is_err()) {
                return;
            }
        }
    }

    /// Kills what is left until nothing is running. Helpers are not waited for: the log writer writes out its queue,
    /// the node launcher ends the nodes' ranks, and the RDMA counter reader may hang on a card.
    fn end(&mut self) {
        let leaf = self.leaf.as_deref().and_then(CgroupLeaf::existing);
        let began = boottime_ms();
        let mut last = Vec::new();
        let mut pause = PAUSE;
        let mut walk_at = 0;
        let mut helpers = born_helpers();
        loop {
            if let Some(leaf) = &leaf {
                let _ = leaf.kill();
            }
            let Some(left) = hunt_but(&mut helpers).or_else(children_by_walk) else {
                break;
            };
            if left.is_empty() && leaf.as_ref().is_none_or(|l| l.members().is_empty()) {
                break;
            }
            let now = boottime_ms();
            if now >= walk_at {
                walk_at = now.saturating_add(WALK_MS);
                end_descendants();
            }
            pause = match left == last {
                true if now.saturating_sub(began) < LASTING_MS => (pause * 2).min(LONGEST_PAUSE),
                true => LASTING_PAUSE,
                false => PAUSE,
            };
            last = left;
            std::thread::sleep(pause);
            self.hear();
        }
        while let Ok(Some(_)) = reap_one() {}
        for _ in 0..REMOVALS {
            let Some(leaf) = self.leaf.as_deref().and_then(CgroupLeaf::existing) else {
                return;
            };
            leaf.remove();
            std::thread::sleep(PAUSE);
        }
    }
}

fn hunt_but(helpers: &mut BTreeSet<i32>) -> Option<Vec<i32>> {
    let helpers = RefCell::new(helpers);
    // The PID of a reaped process may be reused.
    let reap = || {
        reap_some(|pid, _| {
            helpers.borrow_mut().remove(&pid);
        });
    };
    hunt(|pid| helpers.borrow().contains(&pid), reap)
}

/// Lists the helpers that the guard left. A child that was forked but has not executed its program cannot be told
/// from a worker, so it is given a moment.
///
/// Called once, for the processes that exist now: nothing is left to start another helper, and checking each newcomer
/// would let a fork loop escape.
fn born_helpers() -> BTreeSet<i32> {
    let own = nix::unistd::getpid().as_raw();
    let line = command_line(own);
    let is_unborn = |pid: i32| {
        let its = command_line(pid);
        (its.is_none() || its == line) && proc_stat(pid).is_some_and(|s| s.is_running())
    };
    reap_some(|_, _| {});
    let mut open = children(own).unwrap_or_default();
    let mut helpers = BTreeSet::new();
    for _ in 0..BIRTHS {
        open.retain(|pid| {
            // In this order: it may execute its program between the two checks.
            let unborn = is_unborn(*pid);
            let helper = is_log_writer(*pid) || is_card_reader(*pid) || is_launcher(*pid);
            let helper = helper && helpers.insert(*pid);
            unborn && !helper
        });
        if open.is_empty() {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    helpers
}

fn end_descendants() {
    let own = nix::unistd::getpid().as_raw();
    let mut targets = list_descendants(own);
    spare_helpers(&mut targets);
    for target in targets {
        // A refused signal shows because the process keeps running.
        let _ = signal_process(target, libc::SIGKILL);
    }
}

/// Lists children by walking all of `/proc` if the kernel has no list of children.
fn children_by_walk() -> Option<Vec<i32>> {
    let own = nix::unistd::getpid().as_raw();
    let mut left = list_descendants(own);
    spare_helpers(&mut left);
    Some(left.into_iter().map(|p| p.pid).collect())
}
