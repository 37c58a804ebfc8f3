//! A line as this version writes it, turned into records in one pass and without a detour over JSON values: a journal of a year is read
//! at every look at a run.
//!
//! Only the exact shape that is written is taken: fields in their order, kinds that are known. Anything else is `None` and goes the long
//! way, which reads every version; what this way reads is what that one would.

use super::{Line, VERSION};
use crate::event::{Event, EventKind};
use crate::id::{Seq, Tick, WallMs};
use crate::reason::Reason;
use crate::record::{Act, Decision, Record};
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A line mostly holds fewer records.
const FEW: usize = 4;

/// The line and its records; `None`: it is not as this version writes it.
pub(super) fn read(line: &[u8]) -> Option<(Line, Vec<Record>)> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let read = json.deserialize_map(Whole).ok()?;
    json.end().ok()?;
    Some(read)
}

/// The times of a line, which its records have where they have no others.
#[derive(Clone, Copy)]
struct Moment {
    tick: Tick,
    wall: WallMs,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Field {
    V,
    Seq,
    Tick,
    Wall,
    Then,
    Crc,
    Fact,
    Decided,
    Intended,
    Ignored,
}

struct Whole;

impl<'de> Visitor<'de> for Whole {
    type Value = (Line, Vec<Record>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a line of this version")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let v: u32 = next(&mut map, Field::V)?;
        if v != VERSION {
            return Err(A::Error::custom("another version"));
        }
        let seq: Seq = next(&mut map, Field::Seq)?;
        let tick: Tick = next(&mut map, Field::Tick)?;
        let wall: WallMs = next(&mut map, Field::Wall)?;
        let moment = Moment { tick, wall };
        let kind = map.next_key()?.ok_or_else(|| A::Error::custom("no record"))?;
        let mut records = vec![map.next_value_seed(Body(kind, moment))?];
        let mut then = map.next_key::<Field>()?;
        if then == Some(Field::Then) {
            map.next_value_seed(Then(&mut records, moment))?;
            then = map.next_key()?;
        }
        if then != Some(Field::Crc) {
            return Err(A::Error::custom("no checksum"));
        }
        map.next_value::<&str>()?;
        if map.next_key::<Field>()?.is_some() {
            return Err(A::Error::custom("more than a line"));
        }
        let line = Line {
            v,
            seq,
            tick,
            wall,
            count: records.len(),
        };
        Ok((line, records))
    }
}

/// The value of the field that comes next, which has to be this one.
fn next<'de, A: MapAccess<'de>, T: Deserialize<'de>>(map: &mut A, field: Field) -> Result<T, A::Error> {
    match map.next_key::<Field>()? {
        Some(found) if found == field => map.next_value(),
        _ => Err(A::Error::custom("another field")),
    }
}

/// Records of the same moment, each by the name of its kind.
struct Then<'a>(&'a mut Vec<Record>, Moment);

impl<'de> DeserializeSeed<'de> for Then<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Then<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("records")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(record) = seq.next_element_seed(One(self.1))? {
            // Mostly one more or two: room for more than there are would cost more than they do.
            if self.0.len() < FEW {
                self.0.reserve_exact(1);
            }
            self.0.push(record);
        }
        Ok(())
    }
}

struct One(Moment);

impl<'de> DeserializeSeed<'de> for One {
    type Value = Record;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Record, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for One {
    type Value = Record;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one record")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
        let kind = map.next_key()?.ok_or_else(|| A::Error::custom("no record"))?;
        let record = map.next_value_seed(Body(kind, self.0))?;
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

/// A record of a kind, with the times of its line where it tells none.
struct Body(Field, Moment);

#[derive(Deserialize)]
struct Decided {
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

impl<'de> DeserializeSeed<'de> for Body {
    type Value = Record;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Record, D::Error> {
        let tick = self.1.tick;
        Ok(match self.0 {
            Field::Fact => Record::Fact(d.deserialize_any(Fact(self.1))?),
            Field::Decided => {
                let Decided { at, what, reasons } = Decided::deserialize(d)?;
                let at = at.unwrap_or(tick);
                Record::Decided { at, what, reasons }
            }
            Field::Intended => {
                let Intended { at, act, reasons } = Intended::deserialize(d)?;
                let at = at.unwrap_or(tick);
                Record::Intended { at, act, reasons }
            }
            Field::Ignored => {
                let Ignored { at, what, why } = Ignored::deserialize(d)?;
                let at = at.unwrap_or(tick);
                Record::Ignored { at, what, why }
            }
            _ => return Err(D::Error::custom("no kind of a record")),
        })
    }
}

/// An event: by its name alone, what happened alone, or with times of its own.
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
                    let kind = EventKind::deserialize(MapAccessDeserializer::new(Named(Some(name), &mut map)))?;
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

/// A map of which the first key was read already.
struct Named<'a, 'de, A>(Option<&'de str>, &'a mut A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Named<'_, 'de, A> {
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
