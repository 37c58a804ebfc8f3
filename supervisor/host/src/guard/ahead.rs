//! Interpreters that import ahead: the next attempt's workers, waiting for the order to go on.
//!
//! Nearly all of a comeback is the interpreter importing what the one before had imported. With [`GuardOrder::interpreters`] each
//! interpreter of an attempt first runs a file of ours (`sitecustomize`, from memory): worker 0 notes what it imports. The guard
//! that waits for the next order has a [`Draft`] of it, and starts its interpreters with the environment that they will have;
//! they import what was noted, and go on as the workers when the order comes, where it differs from the draft in arguments of the
//! trainer alone. In every other case they are ended, and the workers are started as ever.

mod archive;

use self::archive::archive;
use crate::guard::protocol::{GuardOrder, WorkerOrder};
use crate::guard::setup::{marks, pipe};
use crate::process::ATTEMPT_VARIABLE;
use crate::process::kill::signal_process;
use crate::process::spawn::{Place, Program, Started, Wiring, start};
use crate::process::stat::proc_stat;
use crate::process::tree::{list_descendants, running_children};
use crate::system::reap_child;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use supervise_core::event::Ahead;
use supervise_core::id::ProcRef;

/// First in every interpreter; and what imports ahead, or goes on at once.
const START: &str = include_str!("ahead/start.py");
const AHEAD: &str = include_str!("ahead/sitecustomize.py");
const AT_ONCE: &str = "hide()\nnext_one()\n";
const FILE_NAME: &str = "sitecustomize.py";

/// Variable that bears the mark of an attempt while its interpreter waits; as long as the real name, which takes its place: until
/// then whoever ends an attempt by its mark must not meet it.
const AWAITED: &str = "SUPERVISE_AWAITED";

/// An interpreter that waits needs a moment to look at the files that count; one that imports is in the middle of a module.
const GOES_WITHIN: Duration = Duration::from_secs(3);
/// The interpreter says that it waits before anything else. One that does not would run the trainer itself, soon: until then it can
/// write no file, and it is looked at this often.
const WAITS_WITHIN: Duration = Duration::from_secs(10);
const WAITS_WITHIN_CPU: Duration = Duration::from_millis(500);
const GLANCE: Duration = Duration::from_millis(20);
/// A process that was killed is gone within this.
const GONE_WITHIN: Duration = Duration::from_millis(500);
/// Its output is looked at this often while it is waited for.
const LOOK: Duration = Duration::from_millis(50);
/// Longest line of an interpreter.
const LINE: usize = 64 << 10;

/// Expected order of the next attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draft {
    /// The order; only the arguments of its workers may turn out to be others.
    pub order: GuardOrder,
    /// Noted imports of an attempt, until its first step.
    pub imports: String,
    /// An interpreter rests this many times as long as it imported, so that the trainer that runs has the processors first.
    pub pauses: u32,
    /// Bytes that all interpreters together may hold.
    pub memory: u64,
}

/// A start without them.
pub(crate) fn cold(why: String) -> Ahead {
    Ahead::Cold { why, lasting: false }
}

/// Interpreters of a draft.
#[derive(Debug)]
pub(crate) struct Waiting {
    order: GuardOrder,
    interpreters: Vec<Interpreter>,
}

#[derive(Debug)]
struct Interpreter {
    started: Started,
    /// Its limit for files, which it has not before it said that it waits.
    files_limit: Rlimit,
    output: OwnedFd,
    channel: UnixStream,
    heard: Vec<u8>,
}

/// A word of an interpreter.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Waits(bool),
    /// All is imported.
    Ready(serde::de::IgnoredAny),
    Goes(bool),
    Cold(String),
    /// The same would come of it again.
    Unfit(String),
}

/// No word of an interpreter: none came in time, or it is gone, or it speaks another language.
enum NoWord {
    Yet,
    Gone,
}

#[derive(Debug, Serialize)]
struct Task<'a> {
    imports: &'a str,
    pauses: u32,
    memory: u64,
}

/// Its answer came in time: until it hears this, it runs nothing of the trainer.
#[derive(Debug, Serialize)]
struct Run {
    run: bool,
}

#[derive(Debug, Serialize)]
struct Go<'a> {
    argv: &'a [String],
    cwd: &'a str,
}

/// Files in memory that interpreters are started with: they last as long as this process.
#[derive(Debug)]
pub(crate) struct Files {
    /// The place on PYTHONPATH that holds our file.
    place: String,
    /// The file for notes.
    notes: (i32, String),
    /// The file to which interpreters add the exception that ends them.
    endings: String,
}

