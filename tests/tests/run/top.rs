//! On a terminal: `supervise top`, and the live line of `run`.

use super::{SUPERVISE, saved, scene};
use serde_json::json;
use std::path::Path;
use supervise_tests::harness::{Mount, Scene, Tmux, send};

const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (200, 60);

/// `supervise` on a terminal; `None`: there is no tmux here.
fn terminal(scene: &Scene, test: &str, size: (u16, u16), arguments: &[&str]) -> Option<Tmux> {
    Tmux::start(scene, size, Path::new(SUPERVISE), arguments)
        .map_err(|no| no.tell(test))
        .ok()
}

#[test]
fn top_follows_a_run_that_lives_and_tells_when_its_supervisor_is_dead() {
    let mut scene = scene();
    scene.set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    saved(&scene, 4);
    let Some(top) = terminal(&scene, "top", SMALL, &["top"]) else {
        return;
    };
    let _ = top.shows("4/12        4 ");
    top.keys(&["Enter"]);
    let _ = top.shows("step 4 of 12 is proven");
    let guards = scene.guards();
    run.kill();
    let _ = top.shows("no supervisor; workers still running under the guard");
    guards.into_iter().for_each(|pid| send(pid, libc::SIGKILL));
    let _ = top.shows("not running (was: ");
    top.keys(&["Enter"]);
    let _ = top.shows("step:4");
    top.keys(&["/", "s", "t", "e", "p", ":", "3", "Enter"]);
    let found = top.shows("in all of it");
    assert!(found.contains("step:3") && !found.contains("step:4"), "{found}");
    top.keys(&["Escape"]);
    let _ = top.shows("step:4");
    top.keys(&["q"]);
    let left = top.ended(0);
    assert!(!left.contains("step:4"), "{left}");
    scene.go();
    scene.run(&[]).expect(0);
}

#[test]
fn the_terminal_is_given_back_after_a_signal_and_after_a_panic() {
    for (signal, code) in [(libc::SIGTERM, 143), (libc::SIGINT, 130), (libc::SIGHUP, 0)] {
        let scene = scene();
        let Some(top) = terminal(&scene, "top", SMALL, &["top"]) else {
            return;
        };
        let _ = top.shows("no run of this user");
        send(top.pid(), signal);
        let _ = top.ended(code);
    }
    let scene = scene();
    let program = scene.program("panics_on_screen");
    let Ok(top) = Tmux::start(&scene, SMALL, &program, &[]) else {
        return;
    };
    let left = top.ended(101);
    assert!(left.contains("on purpose") && !left.contains("drawn"), "{left}");
}

#[test]
fn a_stopped_top_gives_the_terminal_back_and_takes_it_again() {
    let scene = scene();
    // A shell with jobs: it tells how the terminal is left to it, and lets the job go on at a line.
    let shell = "set -m; \"$@\"; stty -a | tr ' ' '\\n' | grep -xE -- '-?icanon;?'; echo halted; read -r _; fg";
    let arguments = ["-c", shell, "bash", SUPERVISE, "top"];
    let Ok(top) = Tmux::start(&scene, SMALL, Path::new("/bin/bash"), &arguments) else {
        return;
    };
    let _ = top.shows("no run of this user");
    top.keys(&["C-z"]);
    let shown = top.shows("halted");
    assert!(shown.lines().any(|l| l == "icanon"), "{shown}");
    assert!(!shown.contains("no run of this user"), "{shown}");
    top.keys(&["Enter"]);
    let _ = top.shows("no run of this user");
    top.keys(&["q"]);
    let _ = top.ended(0);
    // It goes on by itself if no shell could let it go on.
    let Some(top) = terminal(&scene, "top", SMALL, &["top"]) else {
        return;
    };
    let _ = top.shows("no run of this user");
    top.keys(&["C-z", "?"]);
    let _ = top.shows("back to the shell");
    top.keys(&["q", "q"]);
    let _ = top.ended(0);
}

#[test]
fn without_a_terminal_top_names_the_command_that_prints() {
    let scene = scene();
    for command in [&["top"][..], &["status", "--watch"]] {
        scene
            .ask(command)
            .expect(64)
            .says("`supervise status` prints the same once");
    }
    scene.ask(&["status", "--watch", "--json"]).expect(64).says("--json");
}

