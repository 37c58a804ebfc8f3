//! Man pages, and what `make install` puts where.

use crate::world::World;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Subcommands, as the program lists them.
fn subcommands(world: &World) -> Vec<String> {
    let help = world.run(&["--help"]).out;
    let list = help.lines().skip_while(|l| !l.starts_with("Usage:")).skip(1);
    let list = list.take_while(|l| *l != "Options:");
    let names = list.filter_map(|l| {
        l.strip_prefix("  ")?
            .split_once("  ")
            .map(|(name, _)| name.trim().to_owned())
    });
    names.filter(|n| !n.is_empty() && n != "help").collect()
}

#[test]
fn each_subcommand_has_a_page() {
    let world = World::new();
    let dir = world.path("man");
    world.run(&["man", dir.as_str()]).tells(0, &[]);
    let names = subcommands(&world);
    assert!(names.len() > 12, "{names:?}");
    for name in names {
        let page = fs::read_to_string(dir.join(format!("supervise-{name}.1"))).unwrap();
        assert!(page.contains("Exit codes:") && page.contains("Examples:"), "{name}");
    }
    let own = fs::read_to_string(dir.join("supervise.1")).unwrap();
    assert!(world.run(&["man"]).out == own);
    assert!(own.contains("supervise\\-explain(1)"), "{own}");
    world
        .run(&["man", "/dev/null/x"])
        .refuses(69, &["writing man pages into /dev/null/x"]);
}

#[test]
fn an_installation_has_all_that_the_unit_names() {
    let dest = tempfile::tempdir().unwrap();
    let made = Command::new("make")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .args(["--no-print-directory", "install", "PREFIX=/opt/x"])
        .arg(format!("DESTDIR={}", dest.path().display()))
        .arg(format!("BIN={}", env!("CARGO_BIN_EXE_supervise")))
        .env_remove("MAKEFLAGS")
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let at = |path: &str| dest.path().join("opt/x").join(path);
    let unit = fs::read_to_string(at("lib/systemd/system/supervise@.service")).unwrap();
    assert!(unit.contains("ExecStart=/opt/x/bin/supervise run "), "{unit}");
    assert!(unit.contains("Documentation=man:supervise(1)"), "{unit}");
    for file in [
        "bin/supervise",
        "share/man/man1/supervise.1",
        "share/man/man1/supervise-run.1",
        "share/bash-completion/completions/supervise",
        "share/zsh/site-functions/_supervise",
        "share/fish/vendor_completions.d/supervise.fish",
    ] {
        assert!(fs::metadata(at(file)).unwrap().len() > 0, "{file}");
    }
    assert!(
        Command::new(at("bin/supervise"))
            .arg("--version")
            .output()
            .unwrap()
            .status
            .success()
    );
}

const DEMO: &str = "\
trainer:
  default_local_dir: ckpt
  total_training_steps: 10
  save_freq: 2
  n_gpus_per_node: 1
algorithm:
  adv_estimator: grpo
supervisor:
  trainer: verl
  command: [/bin/true, '{overrides}']
";

#[test]
fn a_service_of_ones_own_is_written_once() {
    let world = World::new();
    world.write("my run.yaml", DEMO);
    let install = ["install", "--systemd", "--user", "my run.yaml"];
    let shown = world.run(&[&install[..], &["--print"]].concat());
    shown.tells(0, &["Type=notify", "WantedBy=default.target", "/my run.yaml\""]);
    let written = world.run(&install);
    written.tells(
        0,
        &[
            "supervise-my-run.service is written",
            "systemctl --user enable --now supervise-my-run",
        ],
    );
    let path = written.out.split(" is written").next().unwrap().to_owned();
    assert_eq!(fs::read_to_string(&path).unwrap(), shown.out);
    world.run(&install).tells(0, &["is written"]);
    fs::write(&path, "somebody's own").unwrap();
    world.run(&install).refuses(64, &["says something else", "--force"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "somebody's own");
    world
        .run(&[&install[..], &["--force"]].concat())
        .tells(0, &["is written"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), shown.out);
}

#[test]
fn secrets_of_a_command_stand_where_nobody_else_reads_them() {
    let world = World::new();
    world.write("ppo.yaml", DEMO);
    let install = |more: &[&str]| {
        let trainer = ["--", "/bin/true", "{overrides}", "--hub-token", "hush-by-flag-1"];
        let args = [&["install", "--systemd", "--user", "ppo.yaml"], more, &trainer].concat();
        world.run(&args)
    };
    let shown = install(&["--print"]);
    shown.tells(
        0,
        &["\"--hub-token\" \"${SECRET_WORD_4}\"", "supervise/ppo.secrets.env\n"],
    );
    let mode = |path: &str| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let secrets = world.path("config/supervise/ppo.secrets.env");
    assert!(!secrets.exists());
    let written = install(&[]);
    written.tells(0, &["is written, its secrets into", secrets.as_str()]);
    let path = written.out.split(" is written").next().unwrap();
    // The printed text is the written one, and everybody may read it.
    assert_eq!(
        (fs::read_to_string(path).unwrap(), mode(path) & 0o044),
        (shown.out.clone(), 0o044)
    );
    for text in [&shown.out, &shown.err, &written.out] {
        assert!(!text.contains("hush") && !text.contains("***"), "{text}");
    }
    assert_eq!(
        fs::read_to_string(&secrets).unwrap(),
        "SECRET_WORD_4=\"hush-by-flag-1\"\n"
    );
    assert_eq!(mode(secrets.as_str()), 0o600);
    // The name as systemctl shows it is the same name.
    let named = install(&["--name", "other.service"]);
    named.tells(
        0,
        &["/supervise-other.service is written", "enable --now supervise-other\n"],
    );
}

#[test]
fn a_batch_script_with_secrets_is_for_nobody_else_to_read() {
    let world = World::new();
    world.write("ppo.yaml", DEMO);
    let write = |name: &str, trainer: &[&str]| {
        let args = [
            &["sbatch", "ppo.yaml", "--output", name, "--", "--time=1-0", "--"],
            trainer,
        ]
        .concat();
        world.run(&args).tells(0, &["is written"]);
        let path = world.path(name);
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        (fs::read_to_string(path).unwrap(), mode & 0o077)
    };
    let (text, mode) = write(
        "a.sbatch",
        &["/bin/true", "{overrides}", "--hub-token", "hush-by-flag-1"],
    );
    assert!(text.contains("hush-by-flag-1") && mode == 0, "{mode:o} {text}");
    assert_ne!(write("b.sbatch", &["/bin/true", "{overrides}"]).1, 0);
}

#[test]
fn what_run_would_refuse_is_not_installed() {
    let world = World::new();
    world.write("ppo.yaml", &DEMO.replace("save_freq: 2", "save_freq: [2"));
    world
        .run(&["install", "--systemd", "--user", "ppo.yaml"])
        .refuses(78, &["ppo.yaml"]);
    world.write("ppo.yaml", DEMO);
    world.run(&["install", "ppo.yaml"]).refuses(64, &["--systemd"]);
    world
        .run(&["install", "--systemd", "--user", "--name", "a/b", "ppo.yaml"])
        .refuses(64, &["--name a/b", "expected"]);
    world
        .run(&[
            "install",
            "--systemd",
            "--user",
            "ppo.yaml",
            "--",
            "python3",
            "-c",
            "a\nExecStop=/bin/x",
        ])
        .refuses(64, &["expected words of one line"]);
}
