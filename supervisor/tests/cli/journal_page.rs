//! The page of the journal's format is made from the types that are written: every kind of record, every field, with their comments.

use crate::docs::{keep_part, sources, top};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::fs;
use supervise_core::event::EventKind;
use supervise_core::journal::record::{ActKind, Decision, JournalRecord};

/// A field of a struct or of a variant.
#[derive(Debug, Clone)]
struct Field {
    name: String,
    of: String,
    doc: String,
    may_miss: bool,
}

#[derive(Debug, Clone)]
struct Variant {
    name: String,
    doc: String,
    /// The type it holds without a name for it.
    holds: Option<String>,
    fields: Vec<Field>,
}

#[derive(Debug, Clone)]
enum Item {
    Enum(String, Vec<Variant>),
    Struct(String, Vec<Field>),
    /// As its content.
    Transparent(String),
}

fn snake(name: &str) -> String {
    let mut out = String::new();
    for (at, c) in name.chars().enumerate() {
        if c.is_uppercase() && at > 0 {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

/// Comments and attributes before something.
#[derive(Debug, Default)]
struct Before {
    doc: String,
    attributes: String,
}

impl Before {
    fn take(&mut self, line: &str) -> bool {
        if let Some(doc) = line.strip_prefix("///") {
            let sep = if self.doc.is_empty() { "" } else { " " };
            self.doc.push_str(sep);
            self.doc.push_str(&doc.trim().replace("`None`", "null"));
            return true;
        }
        let is = line.starts_with("#[");
        if is {
            self.attributes.push_str(line);
        }
        is
    }

    fn name(&self, own: &str, kind: impl Fn(&str) -> String) -> String {
        let renamed = self
            .attributes
            .split_once("rename = \"")
            .and_then(|(_, r)| r.split_once('"'));
        renamed.map_or_else(|| kind(own), |(name, _)| name.to_owned())
    }
}

fn field(line: &str, before: &Before) -> Option<Field> {
    let line = line.strip_prefix("pub ").unwrap_or(line).strip_suffix(',')?;
    let (name, of) = line.split_once(": ")?;
    Some(Field {
        name: before.name(name, str::to_owned),
        of: of.to_owned(),
        doc: before.doc.clone(),
        may_miss: before.attributes.contains("default"),
    })
}

/// The lines of an item's body, up to its end.
fn body<'a>(lines: &mut impl Iterator<Item = &'a str>, indent: &str) -> Vec<&'a str> {
    let end = format!("{indent}}}");
    lines.take_while(|l| !l.trim_end_matches(',').eq(&end)).collect()
}

fn fields(lines: &[&str]) -> Vec<Field> {
    let mut before = Before::default();
    let mut out = Vec::new();
    for line in lines.iter().map(|l| l.trim()) {
        if !before.take(line) {
            let before = std::mem::take(&mut before);
            let is_kept = !before.attributes.contains("serde(skip)");
            out.extend(field(line, &before).filter(|_| is_kept));
        }
    }
    out
}

fn variants(lines: &[&str], kind: impl Fn(&str) -> String + Copy) -> Vec<Variant> {
    let mut before = Before::default();
    let mut out = Vec::new();
    let mut lines = lines.iter().copied();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if before.take(line) || line.is_empty() {
            continue;
        }
        let before = std::mem::take(&mut before);
        let own: String = line.chars().take_while(char::is_ascii_alphanumeric).collect();
        let rest = &line[own.len()..];
        let holds = rest
            .strip_prefix('(')
            .and_then(|r| r.strip_suffix("),"))
            .map(str::to_owned);
        let fields = if rest == " {" {
            fields(&body(&mut lines, "    "))
        } else {
            Vec::new()
        };
        out.push(Variant {
            name: before.name(&own, kind),
            doc: before.doc,
            holds,
            fields,
        });
    }
    out
}

#[track_caller]
fn add(all: &mut BTreeMap<String, Item>, name: &str, item: Item) {
    let before = all.insert(name.to_owned(), item);
    assert!(
        before.is_none(),
        "two types have the name {name}: the page cannot tell them apart"
    );
}

