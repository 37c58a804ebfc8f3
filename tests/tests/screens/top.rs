//! `supervise top` on terminals of two sizes, told from recorded run directories: `tests/top.md`.

use super::{FAILURES, calm, copied, is_golden, scene, top};
use regex::Regex;
use std::path::Path;
use supervise_tests::harness::Tmux;

/// The same at every time: ages are as wide as they are long, and lines are filled up to what stands at their end.
fn screen(text: &str, folder: &Path) -> String {
    let ages = Regex::new(r"\(ended .* ago\)").unwrap();
    let text = calm(&ages.replace_all(text, "(ended AGE ago)"), folder);
    let lines = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "));
    let text: String = lines.map(|l| l + "\n").collect();
    let empty = Regex::new(r"\n{3,}").unwrap();
    empty.replace_all(text.trim_end(), "\n\n").into_owned() + "\n"
}

#[test]
fn top_is_drawn_as_it_was_read_last() {
    let scene = scene();
    let folder = scene.path("");
    let mut names = Vec::new();
    for (name, ..) in FAILURES {
        let dir = scene.path(name);
        copied(&top().join("fixtures/screens").join(name), &dir);
        names.push(dir.display().to_string());
    }
    let mut arguments = vec!["top"];
    arguments.extend(names.iter().map(String::as_str));
    let mut out = String::from(
        "# `supervise top`\n\nScreens, as a person reads them, but for blanks. A test compares them; the failures are those of [screens](screens.md).\n",
    );
    for (width, height) in [(80, 24), (200, 60)] {
        let on = match Tmux::start(&scene, (width, height), &scene.program("supervise"), &arguments) {
            Ok(on) => on,
            Err(no) => return no.tell("top_is_drawn_as_it_was_read_last"),
        };
        let mut shown = |what: &str, of: &str| {
            let drawn = on.shows(of);
            assert_eq!(drawn.lines().count(), usize::from(height), "{drawn}");
            assert!(
                drawn.lines().all(|l| l.chars().count() <= usize::from(width)),
                "{drawn}"
            );
            assert!(
                drawn.starts_with("supervise  ") && drawn.trim_end().ends_with("q leave"),
                "{drawn}"
            );
            // How much of a run fits on a small screen depends on how long ages are.
            if what != "One run" || height > 24 {
                out.push_str(&format!(
                    "\n## {what}, {width} × {height}\n\n```text\n{}```\n",
                    screen(&drawn, &folder)
                ));
            }
        };
        shown("Runs", "because global_step_12 is");
        on.keys(&["End", "Enter"]);
        shown("One run", "attempts, the newest first");
        on.keys(&["Escape", "q"]);
        let _ = on.ended(0);
    }
    is_golden("top.md", &out);
}
