//! Facts about the build that only cargo knows, for `supervise --version --json`, and how the program is linked.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    let rustc = Command::new(var("RUSTC")).arg("--version").output();
    let rustc = rustc.map_or_else(
        |_| String::new(),
        |o| String::from_utf8_lossy(&o.stdout).trim().to_owned(),
    );
    let mut features: Vec<String> = std::env::vars()
        .filter_map(|(name, _)| Some(name.strip_prefix("CARGO_FEATURE_")?.to_lowercase()))
        .collect();
    features.sort();
    for (name, value) in [
        ("TARGET", var("TARGET")),
        ("PROFILE", var("PROFILE")),
        ("RUSTC", rustc),
        ("FEATURES", features.join(",")),
    ] {
        println!("cargo::rustc-env=BUILD_OF_{name}={value}");
    }
    // At a fixed address nothing has to be relocated: 400 KiB that every process of ours would otherwise write into, eight of them beside a run.
    if var("CARGO_CFG_TARGET_OS") == "linux" {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
