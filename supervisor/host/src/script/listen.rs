//! Running a script once to hear which trainer it calls.
//!
//! It runs under a guard of its own, which ends the whole tree at that call, at the deadline, and when we die. Nothing it does
//! before the call is undone: it will do the same at each launch.

use crate::guard::protocol::{
    FromGuard, FromShim, GuardOrder, MESSAGE_LIMIT, ScriptWatch, ShimCall, ToGuard, WorkerOrder,
};
use crate::guard::spawn;
use crate::script::steps::ScriptProcesses;
use crate::wire;
use camino::Utf8PathBuf;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use supervise_core::event::ExitStatus;
use supervise_core::id::{AttemptNo, Ms, RunId, Term};

/// Calls of other programs that are remembered.
const SEEN: usize = 20;
/// After its end was asked for, the tree has so long to be gone.
const GONE: Duration = Duration::from_secs(30);
/// Interval of looks at the script.
const LOOK: Duration = Duration::from_secs(1);
/// The end of the script's output that is read.
const TAIL: u64 = 4 << 10;

/// The command that is run, and how.
#[derive(Debug, Clone)]
pub struct Recording {
    /// Our own program.
    pub exe: Utf8PathBuf,
    /// A name of its own, by which its processes are found.
    pub run: RunId,
    /// The guard's socket, as the script's environment names it.
    pub socket: String,
    /// Place where its output goes; it must be there.
    pub dir: Utf8PathBuf,
    /// The script with its whole environment.
    pub worker: WorkerOrder,
    /// How long it may take.
    pub limit: Duration,
    /// How long one of its steps may take that is not known to prepare.
    pub step: Duration,
}

/// The message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptEvent {
    /// It calls a trainer.
    Call {
        /// The call.
        called: Box<ShimCall>,
        /// It has started a Ray cluster, or joined one, before.
        starts_ray: bool,
    },
    /// It ended without one.
    Ended {
        /// How; `None`: it could not be started, which the second part says.
        status: Option<ExitStatus>,
        /// Other calls, in words.
        seen: Vec<String>,
        /// The last of its output.
        output: String,
    },
    /// It calls a Python script that trains by what its code says.
    Trains {
        /// The call.
        words: Vec<String>,
    },
    /// It ended, and called a trainer from the background.
    Background,
    /// It does something that lasts, and is no trainer that is known.
    Lasts {
        /// The command line of that.
        words: Vec<String>,
    },
    /// It took too long.
    Overdue {
        /// Other calls, in words.
        seen: Vec<String>,
    },
}

/// Runs the script to the call of a trainer, and ends it there. `tell` is called about once a second.
///
/// # Errors
/// The guard cannot be started, or something of the script cannot be ended.
pub fn record(what: &Recording, tell: &mut dyn FnMut(Duration)) -> io::Result<ScriptEvent> {
    let (stream, mut child) = spawn(&what.exe, &order(what))?;
    let mut ear = Ear::new(stream)?;
    let began = Instant::now();
    let mut seen = Vec::new();
    let mut starts_ray = false;
    let starts =
        |words: &[String]| words.first().is_some_and(|w| w == "ray") && words.get(1).is_some_and(|w| w == "start");
    let mut status = None;
    let mut script = None;
    let mut steps = ScriptProcesses::default();
    let mut looked = began;
    let heard = loop {
        if began.elapsed() >= what.limit {
            break ScriptEvent::Overdue { seen };
        }
        // What is there for less than a second is of no interest.
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            if let Some(words) = script.and_then(|script| steps.lasting(script, what.step)) {
                break ScriptEvent::Lasts { words };
            }
        }
        match ear.next(Duration::from_secs(1))? {
            Some(FromGuard::Shim(FromShim::Called(_))) if status.is_some() => break ScriptEvent::Background,
            Some(FromGuard::Shim(FromShim::Called(called))) => break ScriptEvent::Call { called, starts_ray },
            Some(FromGuard::Shim(FromShim::Passes { words })) if starts(&words) => starts_ray = true,
            Some(FromGuard::Shim(FromShim::Passes { words })) if seen.len() < SEEN => seen.push(words.join(" ")),
            Some(FromGuard::Shim(FromShim::Trains { words })) => break ScriptEvent::Trains { words },
            Some(FromGuard::Launched { workers, .. }) => script = workers.first().copied(),
            Some(FromGuard::Exited { status: how, .. }) => status = Some(how),
            Some(FromGuard::TreeGone { unkillable }) if unkillable.is_empty() => {
                ear.gone = true;
                break ScriptEvent::Ended {
                    status,
                    seen,
                    output: String::new(),
                };
            }
            Some(FromGuard::LaunchFailed { what, .. }) => return Err(io::Error::other(what)),
            _ => {}
        }
        tell(began.elapsed());
    };
    ear.end()?;
    // The guard ends with its tree; it is our child.
    let _ = child.wait();
    Ok(match heard {
        ScriptEvent::Ended { status, seen, .. } => ScriptEvent::Ended {
            status,
            seen,
            output: last_words(what),
        },
        heard => heard,
    })
}

