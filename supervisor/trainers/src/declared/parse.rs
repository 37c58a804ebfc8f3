//! From a declaration's TOML to what it says. Every mistake is reported, not only the first.

use super::Declaration;
use super::compile::{pattern, regex};
use super::lines;
use super::part;
use super::pattern::NamePattern;
use super::schema::{DeclaredCommand, DeclaredSteps, FinishMark, PartNeed, StepNames, WordStyle};
use super::settings::settings;
use super::source::{DeclarationProblem, LARGEST, Problems, SpannedValue, TableReader};
use super::start::{resume, tracker};
use supervise_core::spec::TrainerKind;
use toml::de::DeTable;

/// Reads a declaration. `taken`: names that belong to other trainers.
pub(super) fn parse(text: &str, taken: &[String]) -> Result<Declaration, Vec<DeclarationProblem>> {
    let mut p = Problems::new(text);
    if text.len() > LARGEST {
        p.add(
            0,
            "file",
            format!("{} bytes", text.len()),
            format!("use at most {LARGEST}"),
        );
        return Err(p.into_list());
    }
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let at = error.span().map_or(0, |s| s.start);
        p.add(at, "TOML", error.message(), "see toml.io for the syntax");
    }
    if !p.is_empty() {
        return Err(p.into_list());
    }
    let mut top = TableReader::new(table.get_ref(), 0, "");
    match top.integer("format", &mut p) {
        Some(format) if format.value == 1 => {}
        Some(format) => p.add(
            format.at,
            "format",
            format!("format {} is not known", format.value),
            "write format = 1",
        ),
        None => p.add(0, "format", "missing", "write format = 1"),
    }
    top.later(&["extends", "without"], &mut p);
    let trainer = trainer(&mut top, taken, &mut p);
    let command = command(&mut top, &mut p);
    let settings = settings(&mut top, &mut p);
    let steps = steps(&mut top, &mut p);
    let in_place = steps.as_ref().is_some_and(|s| matches!(s.names, StepNames::InPlace(_)));
    let parts = part::parts(&mut top, in_place, &mut p);
    if !parts.iter().any(|part| part.need == PartNeed::Always) && p.is_empty() {
        p.add(
            0,
            "[[part]]",
            "no part is always needed: an empty directory would count as whole",
            "set need = \"always\"",
        );
    }
    let tracker = tracker(&mut top, &mut p);
    let (finish, spare) = finish(&mut top, tracker.is_some(), &mut p);
    let resume = resume(&mut top, &mut p);
    let rules = lines::lines(&mut top, &mut p);
    top.renamed("told", "confirmed_by = \"first_step\" in [resume]", &mut p);
    top.end(&mut p);
    match (trainer, steps) {
        (Some(trainer), Some(steps)) if p.is_empty() => Ok(Declaration {
            kind: trainer.kind,
            name: trainer.name,
            title: trainer.title,
            package: trainer.package,
            read: trainer.read,
            command,
            settings,
            steps,
            parts,
            finish,
            spare,
            tracker,
            resume,
            rules,
            text: text.to_owned(),
        }),
        _ => Err(p.into_list()),
    }
}

/// The name that a text declares, if it can be read that far.
pub(super) fn name_in(text: &str) -> Option<String> {
    let (table, _) = DeTable::parse_recoverable(text.get(..LARGEST).unwrap_or(text));
    let trainer = table.get_ref().get("trainer")?.get_ref().as_table()?;
    Some(trainer.get("name")?.get_ref().as_str()?.to_owned())
}

struct TrainerTable {
    kind: TrainerKind,
    name: String,
    title: String,
    package: Option<String>,
    read: Vec<String>,
}

