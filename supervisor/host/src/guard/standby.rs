//! Interpreters that pre-import: the next attempt's workers, waiting for the order.
//!
//! Most of the recovery time is the interpreter importing the same modules again. With [`GuardOrder::interpreters`],
//! each interpreter of an attempt first runs a file of ours (`sitecustomize`, from memory), and worker 0 records what
//! it imports. The guard that waits for the next order has a [`DraftOrder`] and starts its interpreters with the
//! environment that they will have. They import what was recorded, and become the workers when the order comes, if it
//! differs from the draft only in the trainer's arguments. Otherwise they are killed, and the workers are started the
//! usual way.

mod archive;
mod interpreter;
pub(crate) mod workers_of_ray;

use self::archive::archive;
use self::interpreter::{GOES_WITHIN, NoWord, StandbyInterpreter, StandbyMessage, kill_all_of, say, start_one};
use self::workers_of_ray::RAYLET;
pub use self::workers_of_ray::{WorkersOfRay, own_notes, workers_of_ray};
use crate::guard::protocol::{GuardOrder, WorkerOrder};
use crate::guard::setup::marks;
use crate::process::ATTEMPT_VARIABLE;
use crate::process::spawn::{CgroupFds, SpawnedProcess};
use crate::process::tree::running_children;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use supervise_core::event::StandbyResult;

/// Runs first in every interpreter; the second file pre-imports or continues at once.
const START: &str = include_str!("standby/start.py");
/// Calls the trainer's own parts once a module of it is imported.
const WATCH: &str = include_str!("standby/watch.py");
const AHEAD: &str = include_str!("standby/sitecustomize.py");
const OF_RAY: &str = include_str!("standby/ray.py");
const BEGIN: &str = "begin()\n";
const AT_ONCE: &str = "hide()\nnext_one()\n";
const FILE_NAME: &str = "sitecustomize.py";

/// Variable that holds an attempt's mark while its interpreter waits, so that cleanup by mark does not find it. It
/// has the length of the real name, which replaces it.
const AWAITED: &str = "SUPERVISE_AWAITED";

const OPEN_FILES: usize = 16_384;

/// An interpreter must report that it waits before anything else; one that does not would soon run the trainer. Until
/// then it cannot write files and is checked this often.
const WAITS_WITHIN: Duration = Duration::from_secs(10);
const GLANCE: Duration = Duration::from_millis(20);

/// Expected order of the next attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraftOrder {
    pub order: GuardOrder,
    /// Recorded imports of an attempt, up to its first step.
    pub imports: String,
    /// An interpreter sleeps this many times as long as it imported, so that the running trainer gets the CPU first.
    pub pauses: u32,
    pub memory: u64,
    pub ray: Option<WorkersOfRay>,
    /// The user's own packages that change no other module: imports after them can be made without them.
    pub plain: Vec<String>,
}

pub(crate) fn cold(why: String) -> StandbyResult {
    StandbyResult::Cold { why, lasting: false }
}

#[derive(Debug)]
pub(crate) struct StandbyGang {
    order: GuardOrder,
    interpreters: Vec<StandbyInterpreter>,
    forked: Option<StandbyInterpreter>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Task<'a> {
    imports: &'a str,
    pauses: u32,
    memory: u64,
    plain: &'a [String],
    differs: &'a [String],
    forks: Option<&'a str>,
    /// File that records the variables for which it refused a fork.
    refused: &'a str,
}

/// Memory files that interpreters are started with; they last as long as this process.
#[derive(Debug)]
pub(crate) struct StandbyFiles {
    /// The PYTHONPATH entry that holds our file.
    place: String,
    notes: (i32, String),
    endings: String,
    told: Option<String>,
    forks: Option<(String, String)>,
}

/// Name of the memory file where a guard keeps its interpreters' exceptions.
pub(crate) const ENDINGS: &str = "endings";
/// Name of the memory file for the trainer's reported settings.
pub(crate) const TOLD: &str = "trainer";

