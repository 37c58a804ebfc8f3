//! Statements of a file's numbers beside their checksum, and what a save says of its step.

use crate::build::{floats, full, state_dict, text, torch_zip};
use crate::fixtures;
use supervise_checkpoint::torch::TorchFacts;
use supervise_checkpoint::{FileKind, FileReport, InspectLimits, inspect, judge_file};
use supervise_core::checkpoint::{Depth, Verdict};

const KIND: FileKind = FileKind::TorchZip;

fn codes(report: &FileReport) -> Vec<&str> {
    report.findings.iter().map(|f| f.code.as_ref()).collect()
}

/// A safetensors file of float tensors, `(name, elements)`, one behind the other, and where the first begins.
fn safetensors(tensors: &[(&str, usize)], data: &[u8]) -> (Vec<u8>, usize) {
    let mut at = 0;
    let entries: Vec<String> = tensors
        .iter()
        .map(|(name, count)| {
            let from = at;
            at += count * 4;
            format!("\"{name}\":{{\"dtype\":\"F32\",\"shape\":[{count}],\"data_offsets\":[{from},{at}]}}")
        })
        .collect();
    let mut header = format!("{{{}}}", entries.join(","));
    header.push_str(&" ".repeat((8 - header.len() % 8) % 8));
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.into_bytes());
    let base = out.len();
    out.extend(data);
    (out, base)
}

#[test]
fn lost_blocks_without_a_checksum_are_doubted() {
    let (mut bytes, _) = safetensors(&[("a", 5000), ("b", 5000)], &floats(10_000, 3));
    let report = full(FileKind::Safetensors, &bytes);
    assert_eq!(
        (report.verdict, report.proven, codes(&report)),
        (Verdict::Whole, Depth::Full, vec![])
    );
    bytes[8192..12_288].fill(0);
    let report = full(FileKind::Safetensors, &bytes);
    assert_eq!((report.verdict, codes(&report)), (Verdict::Whole, vec!["zero_blocks"]));
    let why = &report.findings[0];
    assert!(why.detail.starts_with("1 blocks of 4096 bytes in 1 tensors"), "{why}");
    // Not aligned: no file system loses that.
    bytes[8192] = 1;
    bytes[12_288..12_300].fill(0);
    assert_eq!(codes(&full(FileKind::Safetensors, &bytes)), [""; 0]);
}

#[test]
fn an_end_of_zeros_is_doubted_at_the_structure() {
    let structure = |bytes: &[u8]| judge_file(&inspect(FileKind::Safetensors, &bytes, &InspectLimits::default()), &[]);
    let (mut bytes, _) = safetensors(&[("a", 5000)], &floats(5000, 3));
    let end = bytes.len();
    // From the last border of a block that leaves a whole one behind it.
    let from = (end - 4096) / 4096 * 4096;
    bytes[from] = 1;
    bytes[from + 1..].fill(0);
    assert_eq!(codes(&structure(&bytes)), [""; 0], "{} zeros", end - from - 1);
    bytes[from - 1] = 1;
    bytes[from..].fill(0);
    let report = structure(&bytes);
    assert_eq!((report.verdict, codes(&report)), (Verdict::Whole, vec!["zero_blocks"]));
    assert_eq!(report.findings[0].offset, Some(from as u64));
    assert_eq!(
        codes(&full(FileKind::Safetensors, &bytes)),
        ["zero_blocks"],
        "said once"
    );
}

#[test]
fn text_does_not_end_with_zeros() {
    let of = |zeros: usize| [b"some text\n".as_slice(), &vec![0; zeros]].concat();
    assert_eq!(full(FileKind::Text, &of(2)).verdict, Verdict::Whole);
    let report = full(FileKind::Text, &of(600));
    assert_eq!((report.verdict, codes(&report)), (Verdict::Damaged, vec!["torn_write"]));
    assert_eq!(report.findings[0].offset, Some(10));
}

#[test]
fn a_tensor_of_zeros_is_doubted_by_itself_only_without_a_checksum() {
    let data = [floats(5000, 3), vec![0; 20_000]].concat();
    let (bytes, _) = safetensors(&[("a", 5000), ("bias", 5000)], &data);
    assert_eq!(codes(&full(FileKind::Safetensors, &bytes)), ["all_zero"]);
    let zip = torch_zip(
        &state_dict(&[("a", 5000), ("bias", 5000)]),
        &[floats(5000, 3), vec![0; 20_000]],
    );
    assert_eq!(codes(&full(KIND, &zip.bytes())), [""; 0]);
}

