//! What is on disk, and what no load looks at.

use crate::bench::fixtures;
use crate::stage::{Stage, files, generations, live};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use supervise_core::checkpoint::{CheckpointSummary, Depth, Verdict};
use supervise_core::event::ActErrorKind;
use supervise_core::id::Step;
use supervise_tests::areal_set::Shape;
use supervise_tests::harness::copy_tree;

const CHECKPOINT: &str = "default/recover_checkpoint";
const INFO: &str = "recover_info";

/// What areal's own trainer left, on two ranks.
fn genuine() -> Stage {
    let stage = Stage::new();
    let trial = fixtures().join("areal_sft_w2/checkpoints/trainer/real/t0");
    copy_tree(&trial, stage.root.as_std_path()).unwrap();
    stage
}

fn judged(stage: &Stage) -> CheckpointSummary {
    live(&stage.look()).clone()
}

/// It is not whole, for one of these reasons.
#[track_caller]
fn is_not_whole(stage: &Stage, codes: &[&str]) {
    let c = judged(stage);
    assert_ne!(c.verdict, Verdict::Whole, "{:?}", c.findings);
    let why = c.why().unwrap();
    assert!(codes.contains(&why.code.as_ref()), "{codes:?}: {why}: {:?}", c.findings);
}

fn cut(stage: &Stage, path: &str, keep: impl Fn(u64) -> u64) {
    let file = File::options().write(true).open(stage.root.join(path)).unwrap();
    file.set_len(keep(file.metadata().unwrap().len())).unwrap();
}

/// The middle between the two headers of tensors that are furthest apart.
fn in_the_largest_tensor(bytes: &[u8]) -> usize {
    let name = b"/data/0";
    let at: Vec<usize> = (0..bytes.len() - name.len())
        .filter(|i| bytes[*i..].starts_with(name))
        .collect();
    let widest = at.windows(2).max_by_key(|w| w[1] - w[0]).unwrap();
    usize::midpoint(widest[0], widest[1])
}

/// Step 6, with these files of step 4; every file has the same time.
fn with_parts_of_another_step(parts: &[&str]) -> Stage {
    let stage = Stage::new();
    stage.saved_and_kept(&[2, 4]);
    let older = files(&stage.root);
    stage.save(6);
    for (path, bytes) in older {
        if parts.iter().any(|part| path.starts_with(part)) {
            fs::write(stage.root.join(path), bytes).unwrap();
        }
    }
    stage.forget_times();
    stage
}

/// [disk.directories_come_first, export.empty_first] Whoever asks for a path creates the directory: that it is there says nothing | Directories are no set; what has to be in it has to be in it
#[test]
fn directories_prove_nothing() {
    let stage = Stage::new();
    for dir in [
        CHECKPOINT,
        "recover_info/recover_checkpoint",
        "default/epoch1epochstep2globalstep3",
    ] {
        fs::create_dir_all(stage.root.join(dir)).unwrap();
    }
    assert!(stage.look().steps.is_empty());
}

/// [disk.no_step, rule.identity] A checkpoint knows no step: that of another step beside these counters is loaded in silence | Each save of an engine has a mark, and its optimizer counts: the one of another step is found out
#[test]
fn the_checkpoint_of_another_step() {
    is_not_whole(&with_parts_of_another_step(&[CHECKPOINT]), &["mixed_generations"]);
}

/// [rule.info_swapped] `recover_info` of another step is believed | The same marks tell
#[test]
fn the_counters_of_another_step() {
    is_not_whole(&with_parts_of_another_step(&[INFO]), &["ahead"]);
}

/// [rule.info_times] One file of `recover_info` of another step is believed | What they count is compared
#[test]
fn one_file_of_another_step() {
    for file in ["step_info.json", "checkpoint_info.json", "dataloader_info.pkl"] {
        let stage = with_parts_of_another_step(&[&format!("{INFO}/{file}")]);
        is_not_whole(&stage, &["info_of_two_saves", "ahead"]);
    }
}

/// [rule.times, rule.times_put_back] A shard of another step is loaded in silence; file times could tell, until somebody copies | Found out with the times and without them
#[test]
fn a_shard_of_another_step() {
    is_not_whole(
        &with_parts_of_another_step(&["default/recover_checkpoint/__0_0.distcp"]),
        &["mixed_steps", "mixed_generations"],
    );
    is_not_whole(
        &with_parts_of_another_step(&["default/recover_checkpoint/__1_0.distcp"]),
        &["mixed_steps", "mixed_generations"],
    );
}