impl StandbyFiles {
    /// Creates the files for an order, or for a draft if its interpreters already wait.
    ///
    /// # Errors
    /// No memory, or no file descriptor.
    pub(crate) fn new(order: &GuardOrder, draft: Option<&DraftOrder>) -> io::Result<Self> {
        // Compiled at each start, so it is kept as short as possible.
        let watch = [&order.hook, &order.door].iter().any(|of| of.is_some());
        let mut parts = vec![START];
        parts.extend(watch.then_some(WATCH));
        parts.extend(order.hook.as_deref());
        parts.extend(order.door.as_deref());
        parts.extend(match (order.interpreters, order.ray) {
            (true, true) => [AHEAD, OF_RAY, BEGIN].as_slice(),
            (true, false) => &[AHEAD, BEGIN],
            (false, _) => &[AT_ONCE],
        });
        let file = parts.concat();
        let forked = |workers: &WorkersOfRay| -> io::Result<_> {
            // Without the run's name: a search for its guard must not find it.
            let name = format!("forks-of-{}", order.socket);
            Ok((lasting("interpreter", workers.imports.as_bytes())?.1, name))
        };
        let imports = draft.map_or("", |d| &d.imports);
        Ok(Self {
            place: lasting("interpreter", &archive(FILE_NAME, file.as_bytes()))?.1,
            notes: lasting("interpreter", imports.as_bytes())?,
            endings: lasting(ENDINGS, &[])?.1,
            told: order
                .hook
                .iter()
                .map(|_| lasting(TOLD, &[]))
                .next()
                .transpose()?
                .map(|(_, name)| name),
            forks: draft.and_then(|d| d.ray.as_ref()).map(forked).transpose()?,
        })
    }

    pub(crate) fn notes(&self) -> i32 {
        self.notes.0
    }

    /// Variables that make an interpreter run our file first; the first worker also records what it imports.
    fn variables(&self, order: &GuardOrder, id: usize, env: &[(String, String)]) -> Vec<(String, String)> {
        let mut ours = self.first_in_path(env);
        // All workers import the same.
        if order.interpreters && id == 0 {
            ours.push(("SUPERVISE_IMPORTS".to_owned(), self.notes.1.clone()));
            ours.extend(order.ray.then(|| ("SUPERVISE_RAY".to_owned(), self.notes.1.clone())));
            let forks = self
                .forks
                .iter()
                .map(|(_, name)| ("SUPERVISE_FORKS".to_owned(), name.clone()));
            ours.extend(forks);
        }
        let ending = order.endings.then(|| self.endings.clone());
        ours.extend(ending.map(|file| ("SUPERVISE_ENDING".to_owned(), file)));
        ours.extend(
            self.told
                .iter()
                .map(|file| ("SUPERVISE_TRAINER".to_owned(), file.clone())),
        );
        ours
    }

    fn first_in_path(&self, env: &[(String, String)]) -> Vec<(String, String)> {
        let path = env.iter().find(|(k, _)| k == "PYTHONPATH").map(|(_, v)| v.as_str());
        let place = &self.place;
        // An empty entry would mean the working directory.
        let path_now = path
            .filter(|p| !p.is_empty())
            .map_or_else(|| place.clone(), |path| format!("{place}:{path}"));
        let mut ours = vec![("PYTHONPATH".to_owned(), path_now)];
        ours.extend(path.map(|_| ("SUPERVISE_PYTHONPATH".to_owned(), "1".to_owned())));
        ours
    }
}

/// Path of the memory file of this name that a guard keeps open.
pub(crate) fn memory_of(guard: i32, name: &str) -> Option<PathBuf> {
    let wanted = format!("/memfd:{name} (deleted)");
    let entries = fs::read_dir(format!("/proc/{guard}/fd")).ok()?;
    let paths = entries.flatten().take(OPEN_FILES).map(|e| e.path());
    let mut found = paths.filter(|path| fs::read_link(path).is_ok_and(|to| to.as_os_str() == wanted.as_str()));
    found.next()
}

/// Environment of a worker, the mark first. `files`: its interpreter runs our file first.
pub(crate) fn worker_env(
    order: &GuardOrder,
    id: usize,
    worker: &WorkerOrder,
    files: Option<&StandbyFiles>,
) -> Vec<(String, String)> {
    let mut ours = marks(order);
    ours.extend(files.iter().flat_map(|f| f.variables(order, id, &worker.env)));
    before(ours, &worker.env)
}

