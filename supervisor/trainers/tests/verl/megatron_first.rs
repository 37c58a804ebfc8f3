//! Steps in the first layout of Megatron's checkpoint manager, written by verl 0.7's own.

use crate::fixtures::{Files, files, judge};
use crate::tree::{codes, run, why};
use camino::{Utf8Path, Utf8PathBuf};
use supervise_core::checkpoint::{CheckpointSummary, Depth, EntryKind, FileFact, Resumability, StateKind, Verdict};
use supervise_core::spec::{MegatronSpec, ParallelSizes};
use supervise_trainers::ExpectedLayout;

const SETS: [&str; 2] = ["verl_megatron_v1_tp2", "verl_megatron_v1_hf"];

fn seen(files: &Files, facts: &[FileFact], expect: &ExpectedLayout) -> CheckpointSummary {
    judge(files, facts, expect).remove(0)
}

/// A run that trains with Megatron on two tensor parallel ranks, with this release of verl.
fn megatron(dist: bool, version: Option<&str>) -> ExpectedLayout {
    let mut expect = run(false, 2, &["actor"]);
    let parallel = ParallelSizes {
        tensor: 2,
        pipeline: 1,
        context: 1,
        expert: 1,
    };
    for role in expect.roles.iter_mut().flatten() {
        role.megatron = Some(MegatronSpec {
            parallel,
            bridge: true,
            dist,
            adapters: false,
            any_parallel: false,
            schedule: false,
        });
    }
    expect.version = version.map(str::to_owned);
    expect
}

/// Without the files whose names hold this.
fn without(files: &Files, facts: &[FileFact], what: &str) -> (Files, Vec<FileFact>) {
    let keep = |path: &Utf8Path| !path.as_str().contains(what);
    let files = files.iter().filter(|(p, _)| keep(p));
    (
        files.map(|(p, b)| (p.clone(), b.clone())).collect(),
        facts.iter().filter(|f| keep(&f.path)).cloned().collect(),
    )
}

#[test]
fn genuine_steps_of_the_first_layout_are_whole_and_named_with_what_to_do() {
    for set in SETS {
        let (files, facts) = files(set);
        let seen = seen(&files, &facts, &ExpectedLayout::default());
        assert_eq!(seen.verdict, Verdict::Whole, "{set}: {:?}", seen.findings);
        assert_eq!(seen.proven, Some(Depth::Structure), "{set}");
        assert_eq!(seen.layout, "verl_megatron_v1_ppo");
        assert_eq!(&seen.contents[..3], ["model", "optimizer", "extra"]);
        assert_eq!(codes(&seen), ["megatron_v1_layout"]);
        let command = "`supervise migrate --checkpoint global_step_1/actor`";
        assert!(seen.findings[0].detail.contains(command), "{:?}", seen.findings);
    }
}

#[test]
fn a_step_of_the_first_layout_is_resumed_where_that_verl_reads_it_and_nowhere_else() {
    for (set, dist) in SETS.into_iter().zip([true, false]) {
        let (files, facts) = files(set);
        for version in ["0.4.1", "0.5.0", "0.6.1", "0.7.0", "0.8.0"] {
            let seen = seen(&files, &facts, &megatron(dist, Some(version)));
            assert_eq!(seen.resume, Resumability::Exact, "{set} with {version}");
        }
        for (version, words) in [
            ("0.9.1", "`supervise migrate --checkpoint global_step_1/actor`"),
            ("0.4.0", "0.4.1 or later"),
        ] {
            let seen = seen(&files, &facts, &megatron(dist, Some(version)));
            assert_eq!(seen.verdict, Verdict::Whole, "it is no less for it");
            let Resumability::Not { why } = &seen.resume else {
                panic!("{set} with {version}: {:?}", seen.resume);
            };
            assert!(why.contains(words), "{why}");
        }
        let other = seen(&files, &facts, &megatron(!dist, Some("0.7.0")));
        assert!(
            matches!(&other.resume, Resumability::Not { why } if why.contains("use_dist_checkpointing")),
            "{set}: {:?}",
            other.resume
        );
    }
}

#[test]
fn each_file_of_the_first_layout_that_is_gone_is_named() {
    for (set, gone, verdict, code) in [
        (
            SETS[0],
            "dist_ckpt/.metadata",
            Verdict::Incomplete,
            "dcp_metadata_missing",
        ),
        (SETS[0], "dist_ckpt/__1_0.distcp", Verdict::Incomplete, "distcp_missing"),
        (
            SETS[0],
            "dist_ckpt/common.pt",
            Verdict::Incomplete,
            "dist_common_missing",
        ),
        (
            SETS[0],
            "dist_ckpt/metadata.json",
            Verdict::Incomplete,
            "dist_metadata_missing",
        ),
        (
            SETS[0],
            "transformer_config.json",
            Verdict::Incomplete,
            "transformer_config_missing",
        ),
        (
            SETS[0],
            "huggingface/config.json",
            Verdict::Incomplete,
            "hf_config_missing",
        ),
        (
            SETS[1],
            "model-00001-of-00002",
            Verdict::Incomplete,
            "hf_weights_missing",
        ),
        (
            SETS[1],
            "model.safetensors.index",
            Verdict::Incomplete,
            "hf_index_missing",
        ),
    ] {
        let (all, facts) = files(set);
        let (files, facts) = without(&all, &facts, gone);
        let seen = seen(&files, &facts, &ExpectedLayout::default());
        assert_eq!(
            (seen.verdict, why(&seen)),
            (verdict, code),
            "{set} without {gone}: {:?}",
            seen.findings
        );
    }
}

