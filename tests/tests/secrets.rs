//! Secrets of every kind, planted in a real run whose trainer prints them in every form: nothing that is written, and nothing that
//! somebody without them is shown later, holds one.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "secrets/canaries.rs"]
mod canaries;
#[path = "secrets/corpus.rs"]
mod corpus;
#[path = "secrets/placeholders.rs"]
mod placeholders;

use canaries::{Canaries, base64};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use supervise_tests::harness::{Scene, eventually, in_scene, send, wait_for};

fn scene() -> Scene {
    Scene::new(env!("CARGO_BIN_EXE_supervise"))
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        match entry.file_type().unwrap() {
            t if t.is_dir() => out.extend(files_below(&entry.path())),
            t if t.is_file() => out.push(entry.path()),
            _ => {}
        }
    }
    out
}

/// What a command without the values in its environment prints.
fn said(mut command: Command) -> String {
    let out = command.stdin(Stdio::null()).output().unwrap();
    assert_ne!(out.status.code(), Some(101), "it panicked: {out:?}");
    String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned()
}

/// What a command shows on a terminal.
fn on_terminal(scene: &Scene, args: &[&str]) -> String {
    let supervise = scene.supervise(args);
    let mut command = scene.other(Path::new("python3"));
    command
        .args(["-c", "import pty, sys; pty.spawn(sys.argv[1:])"])
        .arg(supervise.get_program())
        .args(supervise.get_args());
    said(command)
}

#[test]
fn no_canary_is_written_or_shown_to_whoever_does_not_know_it() {
    let mut scene = scene();
    let canaries = Canaries::plant();
    assert!(canaries.len() >= 55, "{} canaries", canaries.len());
    let run_dir = scene.path("run");
    scene.env("CANARY_RUN", run_dir.to_str().unwrap());
    fs::write(scene.path("trainer.sh"), canaries.trainer()).unwrap();
    let place = format!("supervisor.run_dir={}", run_dir.display());
    let setting = format!("supervisor.env.SETTING_TOKEN={}", canaries.setting);
    let mut run = scene.supervise(&[
        "run",
        "--set",
        "supervisor.trainer=plain",
        "--set",
        &place,
        "--set",
        "supervisor.retries=1",
        "--set",
        "supervisor.backoff.initial=10ms",
        "--set",
        &setting,
        "--",
        "sh",
        "trainer.sh",
        "--api-key",
        &canaries.flag,
    ]);
    run.envs(canaries.variables());
    let shown = said(run);
    canaries.none_in("run", &shown);
    assert!(shown.contains("could not reach the hub"), "{shown}");
    for (pid, _) in in_scene(&scene.mark()) {
        send(pid, 9);
    }
    // The helper that writes the evidence outlives the run by a moment.
    let tail = run_dir.join("attempts/0001/evidence/tail-0.log");
    wait_for("the evidence is written", || {
        fs::read_to_string(&tail).is_ok_and(|text| text.contains("could not reach the hub"))
    });
    let where_it_is = run_dir.to_str().unwrap();
    let log = run_dir.join("attempts/0001/worker-0.log");
    let raw = fs::read_to_string(&log).unwrap();
    canaries.all_in(&raw);
    let bundle = scene.path("report.tar.zst");
    for args in [
        &["logs", where_it_is, "--attempt", "1", "--json"][..],
        &["logs", where_it_is, "--json", "--follow"],
        &["explain", where_it_is, "--verbose"],
        &["explain", where_it_is, "--json"],
        &["explain", where_it_is, "--bundle", bundle.to_str().unwrap()],
        &["history", where_it_is],
        &["history", where_it_is, "--json"],
        &["journal", where_it_is],
        &["status", where_it_is, "--json"],
        &["diagnose", log.to_str().unwrap(), "--json"],
        &["diagnose", log.to_str().unwrap()],
        &["trace", where_it_is],
        &["metrics", where_it_is],
    ] {
        let text = said(scene.supervise(args));
        canaries.none_in(&args.join(" "), &text);
        assert!(!text.is_empty(), "{args:?}");
    }
    for args in [
        &["logs", where_it_is, "--attempt", "1"][..],
        &["logs", where_it_is, "--attempt", "1", "--follow"],
        &["explain", where_it_is],
    ] {
        canaries.none_in(&format!("{args:?} on a terminal"), &on_terminal(&scene, args));
    }
    let shown = on_terminal(&scene, &["logs", where_it_is, "--attempt", "1"]);
    assert!(shown.contains("plain words stay as they are"), "{shown}");
    let json = said(scene.supervise(&["logs", where_it_is, "--attempt", "1", "--json"]));
    assert_eq!(json.lines().filter(|l| l.starts_with('{')).count(), raw.lines().count());

    // Every byte as it was printed, where it is asked for.
    let all = said(scene.supervise(&["logs", where_it_is, "--attempt", "1", "--raw"]));
    canaries.all_in(&all);

    let mut packed = ruzstd::decoding::StreamingDecoder::new(fs::File::open(&bundle).unwrap()).unwrap();
    let mut plain = Vec::new();
    packed.read_to_end(&mut plain).unwrap();
    let plain = String::from_utf8_lossy(&plain).into_owned();
    assert!(plain.contains("evidence/tail-0.log"));
    canaries.none_in("the bundle", &plain);

    served(&scene, &canaries);

    let mut seen = 0;
    for file in files_below(&run_dir)
        .into_iter()
        .chain(files_below(&scene.path("home")))
    {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        let is_output = name.starts_with("worker-") && !name.ends_with(".hide");
        let text = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
        if !is_output {
            canaries.none_in(file.to_str().unwrap(), &text);
        }
        if name == "tree" {
            assert!(text.contains("canary-child") && text.contains("***"), "{text}");
        }
        if name == "worker-0.log.hide" {
            assert!(
                text.bytes().all(|b| b.is_ascii_digit() || b" \n".contains(&b)),
                "{text}"
            );
            seen += 1;
        }
    }
    assert!(seen > 0, "no places were noted");
}

