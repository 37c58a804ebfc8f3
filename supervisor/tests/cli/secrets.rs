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
            .is_some_and(|n| n.starts_with("worker-") && n.contains(".log") && !n.ends_with(".hide"))
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

/// Values that only their names tell of: in the environment of the supervisor, in that of the trainer, in the configuration.
const NAMED: [&str; 5] = [
    "odd-value-of-the-shell-7",
    "odd-value-of-the-flag-7",
    "odd-value-of-the-setting-7",
    "odd-value-of-the-key-7",
    "cDovL29mIGEgcHJpdmF0ZSBrZXkgd2l0aG91dCBpdHMgYmVnaW4wMTIzNDU2Nzg5",
];

/// Prints them without their names, fails with them, and with a private key.
const TALKER: &str = r#"
echo "step:3 - train/loss:0.5"
echo "ready with $SHELL_TOKEN"
echo "and with $FLAG_PASS"
echo "Traceback (most recent call last):"
echo "  File \"x.py\", line 1, in <module>"
echo "    login('$SHELL_TOKEN', '$OTHER_PASSWORD')"
echo "RuntimeError: $SHELL_TOKEN and $OTHER_PASSWORD and odd-value-of-the-key-7 are refused in $PLACE"
echo "-----BEGIN PRIVATE KEY-----"
echo "cDovL29mIGEgcHJpdmF0ZSBrZXkgd2l0aG91dCBpdHMgYmVnaW4wMTIzNDU2Nzg5"
echo "q1W2e3=="
echo "-----END PRIVATE KEY-----"
exit 1
"#;

#[test]
fn values_of_secret_names_that_the_trainer_prints_are_quoted_nowhere() {
    let world = World::new();
    copy_fixture("verl_ppo_fsdp2_w2", &world.path("ckpt"));
    world.write("trainer.sh", TALKER);
    let told = world.path("told");
    world.write(
        "ppo.yaml",
        &format!(
            "algorithm: {{adv_estimator: grpo}}
trainer:
  default_local_dir: ckpt
  save_freq: 1
  n_gpus_per_node: 2
  total_training_steps: 9
  logger_api_key: odd-value-of-the-key-7
supervisor:
  command: [/bin/sh, trainer.sh, '{{overrides}}']
  env: {{OTHER_PASSWORD: odd-value-of-the-setting-7, PLACE: '/data/of/mine'}}
  backoff: {{initial: 10ms, max: 20ms}}
  retries: 1
  scan_interval: 50ms
  on_event: {{command: [/bin/sh, -c, 'cat >> {told}']}}
"
        ),
    );
    let shell = [("SHELL_TOKEN", NAMED[0]), ("SOME_TOKEN", "short")];
    let none = |what: &str, text: &str| {
        for value in NAMED.iter().chain(&["q1W2e3=="]) {
            assert!(!text.contains(value), "{what} holds {value}: {text}");
        }
    };
    let flag = format!("supervisor.env.FLAG_PASS={}", NAMED[1]);
    let run = world.run_with(&["run", "ppo.yaml", "--tee", "--set", &flag], &shell);
    assert!(run.code == 3 || run.code == 6, "{run:#?}");
    none("what is printed", &format!("{}{}", run.out, run.err));
    // The output itself is there, and what is no secret stays.
    let line = "RuntimeError: *** and *** and *** are refused in /data/of/mine";
    assert!(run.out.contains("ready with ***") && run.out.contains(line), "{run:#?}");
    none("what is told", &fs::read_to_string(&told).unwrap());

    // Whoever looks later has none of them.
    for args in [
        &["status", "ppo.yaml"][..],
        &["explain", "ppo.yaml", "--verbose"],
        &["explain", "ppo.yaml", "--json"],
        &["history", "ppo.yaml"],
    ] {
        let said = world.run(args);
        none(&args.join(" "), &format!("{}{}", said.out, said.err));
    }
    let explained = world.run(&["explain", "ppo.yaml", "--verbose"]);
    assert!(explained.out.contains("are refused"), "{explained:#?}");
    // The helper that writes this outlives the run by a moment.
    let tail = world.path("ckpt/.supervise/attempts/0001/evidence/tail-0.log");
    let is_whole = |_| fs::read_to_string(&tail).is_ok_and(|text| text.contains("-----END PRIVATE KEY-----"));
    let came = (0..1200).any(|n| {
        is_whole(n) || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            false
        }
    });
    assert!(came, "{tail}");
    for file in [world.path("ckpt/.supervise"), world.path("state")]
        .iter()
        .flat_map(|dir| files_below(dir))
    {
        let name = file.file_name().unwrap().to_owned();
        let text = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
        // The trainer's own output is kept as it is.
        match name.starts_with("worker-") && !name.ends_with(".hide") {
            true => assert!(text.contains(NAMED[0]) && text.contains(NAMED[4]), "{file}: {text}"),
            false => none(file.as_str(), &text),
        }
    }
    let bundle = world.path("report.tar.zst");
    // Its shell knows neither the variable nor the flag.
    world
        .run(&["explain", "ppo.yaml", "--bundle", bundle.as_str()])
        .tells(0, &["report.tar.zst", "worker-N.log", "is not in it"]);
    let mut plain = Vec::new();
    let packed = fs::read(&bundle).unwrap();
    let mut reader = ruzstd::decoding::StreamingDecoder::new(packed.as_slice()).unwrap();
    std::io::Read::read_to_end(&mut reader, &mut plain).unwrap();
    let plain = String::from_utf8_lossy(&plain).into_owned();
    assert!(
        plain.contains("evidence/tail-0.log") && plain.contains("ready with ***\nand with ***"),
        "{plain}"
    );
    assert!(!plain.contains("attempts/0001/worker-0.log\0"), "{plain}");
    none("the bundle", &plain);
}