/// Name of the memory in which a guard keeps the exceptions that ended its interpreters.
pub(crate) const ENDINGS: &str = "endings";

impl Files {
    /// Makes them; `noted` stands in the file for notes already. `ahead`: the interpreters note their imports, or import ahead.
    ///
    /// # Errors
    /// No memory, or no descriptor.
    pub(crate) fn new(noted: &str, ahead: bool) -> io::Result<Self> {
        // It is compiled at each start: as little as is needed.
        let file = [START, if ahead { AHEAD } else { AT_ONCE }].concat();
        Ok(Self {
            place: lasting("interpreter", &archive(FILE_NAME, file.as_bytes()))?.1,
            notes: lasting("interpreter", noted.as_bytes())?,
            endings: lasting(ENDINGS, &[])?.1,
        })
    }

    /// Descriptor of the file for notes.
    pub(crate) fn notes(&self) -> i32 {
        self.notes.0
    }

    /// Variables that make an interpreter run our file first; the first worker's also notes what it imports.
    fn variables(&self, order: &GuardOrder, id: usize, env: &[(String, String)]) -> Vec<(String, String)> {
        let path = env.iter().find(|(k, _)| k == "PYTHONPATH").map(|(_, v)| v.as_str());
        let place = &self.place;
        // An empty entry would be the working directory.
        let path_now = path
            .filter(|p| !p.is_empty())
            .map_or_else(|| place.clone(), |path| format!("{place}:{path}"));
        let mut ours = vec![("PYTHONPATH".to_owned(), path_now)];
        ours.extend(path.map(|_| ("SUPERVISE_PYTHONPATH".to_owned(), "1".to_owned())));
        // All import the same.
        let notes = order.interpreters && id == 0;
        ours.extend(notes.then(|| ("SUPERVISE_IMPORTS".to_owned(), self.notes.1.clone())));
        let ending = order.endings.then(|| self.endings.clone());
        ours.extend(ending.map(|file| ("SUPERVISE_ENDING".to_owned(), file)));
        ours
    }
}

/// The environment of a worker, the mark first. `files`: its interpreter runs ours first.
pub(crate) fn worker_env(
    order: &GuardOrder,
    id: usize,
    worker: &WorkerOrder,
    files: Option<&Files>,
) -> Vec<(String, String)> {
    let mut env = marks(order);
    env.extend(files.iter().flat_map(|f| f.variables(order, id, &worker.env)));
    let ours: Vec<String> = env.iter().map(|(k, _)| k.clone()).collect();
    env.extend(worker.env.iter().filter(|(k, _)| !ours.contains(k)).cloned());
    env
}

/// A file in memory, by its descriptor and by the name under which other processes of this user find it.
fn lasting(name: &str, content: &[u8]) -> io::Result<(i32, String)> {
    let mut memory = File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?);
    memory.write_all(content)?;
    // Open for as long as this process lives.
    let fd = memory.into_raw_fd();
    Ok((fd, format!("/proc/{}/fd/{fd}", std::process::id())))
}

impl Waiting {
    /// Starts the interpreters of a draft. One that cannot be started leaves all to the order.
    ///
    /// # Errors
    /// No process, pipe or memory can be made.
    pub(crate) fn start(draft: Draft, files: &Files) -> io::Result<Self> {
        let mut interpreters = Vec::with_capacity(draft.order.workers.len());
        for (id, worker) in draft.order.workers.iter().enumerate() {
            interpreters.push(start_one(&draft, id, worker, files)?);
        }
        if let Err(e) = all_wait(&mut interpreters, &draft, files) {
            interpreters.into_iter().for_each(Interpreter::end);
            end_strangers(&[]);
            return Err(e);
        }
        Ok(Self {
            order: draft.order,
            interpreters,
        })
    }

    /// Lets the interpreters go on as the workers of the order, where they can: by worker, those that do, and how it went.
    pub(crate) fn go(self, order: &GuardOrder, cgroup: Option<&Place<'_>>) -> (Vec<Option<(Started, OwnedFd)>>, Ahead) {
        let until = Instant::now() + GOES_WITHIN;
        let own: Vec<i32> = self.interpreters.iter().map(|one| one.started.pid).collect();
        let mut why = self.difference(order).map(|why| cold(why.to_owned()));
        // A daemon is no child of the interpreter that made it, but it is of this guard.
        if end_strangers(&own) {
            why.get_or_insert(Ahead::Cold {
                why: "an import started a process".to_owned(),
                lasting: true,
            });
        }
        let mut asked = Vec::with_capacity(self.interpreters.len());
        for (mut one, worker) in self.interpreters.into_iter().zip(&order.workers) {
            let word = match &why {
                Some(why) => Err(why.clone()),
                None => one.ask(worker, cgroup),
            };
            asked.push((one, word));
        }
        let mut out = Vec::with_capacity(asked.len());
        for (mut one, word) in asked {
            match word.and_then(|()| one.answer(until)).and_then(|()| one.run()) {
                Ok(()) => out.push(Some((one.started, one.output))),
                Err(reason) => {
                    one.end();
                    why.get_or_insert(reason);
                    out.push(None);
                }
            }
        }
        (out, why.unwrap_or(Ahead::Went))
    }

