//! Records on their way to the disk: numbered, gathered, made durable in groups.

use super::Driver;
use super::lanes::{Lane, Tag};
use supervise_core::event::EventKind;
use supervise_core::id::{Ms, Seq, Term, Tick, WallMs};
use supervise_core::journal::encode;
use supervise_core::record::Record;
use supervise_host::lane::{Answer, LaneReply, Question};

/// A journal that could not be written is tried again after this.
const RETRY: Ms = Ms::secs(5);

/// The journal as the driver knows it.
#[derive(Debug, Default)]
pub(super) struct Book {
    seq: u64,
    unsent: Vec<u8>,
    unsent_to: u64,
    needs_sync: bool,
    in_flight: Option<(Vec<u8>, bool)>,
    durable: u64,
    guarded: std::collections::VecDeque<u64>,
    pub(super) stalled: bool,
    pub(super) retry_at: Option<Tick>,
    pub(super) bump_at: Tick,
    pub(super) bump_every: Ms,
}

impl Book {
    /// An empty journal; the lease is renewed every so often.
    pub(super) fn new(bump_every: Ms) -> Self {
        Self {
            bump_every,
            bump_at: Tick(bump_every.0),
            ..Self::default()
        }
    }

    /// Takes a record in.
    pub(super) fn add(&mut self, record: &Record, term: Term, at: Tick, wall: WallMs) {
        self.seq += 1;
        match encode(Seq(self.seq), term, at, wall, record) {
            Ok(line) => self.unsent.extend_from_slice(&line),
            Err(e) => tracing::error!("a record cannot be written: {e}"),
        }
        self.unsent_to = self.seq;
        if let Record::Intended { act, .. } = record
            && act.kind.is_guarded()
        {
            self.needs_sync = true;
            self.guarded.push_back(self.seq);
        }
    }

    /// How many guarded acts, oldest first, have a durable intent.
    fn released(&mut self) -> usize {
        let n = self.guarded.iter().take_while(|seq| **seq <= self.durable).count();
        self.guarded.drain(..n);
        n
    }

    /// Everything that was decided is on disk.
    pub(super) fn is_clean(&self) -> bool {
        self.unsent.is_empty() && self.in_flight.is_none()
    }
}

impl Driver {
    /// Sends what is gathered, unless a group is on its way.
    pub(super) fn flush(&mut self) {
        if self.book.in_flight.is_some() || self.book.unsent.is_empty() || self.book.retry_at.is_some() {
            return;
        }
        let bytes = std::mem::take(&mut self.book.unsent);
        let sync = std::mem::take(&mut self.book.needs_sync);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        self.book.in_flight = Some((bytes, sync));
        let now = self.now();
        self.store
            .ask(Tag::Append(self.book.unsent_to), Question::Append { text, sync }, now);
    }

    pub(super) fn on_store_line(&mut self, line: Option<String>) {
        let Some(line) = line else {
            return self.store_lane_died();
        };
        let Ok(reply) = serde_json::from_str::<LaneReply>(&line) else {
            return;
        };
        let now = self.now();
        let was_stalled = std::mem::take(&mut self.store.stalled);
        let Some((tag, answer)) = self.store.take(reply, now) else {
            self.store.stalled = was_stalled;
            return;
        };
        match tag {
            Tag::Append(to) => match answer {
                Ok(_) => self.on_written(to),
                Err(e) => self.on_unwritable(e.what),
            },
            Tag::Bump => match answer {
                Ok(Answer::Lost(by)) => self.feed(EventKind::LeaseLost { by }),
                Ok(_) => self.recovered_if(was_stalled),
                // A lease that cannot be renewed for a moment is still ours: only another term takes it away.
                Err(e) => tracing::warn!("{}", e.what),
            },
            _ => self.recovered_if(was_stalled),
        }
    }

    fn on_written(&mut self, to: u64) {
        self.book.in_flight = None;
        self.book.durable = to;
        self.recovered_if(true);
        for _ in 0..self.book.released() {
            if let Some(act) = self.waiting.pop_front() {
                self.guarded(act);
            }
        }
    }

    fn recovered_if(&mut self, answered: bool) {
        if answered && self.book.stalled && self.book.in_flight.is_none() {
            self.book.stalled = false;
            self.printer.note("the journal can be written again");
            self.feed(EventKind::JournalRecovered);
        }
    }

    /// The lines are kept and tried again; nothing new is started meanwhile.
    fn on_unwritable(&mut self, why: String) {
        if let Some((mut bytes, sync)) = self.book.in_flight.take() {
            bytes.append(&mut self.book.unsent);
            self.book.unsent = bytes;
            self.book.needs_sync |= sync;
        }
        self.book.retry_at = Some(self.now().after(RETRY));
        if !self.book.stalled {
            self.book.stalled = true;
            self.printer
                .note(&format!("{why}: the training goes on, nothing new is started"));
            self.feed(EventKind::JournalStalled { why });
        }
    }

    /// Without its lane the journal cannot be written: another one goes on where that one was. Lines whose fate is
    /// unknown are sent again; a reader skips what it has seen.
    fn store_lane_died(&mut self) {
        let was_in_flight = self.book.in_flight.is_some();
        self.on_unwritable("the helper that writes the journal died".to_owned());
        let Ok(mut fresh) = Lane::start(&self.exe, "journal") else {
            return;
        };
        let now = self.now();
        let lease_dir = super::start::lease_dir(&self.spec);
        let ask = Question::Adopt {
            run_dir: self.spec.run_dir.clone(),
            term: self.state.term,
            lease_dir,
        };
        fresh.ask(Tag::Setup, ask, now);
        self.store = fresh;
        if was_in_flight {
            self.book.retry_at = None;
        }
    }
}
