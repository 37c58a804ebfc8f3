//! Guarded acts, performed once their intent is durable.

use super::Driver;
use super::guards::GuardLink;
use super::io_workers::IoPurpose;
use crate::render::doubts;
use camino::Utf8PathBuf;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::process::Child;
use supervise_config::redact_words;
use supervise_config::settings::{CgroupChoice, InterpreterChoice};
use supervise_core::diagnosis::{failure_rules, user_rules};
use supervise_core::event::progress::{heal_rules, progress_rules};
use supervise_core::event::scan::{ScanRule, Scanner};
use supervise_core::event::{ActError, ActErrorKind, EventKind};
use supervise_core::id::{ActId, AttemptNo, ProcRef, Rank, Term};
use supervise_core::journal::record::{Act, ActKind, LaunchOrder, StartPoint};
use supervise_core::spec::gang::{FOREIGN, is_of_a_node, worker_env};
use supervise_core::spec::script::CallOrder;
use supervise_core::spec::{LauncherKind, RunSpec, SAVE_VARIABLE};
use supervise_core::state::RunMode;
use supervise_host::address::{self, SocketRole};
use supervise_host::guard::StandbyGuard;
use supervise_host::guard::nodes::ray::RayOrder;
use supervise_host::guard::nodes::steps;
use supervise_host::guard::protocol::{GuardOrder, NodesOrder, ScriptWatch, WorkerOrder};
use supervise_host::guard::standby::DraftOrder;
use supervise_host::io_worker::{IoAnswer, IoQuestion};
use supervise_host::process::proc_stat;
use supervise_trainers::{HostFacts, LaunchPlan, RayMode, adapter_of};

/// Maximum number of doubts about a resume point that are printed; `supervise checkpoints` shows all.
const DOUBTS: usize = 8;

/// The launches of this term.
#[derive(Default)]
pub(super) struct LaunchState {
    /// The last attempt for which this term started a guard.
    pub(super) begun: Option<AttemptNo>,
    /// The nodes of a gang, and the address of rank 0.
    pub(super) places: Option<(Vec<String>, String)>,
    pub(super) ready: Option<ReadyLaunch>,
    /// A launch that waits until the lease is confirmed.
    pub(super) unheld: Option<Act>,
    /// The attempt whose file of requests for a save was created.
    pub(super) save_requests: Option<AttemptNo>,
    pub(super) failed: Option<(ActId, ActError)>,
    /// The current attempt's scratch directory, removed with it.
    pub(super) scratch: Option<Utf8PathBuf>,
    pub(super) children: Vec<Child>,
    /// Memory that only the start needed has been freed.
    pub(super) is_slim: bool,
}

/// A prepared launch that waits only for its intent to be durable, or why it could not be prepared.
pub(super) struct ReadyLaunch {
    act: ActId,
    made: Result<LaunchParts, ActError>,
}

struct LaunchParts {
    plan: LaunchPlan,
    order: GuardOrder,
    /// The kernel log from here on.
    kernel_log: Option<File>,
}

impl Driver {
    /// Whether a launch can be prepared while its intent is being written. Not with several nodes: their allocation is queried
    /// first.
    pub(super) fn may_be_made_ready(&self) -> bool {
        let next = self.waiting.front().map(|(_, act)| act);
        let launch = next.filter(|act| matches!(act.kind, ActKind::Launch(_)) && self.spec.gang.nodes <= 1);
        let made = |act: &Act| self.launch.ready.as_ref().is_some_and(|r| r.act == act.id);
        self.journal.is_sent() && launch.is_some_and(|act| !made(act))
    }

    /// Prepares the launch meanwhile: the standby guard reads its order and starts nothing before it is told to.
    pub(super) fn make_ready(&mut self) {
        let Some((_, act)) = self.waiting.front() else { return };
        let ActKind::Launch(order) = &act.kind else { return };
        let (act, order) = (act.id, order.clone());
        let made = self.draw_up(&order);
        self.dismiss_offered();
        if let (Some(standby), Ok(made)) = (&mut self.standby.guard, &made)
            && standby.offer(act, &made.order).is_err()
            && let Some(standby) = self.standby.guard.take()
        {
            self.launch.children.push(standby.dismiss());
        }
        self.launch.ready = Some(ReadyLaunch { act, made });
    }

