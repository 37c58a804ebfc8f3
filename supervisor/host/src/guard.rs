//! The guard: one process per attempt that outlives its supervisor.
//!
//! `supervise __guard` is our own program, executed again. It is single-threaded and blocks only in `poll`. It is the
//! parent of the workers and the subreaper of whatever they leave behind, and it reads their output so that no pipe
//! ever fills. It holds one end of the guard connection, a stream socket whose other end is the supervisor's. If the
//! connection breaks, the guard carries on and waits for a newer term on an abstract socket; if none connects in
//! time, it kills the tree and exits. If the guard itself is killed, the workers die with it and its [`keeper`] kills
//! what they left; if the keeper was killed too, the processes are found by their marks (see
//! [`crate::process::tree`]).
//!
//! This file holds the supervisor's side, [`spawn`] and [`find`], and the entry point [`main`].

mod connection;
mod counters;
pub mod fabric;
mod keeper;
mod launch;
mod lines;
mod log_queue;
pub mod nodes;
mod numbers;
mod oom;
mod orders;
mod output_facts;
pub mod protocol;
mod rank_watch;
pub mod record;
mod run;
mod scratch;
pub(crate) mod setup;
pub mod standby;
mod tail;
pub mod trainers;
mod tree;
mod worker;

use crate::address::{self, SocketRole};
use crate::guard::launch::StartedProcess;
use crate::guard::protocol::{GuardOrder, ORDER_LIMIT};
use crate::guard::standby::DraftOrder;
use crate::process::{ATTEMPT_VARIABLE, own_program};
use camino::Utf8Path;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use supervise_core::event::scan::ScanRule;
use supervise_core::id::{ActId, RunId};

/// Runs the guard in this process until its work is done. Call it before creating any thread.
///
/// The order is read from standard input, and standard output is the guard connection; both are replaced by
/// `/dev/null`.
#[must_use]
pub fn main(args: &[OsString]) -> i32 {
    match launch::begin(args.iter().any(|a| a == PRIMED || a == DRAFTED)) {
        Ok(StartedProcess::Keeper(keeper)) => keeper.keep(),
        Ok(StartedProcess::Guard(guard, tether)) => {
            let scratch = guard.order.scratch.clone();
            let code = guard.run();
            tether.release();
            // The guard's and the keeper's sockets are closed, so the next attempt does not wait for this.
            if let Some(Err(e)) = scratch.map(|dir| scratch::clear(&dir)) {
                tracing::warn!("an attempt's own directory cannot be deleted: {e}");
            }
            code
        }
        Ok(StartedProcess::Nothing) => 0,
        Err(_) => 70,
    }
}

/// Starts a guard with its order. Returns the supervisor's end of the guard connection, non-blocking, and the
/// process.
///
/// Does not block: the order is passed in memory. The guard answers with `Launched` or `LaunchFailed`. The child,
/// which the caller must reap, becomes the guard's keeper; it exits after the guard, with the guard's exit code.
/// `exe` must be an absolute path.
///
/// # Errors
/// The program cannot be executed, or the order is too long.
pub fn spawn(exe: &Utf8Path, order: &GuardOrder) -> io::Result<(UnixStream, Child)> {
    let mut line = encode_order(order)?;
    line.push(GO);
    start(exe, Stdio::from(in_memory(&line)?), None)
}

fn in_memory(bytes: &[u8]) -> io::Result<File> {
    let mut memory = File::from(memfd_create("order", MFdFlags::MFD_CLOEXEC)?);
    memory.write_all(bytes)?;
    memory.rewind()?;
    Ok(memory)
}

fn encode(order: &impl Serialize) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(order)?;
    if json.len() > ORDER_LIMIT {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the environment and the rules of the attempt are too long",
        ));
    }
    Ok(json)
}

/// The byte after an order that starts the guard. Without it nothing is started: the supervisor may have died after
/// preparing the order and before it was allowed to launch.
const GO: u8 = b'.';

fn encode_order(order: &GuardOrder) -> io::Result<Vec<u8>> {
    let mut line = encode(order)?;
    line.push(b'\n');
    Ok(line)
}