/// The pages of a run, and the ends of its output on them.
fn served(scene: &Scene, canaries: &Canaries) {
    let socket = scene.path("serve.sock");
    let server = scene.start_with(&["serve", "--listen", "127.0.0.1:0", "--socket", socket.to_str().unwrap()]);
    let link = eventually("the link is told", || {
        let text = server.text();
        let (_, rest) = text.split_once("http://")?;
        Some(rest.split_once('\n')?.0.to_owned())
    });
    let get = |path: &str, more: &str| {
        use std::io::Write;
        let (at, _) = link.split_once('/').unwrap();
        let mut stream = std::net::TcpStream::connect(at).unwrap();
        let request = format!("GET /{path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n{more}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let entered = get(link.split_once('/').unwrap().1, "");
    let cookie = entered.lines().find_map(|l| l.strip_prefix("set-cookie: ")).unwrap();
    let cookie = format!("Cookie: {}\r\n", cookie.split_once("; ").unwrap().0);
    let status = said(scene.supervise(&["status", scene.path("run").to_str().unwrap(), "--json"]));
    let from = status.find('[').unwrap();
    let status: serde_json::Value = serde_json::from_str(&status[from..]).unwrap();
    let run = status[0]["run"].as_str().unwrap().to_owned();
    for (page, holds) in [
        (String::new(), "run"),
        ("metrics".to_owned(), "supervise_"),
        (format!("run/{run}"), "hub"),
        (format!("run/{run}/log?attempt=1&worker=0"), "could not reach the hub"),
        (format!("run/{run}/log?attempt=1&worker=0&q=canary"), ""),
        (
            format!("run/{run}/log/download?attempt=1&worker=0"),
            "could not reach the hub",
        ),
        (format!("run/{run}/curves.json"), ""),
        (format!("run/{run}/config"), ""),
    ] {
        let text = get(&page, &cookie);
        assert!(text.contains(holds), "{page}: {text}");
        canaries.none_in(&format!("page /{page}"), &text);
    }
    server.signal(libc::SIGTERM);
    server.wait().expect(0);
}

#[test]
fn base64_is_what_the_forms_are_compared_with() {
    assert_eq!(base64(b"any carnal pleas"), "YW55IGNhcm5hbCBwbGVhcw==");
}
