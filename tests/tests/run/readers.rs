//! Whoever reads what `supervise run` prints: somebody who stopped reading, and somebody slow.

use super::{saved, scene};
use serde_json::{Value, json};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use supervise_tests::harness::{eventually, send};

/// A pipe that takes nothing more.
fn full() -> (PipeReader, PipeWriter) {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let (read, mut write) = std::io::pipe().unwrap();
    let set = |w: &PipeWriter, flags| fcntl(w, FcntlArg::F_SETFL(flags)).unwrap();
    set(&write, OFlag::O_NONBLOCK);
    while write.write(&[b'\n'; 512]).is_ok() {}
    while write.write(b"\n").is_ok() {}
    set(&write, OFlag::empty());
    (read, write)
}

fn start(mut command: Command, out: PipeWriter) -> Child {
    let err = out.try_clone().unwrap();
    command.stdout(out).stderr(err).process_group(0).spawn().unwrap()
}

#[track_caller]
fn ends(child: &mut Child, code: i32) {
    let status = eventually("supervise ends", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(code));
}

fn pid(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

#[test]
fn a_stop_ends_a_run_whose_output_nobody_reads() {
    for by_command in [false, true] {
        let mut scene = scene();
        scene.set("demo.hold_at", json!(5));
        let config = scene.write_config();
        let (_reader, writer) = full();
        let mut run = start(scene.supervise(&["run", config.to_str().unwrap()]), writer);
        saved(&scene, 4);
        let began = Instant::now();
        match by_command {
            true => drop(scene.ask(&["stop", scene.root().to_str().unwrap()]).expect(0)),
            false => send(pid(&run), libc::SIGTERM),
        }
        ends(&mut run, if by_command { 7 } else { 143 });
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        scene.assert_alone();
        assert_eq!(scene.status()["mode"], json!("finished"));
    }
}

#[test]
fn a_run_whose_output_nobody_reads_goes_on_to_its_end() {
    let mut scene = scene();
    scene.fault("kill_rank", 5, false);
    let expected = scene.expected_digest();
    let config = scene.write_config();
    let (_reader, writer) = full();
    let mut run = start(scene.supervise(&["run", config.to_str().unwrap(), "--json"]), writer);
    ends(&mut run, 0);
    assert_eq!((scene.digest(), scene.attempts()), (Some(expected), 2));
    scene.assert_alone();
}

#[test]
fn a_slow_reader_reads_every_line_to_the_last() {
    let mut scene = scene();
    scene.fault("kill_rank", 5, false);
    let config = scene.write_config();
    let (mut reader, writer) = std::io::pipe().unwrap();
    nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    let run = scene.supervise(&["run", config.to_str().unwrap(), "--json"]);
    let reading = std::thread::spawn(move || {
        let (mut all, mut piece) = (Vec::new(), [0; 1024]);
        loop {
            match reader.read(&mut piece).unwrap() {
                0 => return String::from_utf8(all).unwrap(),
                n => all.extend_from_slice(&piece[..n]),
            }
            std::thread::sleep(Duration::from_millis(30));
        }
    });
    ends(&mut start(run, writer), 0);
    let text = reading.join().unwrap();
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(!text.contains("not shown"), "{text}");
    assert!(lines.last().unwrap().get("finish").is_some(), "{text}");
    let told: Vec<&Value> = lines.iter().filter_map(|l| l.get("record")).collect();
    assert!(told.len() > 5, "{text}");
}
