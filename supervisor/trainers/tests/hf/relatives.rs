//! Steps that programs around `Trainer` write, and state that newer releases of them add.

use crate::disk::{Disk, why};
use supervise_core::checkpoint::{Depth, FindingLevel, Resumability, Verdict};
use supervise_trainers::ExpectedLayout;

fn at(name: &str) -> String {
    format!("checkpoint-4/{name}")
}

#[test]
fn a_step_of_llamafactorys_own_trainer_is_proven_by_its_mark_and_all_its_ranks() {
    let disk = Disk::of("llamafactory_v1_w2");
    let c = disk.newest();
    assert_eq!(
        (c.verdict, c.layout.as_ref(), c.world, c.proven),
        (Verdict::Whole, "llamafactory_v1", Some(2), Some(Depth::Structure)),
        "{:?}",
        c.findings
    );
    assert_eq!(c.contents, ["model", "optimizer", "schedule", "rng", "data"]);
    for (lost, code) in [
        ("CHECKPOINT_COMPLETE", "unfinished"),
        ("metadata.json", "unfinished"),
        ("model/model.safetensors", "weights_missing"),
        ("optimizer/state_dict.pt", "optimizer_missing"),
        ("scheduler.pt", "schedule_missing"),
        ("rng_state/rank_0.pt", "rng_missing"),
        ("rng_state/rank_1.pt", "rng_missing"),
        ("dataloader/rank_1.pt", "rng_missing"),
    ] {
        let c = disk.clone().without(&at(lost)).newest();
        assert_eq!(c.verdict, Verdict::Incomplete, "{lost}: {:?}", c.findings);
        assert!(why(&c).contains(&code.to_owned()), "{lost}: {:?}", c.findings);
    }
    for torn in [
        "metadata.json",
        "optimizer/state_dict.pt",
        "rng_state/rank_1.pt",
        "dataloader/rank_0.pt",
    ] {
        let c = disk.clone().change(&at(torn), |b| b[..b.len() / 2].to_vec()).newest();
        assert_ne!(c.verdict, Verdict::Whole, "{torn}");
    }
    // Files that are whole and belong elsewhere: both directories of a rank have the same names.
    let (rng, data) = (at("rng_state/rank_0.pt"), at("dataloader/rank_0.pt"));
    for odd in [
        disk.clone().put(&rng, &disk.files[camino::Utf8Path::new(&data)]),
        disk.clone().put(&data, &disk.files[camino::Utf8Path::new(&rng)]),
        disk.clone()
            .put(&at("metadata.json"), b"{\"global_step\": 4, \"num_training_steps\": 4}"),
    ] {
        let c = odd.newest();
        assert_eq!(
            (c.verdict, why(&c)),
            (Verdict::Damaged, vec!["other_content".to_owned()]),
            "{:?}",
            c.findings
        );
    }
    // One process writes numbered files too.
    let alone = disk
        .without(&at("rng_state/rank_1.pt"))
        .without(&at("dataloader/rank_1.pt"));
    assert_eq!(
        (alone.newest().verdict, alone.newest().world),
        (Verdict::Whole, Some(1))
    );
}

#[test]
fn state_that_the_step_before_has_must_be_there_and_be_json() {
    for file in ["rollout_state.json", "entropy_ctrl_state.json"] {
        let before = Disk::genuine().put(&format!("checkpoint-2/{file}"), b"{\"prompt_index\": 8}");
        let both = before.clone().put(&at(file), b"{\"prompt_index\": 16}");
        assert_eq!(both.newest().verdict, Verdict::Whole, "{:?}", both.newest().findings);
        let c = before.newest();
        assert_eq!(
            (c.verdict, why(&c)),
            (Verdict::Incomplete, vec!["state_missing".to_owned()]),
            "{file}"
        );
        // Switched off: the step after the next one is whole again.
        let genuine = Disk::genuine();
        let off =
            before
                .with(&genuine, "checkpoint-4", "checkpoint-6")
                .change("checkpoint-6/trainer_state.json", |b| {
                    String::from_utf8(b)
                        .unwrap()
                        .replace("\"global_step\": 4", "\"global_step\": 6")
                        .into_bytes()
                });
        assert_eq!(off.newest().verdict, Verdict::Whole, "{:?}", off.newest().findings);
        let torn = both.put(&at(file), b"{\"prompt_in");
        assert_eq!(torn.newest().verdict, Verdict::Incomplete, "{file}");
        assert!(torn.newest().part.is_none(), "a resume would read it");
    }
}

