//! The pages that people read: every link leads somewhere, and every command block that is marked runs.
//!
//! A block with `<!-- runnable -->` in the line before it is run by bash, line after line, in a directory that the blocks of its page
//! share: `examples/` and `tests/fixtures/` lie in it as in a clone, `supervise` and the demo trainer are on PATH. The first
//! command that fails ends it. What needs GPUs or a real trainer has no mark.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MARK: &str = "\n<!-- runnable -->\n";
/// Columns: what a terminal and a page on a screen show of a line that cannot be wrapped.
const SCREEN: usize = 160;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every page, by its path from the top.
fn pages() -> Vec<PathBuf> {
    fn below(folder: &Path, out: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => below(&path, out),
                false if path.extension().is_some_and(|e| e == "md") => out.push(path),
                false => {}
            }
        }
    }
    let mut out: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "BENCHMARKS.md"]
        .map(|p| top().join(p))
        .into();
    below(&top().join("docs"), &mut out);
    out.sort();
    out
}

/// Lines outside of blocks, without `code`.
fn prose(text: &str) -> Vec<String> {
    let mut inside = false;
    let mut out = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside && !line.starts_with("    ") {
            out.push(line.split('`').step_by(2).collect::<Vec<_>>().join("`"));
        }
    }
    out
}

/// Where the links of a line lead.
fn links(line: &str) -> Vec<&str> {
    let mut out: Vec<&str> = line.split("](").skip(1).filter_map(|l| l.split(')').next()).collect();
    for attribute in ["src=\"", "href=\"", "srcset=\""] {
        out.extend(line.split(attribute).skip(1).filter_map(|l| l.split('"').next()));
    }
    out
}

/// The anchors of a page, as GitHub makes them of its headings.
fn anchors(page: &Path) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    let mut inside = false;
    for line in fs::read_to_string(page).unwrap().lines() {
        inside ^= line.starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !inside) else {
            continue;
        };
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let slug: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let again = (1..).map(|n| format!("{slug}-{n}"));
        let free = std::iter::once(slug.clone()).chain(again).find(|s| !out.contains(s));
        out.extend(free);
    }
    out
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    let tests = [
        "tests/real/README.md",
        "tests/fixtures/README.md",
        "tests/fixtures/logs/README.md",
    ]
    .map(|p| top().join(p));
    for page in pages().into_iter().chain(tests) {
        for line in prose(&fs::read_to_string(&page).unwrap()) {
            for link in links(&line).into_iter().filter(|l| !l.starts_with("https://")) {
                let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = match file {
                    "" => page.clone(),
                    _ => page.parent().unwrap().join(file),
                };
                if !target.exists() || !anchor.is_empty() && !anchors(&target).contains(anchor) {
                    broken.push(format!("{}: {link}", page.display()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "these links lead nowhere: {broken:#?}");
}

#[test]
fn every_page_is_in_the_index() {
    let index = fs::read_to_string(top().join("docs/README.md")).unwrap();
    for page in pages() {
        let Ok(name) = page.strip_prefix(top().join("docs")) else {
            continue;
        };
        let link = format!("]({})", name.display());
        assert!(
            name == "README.md" || index.contains(&link),
            "docs/README.md does not name {name:?}"
        );
    }
}

#[test]
fn pages_fit_a_screen() {
    let readme = fs::read_to_string(top().join("README.md")).unwrap();
    assert!(readme.lines().count() <= 80, "README.md has more than 80 lines");
    let mut long = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let rows = text
            .lines()
            .filter(|line| line.starts_with('|') && line.chars().count() > SCREEN);
        long.extend(rows.map(|line| format!("{}: {line}", page.display())));
    }
    assert!(
        long.is_empty(),
        "these lines of tables are longer than {SCREEN}: {long:#?}"
    );
}

/// The blocks of a page that are to be run.
fn blocks(text: &str) -> Vec<String> {
    let marked = text.split(MARK).skip(1);
    marked
        .map(|rest| {
            let block = rest.trim_start().strip_prefix("```sh\n");
            let block = block.unwrap_or_else(|| panic!("no block of commands follows {MARK}: {rest:.80}"));
            block.split("\n```").next().unwrap().to_owned()
        })
        .collect()
}

/// A directory in which blocks are run.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        let scratch = Self(tempfile::tempdir().unwrap());
        let copied = Command::new("cp")
            .args(["-r", "--parents", "examples", "tests/fixtures"])
            .arg(scratch.0.path())
            .current_dir(top())
            .status();
        assert!(copied.unwrap().success());
        scratch
    }

    /// What the commands print.
    fn run(&self, commands: &str) -> Result<String, String> {
        let programs = Path::new(env!("CARGO_BIN_EXE_demo_trainer")).parent().unwrap();
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display());
        let home = self.0.path().join("home");
        let output = Command::new("bash")
            .args(["-euxo", "pipefail", "-c", commands])
            .current_dir(self.0.path())
            .env_clear()
            .envs([
                ("PATH", path.into()),
                ("HOME", home.clone().into_os_string()),
                ("XDG_STATE_HOME", home.into()),
            ])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        match output.status.success() {
            true => Ok(out.into_owned()),
            false => Err(format!("{commands}\n\nended with {}:\n{err}\n{out}", output.status)),
        }
    }
}

