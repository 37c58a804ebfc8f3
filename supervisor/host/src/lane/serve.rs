//! The lane's own loop: one question after the other.

use super::edit::{PRIVATE, disk_error, make_dir, perform, prune, write_whole};
use super::protocol::{Answer, LaneReply, LaneRequest, Question};
use super::scan::Prover;
use super::store::{Journal, Lease, open, read_journals};
use super::watch::{Watch, watch};
use camino::{Utf8Path, Utf8PathBuf};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, Write};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth};
use supervise_core::event::{ActError, ActErrorKind, ScanReport};
use supervise_core::spec::{ResumeIntent, RunSpec};
use supervise_trainers::{Expectation, adapter};

/// `Working` is said so often during long reads.
const TELL: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Lane {
    spec: Option<Box<RunSpec>>,
    prover: Option<Prover>,
    journal: Option<Journal>,
    lease: Option<Lease>,
    watch: Option<Watch>,
}

/// Reading checkpoints gives way to the training: by processor time and, where the disk's scheduler knows it, by
/// disk time. Neither is worth failing for.
fn be_considerate() {
    const WHO_PROCESS: libc::c_long = 1;
    const CLASS_IDLE: libc::c_long = 3 << 13;
    #[expect(unsafe_code, reason = "no library offers these two calls; both take numbers only")]
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, 10);
        libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE);
    }
}

/// The driver does not wait for the present answer any more.
fn another_question_waits() -> bool {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n > 0)
}

static OUT: Mutex<()> = Mutex::new(());

fn say(reply: &LaneReply) {
    let Ok(mut line) = serde_json::to_vec(reply) else {
        return;
    };
    line.push(b'\n');
    let _guard = OUT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // A driver that is gone reads nothing; the end of standard input ends this lane.
    let _ = io::stdout().write_all(&line).and_then(|()| io::stdout().flush());
}

/// Runs a lane until its standard input ends. Returns the exit code.
#[must_use]
pub fn main(args: &[OsString]) -> i32 {
    if args.first().is_some_and(|name| name == "work") {
        be_considerate();
    }
    let mut lane = Lane::default();
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let request: LaneRequest = match serde_json::from_str(&line) {
            Ok(r) => r,
            Err(e) => {
                tracing::error!("a lane cannot read its request: {e}");
                return 70;
            }
        };
        let id = request.id;
        let answer = lane.answer(id, request.ask).map(Box::new);
        say(&LaneReply::Done { id, answer });
    }
    0
}

impl Lane {
    fn answer(&mut self, id: u64, ask: Question) -> Result<Answer, ActError> {
        match ask {
            Question::Open(identity) => open(&identity).map(Box::new).map(Answer::Loaded),
            Question::Peek { run_dir } => read_journals(&run_dir)
                .map(Box::new)
                .map(Answer::Loaded)
                .map_err(|e| disk_error(&format!("reading the journals in {run_dir}"), &e)),
            Question::TakeLease {
                dir,
                host,
                boot,
                proc,
                ttl,
            } => match Lease::take(&dir, &host, &boot, proc, ttl)? {
                Ok((lease, term)) => {
                    self.lease = Some(lease);
                    Ok(Answer::Term(term))
                }
                Err(who) => Ok(Answer::Held(who)),
            },
            Question::Begin {
                run_dir,
                term,
                spec,
                registry,
            } => {
                self.journal = Some(Journal::begin(&run_dir, term, &spec)?);
                if let Some(path) = registry {
                    register(&path, &run_dir, &spec);
                }
                Ok(Answer::Done)
            }
            Question::Adopt {
                run_dir,
                term,
                lease_dir,
            } => {
                self.journal = Some(Journal::adopt(&run_dir, term)?);
                self.lease = Lease::adopt(&lease_dir, term)?;
                Ok(Answer::Done)
            }
            Question::Append { text, sync } => match &mut self.journal {
                Some(j) => j.append(&text, sync).map(|()| Answer::Done),
                None => Err(internal("no journal was begun")),
            },
            Question::Bump => match &mut self.lease {
                Some(l) => Ok(l.bump()?.map_or(Answer::Done, Answer::Lost)),
                None => Err(internal("no lease was taken")),
            },
            Question::Release => match &mut self.lease {
                Some(l) => l.release().map(|()| Answer::Done),
                None => Ok(Answer::Done),
            },
            Question::Attempt { dir, files } => attempt(&dir, &files).map(|()| Answer::Done),
            Question::Spec(spec) => {
                self.prover = spec
                    .root
                    .as_ref()
                    .map(|root| Prover::new(root, adapter(spec.trainer), &Expectation::of(&spec)));
                self.spec = Some(spec);
                Ok(Answer::Done)
            }
            other => self.about_the_root(id, other),
        }
    }