    /// Drops the prepared launch, which does not match the decided one.
    pub(super) fn forget_what_is_ready(&mut self) {
        self.launch.ready = None;
        self.dismiss_offered();
    }

    /// A guard cannot forget an order, so a guard that has one is dismissed.
    fn dismiss_offered(&mut self) {
        if let Some(standby) = self.standby.guard.take_if(|s| s.offered().is_some()) {
            self.launch.children.push(standby.dismiss());
        }
    }

    pub(super) fn guarded(&mut self, act: Act) {
        let now = self.now();
        match act.kind {
            ActKind::Arrange(edits) => {
                let by = format!("before-attempt-{}", self.state.attempts.next());
                self.work
                    .ask(IoPurpose::Act(act.id), IoQuestion::Edit { edits, by }, now);
            }
            ActKind::Prune(steps) => self.work.ask(IoPurpose::Act(act.id), IoQuestion::Prune { steps }, now),
            ActKind::Launch(_) if !self.holds_lease() => {
                self.printer
                    .note("a launch waits until it is known that no other machine took the lease meanwhile");
                self.launch.unheld = Some(act);
            }
            ActKind::Launch(order) => {
                let asked = self.ask_nodes(act.id, &order)
                    || self.ask_cluster(act.id, &order)
                    || self.ask_slurm(act.id, &order)
                    || self.ask_gpus(act.id, &order);
                if !asked {
                    self.launch_from(act.id, *order);
                }
            }
            ActKind::Keep { .. } => self.keep(act),
            ActKind::RequestSave(order) => self.write_save_request(act.id, act.attempt.unwrap_or_default(), order.id),
            ActKind::Finish(outcome) => self.end.outcome = Some(outcome),
            ActKind::Signal { .. } | ActKind::KillTree | ActKind::Freeze | ActKind::Thaw => {}
        }
    }

    /// Launches after one last check of the resume point.
    pub(super) fn launch_from(&mut self, act: ActId, order: LaunchOrder) {
        if self.prepares_save_requests(act, &order) {
            return;
        }
        match &order.from {
            StartPoint::Step { ckpt, .. } if self.spec.policy.proof.is_on => {
                let ask = IoQuestion::Pins { ckpt: ckpt.clone() };
                let now = self.now();
                self.work.ask(IoPurpose::Pins(act, Box::new(order)), ask, now);
            }
            _ => self.launch(act, &order),
        }
    }

    /// Checks that the resume point is still what was proven.
    pub(super) fn on_pins(&mut self, act: ActId, order: &LaunchOrder, answer: Result<IoAnswer, ActError>) {
        let StartPoint::Step { ckpt, pins, .. } = &order.from else {
            return;
        };
        let error = match answer {
            Ok(IoAnswer::Pins(Some(now))) if now == *pins => return self.launch(act, order),
            Ok(IoAnswer::Pins(_)) => ActError {
                what: format!("{ckpt} was changed after it was proven: somebody else writes in the checkpoint root"),
                retryable: true,
                kind: ActErrorKind::PinsChanged,
            },
            Ok(_) => return,
            Err(e) => e,
        };
        self.feed(EventKind::ActDone {
            act,
            result: Err(error),
        });
    }

    fn launch(&mut self, act: ActId, order: &LaunchOrder) {
        // The checks before a launch may take long; a stop may have been requested meanwhile.
        let launched = match &self.state.mode {
            RunMode::Launching { .. } => self.try_launch(act, order),
            _ => Err(super::journal::not_begun()),
        };
        if let Err(error) = launched {
            self.feed(EventKind::ActDone {
                act,
                result: Err(error),
            });
        }
    }