const PRIMED: &str = "--primed";
const DRAFTED: &str = "--drafted";

/// What is known before there is an order; passing it early saves making and parsing it during a relaunch.
#[derive(Debug, Serialize, Deserialize)]
struct Primer<'a> {
    /// Rules for an order that leaves them out.
    rules: Cow<'a, [ScanRule]>,
    draft: Option<Cow<'a, DraftOrder>>,
}

fn start(exe: &Utf8Path, order: Stdio, primer: Option<(&str, File)>) -> io::Result<(UnixStream, Child)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let child = Command::new(own_program(exe.as_std_path()))
        .arg0(exe)
        .arg("__guard")
        .args(primer.as_ref().map(|(argument, _)| argument))
        .env_remove(ATTEMPT_VARIABLE)
        .stdin(order)
        .stdout(Stdio::from(OwnedFd::from(theirs)))
        .stderr(primer.map_or_else(Stdio::null, |(_, primer)| Stdio::from(primer)))
        // Keeps the terminal's signals away from the start; the guard gets its own session later.
        .process_group(0)
        .spawn()?;
    Ok((ours, child))
}

/// A guard started in advance that waits for its order, so that a relaunch does not wait for a program to load. It
/// exits when the supervisor does.
#[derive(Debug)]
pub struct StandbyGuard {
    order: File,
    offered: Option<ActId>,
    connection: UnixStream,
    child: Child,
}

/// Pipe capacity for an order to a waiting guard; a longer order starts a new guard.
const STANDBY_ORDER: i32 = 1 << 20;

/// Starts a guard that waits for its order, which may leave out the rules. If a draft of the order is given, the
/// workers' interpreters pre-import meanwhile.
///
/// # Errors
/// The program cannot be executed, or rules and draft are too long.
pub fn standby(exe: &Utf8Path, rules: &[ScanRule], draft: Option<&DraftOrder>) -> io::Result<StandbyGuard> {
    let primer = in_memory(&encode(&Primer {
        rules: Cow::Borrowed(rules),
        draft: draft.map(Cow::Borrowed),
    })?)?;
    let argument = if draft.is_some() { DRAFTED } else { PRIMED };
    let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&writer, FcntlArg::F_SETPIPE_SZ(STANDBY_ORDER))?;
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let (connection, child) = start(exe, Stdio::from(reader), Some((argument, primer)))?;
    Ok(StandbyGuard {
        order: File::from(writer),
        offered: None,
        connection,
        child,
    })
}

impl StandbyGuard {
    /// Its process id, for cleanup.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it exit; returns the process, to be reaped.
    #[must_use]
    pub fn dismiss(self) -> Child {
        self.child
    }

    /// The act whose order it was given.
    #[must_use]
    pub fn offered(&self) -> Option<ActId> {
        self.offered
    }

    /// Sends it the order of an act. This works once; the attempt starts at [`Self::go`].
    ///
    /// # Errors
    /// The guard has exited, or the order is too long for it. Discard it then: it may have read part of the order.
    pub fn offer(&mut self, act: ActId, order: &GuardOrder) -> io::Result<()> {
        let line = encode_order(order)?;
        match self.order.write(&line)? == line.len() {
            true => self.offered = Some(act),
            false => return Err(io::ErrorKind::WouldBlock.into()),
        }
        Ok(())
    }

    /// Starts the attempt; otherwise like [`spawn`].
    ///
    /// # Errors
    /// The guard has exited: the process is returned, to be reaped.
    pub fn go(mut self) -> Result<(UnixStream, Child), Child> {
        match self.order.write(&[GO]) {
            Ok(1) => Ok((self.connection, self.child)),
            _ => Err(self.child),
        }
    }
}

/// Connects to the running guard of a run; `None` if there is none. The stream is non-blocking, and the first message
/// must be `Take`.
///
/// # Errors
/// The guard does not accept connections (`WouldBlock`).
pub fn find(run: &RunId) -> io::Result<Option<UnixStream>> {
    Ok(address::find(run, SocketRole::Guard)?.map(|(_, stream)| stream))
}
