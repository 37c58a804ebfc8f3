//! Each script under `scenarios/` is a test of its own, against the golden file beside it: `cargo test --test scenarios all_torn`.
//! `UPDATE_GOLDEN=1` accepts what comes out, unless an invariant broke.

#![expect(
    clippy::disallowed_methods,
    reason = "scripts and golden files are read from the source tree"
)]

#[expect(dead_code, reason = "the other tests of the core use the rest of it")]
mod world;

use std::path::Path;
use world::World;
use world::script::parse;
use world::words;

/// The records of one script, in words; the last line says how it stands.
fn play(text: &str) -> Result<String, String> {
    let mut w = World::new(parse(text).map_err(|e| format!("not a script: {e}"))?);
    w.run();
    let mut out = String::new();
    for l in &w.log {
        out.push_str(&words::line(l));
        out.push('\n');
    }
    let aside: Vec<String> = w.disk.aside.iter().map(|(id, _)| id.to_string()).collect();
    if !aside.is_empty() {
        out.push_str(&format!("aside: {}\n", aside.join(" ")));
    }
    if let Some(what) = &w.broken {
        return Err(format!("{out}BROKEN {what}"));
    }
    out.push_str(&format!("state: {}\n", w.s.mode.word()));
    Ok(out)
}

fn leads_to_its_golden_file(path: &Path, script: String) -> datatest_stable::Result<()> {
    let got = play(&script)?;
    let golden = path.with_extension("out");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &got)?;
    }
    let want = std::fs::read_to_string(&golden).map_err(|e| format!("{}: {e}; it gives\n{got}", golden.display()))?;
    if want == got {
        Ok(())
    } else {
        Err(difference(&want, &got).into())
    }
}

fn has_its_script(path: &Path) -> datatest_stable::Result<()> {
    if path.with_extension("txt").exists() {
        Ok(())
    } else {
        Err("a golden file without a script".into())
    }
}

fn difference(want: &str, got: &str) -> String {
    let (w, g): (Vec<&str>, Vec<&str>) = (want.lines().collect(), got.lines().collect());
    let at = w.iter().zip(&g).take_while(|(a, b)| a == b).count();
    format!(
        "line {}\n  golden: {}\n  now:    {}",
        at + 1,
        w.get(at).unwrap_or(&"(end)"),
        g.get(at).unwrap_or(&"(end)")
    )
}

datatest_stable::harness! {
    { test = leads_to_its_golden_file, root = "tests/scenarios", pattern = r"\.txt$" },
    { test = has_its_script, root = "tests/scenarios", pattern = r"\.out$" },
}