    fn try_launch(&mut self, act: ActId, order: &LaunchOrder) -> Result<(), ActError> {
        let other = super::guards::not_started;
        let LaunchParts {
            plan,
            order: order_for_guard,
            kernel_log,
        } = match self.launch.ready.take().filter(|r| r.act == act) {
            Some(ready) => ready.made?,
            None => self.draw_up(order)?,
        };
        let (stream, child) = self
            .guard_for(act, order_for_guard)
            .map_err(|e| other(format!("starting the guard {}: {e}", self.exe)))?;
        for note in &plan.notes {
            self.printer.note(note);
        }
        let doubts = self.state.disk.scan.as_ref().map(|scan| doubts(scan, &order.from));
        for finding in doubts.into_iter().flatten().take(DOUBTS) {
            self.printer.note(&finding.to_string());
        }
        let pid = i32::try_from(child.id()).unwrap_or(0);
        let guard = ProcRef {
            pid,
            start: proc_stat(pid).map_or(0, |s| s.start),
        };
        self.launch.children.push(child);
        self.launch.begun = Some(order.attempt);
        let mut link =
            GuardLink::new(stream, order.attempt, guard).map_err(|e| other(format!("talking to the guard: {e}")))?;
        let argv = redact_words(&plan.argv);
        link.launching = Some((act, argv.clone()));
        link.kernel_log = kernel_log;
        (link.takes_devices, link.takes_lease) = (true, true);
        self.guard = Some(link);
        self.tell_guard_of_lease();
        self.launch.scratch.clone_from(&plan.scratch);
        self.write_attempt(order, &plan, &argv, self.attempt_dir(order));
        Ok(())
    }

    /// Builds everything for a launch that has no side effects.
    fn draw_up(&mut self, order: &LaunchOrder) -> Result<LaunchParts, ActError> {
        let host = self.host_facts(order);
        let plan = adapter_of(&self.spec)
            .arrange(&self.spec, order, &host)
            .map_err(|r| ActError {
                what: r.text,
                retryable: false,
                kind: ActErrorKind::Command,
            })?;
        let prepared = self.port().and_then(|port| self.guard_order(order, &plan, &host, port));
        let order_for_guard = prepared
            .map_err(|e| super::guards::not_started(format!("finding a free port, or preparing the script: {e}")))?;
        Ok(LaunchParts {
            plan,
            order: order_for_guard,
            kernel_log: supervise_host::kernel_log::from_now(),
        })
    }

    /// The guard's order for an attempt, without the rules, which a standby guard already has. `port` is the gang's port.
    pub(super) fn guard_order(
        &self,
        order: &LaunchOrder,
        plan: &LaunchPlan,
        host: &HostFacts,
        port: u16,
    ) -> std::io::Result<GuardOrder> {
        let socket = address::fresh(&self.spec.run, SocketRole::Guard)?;
        let settings = &self.order.settings;
        Ok(GuardOrder {
            run: self.spec.run.clone(),
            term: self.state.term,
            attempt: order.attempt,
            exe: self.exe.clone(),
            workers: self.workers(order, plan, host, &socket, port)?,
            socket,
            dir: Some(self.attempt_dir(order)),
            rules: Vec::new(),
            orphan_grace: self.spec.policy.grace.orphan,
            save_grace: self.spec.policy.grace.save,
            stop_grace: self.spec.policy.grace.stop,
            output_max: settings.output.max_bytes,
            output_keep: settings.output.keep,
            cgroup: settings.kill.cgroup == CgroupChoice::Auto,
            scratch: plan.scratch.clone(),
            stale_names: plan.stale_names.clone(),
            script: watch(plan),
            patient: self.spec.policy.start.observe,
            interpreters: self.runs_interpreters(&plan.argv),
            ray: self.starts_ray(&plan.argv),
            endings: self.tells_endings(&plan.argv),
            hook: self.hook(&plan.argv),
            door: match order.from {
                StartPoint::AsIs => None,
                _ => self.order.save_door().python(),
            },
            secrets: supervise_config::known_secrets(),
            nodes: (self.spec.gang.nodes > 1).then(|| NodesOrder {
                nodes: self.spec.gang.nodes,
                step: steps::name(&self.spec.run, order.attempt),
                on: self.launch.places.iter().flat_map(|(on, _)| on.clone()).collect(),
            }),
        })
    }

