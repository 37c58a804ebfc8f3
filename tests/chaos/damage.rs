//! One change of the bytes of a saved file, and the times put back: `verify` must not call the step whole, unless it
//! loads as before.

use super::Round;
use serde_json::json;
use std::fs::{self, File, FileTimes};
use std::path::{Path, PathBuf};
use supervise_tests::harness::Scene;
use supervise_tests::torch_file;

/// Changes of each round.
const CHANGES: u64 = 40;

pub(crate) fn round(round: &mut Round) {
    let scene = trained(round);
    let step = scene.step(4);
    let shards = shards(&step);
    for _ in 0..CHANGES {
        let path = round.pick(&shards).unwrap().clone();
        let before = fs::read(&path).unwrap();
        let times = fs::metadata(&path).unwrap();
        let (what, after) = change(round, &before);
        if after == before {
            continue;
        }
        write(&path, &after, &times);
        let ended = scene.ask(&["verify", step.to_str().unwrap(), "--depth", "full"]);
        // Dates and attributes in the headers of an archive are read by nobody.
        let unread = ended.code == Some(0) && torch_file::decode(&before).ok() == torch_file::decode(&after).ok();
        assert!(
            unread || matches!(ended.code, Some(20..=24)),
            "{what} in {} is called whole (exit code {:?}):\n{}",
            path.display(),
            ended.code,
            ended.text
        );
        write(&path, &before, &times);
        round.count(
            if unread {
                "changes that nobody reads"
            } else {
                "changes found"
            },
            1,
        );
    }
    scene
        .ask(&["verify", step.to_str().unwrap(), "--depth", "full"])
        .expect(0);
}

/// Steps 2 and 4 of the demo trainer, made without a supervisor.
pub(crate) fn trained(round: &mut Round) -> Scene {
    let mut scene = Scene::new(round.supervise());
    scene
        .set("demo.step_ms", json!(0))
        .set("demo.seed", json!(round.below(1000)))
        .set("trainer.total_training_steps", json!(4));
    scene.train(&[]);
    scene
}

/// Every torch file of a step, sorted.
pub(crate) fn shards(step: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(step.join("actor"))
        .unwrap()
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "pt"))
        .collect();
    found.sort();
    found
}

fn change(round: &mut Round, before: &[u8]) -> (&'static str, Vec<u8>) {
    let mut bytes = before.to_vec();
    let at = usize::try_from(round.below(bytes.len() as u64)).unwrap();
    match round.below(6) {
        0 => {
            bytes[at] ^= 1 << round.below(8);
            ("one bit", bytes)
        }
        1 => {
            bytes[at] = bytes[at].wrapping_add(1 + u8::try_from(round.below(255)).unwrap());
            ("one byte", bytes)
        }
        2 => {
            bytes.truncate(at);
            ("a cut", bytes)
        }
        3 => {
            bytes[at..].fill(0);
            ("zeros to the end", bytes)
        }
        4 => {
            bytes.insert(at, 0x5a);
            ("one byte more", bytes)
        }
        _ => {
            let end = (at + 4096).min(bytes.len());
            bytes[at..end].fill(0);
            ("a block of zeros", bytes)
        }
    }
}

fn write(path: &Path, bytes: &[u8], times: &fs::Metadata) {
    fs::write(path, bytes).unwrap();
    let old = FileTimes::new()
        .set_accessed(times.accessed().unwrap())
        .set_modified(times.modified().unwrap());
    File::options().write(true).open(path).unwrap().set_times(old).unwrap();
}
