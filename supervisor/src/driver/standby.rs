//! Starts the next attempt's interpreters while the current one trains: whether, when, and with which draft of the order.

use super::Driver;
use crate::environment;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use supervise_config::settings::{InterpreterChoice, StandbyChoice};
use supervise_core::decide::danger::dangers;
use supervise_core::event::StandbyResult;
use supervise_core::id::{AttemptNo, Ms, Tick};
use supervise_core::journal::record::LaunchOrder;
use supervise_core::observe::creep::WatchedResource;
use supervise_core::spec::LauncherKind;
use supervise_core::state::{Attempt, RunMode};
use supervise_host::guard::StandbyGuard;
use supervise_host::guard::standby::{DraftOrder, WorkersOfRay, own_notes, workers_of_ray};
use supervise_host::process::usage;
use supervise_host::system::free_port;
use supervise_trainers::{HostFacts, RayMode, TrainerFacts, adapter_of};

const LOOK: Ms = Ms::secs(1);
/// Longest list of imports, in bytes; a large trainer imports 6,000 modules.
const NOTES: usize = 1 << 20;
/// The same for all workers of its Ray together.
const NOTES_OF_WORKERS: usize = 16 << 20;
/// A standby interpreter sleeps this many times as long as it imports: it takes a quarter of a processor from the running trainer.
const PAUSES: u32 = 3;
/// How often to check the memory while interpreters wait.
const LOOK_AT_MEMORY: Ms = Ms::secs(30);
/// Default limit for the memory of standby interpreters, in bytes: this, or a share of the total.
const MEMORY: u64 = 3 << 30;
const SHARE: u64 = 20;

#[derive(Default)]
pub(super) struct StandbyState {
    pub(super) guard: Option<StandbyGuard>,
    pub(super) at: Option<Tick>,
    pub(super) imports: ImportsAhead,
}

#[derive(Debug, Default)]
pub(super) struct ImportsAhead {
    /// The guard's descriptor of the notes that the attempt writes.
    pub(super) notes: Option<i32>,
    /// Imports of the last attempt that noted them, and the workers that its driver's Ray started.
    noted: Option<(String, Option<WorkersOfRay>)>,
    port: Option<u16>,
    /// Attempt for whose successor a draft was made, or cannot be made.
    settled: Option<AttemptNo>,
    wait: bool,
    /// Why the next attempt starts its own.
    why: Option<String>,
    /// Why every later attempt will start its own.
    unfit: Option<String>,
    /// The workers of the driver's Ray cannot be pre-started.
    ray_unfit: bool,
}

impl Driver {
    /// Returns true if the workers are interpreters that run our file first.
    pub(super) fn runs_interpreters(&self, argv: &[String]) -> bool {
        let policy = &self.spec.policy;
        let wished =
            self.order.settings.standby == StandbyChoice::Auto && policy.start.recovery && !policy.start.observe;
        wished && self.spec.gang.launcher != LauncherKind::Ray && self.are_interpreters(argv)
    }

    /// Returns true if the driver's interpreter starts its own Ray.
    pub(super) fn starts_ray(&self, argv: &[String]) -> bool {
        matches!(self.order.facts.ray, RayMode::Own { .. }) && self.runs_interpreters(argv)
    }

    /// Returns true if the workers record the exception that ends them.
    pub(super) fn tells_endings(&self, argv: &[String]) -> bool {
        !self.spec.policy.start.observe && self.are_interpreters(argv)
    }

    /// Returns true if the workers are interpreters of this machine that this program starts directly.
    fn are_interpreters(&self, argv: &[String]) -> bool {
        let program = argv.first().map(|p| p.rsplit('/').next().unwrap_or(p));
        let ours = self.order.settings.interpreter == InterpreterChoice::Auto && self.spec.gang.nodes <= 1;
        ours && program.is_some_and(|p| p.starts_with("python"))
    }

    /// Replaces the standby guard with one whose interpreters import ahead, after the first step of this attempt.
    pub(super) fn import_ahead(&mut self) {
        let Some(a) = self
            .state
            .live()
            .filter(|_| self.state.mode == RunMode::Running)
            .cloned()
        else {
            return;
        };
        if self.order.settings.standby != StandbyChoice::Auto || self.standby.imports.unfit.is_some() {
            return;
        }
        if self.standby.imports.settled == Some(a.no) {
            self.look_at_memory();
            return;
        }
        if a.training.step.is_none_or(|s| s <= a.order.from.step()) {
            self.standby.at = Some(self.now().after(LOOK));
            return;
        }
        self.standby.imports.settled = Some(a.no);
        let begun = match self.memory_shrinks() {
            Some(shrinks) => Err(shrinks),
            None => self.begin_imports(&a),
        };
        match begun {
            Ok(()) => {
                self.standby.imports.why = Some("those that waited were gone".to_owned());
                self.standby.imports.wait = true;
                self.standby.at = Some(self.now().after(LOOK_AT_MEMORY));
            }
            Err(why) => self.none_ahead(why),
        }
    }