    fn attempt_dir(&self, order: &LaunchOrder) -> camino::Utf8PathBuf {
        self.dir_of(order.attempt)
    }

    fn workers(
        &self,
        order: &LaunchOrder,
        plan: &LaunchPlan,
        host: &HostFacts,
        socket: &str,
        port: u16,
    ) -> std::io::Result<Vec<WorkerOrder>> {
        let gang = &self.spec.gang;
        let is_gang = gang.launcher == LauncherKind::Gang;
        let master = self.launch.places.as_ref().map_or("127.0.0.1", |(_, address)| address);
        let mut base = host.env.clone();
        if gang.nodes > 1 {
            base.retain(|name, _| !is_of_a_node(name));
        }
        if is_gang {
            for name in FOREIGN {
                base.remove(*name);
            }
        }
        // It is an outer supervisor's, if this one is a worker.
        base.remove(SAVE_VARIABLE);
        base.extend(plan.env.iter().cloned());
        base.extend(self.spec.env.clone());
        if let (Some(call), Some(shims)) = (&plan.call, &self.order.shims) {
            shims.dress(&mut base, socket, Some(self.call_order(order, call)))?;
        }
        if let Some(submitter) = &self.order.submitter {
            submitter.dress(&mut base, self.proof().comment(self.state.term, order.attempt));
        }
        let argv = self.argv(plan);
        let dir = self.attempt_dir(order);
        Ok((0..gang.workers)
            .map(|rank| {
                let mut env = base.clone();
                if self.order.settings.assist.environment {
                    let plain = self.order.settings.interpreter == InterpreterChoice::Plain;
                    // If one process starts its own workers, torchrun copies the error of its first failed rank there.
                    let own = (gang.launcher != LauncherKind::Ray).then_some(rank);
                    let more = super::evidence::helping_variables(&dir, own, plain, &env);
                    env.extend(more);
                }
                env.extend(worker_env(gang, Rank(rank), (master, port), order.attempt.0));
                env.extend(self.fewer_gpus());
                WorkerOrder {
                    argv: argv.clone(),
                    env: env.into_iter().collect(),
                    cwd: self.spec.cwd.clone(),
                }
            })
            .collect())
    }

    /// The order for the call in a script; the shim checks that the step to resume from still exists.
    fn call_order(&self, order: &LaunchOrder, call: &CallOrder) -> CallOrder {
        let resume = match (&order.from, &self.spec.root) {
            (StartPoint::Step { ckpt, .. }, Some(root)) => Some(root.join(&ckpt.0)),
            _ => None,
        };
        CallOrder { resume, ..call.clone() }
    }

    /// The trainer's command, wrapped if we start Ray.
    fn argv(&self, plan: &LaunchPlan) -> Vec<String> {
        match &self.order.facts.ray {
            RayMode::Started {
                nodes, gpus, options, ..
            } if self.spec.gang.launcher == LauncherKind::Ray => RayOrder {
                nodes: *nodes,
                gpus: *gpus,
                options: (options
                    .iter()
                    .chain(self.order.settings.gang.ray_start.iter().flatten())
                    .cloned())
                .collect(),
                scratch: plan.scratch.clone(),
            }
            .command(&self.exe, &plan.argv),
            _ => plan.argv.clone(),
        }
    }

    /// Hands the order to the standby guard, or starts a new one.
    fn guard_for(&mut self, act: ActId, mut order: GuardOrder) -> std::io::Result<(UnixStream, Child)> {
        if let Some(mut standby) = self.standby.guard.take() {
            let has_it = match standby.offered() {
                None => standby.offer(act, &order).is_ok(),
                Some(offered) => offered == act,
            };
            let begun = match has_it {
                true => standby.go(),
                false => Err(standby.dismiss()),
            };
            match begun {
                Ok(started) => return Ok(started),
                Err(child) => self.launch.children.push(child),
            }
        }
        order.rules = rules(&self.spec);
        supervise_host::guard::spawn(&self.exe, &order)
    }