#[test]
fn every_file_of_the_first_layout_that_is_cut_short_is_found() {
    for set in SETS {
        let (all, facts) = files(set);
        let below = |p: &&Utf8PathBuf| p.as_str().starts_with("global_step_1/actor/dist_ckpt/");
        for path in all.keys().filter(below) {
            let (mut files, mut facts) = (all.clone(), facts.clone());
            let bytes = files.get_mut(path).unwrap();
            bytes.truncate(bytes.len() / 2);
            let fact = facts.iter_mut().find(|f| f.path == *path).unwrap();
            fact.size = bytes.len() as u64;
            let seen = seen(&files, &facts, &ExpectedLayout::default());
            assert_ne!(seen.verdict, Verdict::Whole, "{set}: {path}");
            let named = seen
                .findings
                .iter()
                .any(|f| f.file.as_ref().is_some_and(|p| path.ends_with(p)));
            assert!(named, "{path}: {:?}", seen.findings);
        }
    }
}

/// verl 0.5 with the bridge: weights, and the archive's directory without anything in it.
#[test]
fn weights_without_an_archive_are_weights_only() {
    let (all, facts) = files(SETS[1]);
    let (files, mut facts) = without(&all, &facts, "dist_ckpt/");
    facts.retain(|f| f.path != "global_step_1/actor/dist_ckpt");
    for empty in [false, true] {
        if empty {
            facts.push(FileFact {
                path: "global_step_1/actor/dist_ckpt".into(),
                kind: EntryKind::Dir,
                size: 0,
                mtime: 0,
                ctime: 0,
                dev: 0,
                ino: 0,
                uid: 0,
            });
        }
        let at = |version| seen(&files, &facts, &megatron(false, version));
        let unknown = at(None);
        assert_eq!(unknown.verdict, Verdict::Whole, "{:?}", unknown.findings);
        assert!(codes(&unknown).contains(&"weights_only"));
        let lost = vec![StateKind::Optimizer, StateKind::LrSchedule, StateKind::Rng];
        assert_eq!(unknown.resume, Resumability::Degraded { lost });
        // That release looks for the archive first, and raises.
        for version in ["0.5.0", "0.9.1"] {
            let resume = at(Some(version)).resume;
            assert!(
                matches!(&resume, Resumability::Not { why } if why.contains("supervise migrate")),
                "{resume:?}"
            );
        }
    }
}

#[test]
fn the_trainer_of_sft_has_it_in_the_step_itself_and_fsdp_is_never_taken_for_it() {
    let (all, facts) = files(SETS[0]);
    let (all, facts) = without(&all, &facts, "data.pt");
    let up = |p: &Utf8Path| Utf8PathBuf::from(p.as_str().replace("/actor/", "/"));
    let files_up: Files = all.iter().map(|(p, b)| (up(p), b.clone())).collect();
    let facts_up: Vec<FileFact> = facts
        .iter()
        .filter(|f| !f.path.ends_with("actor"))
        .map(|f| FileFact {
            path: up(&f.path),
            ..f.clone()
        })
        .collect();
    let seen_up = seen(&files_up, &facts_up, &ExpectedLayout::default());
    assert_eq!(
        (seen_up.verdict, seen_up.layout.as_ref()),
        (Verdict::Whole, "verl_megatron_v1_sft"),
        "{:?}",
        seen_up.findings
    );
    assert!(
        seen_up
            .findings
            .iter()
            .any(|f| f.detail.contains("--checkpoint global_step_1`"))
    );

    for fsdp in ["verl_ppo_fsdp1_w2", "verl_ppo_fsdp2_w2", "verl_sft_fsdp2_w2"] {
        let (files, facts) = files(fsdp);
        let seen = seen(&files, &facts, &ExpectedLayout::default());
        assert!(seen.layout.starts_with("verl_fsdp"), "{}", seen.layout);
        assert!(!codes(&seen).contains(&"megatron_v1_layout"));
    }
}

/// Directories that verl's own script leaves, and a conversion that was killed: never whole, and named.
#[test]
fn a_conversion_that_is_not_finished_is_named_and_never_whole() {
    let (all, facts) = files(SETS[0]);
    let moved = |part: &str, keep: bool| -> (Files, Vec<FileFact>) {
        let (mut files, mut out) = (all.clone(), facts.clone());
        for (path, bytes) in &all {
            let Some((head, name)) = path.as_str().split_once("dist_ckpt/") else {
                continue;
            };
            let to = Utf8PathBuf::from(format!("{head}{part}/dist_ckpt/{name}"));
            let fact = facts.iter().find(|f| f.path == *path).unwrap();
            out.push(FileFact {
                path: to.clone(),
                ..fact.clone()
            });
            files.insert(to, bytes.clone());
            if !keep {
                files.remove(path);
                out.retain(|f| f.path != *path && f.path != "global_step_1/actor/dist_ckpt");
            }
        }
        (files, out)
    };
    for (keep, code) in [(true, "migration_unfinished"), (false, "manifest_missing")] {
        for part in ["optimizer", "extra", "model"] {
            let (files, facts) = moved(part, keep);
            let seen = seen(&files, &facts, &ExpectedLayout::default());
            assert_eq!(
                (seen.verdict, why(&seen)),
                (Verdict::Incomplete, code),
                "{:?}",
                seen.findings
            );
            assert!(
                seen.why().unwrap().detail.contains("supervise migrate"),
                "{:?}",
                seen.findings
            );
        }
    }
}
