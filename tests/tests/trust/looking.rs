//! Commands that only look start no program that another user's file names.

use super::stage::{ATTACKER, Said, Stage, give_all};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use supervise_tests::harness::{PATIENCE, eventually};

const LEFT_OUT: &str = "starts no program that such a file names";

/// A YAML of verl's that names an interpreter, which leaves its mark and answers nothing.
fn yaml(stage: &Stage) -> String {
    let python = interpreter(stage);
    format!(
        "algorithm: {{adv_estimator: grpo}}
trainer: {{default_local_dir: {}, save_freq: 1, n_gpus_per_node: 1, total_training_steps: 2}}
supervisor: {{retries: 0, command: [{python}, -m, verl.trainer.main_ppo]}}
",
        stage.text("ckpt")
    )
}

fn interpreter(stage: &Stage) -> String {
    stage.folder("venv", ATTACKER);
    stage.program(
        "venv/python3",
        &format!("#!/bin/sh\n{}\nexit 1\n", stage.mark()),
        ATTACKER,
    )
}

const LOOKS: [&[&str]; 6] = [
    &["plan", "ppo.yaml"],
    &["plan", "ppo.yaml", "--rehearse"],
    &["config", "show", "ppo.yaml"],
    &["doctor", "ppo.yaml"],
    &["sbatch", "ppo.yaml"],
    &["install", "--systemd", "--print", "ppo.yaml"],
];

#[track_caller]
fn leaves_out(stage: &Stage, words: &[&str], why: &str) -> Said {
    let said = stage.run(words);
    said.expect(0, &[why, LEFT_OUT]);
    assert!(!stage.ran(), "{words:?} started a program: {said:#?}");
    said
}

#[test]
fn the_interpreter_of_another_users_yaml_is_not_started() {
    let Some(stage) = Stage::new("looking at another user's YAML") else {
        return;
    };
    let text = yaml(&stage);
    for (owner, mode, why) in [(ATTACKER, 0o644, "uid 1000"), (0, 0o666, "everybody may write it")] {
        stage.write("ppo.yaml", &text, owner);
        stage.mode("ppo.yaml", mode);
        for words in LOOKS {
            leaves_out(&stage, words, why);
        }
        let said = leaves_out(&stage, &["plan", "--json", "ppo.yaml"], why);
        let view: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        assert!(view["version_unknown"].as_str().unwrap().contains(LEFT_OUT), "{view}");
    }
    // The person's own file is asked about as ever.
    stage.write("ppo.yaml", &text, 0);
    for words in LOOKS {
        let said = stage.run(words);
        said.expect(0, &[]);
        assert!(stage.ran(), "{words:?} asked nobody: {said:#?}");
    }
}

#[test]
fn whoever_runs_a_named_yaml_wants_its_programs() {
    let Some(stage) = Stage::new("running another user's YAML") else {
        return;
    };
    stage.write("ppo.yaml", &yaml(&stage), ATTACKER);
    let said = stage.run(&["run", "ppo.yaml"]);
    assert!(stage.ran(), "{said:#?}");
    assert!(said.out.contains("it was named on the command line"), "{said:#?}");
}

#[test]
fn a_configuration_of_another_user_beside_our_own_yaml_counts_as_its_writers() {
    let Some(stage) = Stage::new("a configuration beside ours") else {
        return;
    };
    stage.write("theirs.yaml", &yaml(&stage), ATTACKER);
    stage.write("ppo.yaml", "defaults: [theirs, _self_]\n", 0);
    for words in LOOKS {
        leaves_out(&stage, words, "theirs.yaml belongs to");
    }
}

#[test]
fn a_script_of_another_user_is_not_run_to_learn_what_it_starts() {
    let Some(stage) = Stage::new("learning another user's script") else {
        return;
    };
    stage.program("grpo.sh", &format!("#!/bin/sh\n{}\n", stage.mark()), ATTACKER);
    let said = stage.run(&["plan", "--learn", "--", "sh", "grpo.sh"]);
    said.expect(
        78,
        &[
            "was not run to learn what it starts",
            "grpo.sh belongs to",
            "supervise run -- sh grpo.sh",
        ],
    );
    assert!(!stage.ran(), "{said:#?}");
    stage.give("grpo.sh", 0);
    stage
        .run(&["plan", "--learn", "--yes", "--", "sh", "grpo.sh"])
        .expect(78, &["without a call"]);
    assert!(stage.ran());
}

/// A server of root's, ended with the test.
struct Server {
    child: Child,
    at: String,
    cookie: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(stage: &Stage, run: &str) -> Self {
        let log = stage.path("serve.log");
        let socket = stage.text("home/serve.sock");
        let mut command: Command = stage.command(&["serve", run, "--listen", "127.0.0.1:0", "--socket", &socket]);
        let child = command
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let url = eventually("the link is told", || {
            let text = std::fs::read_to_string(&log).unwrap();
            let (_, rest) = text.split_once("http://")?;
            Some(rest.split_once('\n')?.0.to_owned())
        });
        let (at, link) = url.split_once('/').unwrap();
        let mut server = Self {
            child,
            at: at.to_owned(),
            cookie: String::new(),
        };
        let answer = server.get(&format!("/{link}"));
        let cookie = answer.lines().find_map(|l| l.strip_prefix("set-cookie: ")).unwrap();
        server.cookie = format!("Cookie: {}\r\n", cookie.split_once("; ").unwrap().0);
        server
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (at, cookie) = (&self.at, &self.cookie);
        let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n{cookie}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[test]
fn the_page_of_another_users_run_plans_nothing() {
    let Some(stage) = Stage::new("the plan of another user's run") else {
        return;
    };
    let python = interpreter(&stage);
    // All but the words of its start is our own.
    let yaml = yaml(&stage).lines().take(2).collect::<Vec<_>>().join("\n");
    stage.write("ppo.yaml", &format!("{yaml}\n"), 0);
    let run = ["run", "ppo.yaml", "--set", "supervisor.retries=0"];
    stage.run(&[&run[..], &["--", &python, "-m", "verl.trainer.main_ppo"]].concat());
    let run_dir = stage.path("ckpt/.supervise");
    let file = std::fs::read_to_string(run_dir.join("run.id")).unwrap();
    let id: serde_json::Value = serde_json::from_str(&file).unwrap();
    let page = format!("/run/{}/plan", id["run"].as_str().unwrap());
    assert!(stage.ran());
    for (owner, runs) in [(ATTACKER, false), (0, true)] {
        give_all(&run_dir, owner);
        let answer = Server::start(&stage, &stage.text("ckpt")).get(&page);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(stage.ran(), runs, "{answer}");
        assert_eq!(answer.contains("no plan is made"), !runs, "{answer}");
    }
}