    /// Starts a standby guard, with a draft of its order if there is one.
    pub(super) fn guard_ahead(&self, draft: Option<&DraftOrder>) -> std::io::Result<StandbyGuard> {
        supervise_host::guard::standby(&self.exe, &rules(&self.spec), draft)
    }

    /// Starts the guard of the next attempt once the current one runs undisturbed.
    pub(super) fn stand_by(&mut self) {
        let now = self.now();
        let is_due = self.standby.at.is_some_and(|at| at <= now);
        if !is_due {
            return;
        }
        self.standby.at = None;
        let is_first = !std::mem::replace(&mut self.launch.is_slim, true);
        if is_first && let Err(e) = Scanner::new(rules(&self.spec)) {
            self.printer.note(&format!(
                "the output is kept but not understood: a rule cannot be compiled: {e}"
            ));
        }
        if self.state.mode == RunMode::Running && self.standby.guard.is_none() {
            // If it cannot be started, the next launch starts its own.
            self.standby.guard = self.guard_ahead(None).ok();
        }
        if self.state.mode == RunMode::Running {
            self.helper_stands_by();
            self.follow_gpus();
        }
        // Only once: the code that a relaunch executes is to stay in memory.
        if is_first {
            supervise_host::process::let_go_of_start();
        }
        self.import_ahead();
    }

    /// Writes the launch for people to read; done after the launch, off its critical path.
    fn write_attempt(&mut self, order: &LaunchOrder, plan: &LaunchPlan, argv: &[String], dir: camino::Utf8PathBuf) {
        let text = serde_json::json!({
            "attempt": order.attempt,
            "term": self.state.term,
            "from": order.from,
            "lost": order.lost,
            "argv": argv,
            "overrides": redact_words(&plan.overrides),
            "env_set": plan.env.iter().map(|(k, v)| (k, supervise_config::redact(k, v))).collect::<Vec<_>>(),
            "cwd": self.spec.cwd,
            "notes": redact_words(&plan.notes),
        });
        let files = vec![("launch.json".to_owned(), format!("{text:#}\n"))];
        let now = self.now();
        let evidence = dir.join(supervise_host::evidence::DIRECTORY);
        self.store
            .ask(IoPurpose::Nothing, IoQuestion::Attempt { dir, files }, now);
        let files = Vec::new();
        // Workers write their own evidence into this directory.
        self.store
            .ask(IoPurpose::Nothing, IoQuestion::Attempt { dir: evidence, files }, now);
    }
}

impl Driver {
    /// Writes this term's configuration for people to read; nothing depends on it.
    pub(super) fn tell_configuration(&mut self, term: Term) {
        let dir = self.spec.run_dir.join("spec");
        let files = vec![(format!("{term}.config.json"), self.order.told.clone())];
        let now = self.now();
        self.store
            .ask(IoPurpose::Nothing, IoQuestion::Attempt { dir, files }, now);
    }
}

/// Requires a script's trainer to show our overrides, if there are any.
fn watch(plan: &LaunchPlan) -> Option<ScriptWatch> {
    let ours = plan.call.as_ref().map(|call| call.ours.clone())?;
    (!ours.is_empty()).then_some(ScriptWatch::Marks { ours })
}

/// The rules for lines of output: the trainer's first, then the user's.
fn rules(spec: &RunSpec) -> Vec<ScanRule> {
    let mut rules = adapter_of(spec).rules();
    rules.extend(progress_rules(
        spec.policy.stall.progress.as_deref(),
        adapter_of(spec).has_steps(),
    ));
    rules.extend(user_rules(&spec.policy.failure.lines));
    rules.extend(failure_rules());
    rules.extend(heal_rules());
    rules
}
