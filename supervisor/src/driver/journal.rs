//! Records on their way to the disk: numbered, collected, and made durable in groups.

use super::Driver;
use super::io_workers::IoPurpose;
use camino::Utf8PathBuf;
use supervise_core::event::{ActError, ActErrorKind, EventKind};
use supervise_core::id::{Ms, Seq, Term, Tick, WallMs};
use supervise_core::journal::encode_all;
use supervise_core::journal::record::{Act, ActKind, JournalRecord};
use supervise_core::lease::{FenceSpan, Ground, Renewals};
use supervise_core::spec::RunSpec;
use supervise_core::state::RunMode;
use supervise_host::guard::protocol::ToGuard;
use supervise_host::io_worker::{IoAnswer, IoQuestion, IoReply};
use supervise_host::process::limit_hint;

/// Interval between attempts to write a journal that could not be written.
const RETRY: Ms = Ms::secs(5);
/// Time to check the lease once more after a pause in which it was not renewed.
const LAST_LOOK: Ms = Ms::secs(2);

#[derive(Debug, Default)]
pub(super) struct JournalWriter {
    seq: u64,
    unsent: Vec<u8>,
    unsent_to: u64,
    needs_sync: bool,
    in_flight: Option<(Vec<u8>, bool)>,
    durable: u64,
    why: String,
    pub(super) stalled: bool,
    pub(super) retry_at: Option<Tick>,
    pub(super) bump_at: Tick,
    pub(super) bump_every: Ms,
    /// When a renewal of the lease was last requested, and when one was last done.
    pub(super) bumped: Tick,
    pub(super) renewed: Tick,
    /// Set if another machine may take the lease.
    reached: Option<SharedLease>,
    /// Identity of the term's directory, for an I/O worker that takes over.
    pub(super) ground: Vec<u64>,
    /// Whether the directory is still the same.
    standing: Ground,
}

#[derive(Debug)]
pub(super) struct SharedLease {
    /// Workers are killed after this long without a renewal.
    ttl: Ms,
    /// The guard's share of that time.
    fence: FenceSpan,
    renewals: Renewals,
}

impl SharedLease {
    /// A lease taken by a check that began at this time (boot clock).
    pub(super) fn new(ttl: Ms, lasts: Ms, looked: Tick) -> Self {
        Self {
            ttl,
            fence: FenceSpan::of(ttl, lasts),
            renewals: Renewals::from(looked, ttl),
        }
    }
}

impl JournalWriter {
    /// An empty journal. `bump_every`: interval between renewals of the lease.
    pub(super) fn new(bump_every: Ms, reached: Option<SharedLease>) -> Self {
        Self {
            bump_every,
            reached,
            bump_at: Tick(bump_every.0),
            ..Self::default()
        }
    }

    /// Checks the lease once more after a pause in which this process did not run, before workers are killed for it.
    pub(super) fn fence_later(&mut self, now: Tick) {
        if let Some(reached) = &self.reached {
            let latest = Tick(now.after(LAST_LOOK).0.saturating_sub(reached.ttl.0));
            self.renewed = self.renewed.max(latest);
        }
    }

    /// Adds the records of one event. Returns the sequence number of the last.
    pub(super) fn add(&mut self, records: &[JournalRecord], at: Tick, wall: WallMs) -> u64 {
        if records.is_empty() {
            return self.seq;
        }
        let line = encode_all(Seq(self.seq + 1), at, wall, records);
        self.seq += records.len() as u64;
        match line {
            Ok(line) => self.unsent.extend_from_slice(&line),
            Err(e) => tracing::error!("a record cannot be written: {e}"),
        }
        self.unsent_to = self.seq;
        let guarded = |r: &JournalRecord| matches!(r, JournalRecord::Intended { act, .. } if act.kind.is_guarded());
        self.needs_sync |= records.iter().any(guarded);
        self.seq
    }

    /// Why the journal cannot be written; `None` if nothing is left to write.
    pub(super) fn unwritten(&self) -> Option<&str> {
        (!self.is_clean()).then_some(self.why.as_str())
    }

    pub(super) fn is_sent(&self) -> bool {
        self.unsent.is_empty()
    }

    pub(super) fn is_clean(&self) -> bool {
        self.unsent.is_empty() && self.in_flight.is_none()
    }
}