    /// A part of the order that is not as it was expected; the arguments are looked at by the interpreters.
    fn difference(&self, order: &GuardOrder) -> Option<&'static str> {
        let expected = &self.order;
        let who = |o: &GuardOrder| (o.run.clone(), o.term, o.attempt);
        if who(expected) != who(order) {
            return Some("another attempt was expected");
        }
        if expected.interpreters != order.interpreters || expected.workers.len() != order.workers.len() {
            return Some("other workers were expected");
        }
        let pairs = || expected.workers.iter().zip(&order.workers);
        // What follows is compared by the interpreters: they know where their script's arguments begin.
        if pairs().any(|(a, b)| a.argv.first() != b.argv.first()) {
            return Some("another program");
        }
        if pairs().any(|(a, b)| a.cwd != b.cwd) {
            return Some("another working directory");
        }
        pairs().any(|(a, b)| a.env != b.env).then_some("another environment")
    }
}

/// Waits until each of them said that it waits, and gives it its task. One that has not yet may be running something else.
///
/// # Errors
/// `TimedOut`: one runs, and does not say it. Others: one is gone.
fn all_wait(interpreters: &mut [Interpreter], draft: &Draft, files: &Files) -> io::Result<()> {
    let count = u32::try_from(interpreters.len()).unwrap_or(u32::MAX).max(1);
    let task = Task {
        imports: &files.notes.1,
        pauses: draft.pauses,
        memory: draft.memory / u64::from(count),
    };
    let until = Instant::now() + WAITS_WITHIN;
    let mut silent: Vec<&mut Interpreter> = interpreters.iter_mut().collect();
    while !silent.is_empty() {
        let mut left = Vec::with_capacity(silent.len());
        for one in silent {
            match one.word(Instant::now() + GLANCE / count) {
                Ok(Word::Waits(true)) => {
                    one.unlimit()?;
                    // It fits into the socket: nobody is waited for.
                    say(&mut one.channel, &task)?;
                }
                Err(NoWord::Yet) if Instant::now() < until && one.may_speak() => left.push(one),
                Err(NoWord::Yet) => {
                    let why = "an interpreter did not read supervise's file first, and was ended";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                _ => return Err(io::Error::other("an interpreter ended before it waited")),
            }
        }
        silent = left;
    }
    Ok(())
}

/// Kills the children of this guard that run, but for these, and what descends from them: whether there were any.
fn end_strangers(own: &[i32]) -> bool {
    let strangers = running_children(|pid| own.contains(&pid)).unwrap_or_default();
    strangers.iter().filter_map(|pid| kill_all_of(*pid)).count() > 0
}

/// Kills a process and what descends from it; `None` if it is gone.
fn kill_all_of(pid: i32) -> Option<ProcRef> {
    let top = proc_stat(pid)?.proc_ref();
    for below in list_descendants(pid) {
        let _ = signal_process(below, libc::SIGKILL);
    }
    let _ = signal_process(top, libc::SIGKILL);
    Some(top)
}

fn start_one(draft: &Draft, id: usize, worker: &WorkerOrder, files: &Files) -> io::Result<Interpreter> {
    let mut env = worker_env(&draft.order, id, worker, Some(files));
    env.iter_mut()
        .filter(|(name, _)| name == ATTEMPT_VARIABLE)
        .for_each(|(name, _)| AWAITED.clone_into(name));
    let program = Program::new(&worker.argv, &env, Some(worker.cwd.as_str()))?;
    let (output, writer) = pipe()?;
    let (channel, theirs) = UnixStream::pair()?;
    let wiring = Wiring {
        input: theirs.as_fd(),
        output: writer.as_fd(),
        errors: writer.as_fd(),
        cgroup: None,
        dies_with_creator: true,
        gate: None,
    };
    // It inherits that it can write no file. Nothing is written here meanwhile.
    let files_limit = getrlimit(Resource::Fsize);
    let none = Rlimit {
        current: Some(0),
        maximum: files_limit.maximum,
    };
    setrlimit(Resource::Fsize, none)?;
    let started = start(&program, &wiring);
    setrlimit(Resource::Fsize, files_limit)?;
    Ok(Interpreter {
        started: started?,
        files_limit,
        output,
        channel,
        heard: Vec::new(),
    })
}

fn say(channel: &mut UnixStream, words: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(words)?;
    line.push(b'\n');
    channel.set_write_timeout(Some(GOES_WITHIN))?;
    channel.write_all(&line)
}

impl Interpreter {
    /// It has not used the time yet in which it would have spoken.
    fn may_speak(&self) -> bool {
        let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
        let a_second = ticks.and_then(|t| u64::try_from(t).ok()).unwrap_or(100);
        let most = u128::from(a_second) * WAITS_WITHIN_CPU.as_millis() / 1000;
        proc_stat(self.started.pid).is_some_and(|s| u128::from(s.cpu) < most)
    }

    /// It may write files as if it had just been started.
    fn unlimit(&self) -> io::Result<()> {
        prlimit(Pid::from_raw(self.started.pid), Resource::Fsize, self.files_limit)?;
        Ok(())
    }

    /// Asks it to go on as this worker; an error says why it does not.
    fn ask(&mut self, worker: &WorkerOrder, cgroup: Option<&Place<'_>>) -> Result<(), Ahead> {
        if let Some(place) = cgroup {
            let entrance = rustix::io::dup(place.entrance).map(File::from);
            let moved = entrance.map_err(io::Error::from);
            let moved = moved.and_then(|mut f| f.write_all(self.started.pid.to_string().as_bytes()));
            moved.map_err(|e| cold(format!("it cannot be moved into the cgroup: {e}")))?;
        }
        let go = Go {
            argv: &worker.argv,
            cwd: worker.cwd.as_str(),
        };
        // One that is gone left its reason: it is read with the answer.
        let _ = say(&mut self.channel, &go);
        Ok(())
    }

    fn answer(&mut self, until: Instant) -> Result<(), Ahead> {
        loop {
            self.is_heard().map_err(|why| Ahead::Cold { why, lasting: true })?;
            match self.word(until.min(Instant::now() + LOOK)) {
                Ok(Word::Goes(true)) => return Ok(()),
                Ok(Word::Ready(_)) => {}
                Ok(Word::Cold(why)) => return Err(cold(why)),
                Ok(Word::Unfit(why)) => return Err(Ahead::Cold { why, lasting: true }),
                Ok(other) => return Err(cold(format!("it said {other:?}"))),
                Err(NoWord::Yet) if Instant::now() < until => {}
                Err(NoWord::Yet) => return Err(cold("it gave no answer".to_owned())),
                Err(NoWord::Gone) => return Err(cold("it is gone".to_owned())),
            }
        }
    }

    /// The word that it runs as the worker; one that does not take it runs nothing.
    fn run(&mut self) -> Result<(), Ahead> {
        say(&mut self.channel, &Run { run: true }).map_err(|e| cold(format!("it is gone: {e}")))
    }

    /// Nobody reads its output before it is a worker: one whose imports print more than fits would wait for ever.
    fn is_heard(&self) -> Result<(), String> {
        let printed = rustix::io::ioctl_fionread(&self.output).unwrap_or(0);
        // Each piece may begin a page of the pipe: half of what it holds is sure to fit.
        let fits = fcntl(&self.output, FcntlArg::F_GETPIPE_SZ).map_or(0, |size| size / 2);
        if u64::try_from(fits).is_ok_and(|fits| printed <= fits) {
            return Ok(());
        }
        Err(format!("its imports print more than {fits} bytes"))
    }

    /// Its next word until then.
    fn word(&mut self, until: Instant) -> Result<Word, NoWord> {
        loop {
            if let Some(at) = self.heard.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=at).collect();
                return serde_json::from_slice(&line).map_err(|_| NoWord::Gone);
            }
            if self.heard.len() > LINE {
                return Err(NoWord::Gone);
            }
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Some(left.max(Duration::from_millis(1)));
            self.channel.set_read_timeout(timeout).map_err(|_| NoWord::Gone)?;
            let mut bytes = [0; 4096];
            match self.channel.read(&mut bytes) {
                Ok(n) if n > 0 => self.heard.extend_from_slice(bytes.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(NoWord::Yet),
                _ => return Err(NoWord::Gone),
            }
        }
    }

    /// Kills it. One that lasts is a descendant like others: the tree is not gone before it is.
    fn end(self) {
        let Some(ProcRef { pid, start }) = kill_all_of(self.started.pid) else {
            return;
        };
        let until = Instant::now() + GONE_WITHIN;
        while Instant::now() < until {
            reap_child(pid);
            if proc_stat(pid).is_none_or(|s| s.start != start) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