#[test]
fn every_marked_block_runs() {
    let mut ran = 0;
    for page in pages() {
        let blocks = blocks(&fs::read_to_string(&page).unwrap());
        let scratch = (!blocks.is_empty()).then(Scratch::new);
        for block in &blocks {
            let said = scratch.as_ref().unwrap().run(block);
            said.unwrap_or_else(|e| panic!("{}: {e}", page.display()));
            ran += 1;
        }
    }
    assert!(ran > 5, "only {ran} blocks are marked");
}

#[test]
fn the_picture_is_drawn_from_a_run() {
    let scratch = Scratch::new();
    let script = top().join("docs/recovered_run.py");
    let draw = format!(
        "python3 {} $(dirname $(which supervise)) out.svg && cat out.svg",
        script.display()
    );
    let picture = scratch.run(&draw).unwrap();
    for part in [
        "attempt 5",
        "SIGKILL",
        "exit code 1",
        "class=\"proven\"",
        "class=\"lost\"",
        "class=\"bad\"",
    ] {
        assert!(picture.contains(part), "{part} is not in it: {picture}");
    }
    let kept = fs::read_to_string(top().join("docs/recovered-run.svg")).unwrap();
    let title = |svg: &str| svg.lines().find(|l| l.contains("<title>")).map(str::to_owned);
    assert_eq!(title(&picture), title(&kept));
}

/// Every key in a value, wherever it stands.
fn keys(value: &Value, out: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|v| keys(v, out)),
        Value::Object(fields) => fields.iter().for_each(|(key, v)| {
            out.insert(key.clone());
            // Keys in these are verdicts, roles of the trainer, and the journal's own.
            if !["checkpoints", "holds", "roles", "record"].contains(&key.as_str()) {
                keys(v, out);
            }
        }),
        _ => {}
    }
}

#[test]
fn every_key_of_json_is_on_its_page() {
    let scratch = Scratch::new();
    let page = fs::read_to_string(top().join("docs/json.md")).unwrap();
    let mut missing = Vec::new();
    for command in [
        "run examples/configs/demo.yaml --json",
        "run --detach --json --set supervisor.trainer=plain --set supervisor.run_dir=plain -- true",
        "status demo-run/checkpoints --json",
        "plan examples/configs/demo.yaml --json",
        "plan examples/configs/demo.yaml --json --set trainer.default_local_dir=other",
        "explain demo-run/checkpoints --json",
        "logs demo-run/checkpoints --json",
        "checkpoints demo-run/checkpoints --json",
        "verify demo-run/checkpoints tests/fixtures/areal_sft_w2/checkpoints/trainer/real/t0 --depth full --tensors --json",
        "migrate --checkpoint tests/fixtures/verl_megatron_v1_hf/global_step_1 --dry-run --json",
        "merge tests/fixtures/verl_sft_fsdp2_w2 --target merged --json",
        "compare tests/fixtures/verl_sft_fsdp2_w2 merged --as float32 --tolerance 1 --json",
        "convert hf-to-megatron merged --target converted --json",
        "reshard tests/fixtures/verl_sft_fsdp2_w2 --world-size 4 --target resharded --json",
        "stop demo-run/checkpoints --json",
        "gc demo-run/checkpoints --dry-run --json",
        "config show examples/configs/demo.yaml --json",
        "doctor --json",
    ] {
        let said = scratch.run(&format!("supervise {command}")).unwrap();
        let mut all = BTreeSet::new();
        for value in serde_json::Deserializer::from_str(&said).into_iter::<Value>() {
            keys(&value.unwrap(), &mut all);
        }
        assert!(!all.is_empty(), "{command}");
        let section = |name: &str| page.split("\n## ").find(|s| s.starts_with(name)).unwrap();
        let own = section(&format!("`{}", command.split(' ').next().unwrap()));
        // What `run` ends with is what `status` says.
        let more = if command.starts_with("run ") {
            section("`status`")
        } else {
            ""
        };
        let told = [own, more, section("Shared objects")].concat();
        let unknown = |k: &&String| !told.contains(&format!("`{k}`")) && !told.contains(&format!("\"{k}\""));
        missing.extend(all.iter().filter(unknown).map(|key| format!("{key} of `{command}`")));
    }
    assert!(
        missing.is_empty(),
        "docs/json.md does not tell these keys: {missing:#?}"
    );
}