    fn begin_imports(&mut self, a: &Attempt) -> Result<(), String> {
        let draft = self
            .draft(a)
            .ok_or("worker 0 is no interpreter that noted its imports")?;
        let standby = self.guard_ahead(Some(&draft)).map_err(|e| e.to_string())?;
        self.exchange(standby);
        Ok(())
    }

    pub(super) fn exchange(&mut self, standby: StandbyGuard) {
        if let Some(old) = self.standby.guard.replace(standby) {
            self.launch.children.push(old.dismiss());
        }
    }

    fn none_ahead(&mut self, why: String) {
        self.printer.note(&format!(
            "the next attempt will start its own interpreters, none imports ahead: {why}"
        ));
        self.standby.imports.why = Some(why);
    }

    /// Ends standby interpreters if the run needs their memory.
    fn look_at_memory(&mut self) {
        if !self.standby.imports.wait {
            return;
        }
        let Some(why) = self.memory_shrinks() else {
            self.standby.at = Some(self.now().after(LOOK_AT_MEMORY));
            return;
        };
        if let Ok(plain) = self.guard_ahead(None) {
            self.exchange(plain);
            self.standby.imports.wait = false;
            self.none_ahead(why);
        }
    }

    fn memory_shrinks(&self) -> Option<String> {
        let all = dangers(&self.state, &self.spec).into_iter();
        let is_memory = |what| {
            matches!(
                what,
                WatchedResource::Memory | WatchedResource::Node | WatchedResource::Ray
            )
        };
        all.filter(|d| is_memory(d.forecast.what)).map(|d| d.words()).next()
    }

    /// How an attempt was launched, for the journal: a relaunch without standby interpreters says why.
    pub(super) fn how_launched(
        &mut self,
        attempt: AttemptNo,
        argv: &[String],
        ahead: Option<StandbyResult>,
    ) -> Option<StandbyResult> {
        let known = &mut self.standby.imports;
        known.wait = false;
        let why = known.why.replace("the attempt before had done no step".to_owned());
        let why = known.unfit.clone().or(why);
        match &ahead {
            Some(StandbyResult::Cold { why, lasting: true }) => known.unfit = Some(why.clone()),
            Some(StandbyResult::WentAlone { lasting: true, .. }) => known.ray_unfit = true,
            _ => {}
        }
        let is_relaunch = attempt.0 > 1 && self.runs_interpreters(argv);
        let lasting = false;
        ahead.or_else(|| Some(StandbyResult::Cold { why: why?, lasting }).filter(|_| is_relaunch))
    }

    /// Memory that the interpreters may use, in bytes: at most half of what is free.
    fn memory_for_interpreters(&self, a: &Attempt) -> u64 {
        let all = usage(a.launch.workers.first().map_or(0, |p| p.pid), None);
        let memory = || {
            all.iter()
                .filter(|u| matches!(u.what, WatchedResource::Memory | WatchedResource::Node))
        };
        let of = memory().map(|u| u.of).min().unwrap_or_default();
        let free = memory().map(|u| u.of.saturating_sub(u.used)).min().unwrap_or_default();
        allowance(self.order.settings.standby_memory, of, free)
    }

    fn draft(&mut self, a: &Attempt) -> Option<DraftOrder> {
        if !self.runs_interpreters(&a.launch.argv) {
            return None;
        }
        let (imports, workers) = self.noted(a)?;
        let ray = workers.filter(|_| !self.standby.imports.ray_unfit);
        let trainer = adapter_of(&self.spec);
        let plain = trainer.package().filter(|_| trainer.imports_plainly());
        let plain = plain.map(str::to_owned).into_iter().collect();
        let order = LaunchOrder {
            attempt: a.no.next(),
            ..a.order.clone()
        };
        let host = self.host_facts(&order);
        let plan = trainer.arrange(&self.spec, &order, &host).ok()?;
        let port = free_port(self.here()).ok()?;
        let order = self.guard_order(&order, &plan, &host, port).ok()?;
        self.standby.imports.port = Some(port);
        Some(DraftOrder {
            order,
            imports,
            pauses: PAUSES,
            memory: self.memory_for_interpreters(a),
            ray,
            plain,
        })
    }

