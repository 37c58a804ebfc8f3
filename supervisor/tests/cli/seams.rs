//! Preparation and the driver know nothing of each other: what both need stands in a third place, which knows neither.

use crate::docs::sources;
use std::fs;
use std::path::Path;

/// Lines of code below `supervisor/src` in the files that begin so and name the module.
fn naming(files: &str, module: &str) -> Vec<String> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut all, mut out, mut seen) = (Vec::new(), Vec::new(), 0);
    sources(&src, &mut all);
    for path in all {
        let name = path.strip_prefix(&src).unwrap().to_str().unwrap();
        if !name.starts_with(files) {
            continue;
        }
        seen += 1;
        let text = fs::read_to_string(&path).unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let names = code.filter(|line| line.split(|c| !is_name(c)).any(|word| word == module));
        out.extend(names.map(|line| format!("{name}: {}", line.trim())));
    }
    assert!(seen > 0, "no file begins with {files}");
    out
}

#[test]
fn preparation_and_the_driver_know_nothing_of_each_other() {
    let none: [&str; 0] = [];
    for (files, module) in [
        ("driver", "prepare"),
        ("prepare", "driver"),
        ("run_order", "prepare"),
        ("run_order", "driver"),
        ("rehearse", "prepare"),
        ("rehearse", "driver"),
    ] {
        assert_eq!(naming(files, module), none, "{files} names {module}");
    }
    // It would find one.
    assert!(!naming("cli/run", "driver").is_empty());
}