    fn about_the_root(&mut self, id: u64, ask: Question) -> Result<Answer, ActError> {
        let root = self
            .spec
            .as_ref()
            .and_then(|s| s.root.clone())
            .ok_or_else(|| internal("this run has no root"))?;
        let prover = self
            .prover
            .as_mut()
            .ok_or_else(|| internal("no specification was given"))?;
        match ask {
            Question::Scan { depth, whole } => {
                let mut told = Instant::now();
                let mut working = |bytes| {
                    if told.elapsed() >= TELL {
                        told = Instant::now();
                        say(&LaneReply::Working { id, bytes });
                    }
                    !another_question_waits()
                };
                let mut report = prover.scan(depth, whole, &mut working);
                if let Some(spec) = &self.spec
                    && let ResumeIntent::Path { path, .. } = &spec.resume
                    && !path.starts_with(&root)
                {
                    report.steps.extend(elsewhere(spec, path, depth, &mut working));
                }
                Ok(Answer::Scan(report))
            }
            Question::Pins { ckpt } if ckpt.0.is_absolute() => {
                let spec = self
                    .spec
                    .as_ref()
                    .ok_or_else(|| internal("no specification was given"))?;
                let found = elsewhere(spec, &ckpt.0, Depth::Structure, &mut |_| true);
                Ok(Answer::Pins(found.map(|c| c.pins)))
            }
            Question::Pins { ckpt } => {
                let pins = prover
                    .pins_now(&ckpt)
                    .map_err(|e| disk_error(&format!("looking at {ckpt}"), &e))?;
                Ok(Answer::Pins(pins))
            }
            Question::Edit { edits, by } => perform(&root, &edits, &by).map(|()| Answer::Done),
            Question::Prune { steps } => prune(&root, &steps).map(|()| Answer::Done),
            Question::Watch => {
                self.watch = watch(&root, || say(&LaneReply::Touched)).ok();
                Ok(Answer::Done)
            }
            _ => Err(internal("a question that no lane answers")),
        }
    }
}

/// A step outside the root, which the user named: known by its absolute path.
fn elsewhere(
    spec: &RunSpec,
    path: &Utf8Path,
    depth: Depth,
    working: &mut dyn FnMut(u64) -> bool,
) -> Option<CheckpointSummary> {
    let parent = path.parent()?;
    let name = CkptId(Utf8PathBuf::from(path.file_name()?));
    let mut prover = Prover::new(parent, adapter(spec.trainer), &Expectation::of(spec));
    let report: ScanReport = prover.scan(depth, 0, working);
    let found = report.steps.into_iter().find(|c| c.id == name)?;
    let mut summary = match found.findings.first() {
        Some(f) if f.code == "unreadable" => found,
        _ => prover.prove(&name, depth, working),
    };
    summary.id = CkptId(path.to_owned());
    Some(summary)
}

fn attempt(dir: &Utf8Path, files: &[(String, String)]) -> Result<(), ActError> {
    let at = |e: &io::Error| disk_error(&format!("making the attempt's directory {dir}"), e);
    make_dir(dir).map_err(|e| at(&e))?;
    for (name, text) in files {
        write_whole(&dir.join(name), text.as_bytes(), PRIVATE).map_err(|e| at(&e))?;
    }
    Ok(())
}

fn register(path: &Utf8Path, run_dir: &Utf8Path, spec: &RunSpec) {
    let text =
        serde_json::json!({ "run": spec.run, "run_dir": run_dir, "root": spec.root, "config": spec.config_file });
    let written = match path.parent() {
        Some(dir) => fs::create_dir_all(dir).and_then(|()| write_whole(path, text.to_string().as_bytes(), PRIVATE)),
        None => Ok(()),
    };
    if let Err(e) = written {
        tracing::warn!("this run will not be listed by `supervise status`: {path}: {e}");
    }
}

fn internal(what: &str) -> ActError {
    ActError {
        what: what.to_owned(),
        retryable: false,
        kind: ActErrorKind::Other,
    }
}
