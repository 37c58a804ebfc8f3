//! Everything is killed in the middle of a run; then what was written down and the newest step are damaged.

use super::Round;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use supervise_tests::harness::{Scene, in_scene, send, wait_for};

pub(crate) fn round(round: &mut Round) {
    let mut scene = Scene::new(round.supervise());
    scene
        .set("demo.hold_at", json!(9))
        .set("supervisor.retries", json!(100))
        // A holder that cannot be read is waited for.
        .set("supervisor.lease", json!({"ttl": "2s"}))
        .set("supervisor.grace", json!({"orphan": "1s", "save": "1s", "stop": "1s"}));
    let expected = scene.expected_digest();
    let run = scene.start(&[]);
    wait_for("step 8 is proven", || scene.proven() >= 8);
    round.pause(300);
    run.kill();
    for (pid, _) in in_scene(&scene.mark()) {
        send(pid, 9);
    }
    wait_for("all processes are gone", || scene.living().is_empty());
    for _ in 0..=round.below(3) {
        let files = files(&scene.run_dir());
        let victim = round.pick(&files).cloned().unwrap();
        damage(round, &victim);
        round.count("files of ours damaged", 1);
    }
    let torn = round.below(2) == 0;
    if torn {
        let shard = scene.step(8).join("actor/model_world_size_2_rank_1.pt");
        let mut bytes = fs::read(&shard).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        fs::write(&shard, bytes).unwrap();
        round.count("shards damaged", 1);
    }
    scene.go();
    let ended = scene.run(&[]);
    match ended.code {
        Some(0) => assert_eq!(scene.digest(), Some(expected), "other weights:\n{}", ended.text),
        // A person is asked: nothing was trained on what is not proven.
        Some(3 | 4 | 5 | 69 | 74 | 78) => {
            assert!(scene.workers().is_empty());
            round.count("left to a person", 1);
        }
        code => panic!("exit code {code:?}:\n{}", ended.text),
    }
    for n in 2..=u32::try_from(scene.attempts()).unwrap() {
        let path = scene.run_dir().join(format!("attempts/{n:04}/launch.json"));
        let from = fs::read_to_string(path)
            .ok()
            .and_then(|t| serde_json::from_str::<serde_json::Value>(&t).ok());
        let step = from.and_then(|l| l["from"]["step"]["step"].as_u64());
        assert!(!(torn && n == 2 && step == Some(8)), "resumed from the damaged step");
    }
    scene.assert_alone();
}

/// Files of the run directory that say what happened.
fn files(run_dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for dir in ["", "journal", "lease/1", "verified", "spec", "attempts/0001"] {
        let entries = fs::read_dir(run_dir.join(dir)).into_iter().flatten().flatten();
        found.extend(entries.map(|e| e.path()).filter(|p| p.is_file()));
    }
    // The same number chooses the same file.
    found.sort();
    // The specification with the launch order of an attempt is asserted on below.
    found.retain(|p| !p.ends_with("launch.json"));
    found
}

fn damage(round: &mut Round, path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let at = usize::try_from(round.below(bytes.len() as u64)).unwrap();
    match round.below(6) {
        0 => bytes.truncate(at),
        1 => bytes.clear(),
        2 if !bytes.is_empty() => bytes[at] ^= 1 << round.below(8),
        3 => bytes[at..].fill(0),
        4 => {
            let mut lines: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').collect();
            if !lines.is_empty() {
                let n = usize::try_from(round.below(lines.len() as u64)).unwrap();
                lines.remove(n);
            }
            bytes = lines.concat();
        }
        _ => {
            fs::remove_file(path).unwrap();
            return;
        }
    }
    fs::write(path, bytes).unwrap();
}