fn order(what: &Recording) -> GuardOrder {
    GuardOrder {
        nodes: None,
        run: what.run.clone(),
        term: Term::default(),
        attempt: AttemptNo::default(),
        exe: what.exe.clone(),
        socket: what.socket.clone(),
        dir: Some(what.dir.clone()),
        workers: vec![what.worker.clone()],
        rules: Vec::new(),
        // Nobody comes after us: what we started for a look ends with us.
        orphan_grace: Ms(0),
        save_grace: Ms(0),
        stop_grace: Ms::secs(5),
        output_max: 1 << 20,
        output_keep: 1,
        cgroup: true,
        scratch: None,
        stale_names: None,
        script: Some(ScriptWatch::Record),
        patient: false,
        interpreters: false,
        ray: false,
        endings: false,
        hook: None,
        secrets: supervise_config::known_secrets(),
    }
}

/// The driver's end of the leash, read without a runtime.
struct Ear {
    stream: UnixStream,
    unread: Vec<u8>,
    gone: bool,
}

impl Ear {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            unread: Vec::new(),
            gone: false,
        })
    }

    /// The next message within a time.
    fn next(&mut self, within: Duration) -> io::Result<Option<FromGuard>> {
        if let Some(message) = self.unread_message()? {
            return Ok(Some(message));
        }
        let mut fds = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(within).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => return Ok(None),
            Ok(_) => {}
            Err(e) => return Err(e.into()),
        }
        let mut chunk = [0; 16 << 10];
        match self.stream.read(&mut chunk) {
            Ok(0) => return Err(io::Error::other("the guard of the script ended")),
            Ok(n) => self.unread.extend_from_slice(chunk.get(..n).unwrap_or(&[])),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        self.unread_message()
    }

    fn unread_message(&mut self) -> io::Result<Option<FromGuard>> {
        let Some(at) = memchr::memchr(b'\n', &self.unread) else {
            return match self.unread.len() >= 2 * MESSAGE_LIMIT {
                true => Err(io::Error::other("a message is too long")),
                false => Ok(None),
            };
        };
        let line: Vec<u8> = self.unread.drain(..=at).collect();
        Ok(serde_json::from_slice(&line).ok())
    }

    fn say(&mut self, message: &ToGuard) -> io::Result<()> {
        self.stream.write_all(&wire::encode(message)?)
    }

    /// Ends the tree and waits until nothing of it is left.
    fn end(&mut self) -> io::Result<()> {
        let began = Instant::now();
        if !self.gone {
            self.say(&ToGuard::KillTree)?;
        }
        while !self.gone {
            if began.elapsed() >= GONE {
                return Err(io::Error::other("processes of the script do not end"));
            }
            if let Some(FromGuard::TreeGone { unkillable }) = self.next(Duration::from_secs(1))? {
                self.gone = unkillable.is_empty();
            }
        }
        self.say(&ToGuard::Bye)
    }
}

/// The end of what the script printed.
fn last_words(what: &Recording) -> String {
    use std::io::Seek;
    let file = what.dir.join("worker-0.log");
    let mut bytes = Vec::new();
    let read = std::fs::File::open(file).and_then(|mut f| {
        let from = f.metadata()?.len().saturating_sub(TAIL);
        f.seek(io::SeekFrom::Start(from))?;
        f.take(TAIL).read_to_end(&mut bytes)
    });
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => String::new(),
    }
}
