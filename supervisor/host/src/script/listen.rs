//! Runs a script once to learn which trainer it calls.
//!
//! It runs under its own guard, which kills the whole tree at that call, at the deadline, and when we exit. What the
//! script does before the call is not undone: it does the same at each launch.

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

const SEEN: usize = 20;
/// How long the tree may take to exit after the request to end it.
const GONE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_secs(1);
const TAIL: u64 = 4 << 10;

/// The command to run, and how.
#[derive(Debug, Clone)]
pub struct Recording {
    pub exe: Utf8PathBuf,
    /// A separate run id, by which its processes are found.
    pub run: RunId,
    /// The guard's socket, as named in the script's environment.
    pub socket: String,
    /// Existing directory for its output.
    pub dir: Utf8PathBuf,
    pub worker: WorkerOrder,
    pub limit: Duration,
    /// Time limit of a single step that is not known as preparation.
    pub step: Duration,
}

/// What the script did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptEvent {
    Call {
        called: Box<ShimCall>,
        /// It has started or joined a Ray cluster before.
        starts_ray: bool,
    },
    /// It exited without calling one.
    Ended {
        /// `None`: its exit status is unknown.
        status: Option<ExitStatus>,
        seen: Vec<String>,
        output: String,
    },
    /// It calls a Python script that trains, according to its code.
    Trains {
        /// The call.
        words: Vec<String>,
    },
    /// It exited, and called a trainer from the background.
    Background,
    /// It runs something that takes long and is not a known trainer.
    Lasts {
        /// Its command line.
        words: Vec<String>,
    },
    Overdue {
        seen: Vec<String>,
    },
}

/// Runs the script until it calls a trainer, and kills it there. `tell` is called about once a second.
///
/// # Errors
/// The guard cannot be started, or some of the script's processes cannot be killed.
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
        // Processes that last less than a second do not matter.
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
    // The guard exits with its tree; it is our child.
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
        // No other supervisor will connect: these processes end with us.
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
        door: None,
        secrets: supervise_config::known_secrets(),
    }
}

/// The supervisor's end of the guard connection, read without an async runtime.
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
