//! Roots on a file system that refuses to read, or tells nothing of changes: a pass-through that stands for NFS.

use super::stage::{Stage, of};
use std::fs;
use std::time::Duration;
use supervise_core::checkpoint::{Depth, Verdict};
use supervise_host::io_worker::IoQuestion;
use supervise_tests::harness::{Mount, Scene};

/// A stage whose root is such a mount; `None` where there is no such thing here.
fn faulty(scene: &Scene, test: &str) -> Option<(Stage, Mount)> {
    match Mount::faulty(scene, "root") {
        Ok(mount) => Some((Stage::new().with_root(&mount.point), mount)),
        Err(refusal) => {
            refusal.tell(test);
            None
        }
    }
}

#[test]
fn what_cannot_be_read_is_neither_damaged_nor_forgotten() {
    let scene = Scene::new(super::SUPERVISE);
    let name = "what_cannot_be_read_is_neither_damaged_nor_forgotten";
    let Some((stage, mount)) = faulty(&scene, name) else {
        return;
    };
    stage.save(2, 1);
    stage.save(4, 2);
    std::thread::sleep(Duration::from_millis(2100));
    for error in ["EIO", "ESTALE"] {
        mount.faults("");
        let mut io_worker = stage.io_worker();
        assert!(of(&io_worker.scan(Depth::Full), 4).is_proven(Depth::Full));
        mount.faults(&format!("read error:{error} global_step_4/actor/model\n"));
        // An I/O worker that read it before is not asked to read it again; one that did not cannot.
        io_worker.end();
        fs::remove_dir_all(&stage.run_dir).unwrap();
        let mut io_worker = stage.io_worker();
        let report = io_worker.scan(Depth::Full);
        assert_eq!(of(&report, 4).verdict, Verdict::Unreadable, "{report:?}");
        assert!(of(&report, 4).findings.iter().any(|f| f.retryable), "{report:?}");
        assert!(!stage.record(4).exists());
        mount.faults("");
        assert!(of(&io_worker.scan(Depth::Full), 4).is_proven(Depth::Full));
        io_worker.end();
        assert!(stage.record(4).exists());
    }
}

#[test]
fn a_record_is_no_ground_to_delete_or_condemn_while_the_root_refuses() {
    let scene = Scene::new(super::SUPERVISE);
    let name = "a_record_is_no_ground_to_delete_or_condemn_while_the_root_refuses";
    let Some((stage, mount)) = faulty(&scene, name) else {
        return;
    };
    let stage = stage.with_run_dir("run");
    stage.save(2, 1);
    stage.save(4, 2);
    // The clock of such a file system is not known to be fine: what was just written is not written down.
    std::thread::sleep(Duration::from_millis(2100));
    stage.prove(Depth::Full);
    let records = [fs::read(stage.record(2)).unwrap(), fs::read(stage.record(4)).unwrap()];
    for fault in [
        "getattr error:EIO global_step_4\n",
        "readdir error:ESTALE\n",
        "open error:EIO global_step_4/\n",
    ] {
        mount.faults(fault);
        let report = stage.prove(Depth::Full);
        let condemned = |v| matches!(v, Verdict::Damaged | Verdict::Incomplete);
        assert!(
            !report.steps.iter().any(|c| condemned(c.verdict)),
            "{fault}: {report:?}"
        );
        mount.faults("");
        assert_eq!(
            [fs::read(stage.record(2)).unwrap(), fs::read(stage.record(4)).unwrap()],
            records,
            "{fault}"
        );
    }
}

#[test]
fn a_step_that_another_machine_saves_is_found() {
    let scene = Scene::new(super::SUPERVISE);
    let Some((stage, mount)) = faulty(&scene, "a_step_that_another_machine_saves_is_found") else {
        return;
    };
    stage.save(2, 1);
    let mut io_worker = stage.io_worker();
    io_worker.ask(IoQuestion::Watch);
    io_worker.scan(Depth::Structure);
    // Behind the mount nothing is told.
    let elsewhere = Stage::new().with_root(&mount.backing);
    elsewhere.save(4, 2);
    io_worker.hears("a step of another machine", |report| {
        report
            .steps
            .first()
            .is_some_and(|c| c.step.0 == 4 && c.is_proven(Depth::Structure))
    });
    io_worker.end();
}
