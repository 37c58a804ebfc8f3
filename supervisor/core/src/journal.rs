//! Lines of the journal: one JSON object per line, with a checksum over the rest of it.
//!
//! Format version 2: `{"v":2,"seq":N,"tick":ms,"wall":ms,"fact":{…},"then":[{"decided":{…}},…],"crc":"xxxxxxxx"}`;
//! `fact` may also be `decided`, `intended` or `ignored`. `then` contains the further records of the same moment, which
//! are numbered consecutively; they are written together with the line or not at all. A record's own times are omitted
//! if they equal the line's. Version 1 wrote them twice, and `"kind":"fact","body":{…}`; it can still be read. A torn
//! last line is normal and is cut off. A reader shows kinds it does not know and continues; a damaged line in the
//! middle of a file is reported and skipped. A newer release may add fields without a new version.

mod fast_parse;
pub mod reason;
pub mod record;
mod seal;

use seal::{Broken, sealed};
pub use seal::{seal, unseal};

use crate::id::{Seq, Tick, WallMs};
use crate::journal::record::JournalRecord;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Format version that this program writes.
pub const VERSION: u32 = 2;

/// Header of a line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineHeader {
    pub v: u32,
    /// Number of its first record in the term's file, from 1.
    pub seq: Seq,
    /// Term clock in ms.
    pub tick: Tick,
    /// Wall clock in ms since 1970.
    pub wall: WallMs,
    /// Number of records in it, including those of unknown kinds.
    pub count: usize,
}

/// A record's kind (`fact`, `decided`, `intended`, `ignored`), and its content.
pub type Body = (String, Value);

impl LineHeader {
    /// Number of its last record.
    #[must_use]
    pub fn last(&self) -> Seq {
        Seq(self.seq.0.saturating_add((self.count as u64).saturating_sub(1)))
    }
}

/// A line after parsing.
#[derive(Debug, Clone, PartialEq)]
pub enum ParsedLine {
    /// The records of known kinds; fewer than the header counts if a newer version wrote the line.
    Known(LineHeader, Vec<JournalRecord>),
    /// A whole line that contains no record this version knows.
    Unknown(LineHeader),
    /// A line of a newer format version: that version, and the header if it can be read.
    Newer(u64, Option<LineHeader>),
    /// Not a whole line: torn or damaged.
    Damaged(String),
}

/// Encodes one record as a line, newline included.
///
/// # Errors
/// A record that JSON cannot express (none is known).
pub fn encode(seq: Seq, tick: Tick, wall: WallMs, record: &JournalRecord) -> Result<Vec<u8>, serde_json::Error> {
    encode_all(seq, tick, wall, std::slice::from_ref(record))
}

