//! Copies of whole steps as people make them: each is whole.

use super::Round;
use super::damage::{shards, trained};
use std::fs::{self, File};
use std::time::{Duration, SystemTime};
use supervise_tests::harness::copy_tree;

/// Copies of each round.
const COPIES: u64 = 10;

pub(crate) fn round(round: &mut Round) {
    let scene = trained(round);
    for n in 0..COPIES {
        let target = scene.path(&format!("copy-{n}")).join("global_step_4");
        copy_tree(&scene.step(4), &target).unwrap();
        for path in shards(&target) {
            // rsync, tar and object stores give files times in any order.
            let past = SystemTime::now() - Duration::from_secs(round.below(1_000_000));
            File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_modified(past)
                .unwrap();
        }
        scene
            .ask(&["verify", target.to_str().unwrap(), "--depth", "full"])
            .expect(0);
        fs::remove_dir_all(target.parent().unwrap()).unwrap();
        round.count("copies", 1);
    }
}
