//! Build script: checks the rulebook in `rules/` and compiles it into a table. A mistake in a rule fails the build, and nothing is parsed
//! at run time.

#![expect(clippy::disallowed_methods, reason = "a build script reads its sources")]
#![expect(clippy::print_stderr, reason = "cargo shows it")]

#[path = "src/rulebook/action.rs"]
#[expect(unreachable_pub, reason = "the core exports it")]
mod answer;
#[path = "src/rulebook/taxonomy/nature.rs"]
#[expect(dead_code, unreachable_pub, reason = "the core uses the rest")]
mod nature;

use answer::FailureAction;
use nature::{FailureKind, SecondSignal, Weight};
use regex_syntax::ParserBuilder;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// Rule files in order of precedence: if patterns of two classes match a line, the earlier class wins.
const FILES: [&str; 8] = [
    "gpu",
    "node",
    "sched",
    "host",
    "checkpoint",
    "program",
    "runtime",
    "comm",
];

/// Durations of five minutes and more, in seconds, minutes and hours.
const LONG: [&str; 3] = [
    r"(?:[3-9]\d\d|\d{4,}|\d{1,3},\d{3})(?:\.\d+)? ?(?:s\b|sec\w*)",
    r"(?:[5-9]|\d{2,})(?:\.\d+)? ?min(?:utes?|s)?\b",
    r"\d+(?:\.\d+)? ?h(?:ours?|rs?)?\b",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    class: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    code: String,
    meaning: String,
    kind: FailureKind,
    action: Option<String>,
    supervised_action: Option<String>,
    #[serde(default)]
    pause_s: u64,
    tier: Option<Weight>,
    #[serde(default)]
    blames_checkpoint: bool,
    #[serde(default = "yes")]
    costs_retry: bool,
    advice: String,
    told_by: Option<String>,
    ends_after: Option<Ends>,
    #[serde(default)]
    refinements: Vec<Refined>,
    #[serde(default)]
    examples: Vec<String>,
    #[serde(default)]
    lookalikes: Vec<String>,
    #[serde(default)]
    xid: Vec<u32>,
    #[serde(default)]
    lines: Vec<Line>,
    #[serde(default)]
    errors: Vec<String>,
}

/// A number of times, or the word `retries`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Ends {
    Times(u32),
    Word(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refined {
    when: SecondSignal,
    class: Option<String>,
    action: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    holds: String,
    #[serde(default)]
    regex: String,
    /// Regexes before and after a wait of five minutes or more. The first must not consume a digit of the number.
    long_wait: Option<[String; 2]>,
}

fn yes() -> bool {
    true
}

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=rules");
    match compile() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn compile() -> Result<(), Box<dyn Error>> {
    let known = FILES.map(|name| format!("{name}.toml"));
    for entry in std::fs::read_dir("rules")? {
        let name = entry?.file_name();
        if !known.iter().any(|known| name == **known) {
            return Err(format!("rules/{}: FILES in build.rs does not name this file", name.display()).into());
        }
    }
    let mut table = String::from("[\n");
    let mut codes = BTreeSet::new();
    let mut classes = String::new();
    let mut examples = String::from("[\n");
    let mut families: Vec<String> = Vec::new();
    for path in known.map(|name| format!("rules/{name}")) {
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        let file: File = toml::from_str(&text).map_err(|e| format!("{path}: {e}"))?;
        for entry in file.class {
            let row = row(&entry).map_err(|e| format!("{path}: {}: {e}", entry.code))?;
            if !codes.insert(entry.code.clone()) {
                return Err(format!("{path}: {} is in the rulebook twice", entry.code).into());
            }
            table.push_str(&row);
            writeln!(
                classes,
                "    /// `{}`: {}.\n    {},",
                entry.code,
                entry.meaning,
                variant(&entry.code)
            )?;
            writeln!(
                examples,
                "    (Class::{}, &{:?}, &{:?}),",
                variant(&entry.code),
                entry.examples,
                entry.lookalikes
            )?;
            let family = family(&entry.code);
            if !families.iter().any(|known| known == family) {
                families.push(family.to_owned());
            }
        }
    }
    table.push(']');
    examples.push(']');
    let out = std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?;
    std::fs::write(Path::new(&out).join("rulebook.rs"), table)?;
    std::fs::write(Path::new(&out).join("examples.rs"), examples)?;
    std::fs::write(Path::new(&out).join("classes.rs"), enums(&classes, &families)?)?;
    Ok(())
}

fn enums(classes: &str, families: &[String]) -> Result<String, Box<dyn Error>> {
    const DERIVES: &str = "#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]";
    let mut out = format!(
        "/// A class of failures in the rulebook, in order of precedence.\n{DERIVES}\npub enum Class {{\n{classes}}}\n\n\
         /// The first part of a class's code.\n{DERIVES}\npub enum Family {{\n"
    );
    for family in families {
        writeln!(out, "    /// `{family}.*`.\n    {},", variant(family))?;
    }
    out.push_str("}\n\nimpl Family {\n    const ALL: &[(&str, Self)] = &[\n");
    for family in families {
        writeln!(out, "        ({family:?}, Self::{}),", variant(family))?;
    }
    out.push_str("    ];\n}\n");
    Ok(out)
}

/// The name of a code's variant: `MemCudaOom` for `mem.cuda_oom`.
fn variant(code: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(1.min(word.len()));
        first.to_ascii_uppercase() + rest
    };
    code.split(['.', '_']).map(word).collect()
}