/// Every type that the core defines.
fn items() -> BTreeMap<String, Item> {
    let mut files = Vec::new();
    sources(&top().join("supervisor/core/src"), &mut files);
    let mut out = BTreeMap::new();
    files.sort();
    // The ledger is not written into a journal; a type of its has the name of another one.
    files.retain(|f| !f.components().any(|c| c.as_os_str() == "ledger"));
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        let mut before = Before::default();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if before.take(line) {
                continue;
            }
            let now = std::mem::take(&mut before);
            let kind = |name: &str| match now.attributes.contains("snake_case") {
                true => snake(name),
                false => name.to_owned(),
            };
            if !now.attributes.contains("Serialize") {
                continue;
            }
            if let Some(name) = line.strip_prefix("pub enum ").and_then(|r| r.strip_suffix(" {")) {
                let item = Item::Enum(now.doc.clone(), variants(&body(&mut lines, ""), kind));
                add(&mut out, name, item);
            } else if let Some(name) = line.strip_prefix("pub struct ").and_then(|r| r.strip_suffix(" {")) {
                let item = Item::Struct(now.doc.clone(), fields(&body(&mut lines, "")));
                add(&mut out, name, item);
            } else if let Some((name, of)) = line.strip_prefix("pub struct ").and_then(|r| r.split_once('(')) {
                let of = of.trim_end_matches(");").trim_start_matches("pub ");
                add(&mut out, name, Item::Transparent(of.to_owned()));
            }
        }
    }
    out
}

