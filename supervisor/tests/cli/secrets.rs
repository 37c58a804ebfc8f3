//! Secrets of every kind, planted wherever a user puts them: nothing that is written or shown holds one.

use crate::world::{Said, World, copy_fixture};
use camino::{Utf8Path, Utf8PathBuf};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Secrets that are known by their shape or by the name they stand behind.
const PLANTED: [&str; 12] = [
    "hf_abcdefghijklmnopqrstuvwxyz01234567",
    "sk-proj-ABCdef1234567890ABCdef",
    "ghp_ABCdef1234567890ABCdef1234567890ABCD",
    "github_pat_11AAAAAAA0abcdefghijkl_mnopqrst",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-123456789012-ABCDEFabcdef",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlMTIz",
    "T000/B000/s3cr3tOfSlack",
    "4321/s3cr3tOfDiscord",
    "pw-of-me",
    "hush-by-name",
    "hush-by-flag",
];

/// Shows its secrets to everybody, as a child and in its output, then fails with one of them.
const TRAINER: &str = r#"
sh -c 'sleep 1; :' ghp_ABCdef1234567890ABCdef1234567890ABCD --auth-token hush-by-flag
echo "step:1 - train/loss:0.5"
echo "Traceback (most recent call last):"
echo "  File \"x.py\", line 1, in <module>"
echo "RuntimeError: 401 for $TOKEN_OF_NO_NAME at http://me:pw-of-me@host, AKIAIOSFODNN7EXAMPLE"
exit 1
"#;

fn world() -> World {
    let world = World::new();
    copy_fixture("verl_ppo_fsdp2_w2", &world.path("ckpt"));
    world.write("trainer.sh", TRAINER);
    world.write(
        "ppo.yaml",
        "algorithm: {adv_estimator: grpo}
trainer:
  default_local_dir: ckpt
  save_freq: 1
  n_gpus_per_node: 2
  total_training_steps: 9
  project_name: xoxb-123456789012-ABCDEFabcdef
  note: {api_key: hush-by-name}
supervisor:
  command:
    - /bin/sh
    - trainer.sh
    - '{overrides}'
    - --auth-token
    - hush-by-flag
    - hf_abcdefghijklmnopqrstuvwxyz01234567
    - +trainer.proxy=http://me:pw-of-me@host:80
    - +trainer.hook=https://hooks.slack.com/services/T000/B000/s3cr3tOfSlack
    - '+trainer.more={WANDB_API_KEY:hush-by-name,a:1}'
    - +trainer.other=github_pat_11AAAAAAA0abcdefghijkl_mnopqrst
  env:
    WANDB_API_KEY: hush-by-name
    TOKEN_OF_NO_NAME: sk-proj-ABCdef1234567890ABCdef
    NOTIFY: https://discord.com/api/webhooks/4321/s3cr3tOfDiscord
    SESSION: eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlMTIz
  backoff: {initial: 10ms, max: 20ms}
  retries: 1
  scan_interval: 50ms
",
    );
    world
}

#[track_caller]
fn tells_none(what: &str, text: &str) {
    for secret in PLANTED {
        let at = text.find(secret);
        let around = at.map(|at| text.get(at.saturating_sub(200)..at + secret.len()).unwrap_or(text));
        assert!(at.is_none(), "{what} holds {secret}: …{}", around.unwrap_or_default());
    }
}

#[track_caller]
fn said_none(what: &str, said: &Said) {
    tells_none(&format!("standard output of {what}"), &said.out);
    tells_none(&format!("standard error of {what}"), &said.err);
}

fn files_below(dir: &Utf8Path) -> Vec<Utf8PathBuf> {
    let mut out = Vec::new();
    for entry in dir.read_dir_utf8().unwrap().flatten() {
        match entry.file_type() {
            Ok(t) if t.is_dir() => out.extend(files_below(entry.path())),
            Ok(t) if t.is_file() => out.push(entry.into_path()),
            _ => {}
        }
    }
    out
}

#[test]
fn no_secret_is_written_or_shown() {
    let world = world();
    let run = world.run(&["run", "ppo.yaml"]);
    assert!(run.code == 3 || run.code == 6, "{run:#?}");
    said_none("run", &run);
    for args in [
        &["plan", "ppo.yaml"][..],
        &["plan", "ppo.yaml", "--json"],
        &["status", "ppo.yaml"],
        &["status", "--json"],
        &["explain", "ppo.yaml"],
        &["explain", "ppo.yaml", "--json"],
        &["checkpoints", "ppo.yaml"],
        &["config", "show", "ppo.yaml"],
        &["config", "show", "ppo.yaml", "--json"],
        &["run", "ppo.yaml", "--again", "--json"],
        &["run", "--set", "xoxb-123456789012-ABCDEFabcdef", "ppo.yaml"],
        &["verify", "hf_abcdefghijklmnopqrstuvwxyz01234567"],
        &["stop", "ppo.yaml"],
    ] {
        said_none(&args.join(" "), &world.run(args));
    }
    let mut logs = 0;
    let ours = [world.path("ckpt/.supervise"), world.path("state")];
    for file in ours.iter().flat_map(|dir| files_below(dir)) {
        let text = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
        if file
            .file_name()
            .is_some_and(|n| n.starts_with("worker-") && n.contains(".log"))
        {
            // The trainer's own words are kept as they are, for nobody but their owner.
            logs += 1;
            let mode = fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{file}: {mode:o}");
            continue;
        }
        tells_none(file.as_str(), &text);
    }
    assert!(logs > 0);
    let trees: Vec<_> = files_below(&world.path("ckpt/.supervise/attempts"))
        .into_iter()
        .filter(|f| f.file_name() == Some("tree"))
        .collect();
    let trees: String = trees.iter().map(|f| fs::read_to_string(f).unwrap()).collect();
    assert!(
        trees.contains("trainer.sh") && trees.contains("--auth-token ***"),
        "{trees}"
    );
}

#[test]
fn the_address_of_a_cluster_is_told_without_its_login() {
    let world = world();
    let said = world.run_with(
        &["plan", "ppo.yaml"],
        &[("RAY_ADDRESS", "http://me:pw-of-me@127.0.0.1:1")],
    );
    said.refuses(69, &["RAY_ADDRESS", "127.0.0.1:1"]);
    said_none("plan", &said);
}
