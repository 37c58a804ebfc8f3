//! Excerpts of logs with the class and the action that a person would give them, scored.
//!
//! `SCORE=1` prints every file that is taken for another class; the sums are always printed.

#![expect(clippy::disallowed_methods, reason = "excerpts are read from the source tree")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use supervise_core::diagnosis::Reading;
use supervise_core::taxonomy::letter;

/// A row of `labels.tsv`.
struct Label {
    file: String,
    exit: Option<i32>,
    class: String,
    action: String,
    origin: String,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus")
}

fn labels() -> Vec<Label> {
    let text = std::fs::read_to_string(folder().join("labels.tsv")).unwrap();
    let rows = text.lines().skip(1).map(|line| {
        let mut cells = line.split('\t').map(str::to_owned);
        let mut cell = || cells.next().unwrap_or_default();
        Label {
            file: cell(),
            exit: cell().parse().ok(),
            class: cell(),
            action: cell(),
            origin: cell(),
        }
    });
    rows.collect()
}

/// Class and action of a log: read in pieces, as a file would be.
fn told(reading: &mut Reading, bytes: &[u8], exit: Option<i32>) -> (String, String) {
    reading.clear();
    reading.begin();
    for piece in bytes.chunks(1000) {
        reading.feed(piece);
    }
    reading.end_log();
    let verdict = reading.verdict(exit);
    let none = || "none".to_owned();
    (
        verdict.class.unwrap_or_else(none),
        verdict.action.map_or_else(none, |a| letter(a).to_owned()),
    )
}

#[derive(Default)]
struct Score {
    files: usize,
    classes: usize,
    actions: usize,
}

#[test]
fn the_actions_are_right_and_no_healthy_log_is_a_failure() {
    let mut by_class: BTreeMap<String, Score> = BTreeMap::new();
    let mut by_origin: BTreeMap<String, Score> = BTreeMap::new();
    let (mut wrong, mut alarms) = (Vec::new(), Vec::new());
    let labels = labels();
    let mut reading = Reading::new(&[]).unwrap();
    for label in &labels {
        let bytes = std::fs::read(folder().join(&label.file)).unwrap();
        let (class, action) = told(&mut reading, &bytes, label.exit);
        for score in [
            by_class.entry(label.class.clone()).or_default(),
            by_origin.entry(label.origin.clone()).or_default(),
        ] {
            score.files += 1;
            score.classes += usize::from(class == label.class);
            score.actions += usize::from(action == label.action);
        }
        if class != label.class || action != label.action {
            wrong.push(format!(
                "{}: {} {} taken for {class} {action}",
                label.file, label.class, label.action
            ));
        }
        if label.class == "none" && class != "none" {
            alarms.push(label.file.clone());
        }
    }
    for (name, s) in by_class.iter().chain(&by_origin) {
        println!(
            "{name:28} {:4} files  class {:5.1} %  action {:5.1} %",
            s.files,
            percent(s.classes, s.files),
            percent(s.actions, s.files)
        );
    }
    let total = |of: fn(&Score) -> usize| by_origin.values().map(of).sum::<usize>();
    let (files, actions) = (total(|s| s.files), total(|s| s.actions));
    println!(
        "{files} files of {} classes: class {:.1} %, action {:.1} %",
        by_class.len(),
        percent(total(|s| s.classes), files),
        percent(actions, files)
    );
    if std::env::var_os("SCORE").is_some() {
        println!("{}", wrong.join("\n"));
    }
    assert!(alarms.is_empty(), "healthy logs called failures: {alarms:?}");
    assert!(actions * 100 >= files * 97, "{wrong:#?}");
    assert!(
        files >= 200 && by_class.len() >= 50,
        "{files} files, {} classes",
        by_class.len()
    );
    assert!(by_class["none"].files >= 40);
}

fn percent(of: usize, all: usize) -> f64 {
    of as f64 * 100.0 / all.max(1) as f64
}

#[test]
fn each_excerpt_has_its_label() {
    let labelled: BTreeSet<String> = labels().into_iter().map(|l| l.file).collect();
    let entries = std::fs::read_dir(folder())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap());
    for name in entries.filter(|n| n.ends_with(".log")) {
        assert!(labelled.contains(&name), "{name} has no label");
    }
}