/// The result of an act that was no longer wanted.
pub(super) fn not_begun() -> ActError {
    ActError {
        what: "it was not begun: an end was asked for".to_owned(),
        retryable: true,
        kind: ActErrorKind::Other,
    }
}

impl Driver {
    /// Sends the collected records, unless a group is being written.
    pub(super) fn flush(&mut self) {
        if self.journal.in_flight.is_some() || self.journal.unsent.is_empty() || self.journal.retry_at.is_some() {
            return;
        }
        let bytes = std::mem::take(&mut self.journal.unsent);
        let sync = std::mem::take(&mut self.journal.needs_sync);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        self.journal.in_flight = Some((bytes, sync));
        let now = self.now();
        self.store.ask(
            IoPurpose::Append(self.journal.unsent_to),
            IoQuestion::Append { text, sync },
            now,
        );
    }

    pub(super) fn on_store_line(&mut self, line: Option<String>) {
        // `check_io_workers` handles its end.
        let Some(line) = line else { return };
        let Ok(reply) = serde_json::from_slice::<IoReply>(line.as_bytes()) else {
            return;
        };
        let now = self.now();
        let was_stalled = std::mem::take(&mut self.store.stalled);
        let Some((tag, answer)) = self.store.take(reply, now) else {
            self.store.stalled = was_stalled;
            return;
        };
        match tag {
            IoPurpose::Append(to) => match answer {
                Ok(_) => self.on_written(to),
                Err(e) => {
                    self.on_unwritable(e.what);
                    // The last records were among them: there is no reason to wait.
                    if let Some((at, _)) = &mut self.end.due {
                        *at = now;
                    }
                }
            },
            IoPurpose::Bump => match answer {
                Ok(IoAnswer::Lost(by)) => self.feed(EventKind::LeaseLost { by }),
                Ok(IoAnswer::Displaced(what)) => self.on_displaced(what),
                Ok(answer) => {
                    self.journal.renewed = self.journal.bumped;
                    self.on_renewed(now);
                    self.journal.standing.look(true);
                    self.recovered_if(was_stalled);
                    if let IoAnswer::Asked(request) = answer {
                        self.on_left(&request);
                    }
                }
                // A renewal that fails once does not lose the lease: only another term takes it.
                Err(e) => tracing::warn!("{}", e.what),
            },
            IoPurpose::Save(purpose) => {
                self.recovered_if(was_stalled);
                self.on_save_file(purpose, answer);
            }
            _ => self.recovered_if(was_stalled),
        }
    }

    /// Does not act on one observation, which may fall between two steps of a move.
    fn on_displaced(&mut self, what: String) {
        if self.state.context.displaced {
            return;
        }
        match self.journal.standing.look(false) {
            true => self.feed(EventKind::Displaced { what }),
            false => self.printer.note(&format!(
                "{what}: if it is not back in {} s, this run ends",
                self.journal.bump_every.0.div_ceil(1000)
            )),
        }
    }

    /// Extends the workers' deadline, and makes a launch that waited for the renewal.
    fn on_renewed(&mut self, now: Tick) {
        let (asked, now) = (self.of_boot(self.journal.bumped), self.of_boot(now));
        if let Some(reached) = &mut self.journal.reached {
            reached.renewals.note(asked, now);
        }
        self.tell_guard_of_lease();
        if self.holds_lease()
            && let Some(act) = self.launch.unheld.take()
        {
            self.guarded(act);
        }
    }

    /// Returns true if no other supervisor can have taken the lease. After a pause that is only certain after a renewal.
    pub(super) fn holds_lease(&self) -> bool {
        let now = self.of_boot(self.now());
        self.journal.reached.as_ref().is_none_or(|r| r.renewals.is_held(now))
    }

    fn of_boot(&self, at: Tick) -> Tick {
        Tick(self.began.saturating_add(at.0))
    }

    /// Lets the guard end the workers on its own if this process is stopped or hangs.
    pub(super) fn tell_guard_of_lease(&mut self) {
        let reached = self.journal.reached.as_ref();
        let until = reached.map(|r| r.fence.since(r.renewals.proven()));
        if let Some(link) = self.guard.as_mut().filter(|l| l.takes_lease && !l.gone) {
            link.say(&ToGuard::Lease(until));
        }
    }

    /// When the workers must be killed unless the lease is renewed.
    pub(super) fn fence_due(&self) -> Option<Tick> {
        let after = self.journal.reached.as_ref()?.ttl;
        (self.state.live().is_some() && self.state.context.lease_lost.is_none())
            .then(|| self.journal.renewed.after(after))
    }

