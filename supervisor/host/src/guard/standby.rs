//! Interpreters that import ahead: the next attempt's workers, waiting for the order to go on.
//!
//! Nearly all of a comeback is the interpreter importing what the one before had imported. With [`GuardOrder::interpreters`] each
//! interpreter of an attempt first runs a file of ours (`sitecustomize`, from memory): worker 0 notes what it imports. The guard
//! that waits for the next order has a [`Draft`] of it, and starts its interpreters with the environment that they will have;
//! they import what was noted, and go on as the workers when the order comes, where it differs from the draft in arguments of the
//! trainer alone. In every other case they are ended, and the workers are started as ever.

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

/// First in every interpreter; and what imports ahead, or goes on at once.
const START: &str = include_str!("standby/start.py");
const AHEAD: &str = include_str!("standby/sitecustomize.py");
const OF_RAY: &str = include_str!("standby/ray.py");
const BEGIN: &str = "begin()\n";
const AT_ONCE: &str = "hide()\nnext_one()\n";
const FILE_NAME: &str = "sitecustomize.py";

/// Variable that bears the mark of an attempt while its interpreter waits; as long as the real name, which takes its place: until
/// then whoever ends an attempt by its mark must not meet it.
const AWAITED: &str = "SUPERVISE_AWAITED";

/// Open files of a guard that are looked at.
const OPEN_FILES: usize = 16_384;

/// The interpreter says that it waits before anything else. One that does not would run the trainer itself, soon: until then it can
/// write no file, and it is looked at this often.
const WAITS_WITHIN: Duration = Duration::from_secs(10);
const GLANCE: Duration = Duration::from_millis(20);

/// Expected order of the next attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraftOrder {
    /// The order; only the arguments of its workers may turn out to be others.
    pub order: GuardOrder,
    /// Noted imports of an attempt, until its first step.
    pub imports: String,
    /// An interpreter rests this many times as long as it imported, so that the trainer that runs has the processors first.
    pub pauses: u32,
    /// Bytes that all interpreters together may hold.
    pub memory: u64,
    /// Workers of the driver's own Ray.
    pub ray: Option<WorkersOfRay>,
    /// Packages without which their imports may be made.
    pub plain: Vec<String>,
}

/// A start without them.
pub(crate) fn cold(why: String) -> StandbyResult {
    StandbyResult::Cold { why, lasting: false }
}

/// Interpreters of a draft.
#[derive(Debug)]
pub(crate) struct StandbyGang {
    order: GuardOrder,
    interpreters: Vec<StandbyInterpreter>,
    /// It is forked for each worker that the driver's Ray starts.
    forked: Option<StandbyInterpreter>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Task<'a> {
    imports: &'a str,
    pauses: u32,
    memory: u64,
    plain: &'a [String],
    /// Variables that are not the same in all forks.
    differs: &'a [String],
    /// Name of the socket at which it is asked for a fork.
    forks: Option<&'a str>,
    /// The file for the variables by which it refused one.
    refused: &'a str,
}

/// Files in memory that interpreters are started with: they last as long as this process.
#[derive(Debug)]
pub(crate) struct StandbyFiles {
    /// The place on PYTHONPATH that holds our file.
    place: String,
    /// The file for notes.
    notes: (i32, String),
    /// The file to which interpreters add the exception that ends them.
    endings: String,
    /// The file for what the trainer is seen to do.
    told: Option<String>,
    /// The imports of the interpreter that is forked, and the name of its socket.
    forks: Option<(String, String)>,
}

/// Name of the memory in which a guard keeps the exceptions that ended its interpreters.
pub(crate) const ENDINGS: &str = "endings";
/// Name of that for what their trainer is seen to do.
pub(crate) const TOLD: &str = "trainer";

