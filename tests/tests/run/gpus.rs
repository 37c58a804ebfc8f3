//! GPUs before a launch and while workers run, by a `nvidia-smi` of our own: missing, in use, broken, at work or not, and a driver that
//! hangs.

use super::{saved, scene};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread::sleep;
use std::time::Duration;
use supervise_tests::harness::{Scene, wait_for};

/// It answers as the file `devices` (and `owners`, and once a second `work`) beside it says; where a file `hangs` is there, it never
/// does. Where a file `first` is there, it is the answer to the first three questions.
const PROGRAM: &str = r#"#!/bin/sh
here=${0%/*}
echo "$1" >>"$here/asked"
while [ -e "$here/hangs" ]; do sleep 1; done
case $1 in
--query-gpu=index,power.draw,*) while cat "$here/work" 2>/dev/null; do sleep 1; done ;;
--query-gpu=*)
    of=devices
    if [ -e "$here/first" ] && [ "$(grep -c query-gpu "$here/asked")" -le 3 ]; then of=first; fi
    cat "$here/$of"
    ;;
--query-remapped-rows=*) cat "$here/rows" ;;
--query-compute-apps=*) cat "$here/owners" ;;
*) exit 2 ;;
esac
"#;

const EMPTY: &str = "0, GPU-aa, 4, 80000, 0, No\n1, GPU-bb, 4, 80000, 0, No\n";
const BUSY: &str = "0, GPU-aa, 4, 80000, 0, No\n1, GPU-bb, 60000, 80000, 0, No\n";

/// A scene whose machine has two GPUs, both of which the run names.
fn with_gpus(devices: &str) -> Scene {
    let mut scene = scene();
    let smi = scene.path("smi");
    fs::create_dir(&smi).unwrap();
    fs::write(smi.join("nvidia-smi"), PROGRAM).unwrap();
    fs::set_permissions(smi.join("nvidia-smi"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(smi.join("devices"), devices).unwrap();
    fs::write(smi.join("owners"), "GPU-bb, 4711, python3, 59990\n").unwrap();
    let programs = std::path::Path::new(super::SUPERVISE).parent().unwrap();
    let path = format!(
        "{}:{}:{}",
        smi.display(),
        programs.display(),
        std::env::var("PATH").unwrap()
    );
    scene.env("PATH", &path).env("CUDA_VISIBLE_DEVICES", "0,1");
    scene
}

fn change(scene: &Scene, devices: &str) {
    put(scene, "devices", devices);
}

fn put(scene: &Scene, name: &str, text: &str) {
    let file = scene.path("smi").join(name);
    fs::write(file.with_extension("new"), text).unwrap();
    fs::rename(file.with_extension("new"), file).unwrap();
}

#[test]
fn a_gpu_in_use_is_waited_for_and_its_owner_is_named() {
    let scene = with_gpus(BUSY);
    let expected = scene.expected_digest();
    let run = scene.start(&[]);
    wait_for("it waits", || scene.status()["mode"] == json!("waiting"));
    scene
        .ask(&["status"])
        .expect(0)
        .says("process 4711 (python3, 59990 MiB)");
    assert_eq!(scene.attempts(), 0, "nothing was started");
    change(&scene, EMPTY);
    run.wait().expect(0).says("GPU 1: 60000 of 80000 MiB are in use");
    assert_eq!(
        (scene.digest(), &scene.status()["charged"]),
        (Some(expected), &json!(0))
    );
    assert!(told_busy(&scene));
}

fn told_busy(scene: &Scene) -> bool {
    scene
        .journal()
        .iter()
        .any(|record| record.to_string().contains("gpu_busy"))
}

/// A process that was killed gives its memory back a moment later: the launch that finds it looks again, and nothing is told.
#[test]
fn a_gpu_that_is_free_in_a_moment_costs_no_attempt() {
    let scene = with_gpus(EMPTY);
    fs::write(scene.path("smi/first"), BUSY).unwrap();
    scene.run(&[]).expect(0);
    let asked = fs::read_to_string(scene.path("smi/asked")).unwrap();
    let looks = asked.lines().filter(|line| line.starts_with("--query-gpu=index,uuid"));
    assert_eq!(looks.count(), 4);
    let told = scene
        .journal()
        .iter()
        .any(|record| record.to_string().contains("gpu_busy"));
    assert!(!told, "one launch, and no wait");
}

#[test]
fn a_gpu_that_is_gone_or_has_new_errors_ends_the_run() {
    let mut scene = with_gpus(EMPTY);
    scene.set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    saved(&scene, 4);
    // It counted no errors when the run was started.
    change(&scene, "0, GPU-aa, 4, 80000, 3, No\n1, GPU-bb, 4, 80000, 0, No\n");
    let worker = scene.workers()[0];
    supervise_tests::harness::send(worker, libc::SIGKILL);
    run.wait()
        .expect(69)
        .says("GPU 0 (GPU-aa)")
        .says("3 errors of its memory");
    scene.go();
    // A term that begins with them has seen no new ones; but this GPU is not there.
    change(&scene, "0, GPU-aa, 4, 80000, 3, No\n");
    scene.run(&[]).expect(69).says("GPU 1: it is not there any more");
    change(&scene, EMPTY);
    scene.run(&[]).expect(0);
}

/// More are named than there are workers: another takes the place of a broken one.
#[test]
fn a_broken_gpu_is_left_out_where_the_run_names_another() {
    const THREE: &str = "0, GPU-aa, 4, 80000, 0, No\n1, GPU-bb, 4, 80000, 0, No\n2, GPU-cc, 4, 80000, 0, No\n";
    let mut scene = with_gpus(THREE);
    scene
        .env("CUDA_VISIBLE_DEVICES", "0,1,2")
        .set("demo.hold_at", json!(5))
        .set("supervisor.gang.launcher", json!("gang"))
        .set("supervisor.gang.workers", json!(2));
    let expected = scene.expected_digest();
    let run = scene.start(&[]);
    saved(&scene, 4);
    change(&scene, &THREE.replace("GPU-aa, 4, 80000, 0", "GPU-aa, 4, 80000, 3"));
    supervise_tests::harness::send(scene.workers()[0], libc::SIGKILL);
    wait_for("it runs again", || scene.attempts() == 2 && scene.workers().len() == 2);
    let environment = fs::read(format!("/proc/{}/environ", scene.workers()[0])).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    assert!(environment.contains("\0CUDA_VISIBLE_DEVICES=1,2\0"), "{environment}");
    scene
        .ask(&["status"])
        .expect(0)
        .says("GPU 0 (3 errors of its memory were not corrected");
    scene.go();
    run.wait().expect(0).says("attempt 2: without GPU 0 (3 errors");
    assert_eq!(scene.digest(), Some(expected));
    assert_eq!(scene.status()["charged"], json!(0), "a step was proven before");
}

/// GPUs of today replace broken rows of their memory by spare ones, at a reset.
#[test]
fn a_row_that_waits_is_said_once_and_one_without_a_spare_ends_the_run() {
    let mut scene = with_gpus(EMPTY);
    put_rows(&scene, "GPU-aa, 0, 0\nGPU-bb, 1, 0\n");
    scene.set("demo.faults", json!([{"kind": "kill_rank", "step": 3}]));
    let done = scene.run(&[]);
    done.expect(0);
    let said = done.text.matches("GPU 1 (GPU-bb): a broken row of memory").count();
    let asked = fs::read_to_string(scene.path("smi/asked")).unwrap();
    let rows = asked.lines().filter(|line| line.starts_with("--query-remapped-rows"));
    assert_eq!((scene.attempts(), said, rows.count()), (2, 1, 1));
    put_rows(&scene, "GPU-aa, 0, 0\nGPU-bb, 0, 1\n");
    scene
        .run(&["--fresh", "--yes"])
        .expect(69)
        .says("GPU 1 (GPU-bb): a broken row of its memory could not be replaced");
}

fn put_rows(scene: &Scene, text: &str) {
    fs::write(scene.path("smi/rows"), text).unwrap();
}

/// A sick device hangs its driver's calls for ever: no launch waits for that.
#[test]
fn a_driver_that_hangs_is_given_up() {
    let scene = with_gpus(EMPTY);
    fs::write(scene.path("smi/hangs"), "").unwrap();
    scene.run(&[]).expect(0).says("nvidia-smi: it did not end within 10 s");
    fs::remove_file(scene.path("smi/hangs")).unwrap();
}

/// GPUs that are shared, and a run that names none.
#[test]
fn nobody_looks_where_nothing_is_to_be_empty() {
    let mut scene = with_gpus(BUSY);
    scene.run(&["--set", "supervisor.gang.check_gpus=false"]).expect(0);
    scene.env("CUDA_VISIBLE_DEVICES", "");
    scene.run(&["--fresh", "--yes"]).expect(0);
    assert!(!scene.path("smi/asked").exists());
}

/// A process may wait for its GPU without a sign of life. One whose GPU works as in healthy steps is left alone; once the GPU waits as well,
/// the attempt is ended.
#[test]
fn a_gpu_at_work_is_waited_for_and_one_that_spins_is_a_hang() {
    const HANGS_AT: u64 = 35;
    let mut scene = with_gpus(EMPTY);
    put(&scene, "work", "0, 390.10, 63, 40\n1, 388.00, 55, 38\n");
    scene
        .set("demo.step_ms", json!(2000))
        .set("trainer.total_training_steps", json!(HANGS_AT + 1))
        .set("demo.faults", json!([{"kind": "hang", "step": HANGS_AT, "rank": 1}]))
        .set("supervisor.stall", json!({"minimum": "3s", "factor": 1.0}));
    let run = scene.start(&[]);
    // Longer than anything is waited for at once.
    for step in [HANGS_AT / 2, HANGS_AT - 1] {
        wait_for("it gets on", || scene.proven() >= step);
    }
    // Longer than it takes without the GPUs: overdue, still for half a minute, and neither time nor output of any process for 50 s.
    sleep(Duration::from_secs(75));
    assert_eq!((scene.attempts(), &scene.status()["mode"]), (1, &json!("running")));
    put(&scene, "work", "0, 124.90, 100, 0\n1, 71.00, 0, 0\n");
    run.wait_long()
        .expect(0)
        .says("GPU 0 spins (100 % busy, 0 % at its memory, 124 W)")
        .says("GPU 1 does nothing (0 % busy, 0 % at its memory, 71 W)");
    assert_eq!(scene.attempts(), 2);
    scene.assert_alone();
}

/// A rank computes for ever, and the GPUs wait in a kernel as NCCL's do: busy all the time, and nothing moves. Without them such a rank is
/// found by the hard limit alone (`hangs.rs`), which is an hour here.
#[test]
fn a_rank_that_spins_is_found_soon_where_its_gpu_spins_as_well() {
    const HANGS_AT: u64 = 35;
    let mut scene = with_gpus(EMPTY);
    put(&scene, "work", "0, 390.10, 63, 40\n1, 388.00, 55, 38\n");
    scene
        .set("demo.step_ms", json!(1500))
        .set("trainer.total_training_steps", json!(HANGS_AT + 1))
        .set("demo.faults", json!([{"kind": "spin", "step": HANGS_AT, "rank": 1}]))
        .set("supervisor.stall", json!({"minimum": "3s", "factor": 1.0}));
    let run = scene.start(&[]);
    for step in [HANGS_AT / 2, HANGS_AT - 1] {
        wait_for("it gets on", || scene.proven() >= step);
    }
    put(&scene, "work", "0, 124.90, 100, 0\n1, 126.00, 100, 0\n");
    let done = run.wait_long();
    // On a busy machine it may not have spun for long enough to be named beside the one that waits for it.
    done.expect(0)
        .says("GPU 1 spins (100 % busy, 0 % at its memory, 126 W)");
    assert!(!done.text.contains("longer than the hard limit"), "{}", done.text);
    assert_eq!(scene.attempts(), 2);
    scene.assert_alone();
}
