//! Records as `supervise run` leaves and uses them.

use super::stage::{Journal, ProofWorker, of, tick};
use serde_json::json;
use std::fs;
use std::path::Path;
use supervise_core::checkpoint::Depth;
use supervise_core::spec::RunSpec;
use supervise_tests::harness::{Scene, wait_for};

#[test]
fn a_run_leaves_records_and_the_next_one_reads_only_what_is_new() {
    let mut scene = Scene::new(super::SUPERVISE);
    scene
        .set("demo.hidden", json!([256, 256]))
        .set("demo.hold_at", json!(5));
    let run = scene.start(&[]);
    wait_for("step 4 is saved", || scene.tracked() == Some(4));
    run.signal(15);
    run.wait().expect(143);
    let spec = fs::read(scene.run_dir().join("spec/1.json")).unwrap();
    let spec: RunSpec = serde_json::from_slice(&spec).unwrap();
    let weights = fs::metadata(scene.step(4).join("actor/model_world_size_2_rank_0.pt"))
        .unwrap()
        .len();

    // What a next run does before its launch.
    let exe = Path::new(super::SUPERVISE);
    let journal = Journal::default();
    let mut first = ProofWorker::start(exe, spec.clone(), &journal);
    first.scan(Depth::Full);
    first.end();
    let mut next = ProofWorker::start(exe, spec, &journal);
    let before = next.read();
    let report = next.scan(Depth::Full);
    let read = next.read() - before;
    assert!(
        of(&report, 4).is_proven(Depth::Full) && of(&report, 2).is_proven(Depth::Full),
        "{report:?}"
    );
    assert!(read < weights / 4, "{read} bytes were read, a shard has {weights}");
    next.end();
    scene.go();
    scene.run(&[]).expect(0);
    assert_eq!(scene.resumed(2), Some(4));
}

#[test]
fn a_scrub_tells_rot_and_loss_from_what_is_as_it_was() {
    let scene = Scene::new(super::SUPERVISE);
    scene.run(&[]).expect(0);
    // A file is written down once it has been left alone for a while.
    tick();
    let spec = fs::read(scene.run_dir().join("spec/1.json")).unwrap();
    let mut io_worker = ProofWorker::start(
        Path::new(super::SUPERVISE),
        serde_json::from_slice(&spec).unwrap(),
        &Journal::default(),
    );
    io_worker.scan(Depth::Full);
    io_worker.end();
    let root = scene.run_dir().parent().unwrap().to_owned();
    let scrub = |scene: &Scene| scene.ask(&["verify", root.to_str().unwrap(), "--scrub"]);
    let whole = scrub(&scene);
    whole.expect(0);
    assert!(whole.text.contains("compared with the record"), "{}", whole.text);

    let last = scene.tracked().unwrap();
    let data = scene.step(last).join("data.pt");
    let kept = fs::read(&data).unwrap();
    fs::remove_file(&data).unwrap();
    let lost = scrub(&scene);
    assert_eq!(lost.code, Some(20), "{}", lost.text);
    assert!(lost.text.contains("proven_file_missing"), "{}", lost.text);
    fs::write(&data, kept).unwrap();
    scrub(&scene).expect(0);

    // Padding between entries: no checksum covers it, only the record does.
    let shard = scene.step(last).join("actor/model_world_size_2_rank_0.pt");
    let time = fs::metadata(&shard).unwrap().modified().unwrap();
    let mut bytes = fs::read(&shard).unwrap();
    let name = usize::from(u16::from_le_bytes([bytes[26], bytes[27]]));
    let extra = usize::from(u16::from_le_bytes([bytes[28], bytes[29]]));
    assert!(extra > 8, "the first entry has no padding");
    bytes[30 + name + extra - 1] ^= 1;
    fs::write(&shard, bytes).unwrap();
    fs::File::options()
        .write(true)
        .open(&shard)
        .unwrap()
        .set_modified(time)
        .unwrap();
    let rotten = scrub(&scene);
    rotten.expect(21);
    assert!(rotten.text.contains("[rot]"), "{}", rotten.text);
}
