//! The keeper: the guard's parent, which outlives it.
//!
//! A guard that has its order splits in two: the older half becomes the keeper, the younger one works as the guard. The
//! keeper does nothing but wait. It is a subreaper, so that what a killed guard leaves behind comes to it, and is found
//! by descent whatever session, environment or age it has; it kills that at once, as the workers die with their guard
//! anyway, and ends when nothing of it runs any more. It needs no supervisor for that. Its socket says that it lives:
//! for as long, nothing is launched beside it.

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

/// Pauses between rounds of killing: as long as it gets on, and where what was killed takes its time to die.
const PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// A process that has not died within this hangs in the kernel, for who knows how long: it is waited for, at less cost.
const LASTING_MS: u64 = 5000;
const LASTING_PAUSE: Duration = Duration::from_secs(1);
/// All descendants are looked for this often: those below one that cannot die do not come here.
const WALK_MS: u64 = 50;
/// Connections that are taken in one go.
const VISITORS: usize = 64;
/// Without a pidfd the guard's end is looked for this often.
const LOOK_MS: u16 = 100;
/// Pauses that a child has to become what it was forked for.
const BIRTHS: usize = 500;
/// A keeper that was made early answers within this.
const NAMED_WITHIN: Duration = Duration::from_secs(3);
/// Longest name of run and cgroup.
const NAME: u64 = 4096;
/// An emptied cgroup may take a moment until it can be removed.
const REMOVALS: usize = 50;

/// One of the two processes after the split.
pub(crate) enum ForkSide {
    /// The guard, which tells its keeper when its work is done.
    Guard(KeeperPipe),
    /// The keeper.
    Keeper(Keeper),
}

/// The guard's line to its keeper.
#[derive(Debug)]
pub(crate) struct KeeperPipe(File);

impl KeeperPipe {
    /// Tells a keeper that was made early whose it is; it lives for all to see before anything is made that it would end.
    ///
    /// # Errors
    /// It is gone, or cannot make its socket.
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

    /// The tree is gone, and was seen to be: nobody needs to wait for the keeper.
    pub(crate) fn release(mut self) {
        // A keeper that was killed hears nothing, and keeps nobody.
        let _ = self.0.write_all(b".");
    }
}

/// A keeper at work.
pub(crate) struct Keeper {
    guard: i32,
    tether: Option<File>,
    socket: Option<UnixListener>,
    leaf: Option<String>,
}

/// Splits this process into keeper and guard.
///
/// # Errors
/// No process, pipe or socket can be made.
pub(crate) fn part(order: &GuardOrder) -> io::Result<ForkSide> {
    let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    // Made by the older half: it is the keeper that whoever connects sees at the other end.
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

/// Splits this process before there is an order; the keeper is told later whose it is. Until then the guard ends with it: an order that
/// it took without a keeper would be a launch that fails.
///
/// # Errors
/// No process or socket can be made.
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
    /// Waits until there is an order, or nobody who could get one; then it keeps like any other.
    pub(crate) fn wait_for_order(mut self) -> Self {
        let _ = SigSet::all().thread_block();
        if let Err(e) = self.be_named() {
            // The guard's end tells the rest; where it lives it hears no answer, and ends.
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
        // Whoever sweeps knows it by this, from the moment at which it can be found.
        let _ = nix::sys::prctl::set_name(KEEPER_NAME);
        let socket = address::listen(&address::fresh(&run, SocketRole::Keeper)?)?;
        socket.set_nonblocking(true)?;
        self.socket = Some(socket);
        self.leaf = leaf;
        tether.write_all(b".")?;
        fcntl(&*tether, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(())
    }

    /// Waits for the guard's end and ends what it leaves; returns the guard's exit code.
    pub(crate) fn keep(mut self) -> i32 {
        // SIGKILL alone ends it. Nothing of this matters enough to give up for it.
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
            // A failure is as good as a look.
            let _ = poll(&mut fds, timeout);
            self.hear();
        }
    }

    /// Takes what the guard says, and whoever wants to know whether this process lives.
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

    /// Kills what is left until nothing of it runs. Helpers are not waited for: the log writer writes what it was given, the launcher of
    /// the nodes sees to these, and the reader of cards may wait for one.
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
    // The number of one that has ended may be another's next.
    let reap = || {
        reap_some(|pid, _| {
            helpers.borrow_mut().remove(&pid);
        });
    };
    hunt(|pid| helpers.borrow().contains(&pid), reap)
}

/// The helpers that the guard left. One that was forked and not executed yet cannot be told from a worker, and is given the
/// moment that it needs.
///
/// Looked for once, among those that are here: nobody is left who starts another, and a look at each newcomer takes longer
/// than a hop of what forks to get away.
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
            // In this order: it may become one between the two looks.
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
        // What refuses shows by staying.
        let _ = signal_process(target, libc::SIGKILL);
    }
}

/// If the kernel keeps no list of children: those that a look through all processes finds.
fn children_by_walk() -> Option<Vec<i32>> {
    let own = nix::unistd::getpid().as_raw();
    let mut left = list_descendants(own);
    spare_helpers(&mut left);
    Some(left.into_iter().map(|p| p.pid).collect())
}