fn family(code: &str) -> &str {
    code.split('.').next().unwrap_or(code)
}

fn row(of: &Entry) -> Result<String, Box<dyn Error>> {
    check(of)?;
    let mut lines = Vec::new();
    if !of.xid.is_empty() {
        let numbers: Vec<String> = of.xid.iter().map(u32::to_string).collect();
        // How kernel logs and monitors write an Xid message.
        let regex = format!(
            r"\bXid(?: error)?s?\s*(?:\([^)]{{1,60}}\))?\s*[:=]?\s*(?:{})\b",
            numbers.join("|")
        );
        lines.push(("xid".to_owned(), regex));
    }
    for line in &of.lines {
        lines.push((line.holds.clone(), regex_of(line)));
    }
    let mut patterns = String::new();
    for (holds, regex) in &lines {
        // Equivalent to `(?i-u)` on bytes.
        let mut parser = ParserBuilder::new();
        parser.case_insensitive(true).unicode(false).utf8(false);
        parser.build().parse(regex)?;
        write!(patterns, "LinePattern {{ holds: {holds:?}, regex: {regex:?} }}, ")?;
    }
    let action_or_none = |word: &Option<String>| match word {
        None => Ok("None".to_owned()),
        Some(word) => action_of(word).map(|action| format!("Some(FailureAction::{action:?})")),
    };
    let (action, supervised) = (action_or_none(&of.action)?, action_or_none(&of.supervised_action)?);
    let ends_after = match &of.ends_after {
        None => "Answer".to_owned(),
        Some(Ends::Times(times)) => format!("Times({times})"),
        Some(Ends::Word(word)) if word == "retries" => "Retries".to_owned(),
        Some(Ends::Word(word)) => return Err(format!("ends_after is a number or `retries`, not `{word}`").into()),
    };
    let mut refinements = String::new();
    for refined in &of.refinements {
        let class = variant(refined.class.as_ref().unwrap_or(&of.code));
        let action = action_of(&refined.action)?;
        let when = refined.when;
        write!(
            refinements,
            "Refinement {{ when: SecondSignal::{when:?}, class: Class::{class}, action: FailureAction::{action:?} }}, "
        )?;
    }
    let tier = of.tier.unwrap_or(of.kind.tier());
    Ok(format!(
        "    RulebookEntry {{ class: Class::{}, family: Family::{}, code: {:?}, meaning: {:?}, kind: FailureKind::{:?}, action: {action}, supervised_action: {supervised}, pause: Ms::secs({}), tier: Weight::{tier:?}, blames_checkpoint: {}, \
         costs_retry: {}, ends_after: EndsAfter::{ends_after}, refinements: &[{refinements}], xids: &{:?}, lines: &[{patterns}], errors: &{:?}, told_by: {:?}, advice: {:?} }},\n",
        variant(&of.code),
        variant(family(&of.code)),
        of.code,
        of.meaning,
        of.kind,
        of.pause_s,
        of.blames_checkpoint,
        of.costs_retry,
        of.xid,
        of.errors,
        of.told_by,
        of.advice,
    ))
}

fn action_of(word: &str) -> Result<FailureAction, String> {
    let known = || FailureAction::ALL.map(FailureAction::word).join(", ");
    FailureAction::of_word(word).ok_or_else(|| format!("the action `{word}` is not one of {}", known()))
}

fn regex_of(line: &Line) -> String {
    match &line.long_wait {
        None => line.regex.clone(),
        Some([before, behind]) => LONG.map(|length| format!("{before}{length}{behind}")).join("|"),
    }
}

/// Checks what the types above cannot express.
fn check(of: &Entry) -> Result<(), String> {
    let is_word = |part: &str| {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        !part.is_empty() && part.bytes().all(plain)
    };
    let Some((family, name)) = of.code.split_once('.').filter(|(f, n)| is_word(f) && is_word(n)) else {
        return Err("a code is a family and a name, like `mem.cuda_oom`".to_owned());
    };
    if family == "user" {
        return Err(format!("the family of `user.{name}` is the user's own"));
    }
    let has_patterns = !(of.lines.is_empty() && of.errors.is_empty() && of.xid.is_empty());
    if has_patterns == of.examples.is_empty() || has_patterns == of.lookalikes.is_empty() {
        return Err("a class with patterns has `examples` and `lookalikes`, and only such a class".to_owned());
    }
    if !has_patterns && of.told_by.is_none() {
        return Err("a class without patterns says in `told_by` what tells it".to_owned());
    }
    if of.action.is_none() && of.kind != FailureKind::Report {
        return Err("only a class of the kind `report` has no `action`".to_owned());
    }
    if !of.advice.ends_with('.') || of.meaning.is_empty() || of.meaning.ends_with('.') {
        return Err("`advice` is a sentence, and `meaning` is words without a full stop".to_owned());
    }
    if of
        .lines
        .iter()
        .any(|l| l.holds.is_empty() || l.long_wait.is_some() && !l.regex.is_empty())
    {
        return Err("a line has `holds`, and a `regex` or a `long_wait` or neither".to_owned());
    }
    Ok(())
}
