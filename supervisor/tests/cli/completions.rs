//! What a shell completes.

use crate::world::{World, copy_fixture};
use std::os::unix::fs::symlink;
use std::process::Command;

const RUN: &str = "0123456789abcdef";

/// What bash completes the last word to, with the printed script.
fn completed(world: &World, words: &[&str]) -> Vec<String> {
    let script = r#"source <(supervise completions bash) || exit 1
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _clap_complete_supervise supervise "${COMP_WORDS[COMP_CWORD]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let ours = world.command();
    let output = Command::new("bash")
        .args(["-c", script, "bash", "supervise"])
        .args(words)
        .current_dir(world.dir())
        .env_clear()
        .envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("PATH", format!("{}:/usr/bin:/bin", world.path("bin")))
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn flags_settings_runs_and_steps_are_completed() {
    let world = World::new();
    std::fs::create_dir(world.path("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_supervise"), world.path("bin/supervise")).unwrap();
    copy_fixture("verl_ppo_fsdp2_w2", &world.path("ckpt"));
    world.write("ppo.yaml", "trainer: {default_local_dir: ckpt}\n");
    let listed = serde_json::json!({ "run": RUN, "run_dir": world.path("ckpt/.supervise"), "root": world.path("ckpt"), "config": world.path("ppo.yaml") });
    world.write(&format!("state/supervise/runs/{RUN}.json"), &listed.to_string());

    assert_eq!(completed(&world, &["roll"]), ["rollback"]);
    assert_eq!(completed(&world, &["run", "--det"]), ["--detach"]);
    assert_eq!(
        completed(&world, &["run", "--set", "supervisor.retr"]),
        ["supervisor.retries="]
    );
    assert_eq!(completed(&world, &["status", "0123"]), [RUN]);
    assert_eq!(completed(&world, &["status", "pp"]), ["ppo.yaml"]);
    assert_eq!(completed(&world, &["run", "ppo.yaml", "--from", ""]), ["2", "1"]);
    assert_eq!(completed(&world, &["rollback", RUN, "--to", "1"]), ["1"]);
    // Flags for our own processes.
    assert!(completed(&world, &["run", "--own"]).is_empty());
    assert!(completed(&world, &["run", "--giv"]).is_empty());
}