#[test]
fn what_accelerate_saved_for_a_program_is_not_judged() {
    let disk = Disk::genuine()
        .without(&at("trainer_state.json"))
        .put(&at("random_states_0.pkl"), b"x");
    let c = disk.newest();
    assert_eq!(
        (c.verdict, why(&c)),
        (Verdict::Unknown, vec!["unknown_layout".to_owned()])
    );
}

#[test]
fn deepspeeds_pointer_says_which_of_its_directories_counts() {
    let mut disk = Disk::genuine().without(&at("optimizer.pt"));
    for dir in ["global_step4", "global_step4_universal"] {
        disk = disk.put(&at(&format!("{dir}/mp_rank_00_model_states.pt")), b"not looked into");
    }
    for rank in [0, 1] {
        let name = format!("global_step4/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt");
        disk = disk.put(&at(&name), b"not looked into");
    }
    let judged = |pointer: &[u8]| {
        let disk = disk.clone().put(&at("latest"), pointer);
        let mut tracker = disk.tracker(&ExpectedLayout::default());
        let (id, _) = tracker.steps().remove(0);
        let mut reports = disk.prove(&*tracker, &id);
        // Files of ranks are not genuine here.
        reports.retain(|path, _| !path.as_str().contains("global_step"));
        tracker.judge(&id, Depth::Structure, &reports)
    };
    let c = judged(b"global_step4\n");
    assert_eq!(c.verdict, Verdict::Whole, "{:?}", c.findings);
    let noted = c.findings.iter().find(|f| f.code == "deepspeed_universal").unwrap();
    assert_eq!(noted.level, FindingLevel::Note);
    assert_eq!(judged(b"global_step4_universal").verdict, Verdict::Unknown);
    for lost in [&b"global_step2"[..], b"", b"../.."] {
        assert_eq!(judged(lost).verdict, Verdict::Damaged, "{lost:?}");
    }
}

#[test]
fn a_node_that_saves_alone_needs_its_own_ranks_only() {
    let command = "torchrun --nnodes=2 --node_rank=RANK --nproc_per_node=2 t.py --output_dir o --save_steps 2 --save_on_each_node True --logging_steps 1";
    let judged = |rank: &str, disk: Disk| {
        let words: Vec<String> = command.replace("RANK", rank).split(' ').map(str::to_owned).collect();
        disk.judge(&crate::launch::expectation(&words)).remove(0)
    };
    // Ranks 0 and 1 of 4.
    let first = judged("0", Disk::genuine());
    assert_eq!(
        (first.verdict, &first.resume),
        (Verdict::Whole, &Resumability::Exact),
        "{:?}",
        first.findings
    );
    assert_eq!(first.world, Some(4));
    let second = Disk::genuine();
    let moved = ["checkpoint-2", "checkpoint-4"].iter().fold(second, |disk, step| {
        [(0, 2), (1, 3)].iter().fold(disk, |disk, (from, to)| {
            let bytes = disk.files[camino::Utf8Path::new(&format!("{step}/rng_state_{from}.pth"))].clone();
            let renamed = String::from_utf8_lossy(&bytes).contains("rng_state");
            assert!(renamed);
            disk.without(&format!("{step}/rng_state_{from}.pth"))
                .put(&format!("{step}/rng_state_{to}.pth"), &named(&bytes, *from, *to))
        })
    });
    let c = judged("1", moved.clone());
    assert_eq!((c.verdict, c.world), (Verdict::Whole, Some(4)), "{:?}", c.findings);
    let c = judged("1", moved.clone().without(&at("rng_state_3.pth")));
    assert_eq!(
        (c.verdict, why(&c)),
        (Verdict::Incomplete, vec!["rng_missing".to_owned()])
    );
    // Node 0 finds nothing of its own there.
    assert_ne!(judged("0", moved).verdict, Verdict::Whole);
}

/// The same archive under another rank's name, of the same length.
fn named(bytes: &[u8], from: u32, to: u32) -> Vec<u8> {
    let (from, to) = (
        format!("rng_state_{from}/").into_bytes(),
        format!("rng_state_{to}/").into_bytes(),
    );
    let mut out = bytes.to_vec();
    let places: Vec<usize> = out
        .windows(from.len())
        .enumerate()
        .filter(|(_, w)| *w == from)
        .map(|(at, _)| at)
        .collect();
    for at in places {
        out[at..at + to.len()].copy_from_slice(&to);
    }
    out
}
