//! Journal records for display and for other programs: one flat object each.

use super::one_line;
use super::time::local_stamp;
use serde::Serialize;
use serde_json::{Map, Value};
use supervise_core::id::{ActId, Seq, Tick, WallMs};
use supervise_core::journal::record::JournalRecord;
use supervise_core::journal::{Body, LineHeader};

const WIDTH: usize = 400;

/// One record.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecordView {
    pub term: u32,
    /// Its number in the term's file, from 1.
    pub seq: Seq,
    /// When, in ms since 1970.
    pub wall: WallMs,
    /// When, in ms since the term started.
    pub tick: Tick,
    /// `fact.progress`, `decided.mark`, `intended.launch`, `ignored`.
    pub kind: String,
    /// Its content; `null` if the kind says everything.
    pub body: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub reasons: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub act: Option<ActId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
}

/// The records of a line in order, including kinds that this version does not know.
pub fn views(term: u32, line: &LineHeader, bodies: &[Body]) -> impl Iterator<Item = RecordView> {
    let numbered = bodies.iter().zip(line.seq.0..);
    numbered.map(move |(body, seq)| RecordView::of(term, line, Seq(seq), body))
}

impl RecordView {
    fn of(term: u32, line: &LineHeader, seq: Seq, (outer, body): &Body) -> Self {
        let mut fields = body.as_object().cloned().unwrap_or_default();
        let tick = fields.get("at").and_then(Value::as_u64).map_or(line.tick, Tick);
        let wall = fields.get("wall").and_then(Value::as_i64).map_or(line.wall, WallMs);
        let mut out = Self {
            term,
            seq,
            wall,
            tick,
            kind: outer.clone(),
            body: Value::Null,
            reasons: fields.remove("reasons").unwrap_or_default(),
            act: None,
            attempt: None,
        };
        let inner = match outer.as_str() {
            "fact" => fields.remove("kind"),
            "decided" => fields.remove("what"),
            "intended" => out.act_of(fields.remove("act")),
            _ => None,
        };
        match inner {
            Some(inner) => {
                let (name, content) = tagged(inner);
                out.kind = format!("{outer}.{name}");
                out.body = content;
            }
            None => {
                fields.remove("at");
                out.body = match body {
                    Value::Object(_) => Value::Object(fields),
                    other => other.clone(),
                };
            }
        }
        out
    }

    fn act_of(&mut self, act: Option<Value>) -> Option<Value> {
        let mut act: Map<String, Value> = act?.as_object().cloned()?;
        self.act = act.get("id").and_then(Value::as_u64).map(ActId);
        let attempt = act.get("attempt").and_then(Value::as_u64);
        self.attempt = attempt.and_then(|n| u32::try_from(n).ok());
        act.remove("kind")
    }

    /// Returns true if its kind matches: `fact.progress`, `progress` or `fact`.
    #[must_use]
    pub fn is(&self, kind: &str) -> bool {
        self.kind == kind || self.kind.split_once('.').is_some_and(|(a, b)| a == kind || b == kind)
    }

    /// One line: time, location, kind, content.
    #[must_use]
    pub fn text(&self) -> String {
        let body = match &self.body {
            Value::Null => String::new(),
            body => format!("  {body}"),
        };
        let first = self.reasons.get(0).and_then(|r| r.get("text")).and_then(Value::as_str);
        let why = first.map(|why| format!("  because {why}")).unwrap_or_default();
        let line = format!(
            "{}  {}:{}  {}{why}{body}",
            local_stamp(self.wall),
            self.term,
            self.seq,
            self.kind
        );
        one_line(&line, WIDTH)
    }
}

/// The kind of a record: `fact.progress`, `decided.mark`, `intended.launch`, `ignored`.
#[must_use]
pub fn kind(r: &JournalRecord) -> String {
    let (outer, mut body) = tagged(serde_json::to_value(r).unwrap_or_default());
    let inner = match r {
        JournalRecord::Fact(_) => body["kind"].take(),
        JournalRecord::Decided { .. } => body["what"].take(),
        JournalRecord::Intended { .. } => body["act"]["kind"].take(),
        JournalRecord::Ignored { .. } => return outer,
    };
    format!("{outer}.{}", tagged(inner).0)
}

/// Splits a serialized enum into variant name and content.
fn tagged(value: Value) -> (String, Value) {
    match value {
        Value::String(name) => (name, Value::Null),
        Value::Object(map) => map.into_iter().next().unwrap_or_default(),
        other => (String::new(), other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise_core::event::{Event, EventKind};
    use supervise_core::id::{AttemptNo, Step, Term};
    use supervise_core::journal::reason::Reason;
    use supervise_core::journal::record::{Act, ActKind, Decision, JournalRecord};
    use supervise_core::journal::{bodies, encode_all, seal};

    fn read(line: &[u8]) -> Vec<RecordView> {
        let (line, bodies) = bodies(line.strip_suffix(b"\n").unwrap()).unwrap();
        views(3, &line, &bodies).collect()
    }

    #[test]
    fn records_of_a_moment_are_numbered_and_flat() {
        let (at, wall) = (Tick(7), WallMs(1_795_219_200_000));
        let records = [
            JournalRecord::Fact(Event {
                at,
                wall,
                entropy: 0,
                kind: EventKind::IoRecovered,
            }),
            JournalRecord::Decided {
                at,
                what: Decision::Mark { step: Step(4) },
                reasons: vec![Reason::new("proven", "every byte was read")],
            },
            JournalRecord::Intended {
                at,
                act: Act {
                    id: ActId(9),
                    term: Term(3),
                    attempt: Some(AttemptNo(2)),
                    kind: ActKind::KillTree,
                },
                reasons: vec![],
            },
            JournalRecord::Ignored {
                at,
                what: "x".to_owned(),
                why: "late".to_owned(),
            },
        ];
        let views = read(&encode_all(Seq(5), at, wall, &records).unwrap());
        assert!(
            views
                .iter()
                .zip(&records)
                .all(|(view, record)| view.kind == kind(record))
        );
        let kinds: Vec<(u64, &str)> = views.iter().map(|v| (v.seq.0, v.kind.as_str())).collect();
        let expected = [
            (5, "fact.lane_recovered"),
            (6, "decided.mark"),
            (7, "intended.kill_tree"),
            (8, "ignored"),
        ];
        assert_eq!(kinds, expected);
        assert_eq!(views[1].body, serde_json::json!({"step": 4}));
        assert_eq!((views[2].act, views[2].attempt), (Some(ActId(9)), Some(2)));
        assert_eq!(views[3].body, serde_json::json!({"what": "x", "why": "late"}));
        assert!(views[1].is("mark") && views[1].is("decided") && views[1].is("decided.mark") && !views[1].is("fact"));
        let text = views[1].text();
        assert_eq!(
            text,
            "2026-11-21T00:00:00Z  3:6  decided.mark  because every byte was read  {\"step\":4}"
        );
    }

    #[test]
    fn a_kind_of_a_newer_version_is_shown_as_it_stands() {
        let line = seal(br#"{"v":2,"seq":1,"tick":2,"wall":3,"foreseen":{"what":{"rain":1}}}"#.to_vec());
        let views = read(&line);
        assert_eq!(views[0].kind, "foreseen");
        assert_eq!(views[0].body, serde_json::json!({"what": {"rain": 1}}));
    }
}