/// [rule.info_files, load.not_found] A file of `recover_info` that is empty or gone is a fresh start | The set is incomplete
#[test]
fn a_file_of_counters_is_empty_or_gone() {
    for file in ["step", "saver", "evaluator", "stats_logger", "checkpoint"] {
        let stage = genuine();
        let path = format!("{INFO}/{file}_info.json");
        cut(&stage, &path, |_| 0);
        is_not_whole(&stage, &["empty_file", "recover_info_missing", "missing"]);
        fs::remove_file(stage.root.join(path)).unwrap();
        is_not_whole(&stage, &["empty_file", "recover_info_missing", "missing"]);
    }
}

/// [rule.data_state] A place in the data that is cut short is a fresh start | Every byte of the pickle is walked; it is never run
#[test]
fn the_place_in_the_data_is_cut_short() {
    for keep in [0, 1, 100] {
        let stage = genuine();
        cut(&stage, &format!("{INFO}/dataloader_info.pkl"), |length| {
            length.min(keep)
        });
        is_not_whole(&stage, &["empty_file", "pickle_broken"]);
    }
    let stage = genuine();
    cut(&stage, &format!("{INFO}/dataloader_info.pkl"), |length| length - 1);
    is_not_whole(&stage, &["empty_file", "pickle_broken"]);
}

/// [rule.step_info] Counters that contradict themselves are believed | Not whole
#[test]
fn counters_that_contradict_themselves() {
    let stage = genuine();
    let path = stage.root.join(INFO).join("step_info.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"epoch\": 0", "\"epoch\": 7")).unwrap();
    assert_ne!(fs::read_to_string(&path).unwrap(), text);
    is_not_whole(&stage, &["json_content"]);
}

/// [rule.shard, load.dies_each_time] A shard that is short or gone ends every launch | Told before a launch; the last proven save is put back
#[test]
fn a_shard_is_short_or_gone() {
    let shard = format!("{CHECKPOINT}/__1_0.distcp");
    let stage = genuine();
    cut(&stage, &shard, |length| length - 1);
    is_not_whole(&stage, &["distcp_truncated", "distcp_missing"]);
    fs::remove_file(stage.root.join(shard)).unwrap();
    is_not_whole(&stage, &["distcp_truncated", "distcp_missing"]);
}

/// [rule.bytes, load.crc] A flipped bit in a tensor is loaded: torch looks at no checksum | Each checksum is looked at
#[test]
fn a_flipped_bit() {
    let stage = genuine();
    assert_eq!(judged(&stage).verdict, Verdict::Whole);
    let path = stage.root.join(CHECKPOINT).join("__0_0.distcp");
    let mut bytes = fs::read(&path).unwrap();
    let middle = in_the_largest_tensor(&bytes);
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    is_not_whole(&stage, &["crc_mismatch", "x"]);
}

/// [disk.leftover_shards] Fewer ranks leave the shards of the others behind: nothing says that they are not meant | What `.metadata` does not name is not looked for, and does no harm
#[test]
fn shards_of_ranks_that_are_no_more() {
    let stage = genuine();
    fs::write(stage.root.join(CHECKPOINT).join("__2_0.distcp"), "old").unwrap();
    assert_eq!(judged(&stage).verdict, Verdict::Whole);
}

/// [disk.one_inode, protect.hard_links] Shards are written over in their inodes: a copy by hard links changes with the next save | A copy is files of its own
#[test]
fn copies_are_no_hard_links() {
    let stage = Stage::new();
    stage.saved_and_kept(&[2]);
    let kept = stage.store.join("protected").join(&generations(&stage.look())[0].id.0);
    for path in files(&stage.root).into_keys() {
        let inode = |root: &camino::Utf8Path| fs::metadata(root.join(&path)).unwrap().ino();
        assert_ne!(inode(&stage.root), inode(&kept), "{path}");
    }
    let before = files(&kept);
    stage.save(4);
    assert_eq!(files(&kept), before);
}

/// [protect.generations] One checkpoint is kept, and each save writes over it | Each proven save is copied; the copies are proven like the checkpoint itself
#[test]
fn proven_saves_are_copied() {
    let stage = Stage::new();
    stage.saved_and_kept(&[2, 4]);
    let report = stage.look();
    let kept: Vec<_> = generations(&report)
        .iter()
        .map(|c| (c.step, c.verdict, c.proven))
        .collect();
    let whole = |step| (Step(step), Verdict::Whole, Some(Depth::Full));
    assert_eq!(kept, [whole(4), whole(2)]);
}