    /// Kills the workers before a supervisor on another machine may take the lease.
    pub(super) fn check_fence(&mut self, now: Tick) {
        if self.fence_due().is_some_and(|due| due <= now) {
            let silent = now.since(self.journal.renewed).0 / 1000;
            let what = format!("the lease could not be renewed for {silent} s");
            self.feed(EventKind::LeaseSilent { what });
        }
    }

    fn on_written(&mut self, to: u64) {
        self.journal.in_flight = None;
        self.journal.durable = to;
        self.recovered_if(true);
        while let Some((_, act)) = self.waiting.pop_front_if(|(seq, _)| *seq <= to) {
            // Once the end is decided, nothing else is started.
            if self.state.mode != RunMode::Finished || matches!(act.kind, ActKind::Finish(_)) {
                self.guarded(act);
            }
        }
    }

    /// After a stop request, drops acts whose intent is not durable: a full disk must not delay the stop.
    pub(super) fn drop_unbegun(&mut self) {
        // A save may still be asked for before the machine is taken away.
        let is_end = |act: &Act| matches!(act.kind, ActKind::Finish(_) | ActKind::RequestSave(_));
        let (ends, dropped): (Vec<_>, Vec<_>) = self.waiting.drain(..).partition(|(_, act)| is_end(act));
        self.waiting = ends.into();
        for (_, act) in dropped {
            self.feed(EventKind::ActDone {
                act: act.id,
                result: Err(not_begun()),
            });
        }
    }

    fn recovered_if(&mut self, answered: bool) {
        if answered && self.journal.stalled && self.journal.in_flight.is_none() {
            self.journal.stalled = false;
            self.printer.note("the journal can be written again");
            self.feed(EventKind::JournalRecovered);
        }
    }

    /// Keeps the lines and tries again; nothing new is started meanwhile.
    fn on_unwritable(&mut self, why: String) {
        if let Some((mut bytes, sync)) = self.journal.in_flight.take() {
            bytes.append(&mut self.journal.unsent);
            self.journal.unsent = bytes;
            self.journal.needs_sync |= sync;
        }
        self.journal.retry_at = Some(self.now().after(RETRY));
        self.journal.why.clone_from(&why);
        if !self.journal.stalled {
            self.journal.stalled = true;
            let meanwhile = crate::render::status::without_a_journal(&self.state);
            self.printer.note(&format!("{why}: {meanwhile}"));
            self.feed(EventKind::JournalStalled { why });
        }
    }

    /// Writes once more at the end: a journal that cannot be written must not prevent it.
    pub(super) fn last_words(&mut self) {
        self.journal.retry_at = None;
    }

    /// Replaces the store I/O worker, without which the journal cannot be written. Lines that may be unwritten are sent again; a
    /// reader skips duplicates.
    pub(super) fn replace_store_io_worker(&mut self) {
        let replaced = self.store.replace();
        self.on_unwritable("the I/O worker that writes the journal died".to_owned());
        let mut old = match replaced {
            Ok(old) => old,
            Err(e) => {
                let text =
                    format!("the I/O worker that writes the journal died, and another one cannot be started now: {e}");
                let hint = limit_hint(&text).map(|hint| format!(": {hint}"));
                return self.printer.note(&format!("{text}{}", hint.unwrap_or_default()));
            }
        };
        let now = self.now();
        let ask = self.adoption(self.state.term);
        self.store.ask(IoPurpose::Setup, ask, now);
        // Writing can start at once: nothing was refused.
        self.journal.retry_at = None;
        for purpose in old.unanswered() {
            if let IoPurpose::Save(purpose) = purpose {
                self.on_save_file_lost(purpose);
            }
        }
    }

    /// The first question to an I/O worker that takes over from a dead one.
    pub(super) fn adoption(&self, term: Term) -> IoQuestion {
        IoQuestion::Adopt {
            run_dir: self.spec.run_dir.clone(),
            term,
            lease_dir: lease_dir(&self.order.spec),
            ground: self.journal.ground.clone(),
        }
    }
}

/// The lease is stored with the checkpoints, which it protects.
pub(super) fn lease_dir(spec: &RunSpec) -> Utf8PathBuf {
    supervise_host::io_worker::lease_dir(Some(spec), &spec.run_dir)
}
