//! Declarations with mistakes: all are reported, each with its line, its key and what to do.

use crate::declare;
use proptest::prelude::*;
use supervise_trainers::declared::{DeclarationProblem, presets};

const GOOD: &str = r#"format = 1
[trainer]
name = "mine"
[steps]
dir = "step_{step}"
[[part]]
name = "model"
files = "model_{rank}.pt"
format = "torch"
[finish]
by = "all"
"#;

fn problems(text: &str) -> Vec<DeclarationProblem> {
    declare(text).err().unwrap_or_default()
}

/// The good declaration with one text in place of another.
#[track_caller]
fn with(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    GOOD.replacen(from, to, 1)
}

#[test]
fn the_smallest_declaration_is_read() {
    assert_eq!(problems(GOOD), []);
    assert_eq!(declare(GOOD).unwrap().title(), "mine");
}

#[test]
fn each_mistake_has_its_line_its_key_and_a_way_out() {
    let mut wrong = Vec::new();
    for (from, to, line, key, fix) in [
        ("format = 1", "format = 2", 1, "format", "format = 1"),
        ("format = 1", "", 1, "format", "format = 1"),
        ("\"mine\"", "\"My trainer\"", 3, "[trainer] name", "1 to 24 characters"),
        ("\"mine\"", "\"hf\"", 3, "[trainer] name", "another name"),
        ("\"mine\"", "7", 3, "[trainer] name", "expected a text"),
        ("step_{step}", "step_{steps}", 5, "[steps] dir", "did you mean {step}?"),
        ("step_{step}", "step", 5, "[steps] dir", "step_{step}"),
        (
            "step_{step}",
            "a/step_{step}",
            5,
            "[steps] dir",
            "one directory in the root",
        ),
        ("step_{step}", "../step_{step}", 5, "[steps] dir", "without `..`"),
        ("step_{step}", "/step_{step}", 5, "[steps] dir", "without `..`"),
        ("dir =", "dirs =", 5, "[steps] dirs", "did you mean `dir`?"),
        (
            "[[part]]",
            "told_by = \"x\"\n[[part]]",
            6,
            "[steps] told_by",
            "recognized_by",
        ),
        (
            "[finish]",
            "[told]\nresumed_by = \"first_step\"\n[finish]",
            10,
            "told",
            "confirmed_by",
        ),
        (
            "dir = \"step_{step}\"\n[[part]]\nname = \"model\"\nfiles = \"model_{rank}.pt\"",
            "in_place = \"ckpt.pt\"\n[[part]]\nname = \"model\"\nfiles = \".\"",
            6,
            "[[part]] model step",
            "torch:iter_num",
        ),
        (
            "dir = \"step_{step}\"\n[[part]]\nname = \"model\"\nfiles = \"model_{rank}.pt\"\nformat = \"torch\"",
            "in_place = \"s.pkl\"\n[[part]]\nname = \"model\"\nfiles = \".\"\nformat = \"pickle\"",
            6,
            "[[part]] model format",
            "torch.save, or give each step a directory",
        ),
        (
            "\"torch\"",
            "\"json\"\nstep = \"json:step\"",
            10,
            "[[part]] model step",
            "leave it out",
        ),
        (
            "[finish]",
            "[settings]\nlast = [{ key = \"--steps\", default = \"five\" }]\n[finish]",
            11,
            "[settings] last default",
            "write a number, such as 100",
        ),
        (
            "[finish]",
            "[settings]\nevery = [{ key = \"--every\", default = true }]\n[finish]",
            11,
            "[settings] every default",
            "expected a whole number",
        ),
        (
            "[finish]",
            "[settings]\nroot = [{ key = \"--out\", default = 5 }]\n[finish]",
            11,
            "[settings] root default",
            "expected a text",
        ),
        (
            "[finish]",
            "[settings]\nroot = [{ key = \"--out\", add = 1 }]\n[finish]",
            11,
            "[settings] root add",
            "use then",
        ),
        (
            "[finish]",
            "[settings]\nlast = [{ key = \"--steps\", then = \"x\" }]\n[finish]",
            11,
            "[settings] last then",
            "leave it out",
        ),
        (
            "[finish]",
            "[resume]\ntracker = \"write\"\n[finish]",
            11,
            "[resume] tracker",
            "leave it out",
        ),
        (
            "[finish]",
            "[resume]\naside = \"all\"\n[finish]",
            11,
            "[resume] aside",
            "leave it out",
        ),
        (
            "[finish]",
            "[resume]\noutside = true\n[finish]",
            11,
            "[resume] outside",
            "store = \"outside\"",
        ),
        (
            "[finish]",
            "[[line]]\nmeans = \"lost:soul\"\nmatch = 'x'\n[finish]",
            11,
            "[[line]] lost:soul means",
            "use lost: with weights",
        ),
        (
            "model_{rank}.pt",
            "model_{worldsize}.pt",
            8,
            "[[part]] model files",
            "did you mean {world}?",
        ),
        ("model_{rank}.pt", "**", 8, "[[part]] model files", "never changes"),
        (
            "model_{rank}.pt",
            "/etc/{rank}",
            8,
            "[[part]] model files",
            "without `..`",
        ),
        (
            "model_{rank}.pt",
            "../a_{rank}",
            8,
            "[[part]] model files",
            "without `..`",
        ),
        (
            "model_{rank}.pt",
            "{role}_{rank}.pt",
            8,
            "[[part]] model files",
            "add role",
        ),
        ("\"torch\"", "\"zip\"", 9, "[[part]] model format", "use torch"),
        ("\"torch\"", "\"dcp\"", 9, "[[part]] model format", "use dir"),
        (
            "\"torch\"",
            "\"torch\"\nmissing = \"silent\"",
            6,
            "[[part]] model lost",
            "lost = [\"optimizer\"]",
        ),
        (
            "\"torch\"",
            "\"torch\"\nlost = [\"soul\"]",
            10,
            "[[part]] model lost",
            "use weights",
        ),
        (
            "\"torch\"",
            "\"torch\"\nimports = [\"os.*\"]",
            10,
            "[[part]] model imports",
            "without *",
        ),
        (
            "\"torch\"",
            "\"torch\"\ncount = \"torch:n\"",
            10,
            "[[part]] model count",
            "leave it out",
        ),
        (
            "\"torch\"",
            "\"torch\"\nneed = \"optional\"",
            1,
            "[[part]]",
            "need = \"always\"",
        ),
        ("\"all\"", "\"tracker\"", 11, "[finish] by", "declare it"),
        ("\"all\"", "\"file:../x\"", 11, "[finish] by", "file:NAME"),
        (
            "\"all\"",
            "\"all\"\n[resume]\nat = [\"{dirs}\"]",
            13,
            "[resume] at",
            "{dir}",
        ),
        (
            "\"all\"",
            "\"all\"\n[resume]\nscript = \"env:LD_PRELOAD={path}\"",
            13,
            "[resume] script",
            "SUPERVISE_RESUME_FROM",
        ),
        (
            "\"all\"",
            "\"all\"\n[[line]]\nmeans = \"step\"\nmatch = 'step'",
            14,
            "[[line]] step match",
            "put ( ) around",
        ),
        (
            "\"all\"",
            "\"all\"\n[[line]]\nmeans = \"end\"\nmatch = '(?=x)'",
            14,
            "[[line]] end match",
            "look-around",
        ),
        (
            "\"all\"",
            "\"all\"\n[[line]]\nmeans = \"end\"\nmatch = '.*'",
            14,
            "[[line]] end match",
            "always has",
        ),
        (
            "\"all\"",
            "\"all\"\n[[line]]\nmeans = \"end\"\nmatch = '(a{1000}){1000}'",
            14,
            "[[line]] end match",
            "smaller counts",
        ),
        (
            "\"all\"",
            "\"all\"\n[command]\nany = [\"* -m\"]",
            13,
            "[command] any",
            "only this trainer has",
        ),
        ("\"all\"", "\"all\"\n[colours]", 12, "colours", "use "),
        ("[steps]", "extends = \"hf\"\n[steps]", 4, "[trainer] extends", "use "),
        ("[trainer]", "extends = \"hf\"\n[trainer]", 2, "extends", "leave it out"),
        (
            "\"all\"",
            "\"all\"\n[tracker]\nfile = \"../x\"\ntext = \"{step}\"\nmissing = \"fresh\"",
            13,
            "[tracker] file",
            "in the root",
        ),
        ("name = \"mine\"", "name = ", 3, "TOML", "toml.io"),
    ] {
        let text = with(from, to);
        let found = problems(&text);
        let fits = |p: &&DeclarationProblem| (p.line, p.key.as_str()) == (line, key) && p.fix.contains(fix);
        if !found.iter().any(|p| fits(&p)) {
            wrong.push((to, found));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = with("\"torch\"", "\"zip\"")
        .replace("\"mine\"", "\"M\"")
        .replace("{rank}", "{ranks}");
    let lines: Vec<usize> = problems(&text).iter().map(|p| p.line).collect();
    assert_eq!(lines, [3, 8, 9]);
}

#[test]
fn two_parts_for_one_file_are_refused() {
    let more = "[[part]]\nname = \"all\"\nfiles = \"*.pt\"\nformat = \"torch\"\n[finish]";
    let found = problems(&with("[finish]", more));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!((found[0].line, found[0].key.as_str()), (10, "[[part]] all files"));
    assert!(found[0].what.contains("part model takes model_1.pt"), "{found:#?}");
}

#[test]
fn our_records_must_not_be_taken_for_a_step() {
    for foreign in ["starts = \"\"", "starts = \".s\"", "has = \"super\""] {
        let found = problems(&with("[[part]]", &format!("foreign = {{ {foreign} }}\n[[part]]")));
        assert!(
            found.iter().any(|p| p.what.contains(".supervise")),
            "{foreign}: {found:#?}"
        );
    }
}

#[test]
fn a_file_of_any_size_is_answered() {
    let many = "[[part]]\nname = \"x\"\n".repeat(20_000);
    let found = problems(&format!("{GOOD}{many}"));
    assert!(!found.is_empty() && found.len() <= 50, "{}", found.len());
    let found = problems(&format!("a = {}1{}", "[".repeat(100_000), "]".repeat(100_000)));
    assert!(!found.is_empty() && found.len() <= 50);
    let roles: Vec<String> = (0..60).map(|n| format!("\"r{n}\"")).collect();
    let names: Vec<String> = (0..60).map(|n| format!("\"{{role}}/f{n}.pt\"")).collect();
    let part = format!("role = [{}]\nfiles = [{}]", roles.join(","), names.join(","));
    let found = problems(&with("files = \"model_{rank}.pt\"", &part));
    assert!(found.iter().any(|p| p.what.contains("3600 names")), "{found:#?}");
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,400}") {
        let _ = declare(&text);
    }

    #[test]
    fn no_changed_preset_panics(preset in 0..4_usize, at in 0..4000_usize, put in "[\\[\\]{}\"'=*.\\n a-z0-9]{0,6}", cut in 0..40_usize) {
        let text = presets()[preset].text();
        let mut bytes: Vec<char> = text.chars().collect();
        let at = at.min(bytes.len());
        let end = (at + cut).min(bytes.len());
        bytes.splice(at..end, put.chars());
        let changed: String = bytes.into_iter().collect();
        for problem in declare(&changed).err().unwrap_or_default() {
            prop_assert!(problem.line <= changed.lines().count() + 1 && !problem.fix.is_empty(), "{problem}");
        }
    }
}
