//! The guard: one process per attempt that outlives its driver.
//!
//! `supervise __guard` is our own program, executed again. It is single-threaded and never waits for anything but
//! `poll`: it is the parent of the workers and the adoptive parent of whatever they leave behind, drains their
//! output so that no pipe ever fills, and holds one end of a leash, a stream socket whose other end is the
//! driver's. When the leash breaks it goes on and waits for a newer term on an abstract socket; when nobody comes
//! it ends the tree and itself. When the guard itself is killed, the workers die with it, and what they left is ended
//! by its [`keeper`]; where that was killed too, it is found by its marks (see [`crate::process::tree`]).
//!
//! This file holds the driver's side: [`spawn`] and [`find`], and the entry point [`main`].

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

/// Runs the guard in this process until its work is done; to be called before any thread is made.
///
/// The order is read from standard input, the leash is standard output; both are replaced by `/dev/null`.
#[must_use]
pub fn main(args: &[OsString]) -> i32 {
    match launch::begin(args.iter().any(|a| a == PRIMED || a == DRAFTED)) {
        Ok(StartedProcess::Keeper(keeper)) => keeper.keep(),
        Ok(StartedProcess::Guard(guard, tether)) => {
            let scratch = guard.order.scratch.clone();
            let code = guard.run();
            tether.release();
            // The sockets of guard and keeper are closed: the next attempt need not wait for this.
            if let Some(Err(e)) = scratch.map(|dir| scratch::clear(&dir)) {
                tracing::warn!("an attempt's own directory cannot be deleted: {e}");
            }
            code
        }
        Ok(StartedProcess::Nothing) => 0,
        Err(_) => 70,
    }
}

/// Starts a guard with its order; returns the driver's end of the leash, non-blocking, and the process.
///
/// Nothing here waits: the order goes through memory. The guard answers with `Launched` or `LaunchFailed`. The caller's
/// child, which it must reap, becomes the guard's keeper, and ends after it with its exit code. `exe` must be an absolute
/// path.
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

/// The word after an order, at which the guard begins. Without it nothing is started: whoever prepared the order may have died before
/// it was allowed.
const GO: u8 = b'.';

/// An order is a line, so that it is read before the word comes.
fn encode_order(order: &GuardOrder) -> io::Result<Vec<u8>> {
    let mut line = encode(order)?;
    line.push(b'\n');
    Ok(line)
}

/// Argument of a guard whose standard error is a [`Primer`].
const PRIMED: &str = "--primed";
/// The same where it starts interpreters ahead, which `ps` shows.
const DRAFTED: &str = "--drafted";

/// Known before there is an order: a relaunch need neither make it nor read it.
#[derive(Debug, Serialize, Deserialize)]
struct Primer<'a> {
    /// Meaning of lines, for an order that leaves it out.
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
        // Out of reach of the terminal's signals from the first moment; a session of its own follows.
        .process_group(0)
        .spawn()?;
    Ok((ours, child))
}

/// A guard that was started ahead and waits for its order, so that a relaunch need not wait for a program to load.
/// It ends by itself when its driver does.
#[derive(Debug)]
pub struct StandbyGuard {
    order: File,
    /// The act whose order it has.
    offered: Option<ActId>,
    connection: UnixStream,
    child: Child,
}

/// Room for an order on its way to a waiting guard; a longer one starts a guard of its own.
const STANDBY_ORDER: i32 = 1 << 20;

/// Starts a guard that waits for its order, which may leave the rules out; with a draft of it the interpreters of its workers
/// import ahead meanwhile.
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
    /// Its process, for whoever sweeps.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it end; the process is returned, to be reaped.
    #[must_use]
    pub fn dismiss(self) -> Child {
        self.child
    }

    /// The act whose order it has.
    #[must_use]
    pub fn offered(&self) -> Option<ActId> {
        self.offered
    }

    /// Gives it the order of an act to read, its one and only; it begins at [`Self::go`].
    ///
    /// # Errors
    /// It is gone, or the order is too long for it. It is of no use then: a part of an order is no order.
    pub fn offer(&mut self, act: ActId, order: &GuardOrder) -> io::Result<()> {
        let line = encode_order(order)?;
        match self.order.write(&line)? == line.len() {
            true => self.offered = Some(act),
            false => return Err(io::ErrorKind::WouldBlock.into()),
        }
        Ok(())
    }

    /// Lets it begin; as [`spawn`].
    ///
    /// # Errors
    /// It is gone: the process is returned, to be reaped.
    pub fn go(mut self) -> Result<(UnixStream, Child), Child> {
        match self.order.write(&[GO]) {
            Ok(1) => Ok((self.connection, self.child)),
            _ => Err(self.child),
        }
    }
}

/// Finds the living guard of a run; none where nobody listens. The stream does not block, its first message must be
/// `Take`.
///
/// # Errors
/// The guard does not accept connections (`WouldBlock`).
pub fn find(run: &RunId) -> io::Result<Option<UnixStream>> {
    Ok(address::find(run, SocketRole::Guard)?.map(|(_, stream)| stream))
}