#[test]
fn a_file_of_nothing_but_zeros_holds_nothing_trained() {
    let zeros = |count: u32| torch_zip(&state_dict(&[("a", count)]), &[vec![0; count as usize * 4]]).bytes();
    let report = full(KIND, &zeros(20_000));
    assert_eq!(
        (report.verdict, codes(&report)),
        (Verdict::Whole, vec!["all_zero_weights"])
    );
    assert_eq!(
        codes(&full(KIND, &zeros(2000))),
        [""; 0],
        "a small file may be anything"
    );
    let (bytes, _) = safetensors(&[("a", 20_000)], &vec![0; 80_000]);
    assert_eq!(
        codes(&full(FileKind::Safetensors, &bytes)),
        ["all_zero", "all_zero_weights"]
    );
}

/// A whole file whose pickle is the given one.
fn facts(pickle: &[u8], storages: &[Vec<u8>]) -> (TorchFacts, Vec<String>) {
    let bytes = torch_zip(pickle, storages).bytes();
    let report = judge_file(&inspect(KIND, &bytes, &InspectLimits::default()), &[]);
    assert_eq!(report.verdict, Verdict::Whole, "{:?}", report.findings);
    let codes = codes(&report).into_iter().map(str::to_owned).collect();
    (report.facts.torch.unwrap(), codes)
}

#[test]
fn steps_are_read_at_both_ends() {
    let names: Vec<String> = (0..12).map(|n| format!("state.{n}.step")).collect();
    let tensors: Vec<(&str, u32)> = names.iter().map(|n| (n.as_str(), 1)).collect();
    let counts =
        |of: &dyn Fn(usize) -> f32| -> Vec<Vec<u8>> { (0..12).map(|n| of(n).to_le_bytes().to_vec()).collect() };
    let steps = |storages: Vec<Vec<u8>>| facts(&state_dict(&tensors), &storages).0.optimizer_steps;
    assert_eq!(steps(counts(&|_| 7.0)), [7]);
    assert_eq!(steps(counts(&|n| if n == 11 { 6.0 } else { 7.0 })), [6, 7]);
    assert_eq!(steps(counts(&|n| if n == 0 { 8.0 } else { 7.0 })), [7, 8]);
    assert_eq!(steps(counts(&|n| n as f32)), [0, 1, 2, 3, 8, 9, 10, 11]);
    assert_eq!(steps(counts(&|_| f32::NAN)), [0; 0]);
    assert_eq!(steps(counts(&|_| 1.5)), [0; 0]);
}

/// A pickle of one dict: keys and ready-made values.
fn dict(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut out = b"}(".to_vec();
    for (key, value) in pairs {
        text(&mut out, key);
        out.extend(value);
    }
    out.push(b'u');
    out
}

fn int(n: u32) -> Vec<u8> {
    [b"J".as_slice(), &n.to_le_bytes()].concat()
}

fn whole(value: &[u8]) -> Vec<u8> {
    [b"\x80\x02", value, b"."].concat()
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [b"](".as_slice(), &items.concat(), b"e"].concat()
}

fn tuple(items: &[Vec<u8>]) -> Vec<u8> {
    [b"(".as_slice(), &items.concat(), b"t"].concat()
}

#[test]
fn steps_that_are_numbers_are_read() {
    let group = |n: u32| dict(&[("lr", b"K\x01".to_vec()), ("step", int(n))]);
    let of_torch = dict(&[("param_groups", list(&[group(5), group(6)]))]);
    assert_eq!(facts(&whole(&of_torch), &[]).0.optimizer_steps, [5, 6]);
    let schedule = dict(&[("num_steps", int(9))]);
    let of_megatron = dict(&[("optimizer", of_torch), ("lr_scheduler", schedule)]);
    let (found, _) = facts(&whole(&of_megatron), &[]);
    assert_eq!((found.optimizer_steps, found.scheduler_steps), (vec![5, 6], Some(9)));
    let state = dict(&[("0", dict(&[("step", b"G\x40\x08\0\0\0\0\0\0".to_vec())]))]);
    assert_eq!(facts(&whole(&dict(&[("state", state)])), &[]).0.optimizer_steps, [3]);
}

