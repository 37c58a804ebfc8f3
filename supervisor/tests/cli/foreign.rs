//! Names and words of others that try to play with the terminal: they are shown as escapes, and forge no line.

use crate::world::{Said, World, copy_fixture};
use std::fs;

/// Clears the screen, forges a line, sets the title, turns the direction of text.
const HOSTILE: &str = "a\x1b[2J\nforged: whole\x1b]0;title\x07\u{9b}1A\u{202e}b";

#[track_caller]
fn is_safe(what: &str, said: &Said) {
    for (stream, text) in [("output", &said.out), ("errors", &said.err)] {
        let obeyed = text
            .chars()
            .find(|c| c.is_control() && *c != '\n' || matches!(c, '\u{202a}'..='\u{202e}'));
        assert!(obeyed.is_none(), "{stream} of {what} hold {obeyed:?}: {text:?}");
        let forged = text.lines().find(|l| l.starts_with("forged"));
        assert!(forged.is_none(), "{stream} of {what}: {text:?}");
    }
}

#[test]
fn names_and_arguments_cannot_play_with_the_terminal() {
    let world = World::new();
    copy_fixture("verl_ppo_fsdp2_w2", &world.path(HOSTILE));
    let root = world.path(HOSTILE);
    let (name, step) = (root.to_string(), root.join("global_step_2").to_string());
    fs::write(root.join(format!("global_step_2/actor/{HOSTILE}.pt")), "x").unwrap();
    let odd = format!("{name}/none");
    let setting = format!("{HOSTILE}=1");
    let command = format!("./{HOSTILE}");
    for args in [
        &["verify", &name][..],
        &["verify", &step, "--json"],
        &["verify", &odd],
        &["verify", &name, "--scrub"],
        &["checkpoints", &name],
        &["checkpoints", &name, "--json"],
        &["checkpoints", &odd],
        &["status", &name],
        &["status", HOSTILE],
        &["explain", HOSTILE],
        &["logs", HOSTILE],
        &["stop", HOSTILE],
        &["plan", HOSTILE],
        &["plan", "--set", &setting, "--", "true"],
        &["plan", "--set", "supervisor.trainer=plain", "--", &command],
        &["config", "show", "--set", &format!("supervisor.{setting}")],
        &[HOSTILE],
        &["run", &format!("--{HOSTILE}")],
    ] {
        let said = world.run(args);
        is_safe(&format!("{args:?}"), &said);
        assert!(said.code >= 0, "{said:?}");
    }
    let said = world.run(&["verify", &name]);
    assert!(
        said.out
            .contains(r"a\x1b[2J\nforged: whole\x1b]0;title\x07\x9b1A\u{202e}b"),
        "{said:#?}"
    );
}

#[test]
fn a_run_in_a_hostile_place_is_told_safely() {
    let world = World::new();
    let args = [
        "--set",
        "supervisor.trainer=plain",
        "--",
        "/bin/sh",
        "-c",
        "exit 0",
        HOSTILE,
    ];
    let run: Vec<&str> = ["run"].into_iter().chain(args).collect();
    let plan: Vec<&str> = ["plan"].into_iter().chain(args).collect();
    fs::create_dir(world.path(HOSTILE)).unwrap();
    let said = world.run_in(HOSTILE, &run);
    is_safe("run", &said);
    assert_eq!(said.code, 0, "{said:#?}");
    for args in [
        &plan[..],
        &["status"],
        &["status", "--json"],
        &["explain"],
        &["explain", "--json"],
        &["stop"],
    ] {
        is_safe(&format!("{args:?}"), &world.run_in(HOSTILE, args));
    }
}

#[test]
fn the_output_of_workers_is_safe_on_a_terminal_and_whole_in_a_pipe() {
    let world = World::new();
    let printed = r"printf '\033[31mred\033[0m \033[2Jgone\033]0;title\007\nlast'";
    let run = world.run(&[
        "run",
        "--set",
        "supervisor.trainer=plain",
        "--",
        "/bin/sh",
        "-c",
        printed,
    ]);
    assert_eq!(run.code, 0, "{run:#?}");
    let whole = "\x1b[31mred\x1b[0m \x1b[2Jgone\x1b]0;title\x07\nlast";
    // The log is written by a process of its own, which may end after the run.
    let there = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        world.run(&["logs"]).out.contains(whole)
    });
    assert!(there, "{:?}", world.run(&["logs"]));
    assert!(world.run(&["logs", "--raw"]).out.contains(whole));
    let said = world.run(&["logs", "--json"]);
    is_safe("logs --json", &said);
    let lines: Vec<serde_json::Value> = said.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines[1]["text"], "last");
    assert_eq!((&lines[1]["worker"], &lines[1]["line"]), (&0.into(), &2.into()));
    // A terminal is made by util-linux's `script`, where it is installed.
    let on_terminal = |flag: &str| {
        let line = format!("{} logs {flag}", env!("CARGO_BIN_EXE_supervise"));
        let mut command = world.command();
        let shell = std::process::Command::new("script").arg("--version").output();
        let envs: Vec<_> = command
            .get_envs()
            .map(|(k, v)| (k.to_owned(), v.map(ToOwned::to_owned)))
            .collect();
        shell.ok()?;
        command = std::process::Command::new("script");
        command
            .args(["-qec", &line, "/dev/null"])
            .current_dir(world.dir())
            .env_clear();
        command.envs(envs.into_iter().filter_map(|(k, v)| Some((k, v?))));
        command.stdin(std::process::Stdio::null());
        Some(String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned())
    };
    let Some(shown) = on_terminal("") else {
        return crate::skipped("`script` is not installed, so there is no terminal");
    };
    assert!(
        shown.contains("\x1b[31mred\x1b[0m \\x1b[2Jgone\\x1b]0;title\\x07"),
        "{shown:?}"
    );
    assert!(on_terminal("--raw").unwrap().contains("\x1b[2Jgone\x1b]0;title\x07"));
}

#[test]
fn errors_are_json_where_json_was_asked_for() {
    let world = World::new();
    for (args, code, kind) in [
        (&["status", "nothing-of-this-name", "--json"][..], 64, "usage"),
        (&["status", "--json", "--no-such-flag"], 64, "usage"),
        (&["plan", "none.yaml", "--json"], 64, "usage"),
        (
            &["run", "--json", "--set", "supervisor.retries=many", "--", "true"],
            78,
            "configuration",
        ),
    ] {
        let said = world.run(args);
        assert_eq!(said.code, code, "{said:#?}");
        let error: serde_json::Value = serde_json::from_str(&said.err).unwrap_or_else(|e| panic!("{e}: {said:#?}"));
        assert_eq!(error["error"]["kind"], kind);
        assert_eq!(error["error"]["exit_code"], code);
        assert!(
            error["error"]["message"].as_str().is_some_and(|m| !m.is_empty()),
            "{error}"
        );
    }
    // What comes after `--` is the trainer's.
    let said = world.run(&["plan", "--", "/no/such/program", "--json"]);
    assert!(said.err.starts_with("error ("), "{said:#?}");
}