/// Encodes the records of one moment as a line, newline included; the first one has the number `seq`.
///
/// # Errors
/// A record that JSON cannot express (none is known).
pub fn encode_all(seq: Seq, tick: Tick, wall: WallMs, records: &[JournalRecord]) -> Result<Vec<u8>, serde_json::Error> {
    let (number, at, of) = (seq.0, tick.0, wall.0);
    let mut line = format!(r#"{{"v":{VERSION},"seq":{number},"tick":{at},"wall":{of}"#);
    for (n, record) in records.iter().enumerate() {
        line.push_str(match n {
            0 => ",",
            1 => r#","then":[{"#,
            _ => ",{",
        });
        line.push_str(&named(tick, wall, record)?);
        if n > 0 {
            line.push('}');
        }
    }
    line.push_str(if records.len() > 1 { "]}" } else { "}" });
    Ok(seal(line.into_bytes()))
}

/// A record as a field named after its kind, without the times that the line has.
fn named(tick: Tick, wall: WallMs, record: &JournalRecord) -> Result<String, serde_json::Error> {
    let (kind, mut body) = match serde_json::to_value(record)? {
        Value::Object(map) => map.into_iter().next().unwrap_or_default(),
        other => ("unknown".to_owned(), other),
    };
    if let Value::Object(fields) = &mut body {
        let own = times(tick, wall);
        fields.retain(|name, time| !own.iter().any(|(n, t)| n == name && t == time));
        if kind == FACT
            && fields.len() == 1
            && let Some(what) = fields.remove(WHAT)
        {
            body = what;
        }
    }
    Ok(format!("{}:{}", Value::String(kind), serde_json::to_string(&body)?))
}

const FACT: &str = "fact";
/// The field of a fact that says what happened.
const WHAT: &str = "kind";

fn times(tick: Tick, wall: WallMs) -> [(&'static str, Value); 2] {
    [("at", tick.0.into()), ("wall", wall.0.into())]
}

/// A line as written: what is not its header is the record.
#[derive(Deserialize)]
struct RawLine {
    v: u32,
    seq: Seq,
    tick: Tick,
    wall: WallMs,
    #[serde(default)]
    then: Vec<Map<String, Value>>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl RawLine {
    /// The kind of a record, and the record with all omitted fields restored.
    fn record(&self, mut rest: Map<String, Value>) -> Option<Body> {
        if let (Some(Value::String(kind)), Some(body)) = (rest.get(WHAT), rest.get("body")) {
            return Some((kind.clone(), body.clone()));
        }
        // A newer release may have added fields.
        let ours = |kind: &&String| matches!(kind.as_str(), FACT | "decided" | "intended" | "ignored");
        let kind = rest.keys().find(ours).or_else(|| rest.keys().next())?.clone();
        let mut body = rest.remove(&kind)?;
        if kind == FACT && body.get(WHAT).is_none() {
            body = Value::Object(Map::from_iter([(WHAT.to_owned(), body)]));
        }
        if let Value::Object(fields) = &mut body {
            // Only facts have a wall clock of their own.
            let told = times(self.tick, self.wall).into_iter();
            for (name, time) in told.filter(|(name, _)| *name == "at" || kind == FACT) {
                fields.entry(name).or_insert(time);
            }
        }
        Some((kind, body))
    }

    fn line(mut self) -> Option<(LineHeader, Vec<Body>)> {
        let first = std::mem::take(&mut self.rest);
        let all = [first].into_iter().chain(std::mem::take(&mut self.then));
        let bodies: Vec<Body> = all.map(|rest| self.record(rest)).collect::<Option<_>>()?;
        let line = LineHeader {
            v: self.v,
            seq: self.seq,
            tick: self.tick,
            wall: self.wall,
            count: bodies.len(),
        };
        Some((line, bodies))
    }
}

/// Parses a line of any version (without its newline) into JSON, including records of kinds that this version does not
/// know.
///
/// # Errors
/// Why the line is not one of a journal, as text.
pub fn bodies(line: &[u8]) -> Result<(LineHeader, Vec<Body>), String> {
    let written: RawLine = serde_json::from_slice(&unseal(line)?).map_err(|e| e.to_string())?;
    Ok(written.line().ok_or("it holds no record")?)
}

/// CRC-32 of the bytes.
#[must_use]
pub fn sum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Decodes one line (without its newline).
#[must_use]
pub fn decode(line: &[u8]) -> ParsedLine {
    let open = match sealed(line) {
        Ok(open) => open,
        Err(Broken::Changed) => return ParsedLine::Damaged(Broken::Changed.words().to_owned()),
        Err(why) => {
            return newer_version(line).map_or_else(
                || ParsedLine::Damaged(why.words().to_owned()),
                |v| ParsedLine::Newer(v, None),
            );
        }
    };
    match fast_parse::read(open) {
        Some((line, records)) => ParsedLine::Known(line, records),
        None => match newer_version(line) {
            Some(v) => ParsedLine::Newer(v, bodies(line).ok().map(|(line, _)| line)),
            None => decode_any(line),
        },
    }
}

/// The format version of a line that is newer than this program's. The way its checksum is written may have changed
/// too, so a line is damaged only if its checksum is there and does not match.
fn newer_version(line: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Versioned {
        v: u64,
    }
    let v = serde_json::from_slice::<Versioned>(line).ok()?.v;
    (v > u64::from(VERSION)).then_some(v)
}

fn decode_any(line: &[u8]) -> ParsedLine {
    let (line, bodies) = match bodies(line) {
        Ok(read) => read,
        Err(why) => return ParsedLine::Damaged(why),
    };
    // Converts through text: a second deserializer for all records, used only for other versions, would be a thirtieth
    // of the binary.
    let record =
        |(kind, body): Body| serde_json::from_slice(&serde_json::to_vec(&Map::from_iter([(kind, body)])).ok()?).ok();
    let records: Vec<JournalRecord> = bodies.into_iter().filter_map(record).collect();
    match records.is_empty() {
        true => ParsedLine::Unknown(line),
        false => ParsedLine::Known(line, records),
    }
}

/// Content of a term's file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ParsedJournal {
    pub lines: Vec<(LineHeader, Vec<JournalRecord>)>,
    /// Number of lines with a record of an unknown kind or of a newer format version.
    pub unknown: u32,
    /// Damaged lines in the middle (number from 1, reason).
    pub damaged: Vec<(u64, String)>,
    /// Bytes up to the last newline; damaged lines count. A torn tail follows.
    pub whole: u64,
}

/// Counts the lines of a term's file and drops duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JournalReader {
    pub number: u64,
    /// Number of the newest record.
    pub last: Seq,
}

impl JournalReader {
    /// Decodes the next line (without its newline); `None` if it is a duplicate.
    pub fn next(&mut self, line: &[u8]) -> Option<ParsedLine> {
        Some(decode(line)).filter(|read| self.is_new(read))
    }

    /// Notes the next line, which was decoded elsewhere. Returns false if it is a duplicate.
    pub fn is_new(&mut self, read: &ParsedLine) -> bool {
        self.number = self.number.saturating_add(1);
        if let ParsedLine::Known(l, _) = read {
            // A writer repeats lines if it does not know whether they were written. The first copy counts.
            if l.seq <= self.last {
                return false;
            }
            self.last = l.last();
        }
        true
    }
}

/// Reads a term's file.
#[must_use]
pub fn read(bytes: &[u8]) -> ParsedJournal {
    let mut out = ParsedJournal::default();
    let mut at = 0usize;
    let mut lines = JournalReader::default();
    while let Some(len) = memchr::memchr(b'\n', &bytes[at..]) {
        let line = &bytes[at..at + len];
        at += len + 1;
        match lines.next(line) {
            None => {}
            Some(ParsedLine::Known(l, r)) => {
                out.unknown += u32::from(r.len() < l.count);
                out.lines.push((l, r));
            }
            Some(ParsedLine::Unknown(_) | ParsedLine::Newer(..)) => out.unknown += 1,
            // A damaged line: skip and report it.
            Some(ParsedLine::Damaged(why)) => out.damaged.push((lines.number, why)),
        }
        out.whole = at as u64;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, EventKind};
    use crate::id::Ms;
    use crate::journal::record::Decision;

    fn line(seq: u64) -> Vec<u8> {
        let record = JournalRecord::Decided {
            at: Tick(seq),
            what: Decision::Choose,
            reasons: Vec::new(),
        };
        encode(Seq(seq), Tick(seq), WallMs(5), &record).unwrap()
    }

    #[test]
    fn a_line_survives_the_trip_and_any_flip_is_noticed() {
        let whole = line(3);
        let text = &whole[..whole.len() - 1];
        assert!(matches!(decode(text), ParsedLine::Known(l, _) if l.seq == Seq(3)));
        for at in 0..text.len() {
            let mut bad = text.to_vec();
            bad[at] ^= 1;
            assert!(
                !matches!(decode(&bad), ParsedLine::Known(..)),
                "flip at {at} went unnoticed"
            );
        }
    }

    #[test]
    fn a_record_is_read_back_whether_its_times_are_the_lines_or_not() {
        let kinds = [
            EventKind::IoRecovered,
            EventKind::IoStalled { what: "x".into() },
            EventKind::TimeGap { missing: Ms(3) },
        ];
        for (at, wall, kind) in [(3, 5), (4, 5), (3, 6)]
            .iter()
            .flat_map(|(a, w)| kinds.iter().map(move |k| (*a, *w, k)))
        {
            let fact = JournalRecord::Fact(Event {
                at: Tick(at),
                wall: WallMs(wall),
                entropy: 0,
                kind: kind.clone(),
            });
            let line = encode(Seq(1), Tick(3), WallMs(5), &fact).unwrap();
            let read = decode(&line[..line.len() - 1]);
            assert!(
                matches!(read, ParsedLine::Known(_, r) if *r == [fact.clone()]),
                "{line:?}"
            );
        }
        let own = JournalRecord::Decided {
            at: Tick(9),
            what: Decision::Choose,
            reasons: Vec::new(),
        };
        let line = encode(Seq(1), Tick(3), WallMs(5), &own).unwrap();
        assert!(matches!(decode(&line[..line.len() - 1]), ParsedLine::Known(_, r) if *r == [own]));
    }

    #[test]
    fn a_line_says_its_times_once_and_a_line_that_said_them_twice_is_read() {
        let short = String::from_utf8(line(7)).unwrap();
        assert_eq!(short.matches('7').count(), 2, "{short}");
        let long = br#"{"v":1,"seq":7,"term":1,"tick":7,"wall":5,"kind":"decided","body":{"at":7,"what":"choose","reasons":[]}}"#;
        let long = seal(long.to_vec());
        let record = |l: &[u8]| match decode(&l[..l.len() - 1]) {
            ParsedLine::Known(line, records) => Some((line.count, records)),
            _ => None,
        };
        assert!(record(&long).is_some());
        assert_eq!(record(&long), record(short.as_bytes()));
        let told = |l: &[u8]| bodies(&l[..l.len() - 1]).unwrap().1;
        assert_eq!(told(&long), told(short.as_bytes()));
        let newer = seal(br#"{"v":3,"seq":7,"tick":7,"wall":5,"guessed":{"what":"choose"}}"#.to_vec());
        assert!(matches!(decode(&newer[..newer.len() - 1]), ParsedLine::Newer(3, Some(l)) if l.count == 1));
        assert_eq!(told(&newer)[0].0, "guessed");
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        let whole = seal(br#"{"v":7,"what":"nobody knows"}"#.to_vec());
        let whole = &whole[..whole.len() - 1];
        assert_eq!(decode(whole), ParsedLine::Newer(7, None));
        assert_eq!(
            decode(br#"{"v":7,"sum":"of another kind"}"#),
            ParsedLine::Newer(7, None)
        );
        assert_eq!(
            decode(br#"{"v":18446744073709551615}"#),
            ParsedLine::Newer(u64::MAX, None)
        );
        let older = seal(br#"{"v":1,"seq":7,"tick":7,"wall":5,"guessed":{}}"#.to_vec());
        assert!(matches!(decode(&older[..older.len() - 1]), ParsedLine::Unknown(_)));
        // A flipped bit turns a 2 into a 3, which the checksum reveals.
        let mut flipped = line(1);
        flipped[5] ^= 1;
        assert!(flipped.starts_with(br#"{"v":3"#));
        for damaged in [
            &flipped[..flipped.len() - 1],
            b"",
            b"{}",
            br#"{"v":2}"#,
            br#"{"v":"9"}"#,
            br#"{"v":-9}"#,
        ] {
            assert!(matches!(decode(damaged), ParsedLine::Damaged(_)), "{damaged:?}");
        }
    }

    #[test]
    fn what_was_recorded_in_one_moment_is_one_line_numbered_on() {
        let decided = |at| JournalRecord::Decided {
            at: Tick(at),
            what: Decision::Choose,
            reasons: Vec::new(),
        };
        let fact = JournalRecord::Fact(Event {
            at: Tick(3),
            wall: WallMs(5),
            entropy: 0,
            kind: EventKind::IoRecovered,
        });
        let all = [fact, decided(3), decided(3)];
        let group = encode_all(Seq(4), Tick(3), WallMs(5), &all).unwrap();
        let file = [line(3), group.clone(), group, line(6), line(7)].concat();
        let read = read(&file);
        let numbers: Vec<_> = read.lines.iter().map(|(l, r)| (l.seq.0, l.last().0, r.len())).collect();
        assert_eq!(numbers, [(3, 3, 1), (4, 6, 3), (7, 7, 1)]);
        assert_eq!(read.lines[1].1, all);
    }

    #[test]
    fn one_record_of_an_unknown_kind_hides_none_of_its_moment() {
        let known = r#"{"decided":{"what":"choose","reasons":[]}}"#;
        let odd = r#"{"guessed":{}}"#;
        let whole = format!(r#"{{"v":2,"seq":1,"tick":1,"wall":5,"fact":"lane_recovered","then":[{odd},{known}]}}"#);
        let read = read(&seal(whole.into_bytes()));
        let [(line, records)] = &*read.lines else {
            panic!("{read:?}")
        };
        assert_eq!((records.len(), line.last(), read.unknown), (2, Seq(3), 1));
    }

    #[test]
    fn a_torn_tail_is_cut_and_a_damaged_line_is_skipped() {
        let mut file = line(1);
        let second = file.len();
        file.extend(line(2));
        file[second + 10] ^= 0x40;
        file.extend(line(3));
        let whole = file.len() as u64;
        file.extend(&line(4)[..20]);
        let j = read(&file);
        assert_eq!(j.lines.len(), 2);
        assert_eq!(j.damaged.len(), 1);
        assert_eq!(j.whole, whole);
    }

    #[test]
    fn a_line_that_was_written_twice_counts_once() {
        let file = [line(1), line(2), line(2), line(3)].concat();
        let seqs: Vec<u64> = read(&file).lines.iter().map(|(l, _)| l.seq.0).collect();
        assert_eq!(seqs, [1, 2, 3]);
    }
}