/// [protect.put_back] Weights of one save and counters of another make a wrong run | What is put back is put back as a whole, the torn set goes aside
#[test]
fn all_of_it_or_nothing() {
    let stage = Stage::new();
    stage.saved_and_kept(&[2, 4]);
    let kept = files(&stage.root);
    stage.cut(6, 4);
    let mut io_worker = stage.io_worker();
    let report = io_worker.scan();
    let from = generations(&report)[0].id.clone();
    io_worker.edit(crate::stage::put_back(&report, &from)).unwrap();
    assert_eq!(files(&stage.root), kept);
}

/// [protect.raced] A copy while the next save begins is of two saves | Looked at again after the copy: it is void, and nothing of it stays
#[test]
fn a_save_that_begins_while_it_is_copied() {
    let stage = Stage::new();
    stage.save(4);
    let mut io_worker = stage.io_worker();
    let seen = live(&io_worker.scan()).clone();
    stage.cut(6, 1);
    assert_eq!(io_worker.keep(&seen).unwrap_err().kind, ActErrorKind::Voided);
    assert!(generations(&io_worker.scan()).is_empty());
}

/// [protect.room] Copies need room, and a save on a full disk destroys the checkpoint | Without room for a copy and the next save nothing is copied, and it is said
#[test]
fn no_room() {
    let mut stage = Stage::new();
    stage.spec.policy.protect.reserve = u64::MAX / 4;
    stage.save(4);
    let refused = stage.io_worker().keep_live().unwrap_err();
    assert_eq!(refused.kind, ActErrorKind::NoRoom);
    assert!(refused.what.contains("protect.reserve"), "{}", refused.what);
}

/// [disk.stats_behind] `stats_logger_info.json` says one step less than `step_info.json`: it is written before the step is logged | Known: that they differ is no sign of two saves
#[test]
fn the_log_is_one_step_behind() {
    let stage = genuine();
    let number = |file: &str, key: &str| {
        let text = fs::read_to_string(stage.root.join(INFO).join(file)).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()[key].as_i64()
    };
    let logged = number("stats_logger_info.json", "last_commit_step").unwrap();
    assert_eq!(number("step_info.json", "global_step"), Some(logged + 1));
    let c = judged(&stage);
    assert_eq!(c.verdict, Verdict::Whole, "{:?}", c.findings);
}

/// [rule.tiling] A `.metadata` of another model fits no shard; nothing is compared before the load | Each place that it names is compared with what stands there
#[test]
fn the_table_of_another_model() {
    let table = format!("{CHECKPOINT}/.metadata");
    let with = |numbers: usize| {
        let stage = Stage::with(Shape {
            numbers,
            ..Shape::default()
        });
        stage.save(4);
        stage
    };
    let stage = with(64);
    fs::copy(with(100).root.join(&table), stage.root.join(&table)).unwrap();
    stage.forget_times();
    is_not_whole(&stage, &["zip_trailing_bytes"]);

    // The same places, and tensors of another size in them; a tensor that its parts do not make up.
    let number = |n: i64| [b"\x8a\x08".to_vec(), n.to_le_bytes().to_vec()].concat();
    for (times, code) in [(usize::MAX, "distcp_content"), (1, "dcp_tiling")] {
        let stage = with(64);
        let mut bytes = fs::read(stage.root.join(&table)).unwrap();
        for _ in 0..times {
            let Some(at) = bytes.windows(10).position(|w| w == number(64)) else {
                break;
            };
            bytes.splice(at..at + 10, number(60));
        }
        fs::write(stage.root.join(&table), bytes).unwrap();
        stage.forget_times();
        is_not_whole(&stage, &[code]);
    }
}

/// [rule.older_shard] A shard of an earlier step is loaded in silence, whatever it is of | Found out by what it counts, or where a copy of its save or of this one was kept; a shard that counts nothing, of saves that nobody saw, cannot be told
#[test]
fn a_shard_of_a_step_that_nobody_kept() {
    let older = |silent: u32, kept: bool| {
        let stage = Stage::with(Shape {
            silent,
            ..Shape::default()
        });
        stage.save(4);
        let shard = stage.root.join(CHECKPOINT).join("__0_0.distcp");
        let bytes = fs::read(&shard).unwrap();
        stage.save(6);
        if kept {
            stage.io_worker().keep_live().unwrap();
        }
        fs::write(shard, bytes).unwrap();
        stage.forget_times();
        stage
    };
    is_not_whole(&older(0, false), &["mixed_steps"]);
    is_not_whole(&older(1, true), &["mixed_generations"]);
    assert_eq!(
        judged(&older(1, false)).verdict,
        Verdict::Whole,
        "nothing is left that could tell"
    );
}