fn before(mut ours: Vec<(String, String)>, theirs: &[(String, String)]) -> Vec<(String, String)> {
    let names: Vec<String> = ours.iter().map(|(k, _)| k.clone()).collect();
    ours.extend(theirs.iter().filter(|(k, _)| !names.contains(k)).cloned());
    ours
}

fn awaited(mut env: Vec<(String, String)>) -> Vec<(String, String)> {
    env.iter_mut()
        .filter(|(name, _)| name == ATTEMPT_VARIABLE)
        .for_each(|(name, _)| AWAITED.clone_into(name));
    env
}

/// Starts the interpreter that is forked, the way this driver's Ray starts its workers.
fn start_forked(
    draft: &DraftOrder,
    ray: &WorkersOfRay,
    files: &StandbyFiles,
    pid: i32,
) -> io::Result<StandbyInterpreter> {
    let driver = draft.order.workers.first().ok_or(io::ErrorKind::InvalidInput)?;
    let others = |key: &String| ray.unset.contains(key) || ray.differs.contains(key);
    let kept: Vec<(String, String)> = driver.env.iter().filter(|(k, _)| !others(k)).cloned().collect();
    let theirs = before(ray.set.clone(), &kept);
    let mut ours = marks(&draft.order);
    ours.extend(files.first_in_path(&theirs));
    ours.push(("SUPERVISE_FORKING".to_owned(), "1".to_owned()));
    ours.push((RAYLET.to_owned(), pid.to_string()));
    start_one(&ray.argv, driver.cwd.as_str(), &awaited(before(ours, &theirs)))
}

/// Creates a memory file; returns its descriptor and the path where this user's other processes can open it.
fn lasting(name: &str, content: &[u8]) -> io::Result<(i32, String)> {
    let mut memory = File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?);
    memory.write_all(content)?;
    // Left open for as long as this process runs.
    let fd = memory.into_raw_fd();
    Ok((fd, format!("/proc/{}/fd/{fd}", std::process::id())))
}

impl StandbyGang {
    /// Starts the interpreters of a draft. If one cannot be started, none is used.
    ///
    /// # Errors
    /// No process, pipe or memory can be created.
    pub(crate) fn start(draft: DraftOrder, files: &StandbyFiles) -> io::Result<Self> {
        let mut interpreters = Vec::with_capacity(draft.order.workers.len());
        for (id, worker) in draft.order.workers.iter().enumerate() {
            let env = awaited(worker_env(&draft.order, id, worker, Some(files)));
            interpreters.push(start_one(&worker.argv, worker.cwd.as_str(), &env)?);
        }
        let driver = interpreters.first().map_or(0, |one| one.started.pid);
        let forked = draft.ray.as_ref().map(|ray| start_forked(&draft, ray, files, driver));
        let mut forked = forked.transpose()?;
        if let Err(e) = all_wait(&mut interpreters, &mut forked, &draft, files) {
            interpreters.into_iter().chain(forked).for_each(StandbyInterpreter::end);
            end_strangers(&[]);
            return Err(e);
        }
        Ok(Self {
            order: draft.order,
            interpreters,
            forked,
        })
    }

