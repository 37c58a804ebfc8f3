//! Batch scripts for files, directories and arguments of any name: bash and sbatch read back what was given, or no script is written.

use super::scene;
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use supervise_tests::harness::Scene;

/// What a name may hold, each in the middle of one, at its beginning and at its end.
const ODD: [&str; 40] = [
    "\t",
    "\n",
    "\r",
    "\u{b}",
    "\u{c}",
    "\u{1}",
    "\u{7f}",
    "\u{85}",
    "\u{a0}",
    "\u{1b}[2K",
    "\u{2028}",
    "\u{2029}",
    "\u{202e}",
    "\u{200b}",
    "\u{2066}",
    "\u{feff}",
    "\u{ad}",
    "\u{3000}",
    "\u{e0041}",
    "ä",
    "漢",
    " ",
    "  ",
    "'",
    "\"",
    "\\",
    "\\t",
    "\\\\",
    "#",
    " #",
    "%",
    "%j",
    "*",
    "?[a]",
    "{a,b}",
    "$HOME",
    "`id`",
    "$(id)",
    ";&|<>!",
    "~",
];

fn names() -> impl Iterator<Item = String> {
    let all = ODD
        .iter()
        .flat_map(|odd| [format!("a{odd}b"), format!("{odd}b"), format!("a{odd}")]);
    all.chain(["packjob", "HetJob", "a packjob b", "$'a\\tb'", "-"].map(str::to_owned))
}

/// A run's YAML for a login node.
fn config(scene: &mut Scene) -> String {
    scene.set("supervisor.command", json!(["/bin/true", "{overrides}"]));
    fs::read_to_string(scene.write_config()).unwrap()
}

fn sbatch(scene: &Scene, at: &Path, args: &[&str]) -> Output {
    let mut command = scene.supervise(&[&["sbatch"], args].concat());
    command.current_dir(at).output().unwrap()
}