fn trainer(top: &mut TableReader<'_, '_>, taken: &[String], p: &mut Problems<'_>) -> Option<TrainerTable> {
    let mut t = top.table("trainer", p);
    if !t.is_there() {
        p.add(
            0,
            "[trainer]",
            "missing",
            "name the trainer: [trainer] with name = \"mine\"",
        );
        return None;
    }
    let name = t.text("name", p);
    let kind = name.as_ref().and_then(|name| TrainerKind::parse(&name.value));
    match &name {
        None => t.wrong(p, t.at, "name", "missing", "set a name of a-z, 0-9 and _"),
        Some(name) if kind.is_none() => {
            let what = format!("`{}` is no name", name.value);
            t.wrong(p, name.at, "name", what, "use 1 to 24 characters of a-z, 0-9 and _");
        }
        Some(name) if taken.contains(&name.value) => {
            let what = format!("`{}` is the name of a trainer that supervise has", name.value);
            t.wrong(p, name.at, "name", what, "choose another name");
        }
        Some(_) => {}
    }
    let title = t.text("title", p).map(|t| t.value);
    let package = t.text("package", p).map(|t| t.value);
    let read = t.texts("read", p).unwrap_or_default();
    t.end(p);
    let name = name?.value;
    Some(TrainerTable {
        kind: kind?,
        title: title.unwrap_or_else(|| name.clone()),
        name,
        package,
        read: read.into_iter().map(|r| r.value).collect(),
    })
}

fn command(top: &mut TableReader<'_, '_>, p: &mut Problems<'_>) -> DeclaredCommand {
    let mut t = top.table("command", p);
    let any = t.texts("any", p).unwrap_or_default();
    for words in &any {
        let anchored = words
            .value
            .split_whitespace()
            .any(|w| w.chars().filter(|c| c.is_alphanumeric()).count() > 2);
        if !anchored {
            let what = format!("`{}` matches nearly every command", words.value);
            t.wrong(p, words.at, "any", what, "add a word that only this trainer has");
        }
    }
    let needs = t.texts("needs", p).unwrap_or_default();
    let style = t.choice("style", &STYLES, p).unwrap_or_default();
    let config = t.text("config", p);
    t.end(p);
    DeclaredCommand {
        any: any
            .iter()
            .map(|words| words.value.split_whitespace().map(str::to_owned).collect())
            .collect(),
        needs: needs.into_iter().map(|n| n.value).collect(),
        style,
        config: config.map(|c| c.value),
    }
}

const STYLES: [(&str, WordStyle); 5] = [
    ("flags", WordStyle::Flags),
    ("flags_dotted", WordStyle::Flags),
    ("flags_equal", WordStyle::FlagsEqual),
    ("pairs", WordStyle::Pairs),
    ("none", WordStyle::None),
];