/// A line of each class that NVRx's public rules know, and the code that the worker ends with.
const NVRX: &[(&str, &str, Option<i32>)] = &[
    (
        "gpu_hardware_fault",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
        None,
    ),
    (
        "gpu_hardware_fault",
        "NVRM: Xid (PCI:0000:3b:00): 48, pid=1234, DBE (double bit error) ECC Error",
        None,
    ),
    (
        "gpu_hardware_fault",
        "NVRM: Xid (PCI:0000:3b:00): 74, pid=1234, NVLink: fatal error detected on link 3",
        None,
    ),
    (
        "peer_gpu_memory_access_failure",
        "torch.AcceleratorError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error",
        Some(1),
    ),
    (
        "infra_policy_event",
        "slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2026-11-26T10:00:00 DUE TO PREEMPTION ***",
        None,
    ),
    ("infra_policy_event", "srun: error: Node failure on n2", None),
    (
        "time_limit",
        "slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2026-11-26T10:00:00 DUE TO TIME LIMIT ***",
        None,
    ),
    (
        "user_cancelled",
        "slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2026-11-26T10:00:00 ***",
        None,
    ),
    ("observed_exception", "AssertionError: batch is empty", Some(1)),
    (
        "observed_exception",
        "RuntimeError: something that nobody has seen",
        Some(1),
    ),
    (
        "configuration_validation_failure",
        "omegaconf.errors.ConfigAttributeError: Key 'lrr' is not in struct",
        Some(1),
    ),
    (
        "configuration_validation_failure",
        "omegaconf.errors.MissingMandatoryValue: Missing mandatory value: data.train_files",
        Some(1),
    ),
    (
        "argument_validation_failure",
        "train.py: error: argument --lr: invalid float value: 'fast'",
        Some(2),
    ),
    (
        "artifact_or_path_not_found",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.parquet'",
        Some(1),
    ),
    (
        "checkpoint_compatibility_mismatch",
        "RuntimeError: Error(s) in loading state_dict for Model: size mismatch for lm_head.weight: copying a param with shape torch.Size([8, 4])",
        Some(1),
    ),
    (
        "shape_mismatch",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x4 and 5x2)",
        Some(1),
    ),
    (
        "filesystem_permission_denied",
        "PermissionError: [Errno 13] Permission denied: '/data/out'",
        Some(1),
    ),
    (
        "cuda_oom",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        Some(1),
    ),
    (
        "nan_or_inf",
        "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
        Some(1),
    ),
    (
        "bad_token_or_window",
        "ValueError: bad token 151936 in sample 4711",
        Some(1),
    ),
    ("framework_crash", "Fatal Python error: Segmentation fault", Some(139)),
    ("framework_crash", "Fatal Python error: Illegal instruction", Some(132)),
    (
        "linux_oom_kill_confirmation",
        "Memory cgroup out of memory: Killed process 1234 (python3) total-vm:1kB, anon-rss:1kB",
        Some(137),
    ),
    (
        "linux_oom_kill_confirmation",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.",
        None,
    ),
    (
        "observed_distributed_operation_timeout",
        "[rank3]:[E1126 10:00:00.000000000 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.",
        Some(134),
    ),
    (
        "nccl_cascade",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1, unhandled system error (run with NCCL_DEBUG=INFO for details)",
        Some(1),
    ),
    (
        "nccl_cascade",
        "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3",
        Some(1),
    ),
    (
        "cuda_previous_error_cascade",
        "torch.AcceleratorError: CUDA error: operation failed due to a previous error during capture",
        Some(1),
    ),
];

#[test]
fn the_table_beside_nvrx_is_true() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/diagnosis.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut reading = Reading::new(&[]).unwrap();
    let mut rows = BTreeSet::new();
    for (name, line, exit) in NVRX {
        let (class, action) = told(&mut reading, line.as_bytes(), *exit);
        let row = page.lines().find(|row| row.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("no row tells of {name}"));
        assert!(row.contains(&format!("`{class}` {action}")), "{name}: {class} {action}");
        rows.insert(row);
    }
    assert_eq!(rows.len(), 20);
}