/// The words that bash hands to the program of the script's last line.
fn words_of_bash(script: &str) -> Vec<String> {
    let (before, last) = script.rsplit_once("\nexec ").unwrap();
    let shown = format!("{before}\nprintf '%s\\0' {last}");
    // In a plain locale: what is written must not depend on the job's.
    let out = Command::new("bash")
        .args(["-c", &shown])
        .env_clear()
        .env("LC_ALL", "C")
        .env("HOME", "/nonexistent")
        .output()
        .unwrap();
    assert!(out.status.success(), "{script}");
    let text = String::from_utf8(out.stdout).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

/// The words of a line of `#SBATCH`, as sbatch reads them. Releases before 2018 know no single quotes, and end at `#` inside of
/// double ones too; later ones blank out the words of jobs of several parts first.
fn words_of_sbatch(line: &str, old: bool) -> Vec<String> {
    let mut line = line.to_owned();
    for part in ["packjob", "hetjob"] {
        while let Some(at) = line.to_ascii_lowercase().find(part).filter(|_| !old) {
            line.replace_range(at..at + part.len(), &" ".repeat(part.len()));
        }
    }
    let (mut words, mut word, mut quote, mut escaped) = (Vec::new(), None::<String>, None, false);
    for c in line.chars() {
        let begun = word.get_or_insert_default();
        match c {
            c if c.is_ascii_whitespace() && quote.is_none() => words.extend(word.take().filter(|w| !w.is_empty())),
            c if escaped => {
                begun.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            c if quote == Some(c) => quote = None,
            '"' if quote.is_none() => quote = Some('"'),
            '\'' if quote.is_none() && !old => quote = Some('\''),
            '#' if old || quote.is_none() => break,
            c => begun.push(c),
        }
    }
    assert!(quote.is_none(), "{line}");
    words.extend(word.filter(|w| !w.is_empty()));
    words
}

fn options(script: &str, old: bool) -> Vec<String> {
    let lines = script.split('\n').filter_map(|l| l.strip_prefix("#SBATCH "));
    lines.flat_map(|line| words_of_sbatch(line, old)).collect()
}

#[test]
fn a_file_of_any_name_is_the_one_that_the_job_runs() {
    let mut scene = scene();
    let yaml = config(&mut scene);
    let dir = scene.path("names");
    fs::create_dir(&dir).unwrap();
    let mut written = 0;
    for name in names() {
        let file = format!("x{name}.yaml");
        fs::write(dir.join(&file), &yaml).unwrap();
        let printed = sbatch(&scene, &dir, &[&file]);
        let kept = sbatch(&scene, &dir, &[&file, "--output", "job", "--force"]);
        assert_eq!(printed.status.code(), kept.status.code(), "{name:?}");
        assert!(
            printed.status.success(),
            "{name:?}: {}",
            String::from_utf8_lossy(&printed.stderr)
        );
        for script in [
            String::from_utf8(printed.stdout).unwrap(),
            fs::read_to_string(dir.join("job")).unwrap(),
        ] {
            assert_eq!(words_of_bash(&script)[1..], ["run", &file], "{name:?}: {script}");
            let comment = script.lines().nth(1).unwrap();
            assert!(comment.starts_with("# supervise sbatch "), "{script}");
        }
        written += 1;
    }
    assert!(written > 100);
}

#[test]
fn arguments_arrive_as_they_were_given() {
    let mut scene = scene();
    let yaml = config(&mut scene);
    let dir = scene.path("names");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("a.yaml"), yaml).unwrap();
    for name in names().chain([String::new()]) {
        let said = sbatch(&scene, &dir, &["a.yaml", "--", "--", "/bin/echo", &name, "last"]);
        assert!(
            said.status.success(),
            "{name:?}: {}",
            String::from_utf8_lossy(&said.stderr)
        );
        let script = String::from_utf8(said.stdout).unwrap();
        let expected = ["run", "a.yaml", "--", "/bin/echo", &name, "last"];
        assert_eq!(words_of_bash(&script)[1..], expected, "{script}");
    }
}

#[test]
fn a_directory_is_the_jobs_own_or_no_script_is_written() {
    let mut scene = scene();
    let yaml = config(&mut scene);
    let mut refused = Vec::new();
    for name in names() {
        let dir = scene.path("").join(format!("d{name}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("a.yaml"), &yaml).unwrap();
        let said = sbatch(&scene, &dir, &["a.yaml", "--", "--comment", "x y#z"]);
        let err = String::from_utf8(said.stderr).unwrap();
        if !said.status.success() {
            assert_eq!(said.status.code(), Some(64), "{name:?}: {err}");
            assert!(
                err.contains("cannot hold the present directory") && said.stdout.is_empty(),
                "{err}"
            );
            refused.push(name);
            continue;
        }
        let script = String::from_utf8(said.stdout).unwrap();
        let expected = format!("--chdir={}", dir.to_str().unwrap());
        for old in [false, true] {
            let words = options(&script, old);
            assert_eq!(words[1], expected, "{name:?}: {script}");
            assert!(
                words.ends_with(&["--comment".to_owned(), "x y#z".to_owned()]),
                "{script}"
            );
        }
    }
    let hidden = |name: &String| name.chars().any(|c| c != ' ' && (c.is_whitespace() || c.is_control()));
    assert!(
        names().filter(hidden).all(|name| refused.contains(&name)),
        "{refused:?}"
    );
    assert!(
        !refused.iter().any(|name| name.is_ascii() && !hidden(name)),
        "{refused:?}"
    );
}

#[test]
fn options_of_sbatch_that_cannot_be_written_are_refused() {
    let mut scene = scene();
    let yaml = config(&mut scene);
    let dir = scene.path("names");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("a.yaml"), yaml).unwrap();
    for odd in ["\t", "\n", "\r", "\u{2028}", "\u{202e}", "\u{a0}", "\u{200b}"] {
        let said = sbatch(&scene, &dir, &["a.yaml", "--", &format!("--comment=a{odd}b")]);
        assert_eq!(said.status.code(), Some(64), "{odd:?}");
        assert!(said.stdout.is_empty());
    }
    for odd in ["\"", "\\", "#", "'", "a b", "%j", "*", "packjob"] {
        let option = format!("--comment={odd}");
        let said = sbatch(&scene, &dir, &["a.yaml", "--", &option]);
        assert!(
            said.status.success(),
            "{odd:?}: {}",
            String::from_utf8_lossy(&said.stderr)
        );
        let script = String::from_utf8(said.stdout).unwrap();
        for old in [false, true] {
            assert_eq!(options(&script, old).last(), Some(&option), "{script}");
        }
    }
}

#[test]
fn the_command_that_is_shown_names_the_file_that_was_written() {
    let mut scene = scene();
    let yaml = config(&mut scene);
    let dir = scene.path("names");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("a.yaml"), yaml).unwrap();
    for name in ["my job", "a\tb", "it's", "a\u{2028}b"] {
        let said = sbatch(&scene, &dir, &["a.yaml", "--output", name]);
        assert!(said.status.success());
        let out = String::from_utf8(said.stdout).unwrap();
        let shown = out
            .lines()
            .find_map(|l| l.trim_start().strip_prefix("sbatch "))
            .unwrap();
        let echo = Command::new("bash")
            .args(["-c", &format!("printf %s {shown}")])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(echo.stdout).unwrap(), name);
        assert!(dir.join(name).is_file());
    }
}
