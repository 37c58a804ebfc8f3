//! A step is cut anew for another number of ranks in its place, and the helper that does it is killed, or refused by a full disk, at each of
//! its calls that change the disk: the step as it was is never lost, and ended and asked again it is as if nothing had happened.
//!
//! `EVERY_CALL=1 cargo test -p supervise-tests --test elastic` takes each call in turn, else every tenth is taken.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use supervise_core::checkpoint::reshard::{ReshardSpec, ReshardedStep};
use supervise_core::checkpoint::{CheckpointSummary, Depth, Verdict};
use supervise_core::journal::record::DiskEdit;
use supervise_core::spec::RunSpec;
use supervise_host::io_worker::{IoAnswer, IoClient, IoQuestion};
use supervise_tests::asked_helper::{helper, talk};
use supervise_tests::bare_spec::bare;
use supervise_tests::disturb::{Fate, calls, disturbed};
use supervise_tests::harness::{PATIENCE, copy_tree};

const SUPERVISE: &str = env!("CARGO_BIN_EXE_supervise");
const STEP: &str = "global_step_2";
const RANKS: u32 = 3;

type Tree = BTreeMap<String, Vec<u8>>;

struct Stage {
    _keep: tempfile::TempDir,
    root: Utf8PathBuf,
    spec: RunSpec,
}

impl Stage {
    /// A root with steps that two ranks saved, of a run that has three.
    fn new() -> Self {
        let keep = tempfile::Builder::new().prefix("supervise-elastic.").tempdir().unwrap();
        let root = Utf8PathBuf::from_path_buf(keep.path().canonicalize().unwrap().join("root")).unwrap();
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/verl_ppo_fsdp2_w2");
        copy_tree(&fixture, root.as_std_path()).unwrap();
        let mut spec = bare("0123456789abcdef", &root, &root.join(".supervise"));
        spec.world = Some(RANKS);
        spec.policy.elastic = true;
        Self {
            _keep: keep,
            root,
            spec,
        }
    }

    fn ask(&self, ask: IoQuestion) -> IoAnswer {
        let mut client = IoClient::start(Path::new(SUPERVISE)).unwrap();
        client
            .ask(IoQuestion::Spec(Box::new(self.spec.clone())), PATIENCE)
            .unwrap();
        client.ask(ask, PATIENCE).unwrap()
    }