#[test]
fn a_directory_that_hangs_is_said_and_the_other_run_is_shown() {
    let mut scene = scene();
    let mount = match Mount::faulty(&scene, "fs") {
        Ok(mount) => mount,
        Err(no) => return no.tell("a_directory_that_hangs_is_said_and_the_other_run_is_shown"),
    };
    scene.run(&[]).expect(0);
    scene.set_root(&mount.point.join("checkpoints"));
    scene.run(&[]).expect(0);
    mount.faults("* hang\n");
    if let Some(top) = terminal(&scene, "top", SMALL, &["top"]) {
        let list = top.shows("12/12");
        assert!(list.contains("✓ finished"), "{list}");
        let hung = eventually_chosen(&top, "does not answer");
        assert!(hung.contains("12/12"), "{hung}");
        // Keys are heard meanwhile.
        top.keys(&["?"]);
        let _ = top.shows("nothing that runs is touched");
        top.keys(&["q", "q"]);
        let _ = top.ended(0);
    }
    mount.faults("");
}

/// Chooses one run after the other until the screen tells this.
fn eventually_chosen(top: &Tmux, text: &str) -> String {
    supervise_tests::harness::eventually(text, || {
        for key in ["Up", "Down"] {
            top.keys(&[key]);
            let screen = top.screen();
            if screen.contains(text) {
                return Some(screen);
            }
        }
        None
    })
}

/// The same words on every screen. Nothing is restarted here: the limit of the settings is far away.
#[test]
fn a_hang_is_shown_with_what_is_usual_and_what_happens_when() {
    let mut scene = scene();
    scene
        .set("demo.hold_at", json!(9))
        .set("demo.step_ms", json!(300))
        .set("supervisor.stall", json!({"minimum": "30m", "factor": 1.0}));
    let config = scene.write_config();
    let config = config.to_str().unwrap();
    let Some(run) = terminal(&scene, "run", LARGE, &["run", config]) else {
        return;
    };
    let line = run.shows_all(&["no step for ", "; usually ", "; restart in "]);
    assert!(line.contains("step 8 of 12"), "{line}");
    let status = scene.ask(&["status", "percep"]);
    status
        .expect(0)
        .says("running, but no step for ")
        .says("; restart in 2");
    status.says("step 8 of 12, usually ");
    let progress = &scene.status()["progress"];
    assert_eq!(
        (&progress["pace"], &progress["next"]["what"]),
        (&json!("late"), &json!("restart"))
    );
    assert_eq!(
        (&progress["name"], &progress["planned"]),
        (&json!("perceptron"), &json!(12))
    );
    assert!(progress["since_ms"].as_u64() > Some(10_000), "{progress}");
    let Some(top) = terminal(&scene, "top", LARGE, &["top"]) else {
        return;
    };
    let _ = top.shows_all(&["no progress", "running, but no step for ", "8/12", "perceptron"]);
    // One that is suspended watches nothing.
    send(run.pid(), libc::SIGSTOP);
    let _ = top.shows_all(&["supervisor suspended", "nothing is watched until"]);
    send(run.pid(), libc::SIGCONT);
    let _ = top.shows("running, but no step for ");
    top.keys(&["q"]);
    let _ = top.ended(0);
    scene.ask(&["forget", "percep"]).expect(5).says("is active");
    scene.go();
    let _ = run.ended(0);
    let logs = scene.ask(&["logs", "perceptron", "--tail", "2"]);
    assert_eq!(logs.expect(0).text.lines().count(), 2, "{}", logs.text);
    scene.ask(&["forget", "percep"]).expect(0);
    scene.ask(&["status"]).expect(0).says("no run of this user");
    scene
        .ask(&["status", "perceptron"])
        .expect(64)
        .says("no run named perceptron");
}

#[test]
fn run_keeps_one_line_that_lives_below_what_it_decides() {
    for size in [SMALL, LARGE] {
        let mut scene = scene();
        scene.set("demo.hold_at", json!(5));
        let config = scene.write_config();
        let Some(run) = terminal(&scene, "run", size, &["run", config.to_str().unwrap()]) else {
            return;
        };
        // The line is there from step 1 on, and the proof of a step comes after it.
        let screen = run.shows_all(&["step 4 of 12, ", "resume point 4", "next save"]);
        let lines: Vec<&str> = screen.trim_end().lines().collect();
        let live: Vec<&&str> = lines.iter().filter(|l| l.contains("resume point 4, ")).collect();
        assert_eq!(live, [lines.last().unwrap()], "one line, the last: {screen}");
        for text in ["step 4 of 12, ", "resume point 4", "next save"] {
            assert!(live[0].contains(text), "{screen}");
        }
        assert!(screen.contains("workers started"), "{screen}");
        scene.go();
        let left = run.ended(0);
        assert!(left.contains("finished: step 12 is proven"), "{left}");
        assert!(!left.contains("resume point"), "nothing is left of it: {left}");
    }
    // Into a pipe there is none.
    let scene = scene();
    let piped = scene.run(&[]);
    assert!(
        !piped.text.contains("next save") && !piped.text.contains('\u{1b}'),
        "{}",
        piped.text
    );
}