impl StandbyFiles {
    /// Makes them for an order, or, where its interpreters wait already, for a draft.
    ///
    /// # Errors
    /// No memory, or no descriptor.
    pub(crate) fn new(order: &GuardOrder, draft: Option<&DraftOrder>) -> io::Result<Self> {
        // It is compiled at each start: as little as is needed.
        let hook = order.hook.as_deref().unwrap_or_default();
        let file = match (order.interpreters, order.ray) {
            (true, true) => [START, hook, AHEAD, OF_RAY, BEGIN].concat(),
            (true, false) => [START, hook, AHEAD, BEGIN].concat(),
            (false, _) => [START, hook, AT_ONCE].concat(),
        };
        let forked = |workers: &WorkersOfRay| -> io::Result<_> {
            // Nothing of a run's own names: who looks for its guard must not meet it.
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

    /// Descriptor of the file for notes.
    pub(crate) fn notes(&self) -> i32 {
        self.notes.0
    }

    /// Variables that make an interpreter run our file first; the first worker's also notes what it imports.
    fn variables(&self, order: &GuardOrder, id: usize, env: &[(String, String)]) -> Vec<(String, String)> {
        let mut ours = self.first_in_path(env);
        // All import the same.
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
        // An empty entry would be the working directory.
        let path_now = path
            .filter(|p| !p.is_empty())
            .map_or_else(|| place.clone(), |path| format!("{place}:{path}"));
        let mut ours = vec![("PYTHONPATH".to_owned(), path_now)];
        ours.extend(path.map(|_| ("SUPERVISE_PYTHONPATH".to_owned(), "1".to_owned())));
        ours
    }
}

/// The memory of this name that a guard keeps, as a file.
pub(crate) fn memory_of(guard: i32, name: &str) -> Option<PathBuf> {
    let wanted = format!("/memfd:{name} (deleted)");
    let entries = fs::read_dir(format!("/proc/{guard}/fd")).ok()?;
    let paths = entries.flatten().take(OPEN_FILES).map(|e| e.path());
    let mut found = paths.filter(|path| fs::read_link(path).is_ok_and(|to| to.as_os_str() == wanted.as_str()));
    found.next()
}

/// The environment of a worker, the mark first. `files`: its interpreter runs ours first.
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

/// Ours first, and nothing twice.
fn before(mut ours: Vec<(String, String)>, theirs: &[(String, String)]) -> Vec<(String, String)> {
    let names: Vec<String> = ours.iter().map(|(k, _)| k.clone()).collect();
    ours.extend(theirs.iter().filter(|(k, _)| !names.contains(k)).cloned());
    ours
}

/// The mark under its name for those that wait.
fn awaited(mut env: Vec<(String, String)>) -> Vec<(String, String)> {
    env.iter_mut()
        .filter(|(name, _)| name == ATTEMPT_VARIABLE)
        .for_each(|(name, _)| AWAITED.clone_into(name));
    env
}

/// Starts the interpreter that is forked, as the Ray of this driver will start those for which it is.
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

/// A file in memory, by its descriptor and by the name under which other processes of this user find it.
fn lasting(name: &str, content: &[u8]) -> io::Result<(i32, String)> {
    let mut memory = File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?);
    memory.write_all(content)?;
    // Open for as long as this process lives.
    let fd = memory.into_raw_fd();
    Ok((fd, format!("/proc/{}/fd/{fd}", std::process::id())))
}

impl StandbyGang {
    /// Starts the interpreters of a draft. One that cannot be started leaves all to the order.
    ///
    /// # Errors
    /// No process, pipe or memory can be made.
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

    /// Lets the interpreters go on as the workers of the order, where they can: by worker, those that do, and how it went.
    pub(crate) fn go(
        self,
        order: &GuardOrder,
        cgroup: Option<&CgroupFds<'_>>,
    ) -> (Vec<Option<(SpawnedProcess, OwnedFd)>>, StandbyResult) {
        let until = Instant::now() + GOES_WITHIN;
        let all = self.interpreters.iter().chain(&self.forked);
        let own: Vec<i32> = all.map(|one| one.started.pid).collect();
        let mut why = self.difference(order).map(|why| cold(why.to_owned()));
        // A daemon is no child of the interpreter that made it, but it is of this guard.
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

    /// Ends the interpreters, for which there will be no order.
    pub(crate) fn end(self) {
        let all: Vec<StandbyInterpreter> = self.interpreters.into_iter().chain(self.forked).collect();
        // At once, then waited for one by one.
        for one in &all {
            kill_all_of(one.started.pid);
        }
        all.into_iter().for_each(StandbyInterpreter::end);
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
                    // It fits into the socket: nobody is waited for.
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

/// Kills the children of this guard that run, but for these, and what descends from them: whether there were any.
fn end_strangers(own: &[i32]) -> bool {
    let strangers = running_children(|pid| own.contains(&pid)).unwrap_or_default();
    strangers.iter().filter_map(|pid| kill_all_of(*pid)).count() > 0
}