#[test]
fn the_loader_tells_batches_and_the_end_of_an_epoch() {
    let one = dict(&[("_num_yielded", int(4)), ("_iterator_finished", b"\x89".to_vec())]);
    let (found, _) = facts(&whole(&one), &[]);
    assert_eq!((found.batches, found.epoch_over), (Some(4), Some(false)));
    let snapshot = dict(&[("_snapshot_step", int(10)), ("_worker_snapshots", dict(&[]))]);
    let several = dict(&[
        ("_snapshot", snapshot),
        ("_steps_since_snapshot", int(3)),
        ("_iterator_finished", b"\x88".to_vec()),
    ]);
    let (found, _) = facts(&whole(&several), &[]);
    assert_eq!((found.batches, found.epoch_over), (Some(13), Some(true)));
}

fn python(version: u32, words: usize) -> Vec<u8> {
    let words: Vec<Vec<u8>> = (0..words).map(|n| int(n as u32)).collect();
    tuple(&[int(version), tuple(&words), b"N".to_vec()])
}

/// numpy's state, with an array of `words` words.
fn numpy(words: usize, bytes: usize, position: u32) -> Vec<u8> {
    let mut name = Vec::new();
    text(&mut name, "MT19937");
    let mut raw = b"c_codecs\nencode\n(".to_vec();
    text(&mut raw, &"\u{e9}".repeat(bytes));
    text(&mut raw, "latin1");
    raw.extend(b"tR");
    let made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR".to_vec();
    let state = tuple(&[
        int(1),
        tuple(&[int(words as u32)]),
        b"N".to_vec(),
        b"\x89".to_vec(),
        raw,
    ]);
    let array = [made, state, b"b".to_vec()].concat();
    tuple(&[name, array, int(position), int(0), b"G\0\0\0\0\0\0\0\0".to_vec()])
}

#[test]
fn generators_have_the_form_their_owners_give_them() {
    let found = |key: &str, state: Vec<u8>| {
        let (facts, codes) = facts(&whole(&dict(&[("rng", dict(&[(key, state)]))])), &[]);
        assert_eq!(facts.rng, [key]);
        codes.iter().filter(|c| *c == "rng_state").count()
    };
    assert_eq!(found("random", python(3, 625)), 0);
    assert_eq!(found("random", python(3, 624)), 1);
    assert_eq!(found("random", python(2, 5)), 0, "another version is not known");
    assert_eq!(found("random", tuple(&[int(3)])), 1);
    assert_eq!(found("numpy", numpy(624, 2496, 624)), 0);
    assert_eq!(found("numpy", numpy(623, 2492, 0)), 1);
    assert_eq!(found("numpy", numpy(624, 2000, 0)), 1);
    assert_eq!(found("numpy", numpy(624, 2496, 625)), 1);
    assert_eq!(found("numpy", dict(&[])), 0, "another generator is not known");
    assert_eq!(found("cpu", int(3)), 1);
    assert_eq!(found("npu", int(3)), 0);
}

#[test]
fn real_generators_are_sound() {
    let mut seen = 0;
    for file in fixtures::all() {
        if !file.path.as_str().contains("extra_state_") {
            continue;
        }
        let report = full(file.kind(), &file.bytes);
        assert!(report.findings.is_empty(), "{}: {:?}", file.name(), report.findings);
        let facts = report.facts.torch.unwrap();
        assert_eq!(facts.rng, ["cpu", "numpy", "random"], "{}", file.name());
        assert_eq!(
            facts.scheduler_calls,
            facts.scheduler_steps.map(|n| n + 1),
            "{}",
            file.name()
        );
        seen += 1;
    }
    assert_eq!(seen, 16);
}

#[test]
fn megatron_counts_in_common_pt() {
    let counted: Vec<(Option<u64>, Vec<u64>)> = fixtures::all()
        .iter()
        .filter(|f| f.set == "verl_megatron_v2_tp2" && f.path.ends_with("optimizer/dist_ckpt/common.pt"))
        .map(|f| full(f.kind(), &f.bytes).facts.torch.unwrap())
        .map(|t| (t.scheduler_steps, t.optimizer_steps))
        .collect();
    assert_eq!(counted, [(Some(1), vec![1]), (Some(2), vec![2])]);
}
