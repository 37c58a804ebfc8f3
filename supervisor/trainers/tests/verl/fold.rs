//! The fold over facts: the same whatever the order, the same as from scratch.

use crate::tree::{Tree, run};
use camino::Utf8PathBuf;
use proptest::prelude::*;
use std::collections::BTreeMap;
use supervise_core::checkpoint::{CheckpointSummary, Depth, EntryKind, FileFact};
use supervise_trainers::{StepTracker, adapter};

/// All that a tracker says.
fn view(tracker: &mut dyn StepTracker) -> (Vec<CheckpointSummary>, Vec<String>) {
    let steps = tracker.steps();
    let seen = steps
        .iter()
        .map(|(c, _)| tracker.judge(c, Depth::Structure, &BTreeMap::new()))
        .collect();
    (seen, tracker.remarks())
}

fn fresh() -> Box<dyn StepTracker> {
    adapter(supervise_trainers::verl::PPO).tracker(&run(false, 2, &["actor"]))
}

fn everything() -> Vec<FileFact> {
    let mut tree = Tree::new()
        .ppo(1, 2, &["actor"])
        .ppo(2, 2, &["actor", "critic"])
        .sft(3, 2, 2);
    tree.dir("global_steps_9");
    tree.dir("global_step_4");
    tree.file("global_step_2/actor/.model.tmp", 3);
    for part in ["model", "optimizer", "extra"] {
        for name in ["__0_0.distcp", ".metadata", "common.pt"] {
            tree.file(format!("global_step_5/actor/{part}/dist_ckpt/{name}"), 9);
        }
    }
    tree.file("global_step_5/actor/ckpt_contents.json", 9);
    tree.file("global_step_6/critic/dist_ckpt/common.pt", 9);
    tree.facts().cloned().collect()
}

fn gone(path: &Utf8PathBuf) -> FileFact {
    FileFact {
        path: path.clone(),
        kind: EntryKind::Gone,
        size: 0,
        mtime: 0,
        ctime: 0,
        dev: 0,
        ino: 0,
        uid: 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_order_of_facts_says_the_same(order in Just(everything()).prop_shuffle()) {
        let mut sorted = fresh();
        everything().iter().for_each(|f| sorted.note(f));
        let mut shuffled = fresh();
        order.iter().for_each(|f| shuffled.note(f));
        prop_assert_eq!(view(&mut *shuffled), view(&mut *sorted));
    }

    #[test]
    fn changes_and_removals_say_the_same_as_a_fresh_scan(
        moves in prop::collection::vec((0_usize..1000, 0_u8..3, 1_u64..50), 0..60)
    ) {
        let all = everything();
        let mut now: BTreeMap<Utf8PathBuf, FileFact> = all.iter().map(|f| (f.path.clone(), f.clone())).collect();
        let mut tracker = fresh();
        all.iter().for_each(|f| tracker.note(f));
        for (pick, what, size) in moves {
            let original = &all[pick % all.len()];
            if what == 0 {
                now.retain(|path, _| !path.starts_with(&original.path));
                tracker.note(&gone(&original.path));
            } else if original.kind == EntryKind::File {
                let changed = FileFact { size, mtime: size as i64, ..original.clone() };
                now.insert(changed.path.clone(), changed.clone());
                tracker.note(&changed);
            }
        }
        // That a step of this root had the file stays known, whatever is removed later.
        let mut scratch = fresh();
        for marker in all.iter().filter(|f| f.path.ends_with("fsdp_config.json")) {
            scratch.note(marker);
            scratch.note(&gone(&marker.path));
        }
        now.values().for_each(|f| scratch.note(f));
        prop_assert_eq!(view(&mut *tracker), view(&mut *scratch));
    }
}

#[test]
fn a_step_that_is_gone_is_forgotten_with_all_below_it() {
    let mut tracker = fresh();
    everything().iter().for_each(|f| tracker.note(f));
    for path in [
        "global_step_1",
        "global_step_2",
        "global_step_3",
        "global_step_4",
        "global_step_5",
        "global_step_6",
        "global_steps_9",
    ] {
        tracker.note(&gone(&path.into()));
    }
    assert_eq!(view(&mut *tracker), (Vec::new(), Vec::new()));
}
