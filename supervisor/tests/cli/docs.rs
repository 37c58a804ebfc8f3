//! The pages that people read say what the program says.

use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use supervise::exit;
use supervise::render::codes::{FILE_CODES, STEP_CODES, step_codes};
use supervise::render::policy::{PolicyView, cells};
use supervise_config::settings::{defaults_yaml, settings_md};
use supervise_core::policy::Changes;
use supervise_trainers::registry::FRAMEWORKS;

pub(crate) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// With `UPDATE_DOCS=1` the page is written, else it must be what it is.
fn keep(page: &str, text: &str) {
    let path = top().join(page);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, text).unwrap();
    } else {
        let there = fs::read_to_string(&path).unwrap();
        assert_eq!(there, text, "{page} is out of date: run this test with UPDATE_DOCS=1");
    }
}

/// The same for the part of a page between its marks.
pub(crate) fn keep_part(page: &str, part: &str, text: &str) {
    let whole = fs::read_to_string(top().join(page)).unwrap();
    let (begin, end) = (format!("<!-- {part}:begin -->\n"), format!("<!-- {part}:end -->"));
    let (before, rest) = whole.split_once(&begin).unwrap();
    let (_, after) = rest.split_once(&end).unwrap();
    keep(page, &format!("{before}{begin}{text}{end}{after}"));
}

#[test]
fn the_pages_of_the_settings_say_what_is_defined() {
    keep("config/defaults.yaml", &defaults_yaml(&FRAMEWORKS));
    keep("docs/settings.md", &settings_md(&FRAMEWORKS));
    let schema = World::new().run(&["config", "schema"]);
    keep("config/supervise.schema.json", &schema.out);
}

#[test]
fn every_exit_code_is_on_the_page() {
    let mut text = String::from("| code | meaning |\n| --: | --- |\n");
    for exit in exit::ALL {
        text.push_str(&format!("| {} | {} |\n", exit.code(), exit.words()));
    }
    keep_part("docs/exit-codes.md", "exits", &text);
}

#[test]
fn every_class_is_on_the_page() {
    let mut table = String::from("| class | meaning | kind | action |\n| --- | --- | --- | --- |\n");
    let mut advice = String::from("| class | do |\n| --- | --- |\n");
    let mut told = String::new();
    let mut rows: Vec<_> = supervise_core::rulebook::taxonomy::rows().collect();
    rows.sort_by_key(|row| row.code);
    for row in rows {
        let action = row.action.map_or("–", supervise_core::rulebook::taxonomy::letter);
        let kind = row.kind.letter();
        table.push_str(&format!("| `{}` | {} | {kind} | {action} |\n", row.code, row.meaning));
        advice.push_str(&format!("| `{}` | {} |\n", row.code, row.advice));
        if let Some(source) = row.told_by {
            let also = if row.lines.is_empty() && row.errors.is_empty() {
                ""
            } else {
                "also by "
            };
            told.push_str(&format!("- `{}`: {also}{source}\n", row.code));
        }
    }
    table.push_str(&format!("\nWhat to do:\n\n{advice}"));
    table.push_str("\nThese classes are also, or only, known by something other than a line of output:\n\n");
    table.push_str(&told);
    keep_part("docs/diagnosis.md", "classes", &table);
}

#[test]
fn every_rule_is_on_the_page() {
    let mut text = String::from(
        "| class | answer | ends after | suspects the checkpoint | costs a retry |\n| --- | --- | --- | --- | --- |\n",
    );
    for rule in PolicyView::of(&Changes::new(), &[], 5, 2).rules {
        let [class, rest @ ..] = cells(&rule);
        text.push_str(&format!("| `{class}` | {} |\n", rest.join(" | ")));
    }
    keep_part("docs/policy.md", "rules", &text);
}

/// Help of a command and of those below it, exit codes as one line of links.
fn help(command: &[&str], page: &mut String) {
    let whole = World::new().run(&[command, &["--help"]].concat()).out;
    let (text, exits) = whole.split_once("Exit codes:\n").unwrap_or((&whole, ""));
    if !command.is_empty() {
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        page.push_str(&format!(
            "\n## `supervise {}`\n\n```text\n{}\n```\n",
            command.join(" "),
            lines.join("\n").trim_end()
        ));
        let codes: Vec<&str> = exits.lines().filter_map(|l| l.split_whitespace().next()).collect();
        let codes: Vec<&str> = codes.into_iter().filter(|c| c.parse::<u8>().is_ok()).collect();
        if !codes.is_empty() {
            page.push_str(&format!("\n[Exit codes](exit-codes.md): {}.\n", codes.join(", ")));
        }
    }
    // The program lists its commands under several headings.
    let heading = if command.is_empty() { "Usage:" } else { "Commands:" };
    let below = text
        .lines()
        .skip_while(|l| !l.starts_with(heading))
        .skip(1)
        .take_while(|l| *l != "Options:")
        .filter(|l| l.starts_with("  ") && !l.starts_with("   "));
    for name in below
        .filter_map(|l| l.split_whitespace().next())
        .filter(|n| *n != "help")
    {
        help(&[command, &[name]].concat(), page);
    }
}

#[test]
fn every_command_is_on_the_page_as_its_help_says() {
    let mut page = String::from("# Commands\n\nWhat `--help` says of each. Words: [concepts](concepts.md).\n");
    help(&[], &mut page);
    keep("docs/commands.md", &page);
}

#[test]
fn every_code_is_on_the_page() {
    let mut text = String::from("| code | meaning |\n| --- | --- |\n");
    let mut all: BTreeMap<_, _> = step_codes();
    all.extend(FILE_CODES.iter().copied());
    for (code, meaning) in all {
        text.push_str(&format!("| `{code}` | {meaning} |\n"));
    }
    keep_part("docs/finding-codes.md", "codes", &text);
}

/// Words in quotes that stand first in a call that makes a finding.
fn codes_in(source: &str) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for call in ["Finding::error(", "Finding::warning(", "Finding::note(", "condemned("] {
        for (at, _) in source.match_indices(call) {
            let rest = source[at + call.len()..].trim_start();
            if let Some((code, _)) = rest.strip_prefix('"').and_then(|r| r.split_once('"')) {
                out.insert(code.to_owned());
            }
        }
    }
    out
}

pub(crate) fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

#[test]
fn every_code_that_is_said_of_a_step_is_documented() {
    let mut files = Vec::new();
    for krate in ["trainers/src", "host/src", "src"] {
        sources(&top().join("supervisor").join(krate), &mut files);
    }
    let mut used = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        // Tests at a file's end make findings of their own.
        used.extend(codes_in(text.split("#[cfg(test)]").next().unwrap()));
    }
    let of_files: BTreeSet<String> = FILE_CODES.iter().map(|(c, _)| (*c).to_owned()).collect();
    let known: BTreeSet<String> = step_codes().into_keys().map(str::to_owned).collect();
    assert_eq!(&used - &of_files, &known - &of_files);
    assert!(STEP_CODES.is_sorted());
}
