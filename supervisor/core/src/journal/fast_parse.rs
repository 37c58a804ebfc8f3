//! Parses a line as this version writes it into records, in one pass and without intermediate JSON values: every
//! command reads the whole journal, which may be a year long.
//!
//! Accepts only the exact form that is written: fields in order, no spaces, known kinds. Anything else gives `None` and
//! takes the slow path, which reads every version. Both paths give the same result.

use super::{LineHeader, VERSION};
use crate::event::{Event, EventKind};
use crate::id::{Seq, Tick, WallMs};
use crate::journal::reason::Reason;
use crate::journal::record::{Act, Decision, JournalRecord};
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Most lines contain fewer records.
const FEW: usize = 4;
/// Separates the first record of a line from the others of the same moment.
const THEN: &[u8] = br#","then":["#;

/// The header and records, from the line without its checksum; `None` if it is not as this version writes it.
pub(super) fn read(open: &[u8]) -> Option<(LineHeader, Vec<JournalRecord>)> {
    let (v, rest) = number(open.strip_prefix(br#"{"v":"#)?)?;
    if v != u64::from(VERSION) {
        return None;
    }
    let (seq, rest) = number(rest.strip_prefix(br#","seq":"#)?)?;
    let (tick, rest) = number(rest.strip_prefix(br#","tick":"#)?)?;
    let (wall, rest) = number(rest.strip_prefix(br#","wall":"#)?)?;
    let (tick, wall) = (Tick(tick), WallMs(i64::try_from(wall).ok()?));
    let moment = Moment { tick, wall };
    let first = rest.strip_prefix(br#",""#)?;
    let (kind, rest) = first.split_at(memchr::memchr(b'"', first)?);
    let kind = match kind {
        b"fact" => RecordTag::Fact,
        b"decided" => RecordTag::Decided,
        b"intended" => RecordTag::Intended,
        b"ignored" => RecordTag::Ignored,
        _ => return None,
    };
    let rest = rest.strip_prefix(br#"":"#)?;
    // Within a string its quotes would be escaped; within a record it would leave two halves that are not valid JSON.
    let then = memchr::memmem::find(rest, THEN);
    let (body, then) = rest.split_at(then.unwrap_or(rest.len()));
    let mut records = vec![whole(RecordBody(kind, moment), body)?];
    if let Some(then) = then.get(THEN.len() - 1..) {
        whole(BatchedRecords(&mut records, moment), then)?;
    }
    let line = LineHeader {
        v: VERSION,
        seq: Seq(seq),
        tick,
        wall,
        count: records.len(),
    };
    Some((line, records))
}

/// A nonnegative JSON integer at the start of a text, and the rest.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|b| !b.is_ascii_digit())?;
    let (digits, rest) = text.split_at(end);
    if digits.len() > 1 && digits.starts_with(b"0") {
        return None;
    }
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

/// Deserializes a text that must be a single value.
fn whole<'de, S: DeserializeSeed<'de>>(seed: S, text: &'de [u8]) -> Option<S::Value> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let value = seed.deserialize(&mut json).ok()?;
    json.end().ok()?;
    Some(value)
}

/// The times of a line, which its records inherit unless they have their own.
#[derive(Clone, Copy)]
struct Moment {
    tick: Tick,
    wall: WallMs,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordTag {
    Fact,
    Decided,
    Intended,
    Ignored,
}

/// The further records of the same moment, each keyed by its kind.
struct BatchedRecords<'a>(&'a mut Vec<JournalRecord>, Moment);

impl<'de> DeserializeSeed<'de> for BatchedRecords<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for BatchedRecords<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("records")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(record) = seq.next_element_seed(RecordSeed(self.1))? {
            // Usually there are one or two: reserving more would cost more than they do.
            if self.0.len() < FEW {
                self.0.reserve_exact(1);
            }
            self.0.push(record);
        }
        Ok(())
    }
}

struct RecordSeed(Moment);

impl<'de> DeserializeSeed<'de> for RecordSeed {
    type Value = JournalRecord;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<JournalRecord, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RecordSeed {
    type Value = JournalRecord;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one record")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JournalRecord, A::Error> {
        let kind = map.next_key()?.ok_or_else(|| A::Error::custom("no record"))?;
        let record = map.next_value_seed(RecordBody(kind, self.0))?;
        alone(&mut map)?;
        Ok(record)
    }
}

fn alone<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    match map.next_key::<&str>()? {
        None => Ok(()),
        Some(_) => Err(A::Error::custom("more than one record")),
    }
}

/// A record of a kind, with the times of its line as defaults.
struct RecordBody(RecordTag, Moment);

#[derive(Deserialize)]
struct DecidedBody {
    #[serde(default, deserialize_with = "told")]
    at: Option<Tick>,
    what: Decision,
    reasons: Vec<Reason>,
}

#[derive(Deserialize)]
struct Intended {
    #[serde(default, deserialize_with = "told")]
    at: Option<Tick>,
    act: Act,
    reasons: Vec<Reason>,
}

#[derive(Deserialize)]
struct Ignored {
    #[serde(default, deserialize_with = "told")]
    at: Option<Tick>,
    what: String,
    why: String,
}

fn told<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Tick>, D::Error> {
    Tick::deserialize(d).map(Some)
}

impl<'de> DeserializeSeed<'de> for RecordBody {
    type Value = JournalRecord;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<JournalRecord, D::Error> {
        let tick = self.1.tick;
        Ok(match self.0 {
            RecordTag::Fact => JournalRecord::Fact(d.deserialize_any(Fact(self.1))?),
            RecordTag::Decided => {
                let DecidedBody { at, what, reasons } = DecidedBody::deserialize(d)?;
                let at = at.unwrap_or(tick);
                JournalRecord::Decided { at, what, reasons }
            }
            RecordTag::Intended => {
                let Intended { at, act, reasons } = Intended::deserialize(d)?;
                let at = at.unwrap_or(tick);
                JournalRecord::Intended { at, act, reasons }
            }
            RecordTag::Ignored => {
                let Ignored { at, what, why } = Ignored::deserialize(d)?;
                let at = at.unwrap_or(tick);
                JournalRecord::Ignored { at, what, why }
            }
        })
    }
}

/// An event: its name alone, its kind alone, or with times of its own.
struct Fact(Moment);

impl<'de> Visitor<'de> for Fact {
    type Value = Event;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Event, E> {
        let named: StrDeserializer<'_, E> = name.into_deserializer();
        Ok(self.event(EventKind::deserialize(named)?))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Event, A::Error> {
        let mut event = None;
        let mut own = (self.0.tick, self.0.wall, 0);
        let mut key = map.next_key::<&str>()?;
        while let Some(name) = key {
            match name {
                "at" => own.0 = map.next_value()?,
                "wall" => own.1 = map.next_value()?,
                "entropy" => own.2 = map.next_value()?,
                "kind" => event = Some(map.next_value()?),
                name => {
                    let kind = EventKind::deserialize(MapAccessDeserializer::new(PeekedMap(Some(name), &mut map)))?;
                    alone(&mut map)?;
                    return Ok(self.event(kind));
                }
            }
            key = map.next_key()?;
        }
        Ok(Event {
            at: own.0,
            wall: own.1,
            entropy: own.2,
            kind: event.ok_or_else(|| A::Error::missing_field("kind"))?,
        })
    }
}

impl Fact {
    fn event(&self, kind: EventKind) -> Event {
        Event {
            at: self.0.tick,
            wall: self.0.wall,
            entropy: 0,
            kind,
        }
    }
}

/// A map whose first key was already read.
struct PeekedMap<'a, 'de, A>(Option<&'de str>, &'a mut A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for PeekedMap<'_, 'de, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        match self.0.take() {
            Some(name) => seed.deserialize(name.into_deserializer()).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.1.next_value_seed(seed)
    }
}
