//! A port that somebody else holds: named, and the run comes back by another one, or once it is free.

use super::SUPERVISE;
use std::fs;
use std::net::TcpListener;
use supervise_tests::harness::{Ended, Scene, Supervisor, eventually};

/// Two ranks that meet where torch does. What rank 0 says where it cannot listen is what torch 2.11 says (`tests/fixtures/logs`).
const GANG: &str = r#"
import errno, os, pathlib, socket, sys, time
here, rank, attempt = pathlib.Path(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
class DistNetworkError(RuntimeError): pass
if rank == 0:
    (here / "new").write_text(f"{where[0]}:{where[1]}")
    os.rename(here / "new", here / f"where-{attempt}")
    while not (here / "taken").exists(): time.sleep(0.02)
    try:
        server = socket.create_server(where)
    except OSError as e:
        raise DistNetworkError(f"The server socket has failed to listen on any local network address. port: {where[1]}, useIpv6: false, "
                               f"code: -{e.errno}, name: {errno.errorcode[e.errno]}, message: {os.strerror(e.errno).lower()}")
    server.accept()
else:
    while True:
        try:
            socket.create_connection(where)
            break
        except OSError: time.sleep(0.05)
for step in range(1, 6): print("step", step, flush=True)
"#;

/// A server of its own, at a port that its command names.
const FIXED: &str = r#"
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
for step in range(1, 6): print("step", step, flush=True)
"#;

fn begin(scene: &Scene, program: &str, settings: &[&str], argument: &str) -> Supervisor {
    let train = scene.path("train.py");
    fs::write(&train, program).unwrap();
    let run_dir = format!("run_dir={}", scene.path("run").display());
    let settings = [&[run_dir.as_str()], settings].concat();
    scene.start_plain(&settings, &["python3", train.to_str().unwrap(), argument])
}

fn attempts(scene: &Scene) -> usize {
    fs::read_dir(scene.path("run/attempts")).unwrap().count()
}

fn is_named(ended: &Ended) {
    ended.says("comm.port_in_use");
}

#[test]
fn a_port_of_the_ranks_that_is_taken_is_another_one_in_the_next_attempt() {
    let scene = Scene::new(SUPERVISE);
    let here = scene.path("");
    let gang = ["gang.launcher=gang", "gang.workers=2", "gang.gpus=none"];
    let run = begin(&scene, GANG, &gang, here.to_str().unwrap());
    let place = |attempt: u32| {
        eventually("the ranks know where to meet", || {
            fs::read_to_string(here.join(format!("where-{attempt}"))).ok()
        })
    };
    // Between the choice of the port and its use somebody else takes it, and keeps it.
    let first = place(1);
    let thief = TcpListener::bind(&first).unwrap();
    fs::write(here.join("taken"), "").unwrap();
    is_named(run.wait().expect(0));
    assert_eq!(attempts(&scene), 2);
    assert_ne!(place(2), first);
    drop(thief);
    let told = scene.ask(&["explain", "--attempt", "1"]);
    told.expect(0).says("[comm.port_in_use]").says("name: EADDRINUSE");
    scene.assert_alone();
}

#[test]
fn a_port_that_the_command_names_is_tried_again_until_it_is_free() {
    let scene = Scene::new(SUPERVISE);
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port().to_string();
    let run = begin(&scene, FIXED, &[], &port);
    eventually("its end was explained", || {
        run.text().contains("comm.port_in_use").then_some(())
    });
    drop(holder);
    is_named(run.wait().expect(0));
    assert!((2..=3).contains(&attempts(&scene)));
    scene.assert_alone();
}

/// Nobody frees it: a person is told what does.
#[test]
fn a_port_that_stays_taken_uses_up_the_retries() {
    let scene = Scene::new(SUPERVISE);
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port().to_string();
    is_named(begin(&scene, FIXED, &["retries=1"], &port).wait().expect(6));
    assert_eq!(attempts(&scene), 2);
    let told = scene.ask(&["explain"]);
    told.expect(0).says("End what holds the port, or choose another.");
    drop(holder);
    scene.assert_alone();
}