    /// Turns the interpreters into the order's workers, as far as possible: returns those that did, by worker, and
    /// the result.
    pub(crate) fn go(
        self,
        order: &GuardOrder,
        cgroup: Option<&CgroupFds<'_>>,
    ) -> (Vec<Option<(SpawnedProcess, OwnedFd)>>, StandbyResult) {
        let until = Instant::now() + GOES_WITHIN;
        let all = self.interpreters.iter().chain(&self.forked);
        let own: Vec<i32> = all.map(|one| one.started.pid).collect();
        let mut why = self.difference(order).map(|why| cold(why.to_owned()));
        // A daemon is not a child of the interpreter that started it, but of this guard.
        if end_strangers(&own) {
            why.get_or_insert(StandbyResult::Cold {
                why: "an import started a process".to_owned(),
                lasting: true,
            });
        }
        let mut asked = Vec::with_capacity(self.interpreters.len());
        for (mut one, worker) in self.interpreters.into_iter().zip(&order.workers) {
            let word = match &why {
                Some(why) => Err(why.clone()),
                None => one.ask(&worker.argv, worker.cwd.as_str(), cgroup),
            };
            asked.push((one, word));
        }
        let driver = own.first().copied();
        let forked = self.forked.map(|mut one| {
            let argv = one.argv.clone();
            let cwd = order.workers.first().map_or("/", |w| w.cwd.as_str());
            let word = match &why {
                Some(why) => Err(why.clone()),
                None => one.ask(&argv, cwd, cgroup),
            };
            (one, word)
        });
        let mut out = Vec::with_capacity(asked.len());
        for (mut one, word) in asked {
            match word.and_then(|()| one.answer(until)).and_then(|()| one.run(None)) {
                Ok(()) => out.push(Some((one.started, one.output))),
                Err(reason) => {
                    one.end();
                    why.get_or_insert(reason);
                    out.push(None);
                }
            }
        }
        let alone = forked.and_then(|(mut one, word)| {
            let word = why.clone().map_or(word, Err);
            match word.and_then(|()| one.answer(until)).and_then(|()| one.run(driver)) {
                Ok(()) => one.keep(),
                Err(reason) => {
                    one.end();
                    return Some(reason);
                }
            }
            None
        });
        let went = || match alone {
            Some(StandbyResult::Cold { why, lasting }) => StandbyResult::WentAlone { why, lasting },
            _ => StandbyResult::Went,
        };
        (out, why.unwrap_or_else(went))
    }

    pub(crate) fn end(self) {
        let all: Vec<StandbyInterpreter> = self.interpreters.into_iter().chain(self.forked).collect();
        for one in &all {
            kill_all_of(one.started.pid);
        }
        all.into_iter().for_each(StandbyInterpreter::end);
    }

    /// The part of the order that differs from the draft; arguments are compared by the interpreters.
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
        // The interpreters compare the rest: they know where their script's arguments begin.
        if pairs().any(|(a, b)| a.argv.first() != b.argv.first()) {
            return Some("another program");
        }
        if pairs().any(|(a, b)| a.cwd != b.cwd) {
            return Some("another working directory");
        }
        pairs().any(|(a, b)| a.env != b.env).then_some("another environment")
    }
}

/// Waits until each interpreter has reported that it waits, and gives it its task. One that has not may be running
/// something else.
///
/// # Errors
/// `TimedOut`: one is running but has not reported. Other errors: one has exited.
fn all_wait(
    interpreters: &mut [StandbyInterpreter],
    forked: &mut Option<StandbyInterpreter>,
    draft: &DraftOrder,
    files: &StandbyFiles,
) -> io::Result<()> {
    let count = u32::try_from(interpreters.len() + usize::from(forked.is_some())).unwrap_or(u32::MAX);
    let task = Task {
        imports: &files.notes.1,
        pauses: draft.pauses,
        memory: draft.memory / u64::from(count.max(1)),
        plain: &draft.plain,
        differs: &[],
        forks: None,
        refused: &files.notes.1,
    };
    let mut silent: Vec<(&mut StandbyInterpreter, Task<'_>)> = interpreters.iter_mut().map(|one| (one, task)).collect();
    if let (Some(one), Some(ray), Some((imports, name))) = (forked, &draft.ray, &files.forks) {
        let (differs, forks) = (ray.differs.as_slice(), Some(name.as_str()));
        silent.push((
            one,
            Task {
                imports,
                differs,
                forks,
                ..task
            },
        ));
    }
    let until = Instant::now() + WAITS_WITHIN;
    while !silent.is_empty() {
        let mut left = Vec::with_capacity(silent.len());
        for (one, task) in silent {
            match one.word(Instant::now() + GLANCE / count.max(1)) {
                Ok(StandbyMessage::Waits(true)) => {
                    one.unlimit()?;
                    // Fits into the socket buffer, so it does not block.
                    say(&mut one.channel, &task)?;
                }
                Err(NoWord::Yet) if Instant::now() < until && one.may_speak() => left.push((one, task)),
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

/// Kills this guard's running children other than these, with their descendants; returns whether there were any.
fn end_strangers(own: &[i32]) -> bool {
    let strangers = running_children(|pid| own.contains(&pid)).unwrap_or_default();
    strangers.iter().filter_map(|pid| kill_all_of(*pid)).count() > 0
}