    /// The newest step, proven to this depth.
    fn look(&self, depth: Depth) -> CheckpointSummary {
        let scan = IoQuestion::Scan {
            depth,
            whole: 1,
            thorough: true,
        };
        match self.ask(scan) {
            IoAnswer::Scan(report) => report.steps.into_iter().find(|c| c.id.0 == STEP).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn edit(&self, edit: DiskEdit) -> Option<ReshardedStep> {
        match self.ask(edits(edit)) {
            IoAnswer::Resharded(derived) => Some(derived),
            IoAnswer::Done => None,
            other => panic!("{other:?}"),
        }
    }

    fn cut(&self) -> ReshardSpec {
        self.cut_after(Depth::Full)
    }

    fn cut_after(&self, depth: Depth) -> ReshardSpec {
        let c = self.look(depth);
        let reshard = c.reshard.clone().unwrap();
        ReshardSpec {
            ckpt: c.id,
            step: c.step,
            pins: c.pins,
            from: reshard.from,
            to: reshard.to,
        }
    }

    /// The step as it is, and each that stands aside.
    fn trees(&self) -> (Tree, Vec<Tree>) {
        let aside = self.root.join(".supervise/aside");
        let dirs = aside.read_dir_utf8().into_iter().flatten().map(Result::unwrap);
        let kept = dirs.filter(|e| e.file_type().unwrap().is_dir());
        (tree(&self.root.join(STEP)), kept.map(|e| tree(e.path())).collect())
    }
}

fn edits(edit: DiskEdit) -> IoQuestion {
    IoQuestion::Edit {
        edits: vec![edit],
        by: "before-attempt-1".to_owned(),
    }
}

fn tree(dir: &Utf8Path) -> Tree {
    let mut out = Tree::new();
    for entry in dir.read_dir_utf8().unwrap().map(Result::unwrap) {
        let name = entry.file_name();
        match entry.file_type().unwrap().is_dir() {
            true => out.extend(tree(entry.path()).into_iter().map(|(n, b)| (format!("{name}/{n}"), b))),
            false => drop(out.insert(name.to_owned(), fs::read(entry.path()).unwrap())),
        }
    }
    out
}

fn everywhere(fate: Fate, first: usize) {
    let stage = Stage::new();
    let before = tree(&stage.root.join(STEP));
    let derived = stage.edit(DiskEdit::Reshard(stage.cut())).unwrap();
    let (expected, aside) = stage.trees();
    assert_eq!(aside, std::slice::from_ref(&before));
    assert!(expected != before);
    assert_eq!(stage.look(Depth::Full).pins, derived.pins);
    for n in calls(first) {
        let stage = Stage::new();
        let cut = stage.cut();
        let ask = edits(DiskEdit::Reshard(cut.clone()));
        let (seen, _) = disturbed(helper(SUPERVISE), n, fate, talk(&stage.spec, ask));
        if seen < n {
            assert!(n > 40, "only {seen} calls were seen");
            return;
        }
        // As the next term does, before it looks at anything.
        let ended = stage.edit(DiskEdit::EndReshard(cut.clone()));
        let c = stage.look(Depth::Full);
        assert_eq!((c.verdict, c.proven), (Verdict::Whole, Some(Depth::Full)), "call {n}");
        match ended {
            Some(derived) => assert_eq!((c.world, c.pins), (Some(RANKS), derived.pins), "call {n}"),
            None => assert_eq!((c.world, c.pins), (Some(2), cut.pins), "call {n}"),
        }
        if c.world != Some(RANKS) {
            assert_eq!(stage.trees(), (before.clone(), Vec::new()), "call {n}");
            stage.edit(DiskEdit::Reshard(cut)).unwrap();
        }
        let (now, aside) = stage.trees();
        assert!(now == expected, "call {n} of {seen}, {fate:?}: another step");
        assert_eq!(aside, std::slice::from_ref(&before), "call {n} of {seen}, {fate:?}");
        assert!(!stage.root.join(".supervise/reshard").exists(), "call {n}");
    }
}

#[test]
fn killed_at_each_change_the_step_is_there_as_it_was_or_as_it_is_to_be() {
    everywhere(Fate::Killed, 1);
}

#[test]
fn a_disk_that_is_full_at_each_change_costs_nothing() {
    everywhere(Fate::NoSpace, 2);
}

#[test]
fn killed_at_each_change_where_two_names_cannot_be_exchanged() {
    everywhere(Fate::KilledWithoutExchange, 3);
}

#[test]
fn what_was_written_into_since_its_proof_is_not_cut() {
    let stage = Stage::new();
    let cut = stage.cut();
    fs::write(stage.root.join(STEP).join("data.pt"), "else").unwrap();
    let before = stage.trees();
    let mut client = IoClient::start(Path::new(SUPERVISE)).unwrap();
    client
        .ask(IoQuestion::Spec(Box::new(stage.spec.clone())), PATIENCE)
        .unwrap();
    let refused = client.ask(edits(DiskEdit::Reshard(cut)), PATIENCE).unwrap_err();
    assert!(refused.to_string().contains("somebody wrote into it"), "{refused}");
    assert_eq!(stage.trees(), before);
}

#[test]
fn bytes_that_rotted_since_their_proof_are_told_as_damage() {
    let stage = Stage::new();
    let path = stage.root.join(STEP).join("actor/model_world_size_2_rank_1.pt");
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let at = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    // A proof of the structure does not see it.
    let cut = stage.cut_after(Depth::Structure);
    let before = stage.trees();
    let mut client = IoClient::start(Path::new(SUPERVISE)).unwrap();
    client
        .ask(IoQuestion::Spec(Box::new(stage.spec.clone())), PATIENCE)
        .unwrap();
    let refused = client.ask(edits(DiskEdit::Reshard(cut)), PATIENCE).unwrap_err();
    let text = format!("{refused:?}");
    assert!(
        text.contains("NotWhole") && text.contains("do not fit their checksum"),
        "{text}"
    );
    assert_eq!(stage.trees(), before);
}