/// The parts of a list of types, at its own level.
fn parts(list: &str) -> Vec<&str> {
    let (mut depth, mut from, mut out) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth -= 1,
            ',' if depth == 0 => {
                out.push(list[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    out.push(list[from..].trim());
    out
}

/// A type as it stands in JSON, in words; named ones are still to be told.
fn words(of: &str, all: &BTreeMap<String, Item>, named: &mut Vec<String>) -> String {
    let inner = |prefix: &str| of.strip_prefix(prefix).and_then(|r| r.strip_suffix('>'));
    let mut again = |of: &str| words(of, all, named);
    if let Some(of) = inner("Option<") {
        return format!("{} or null", again(of));
    }
    if let Some(of) = inner("Vec<").or(inner("VecDeque<")) {
        return format!("list of {}", again(of));
    }
    if let Some(of) = inner("Box<") {
        return again(of);
    }
    if let Some(of) = inner("BTreeMap<").or(inner("Map<")) {
        return format!("object of {}", again(parts(of)[1]));
    }
    if let Some(of) = inner("Result<") {
        let [yes, no] = parts(of).try_into().unwrap();
        return format!("{{\"Ok\": {}}} or {{\"Err\": {}}}", again(yes), again(no));
    }
    if let Some(list) = of.strip_prefix('(').and_then(|r| r.strip_suffix(')')) {
        let each: Vec<String> = parts(list).into_iter().map(&mut again).collect();
        return format!("[{}]", each.join(", "));
    }
    match of {
        "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" => "integer".to_owned(),
        "Step" | "Term" | "Tick" | "Ms" | "Seq" | "AttemptNo" | "WorkerId" | "ActId" | "Rank" => "integer".to_owned(),
        "f64" => "number".to_owned(),
        // Its own form: JSON knows no infinity.
        "MetricValue" => "number, or `nan`, `inf`, `-inf` as a string".to_owned(),
        "bool" => "boolean".to_owned(),
        "String" | "Utf8PathBuf" | "TrainerKind" | "FailureClass" | "RuleId" | "Cow<'static, str>" => {
            "string".to_owned()
        }
        "Value" => "anything".to_owned(),
        "RawFields" => "object of anything".to_owned(),
        name => match all.get(name) {
            Some(Item::Transparent(of)) => again(of),
            Some(_) => {
                named.push(name.to_owned());
                format!("[{name}](#{})", name.to_lowercase())
            }
            None => panic!("the page does not know the type {name}"),
        },
    }
}

/// Lines of about this length, the further ones indented.
fn wrapped(text: &str, indent: &str, out: &mut String) {
    let mut length = 0;
    for (at, word) in text.split(' ').enumerate() {
        if at > 0 && length + word.len() > 148 {
            let _ = write!(out, "\n{indent}{word}");
            length = indent.len() + word.len();
        } else {
            let sep = if at > 0 { " " } else { "" };
            let _ = write!(out, "{sep}{word}");
            length += word.len() + 1;
        }
    }
    out.push('\n');
}

struct Page {
    all: BTreeMap<String, Item>,
    told: BTreeSet<String>,
    next: VecDeque<String>,
    text: String,
}

impl Page {
    fn words(&mut self, of: &str) -> String {
        let mut named = Vec::new();
        let out = words(of, &self.all, &mut named);
        self.next.extend(named);
        out
    }

    fn fields(&mut self, fields: &[Field], indent: &str) {
        for f in fields {
            let miss = if f.may_miss { ", may be missing" } else { "" };
            let of = self.words(&f.of);
            let line = format!("{indent}- `{}`: {of}{miss}. {}", f.name, f.doc);
            wrapped(&line, &format!("{indent}  "), &mut self.text);
        }
    }

    fn variants(&mut self, name: &str, before: &str) {
        let Some(Item::Enum(_, variants)) = self.all.get(name).cloned() else {
            panic!("{name} is no enum");
        };
        for v in variants {
            let holds = v.holds.as_ref().map(|of| format!(" Holds {}.", self.words(of)));
            let holds = holds.unwrap_or_default();
            let line = format!("- `{before}{}`: {}{holds}", v.name, v.doc);
            wrapped(&line, "  ", &mut self.text);
            self.fields(&v.fields, "  ");
        }
    }

    fn types(&mut self) {
        while let Some(name) = self.next.pop_front() {
            if !self.told.insert(name.clone()) {
                continue;
            }
            match self.all.get(&name).cloned() {
                Some(Item::Struct(doc, fields)) => {
                    let _ = write!(self.text, "\n### {name}\n\n");
                    wrapped(&doc, "", &mut self.text);
                    self.text.push('\n');
                    self.fields(&fields, "");
                }
                Some(Item::Enum(doc, _)) => {
                    let _ = write!(self.text, "\n### {name}\n\n");
                    wrapped(&doc, "", &mut self.text);
                    self.text.push('\n');
                    self.variants(&name, "");
                }
                _ => {}
            }
        }
    }
}

/// The names of an enum's variants, as its own reader knows them.
fn known<T: serde::de::DeserializeOwned>() -> BTreeSet<String> {
    let odd = serde_json::json!({"no such variant": null});
    let Err(e) = serde_json::from_value::<T>(odd) else {
        panic!("a variant that is none was read");
    };
    let text = e.to_string();
    let (_, list) = text.split_once("expected one of ").unwrap();
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_kind_of_record_and_every_field_is_on_the_page() {
    let mut page = Page {
        all: items(),
        told: BTreeSet::new(),
        next: VecDeque::new(),
        text: String::new(),
    };
    page.text.push_str("\n## Facts\n\n");
    page.variants("EventKind", "fact.");
    page.text.push_str("\n## Decisions\n\n");
    page.variants("Decision", "decided.");
    page.text.push_str("\n## Intents\n\n");
    page.variants("ActKind", "intended.");
    page.text.push_str("\n## Types\n");
    page.next.push_front("Reason".to_owned());
    page.types();
    page.text.push('\n');
    let listed = |before: &str| -> BTreeSet<String> {
        let lines = page
            .text
            .lines()
            .filter_map(|l| l.strip_prefix("- `")?.strip_prefix(before));
        lines.filter_map(|l| Some(l.split_once('`')?.0.to_owned())).collect()
    };
    assert_eq!(listed("fact."), known::<EventKind>());
    assert_eq!(listed("decided."), known::<Decision>());
    assert_eq!(listed("intended."), known::<ActKind>());
    let outer: BTreeSet<String> = ["fact", "decided", "intended", "ignored"].map(str::to_owned).into();
    assert_eq!(outer, known::<JournalRecord>());
    keep_part("docs/journal.md", "kinds", &page.text);
}