fn steps(top: &mut TableReader<'_, '_>, p: &mut Problems<'_>) -> Option<DeclaredSteps> {
    let mut t = top.table("steps", p);
    if !t.is_there() {
        p.add(
            0,
            "[steps]",
            "missing",
            "say how steps are named: dir = \"step_{step}\"",
        );
        return None;
    }
    t.later(
        &[
            "file",
            "root_role",
            "swapped",
            "step0",
            "step_is",
            "keep_copies",
            "others",
            "links",
        ],
        p,
    );
    let dirs = t.texts("dir", p);
    let in_place = t.text("in_place", p);
    let names = match (dirs, in_place) {
        (Some(dirs), None) => StepNames::Dirs(dirs.iter().filter_map(|dir| step_dir(&t, dir, p)).collect()),
        (None, Some(file)) => {
            let plain = !file.value.is_empty()
                && !file.value.contains(['/', '{', '*'])
                && ![".", ".."].contains(&file.value.as_str());
            if !plain {
                t.wrong(
                    p,
                    file.at,
                    "in_place",
                    format!("`{}` is no file name", file.value),
                    "name the file in the root",
                );
            }
            StepNames::InPlace(file.value)
        }
        (Some(_), Some(file)) => {
            t.wrong(p, file.at, "in_place", "`dir` is there as well", "keep one of the two");
            StepNames::Dirs(Vec::new())
        }
        (None, None) => {
            t.wrong(
                p,
                t.at,
                "dir",
                "missing",
                "say how steps are named: dir = \"step_{step}\"",
            );
            StepNames::Dirs(Vec::new())
        }
    };
    let picks = ["tracker", "highest", "given"].map(|pick| (pick, pick == "given"));
    let is_given = t.choice("pick", &picks, p).unwrap_or(false);
    let mut foreign = t.table("foreign", p);
    let starts = foreign.text("starts", p);
    let has = foreign.text("has", p).and_then(|has| regex(&foreign, "has", &has, p));
    for (key, taken) in [
        ("starts", starts.as_ref().is_some_and(|s| OUR_DIR.starts_with(&s.value))),
        ("has", has.as_ref().is_some_and(|h| h.is_match(OUR_DIR))),
    ] {
        if taken {
            let what = format!("the trainer would take {OUR_DIR}, where supervise keeps its records, for a step");
            foreign.wrong(
                p,
                foreign.at,
                key,
                what,
                "narrow it, or do not use supervise in this root",
            );
        }
    }
    foreign.end(p);
    let unfinished = t
        .text("unfinished", p)
        .and_then(|name| pattern(&t, "unfinished", &name, &["step"], p));
    let recognized_by = t.text("recognized_by", p).map(|name| name.value);
    t.renamed("told_by", "recognized_by", p);
    t.end(p);
    Some(DeclaredSteps {
        names,
        foreign_start: starts.map(|s| s.value),
        foreign_has: has,
        is_given,
        recognized_by,
        unfinished,
    })
}

/// The directory of our own records in a root.
const OUR_DIR: &str = ".supervise";

fn step_dir(t: &TableReader<'_, '_>, dir: &SpannedValue<String>, p: &mut Problems<'_>) -> Option<NamePattern> {
    let found = pattern(t, "dir", dir, &["step"], p)?;
    let fault = match () {
        () if dir.value.contains('/') => Some("a step below another directory"),
        () if !dir.value.contains("{step") => Some("no {step}"),
        () if dir.value.contains('*') => Some("a wildcard in a step's name"),
        () => None,
    };
    if let Some(fault) = fault {
        t.wrong(
            p,
            dir.at,
            "dir",
            format!("{}: {fault}", dir.value),
            "name one directory in the root, as in step_{step}",
        );
    }
    fault.is_none().then_some(found)
}

fn finish(top: &mut TableReader<'_, '_>, has_tracker: bool, p: &mut Problems<'_>) -> (FinishMark, Vec<NamePattern>) {
    let mut t = top.table("finish", p);
    t.later(&["settle", "then"], p);
    let by = t.text("by", p);
    let after = t.texts("after", p).unwrap_or_default();
    let spare = after
        .iter()
        .filter_map(|after| pattern(&t, "after", after, &["step"], p))
        .collect();
    let mark = match by.as_ref().map(|by| (by.at, by.value.as_str())) {
        None => {
            let at = t.at;
            t.wrong(
                p,
                at,
                "by",
                "missing",
                "say what shows that a save ended: tracker, rename, file:NAME, all or proof",
            );
            FinishMark::Parts
        }
        Some((at, "tracker")) if !has_tracker => {
            t.wrong(
                p,
                at,
                "by",
                "there is no [tracker]",
                "declare it, or choose rename, file:NAME, all or proof",
            );
            FinishMark::Parts
        }
        Some((_, "tracker")) => FinishMark::Tracker,
        Some((_, "rename")) => FinishMark::Rename,
        Some((_, "all" | "proof")) => FinishMark::Parts,
        Some((at, other)) => match other.strip_prefix("file:") {
            Some(name) if NamePattern::parse(name, &[]).is_ok() && !name.contains('*') => {
                FinishMark::File(name.to_owned())
            }
            _ => {
                let what = format!("`{other}` is not known");
                t.wrong(p, at, "by", what, "use tracker, rename, file:NAME, all or proof");
                FinishMark::Parts
            }
        },
    };
    t.end(p);
    (mark, spare)
}