    /// The environment of an attempt's driver.
    fn given(&self, order: &LaunchOrder) -> Option<Vec<(String, String)>> {
        let host = self.host_facts(order);
        let plan = adapter_of(&self.spec).arrange(&self.spec, order, &host).ok()?;
        let order = self.guard_order(order, &plan, &host, 0).ok()?;
        order.workers.into_iter().next().map(|driver| driver.env)
    }

    /// Notes of this attempt's first worker, or of the attempt whose interpreters it used.
    ///
    /// Only an interpreter that is the worker's own process counts: what a wrapper does before it would be done twice.
    fn noted(&mut self, a: &Attempt) -> Option<(String, Option<WorkersOfRay>)> {
        match self.read_notes(a) {
            Some(text) if is_of_first_worker(&text, a) => {
                let given = self.starts_ray(&a.launch.argv).then(|| self.given(&a.order)).flatten();
                let workers = given.and_then(|given| workers_of_ray(&text, &given));
                let own = Some(own_notes(&text)).filter(|own| own.len() <= NOTES);
                self.standby.imports.noted = own.map(|own| (own, workers));
            }
            Some(text) => {
                let workers = self
                    .standby
                    .imports
                    .noted
                    .as_mut()
                    .and_then(|(_, workers)| workers.as_mut());
                workers.into_iter().for_each(|w| w.refused(&text));
            }
            None => {}
        }
        self.standby.imports.noted.clone()
    }

    fn read_notes(&self, a: &Attempt) -> Option<String> {
        let guard = self.guard.as_ref().filter(|l| l.attempt == a.no)?.guard.pid;
        let text = std::fs::read(format!("/proc/{guard}/fd/{}", self.standby.imports.notes?)).ok()?;
        String::from_utf8(text).ok().filter(|t| t.len() <= NOTES_OF_WORKERS)
    }

    /// The port that the interpreters expect, if it is still free.
    pub(super) fn port(&mut self) -> std::io::Result<u16> {
        let expected = self.standby.imports.port.take();
        let here = self.here();
        let free = |port: &u16| TcpListener::bind((here, *port)).is_ok();
        match expected.filter(free) {
            Some(port) => Ok(port),
            None => free_port(here),
        }
    }

    /// Address on which a gang's first rank listens.
    fn here(&self) -> IpAddr {
        match self.spec.gang.nodes {
            0 | 1 => Ipv4Addr::LOCALHOST.into(),
            _ => Ipv4Addr::UNSPECIFIED.into(),
        }
    }

    pub(super) fn host_facts(&self, order: &LaunchOrder) -> HostFacts {
        HostFacts {
            env: environment::own(),
            trainer: TrainerFacts {
                hooked: self.hook(&self.spec.command).is_some(),
                ..self.order.facts.clone()
            },
            began: self.state.requests.care.as_ref().map_or(order.attempt, |c| c.attempt).0,
        }
    }
}

/// Returns true if the notes are of the started worker itself, and it did not re-execute itself: it would do so again, without an
/// order.
fn is_of_first_worker(notes: &str, a: &Attempt) -> bool {
    let pid = notes
        .strip_prefix("b ")
        .and_then(|rest| rest.split(' ').next()?.parse().ok());
    let once = !notes.lines().any(|l| l == "!");
    once && pid.is_some() && a.launch.workers.first().map(|w| w.pid) == pid
}

/// Memory for standby interpreters, in bytes. `set`: the setting; `of`: total memory; `free`: free memory.
fn allowance(set: Option<u64>, of: u64, free: u64) -> u64 {
    set.unwrap_or(MEMORY.max(of / SHARE)).min(free / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_never_get_more_than_half_of_what_is_free() {
        const GIB: u64 = 1 << 30;
        assert_eq!(allowance(None, 16 * GIB, 12 * GIB), 3 * GIB);
        assert_eq!(allowance(None, 2000 * GIB, 900 * GIB), 100 * GIB);
        assert_eq!(allowance(None, 16 * GIB, 2 * GIB), GIB);
        assert_eq!(allowance(Some(GIB), 16 * GIB, 12 * GIB), GIB);
        assert_eq!(allowance(Some(64 * GIB), 16 * GIB, 12 * GIB), 6 * GIB);
        assert_eq!(allowance(Some(0), 0, 0), 0);
    }
}
