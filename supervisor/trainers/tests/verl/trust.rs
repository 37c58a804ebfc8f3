//! Imports of a checkpoint, and the settings about them.

use crate::tree::{Tree, codes, run};
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, Finding, FindingLevel, Verdict};
use supervise_core::id::Step;
use supervise_core::spec::policy::{Policy, ProofPolicy};
use supervise_core::spec::{ResumeIntent, RunSpec};
use supervise_trainers::{ExpectedLayout, expect};

/// Step 4 of two ranks, whose files name this.
fn step(expect: &ExpectedLayout, named: &[(&str, &[&str])]) -> CheckpointSummary {
    let tree = Tree::new().ppo(4, 2, &["actor"]);
    let mut tracker = tree.tracker(expect);
    let ckpt = CkptId("global_step_4".into());
    let mut reports = tree.proof(&*tracker, &ckpt);
    for (file, names) in named {
        let path = camino::Utf8Path::new("global_step_4").join(file);
        let facts = reports.get_mut(&path).unwrap().facts.torch.get_or_insert_default();
        facts.unfamiliar = names.iter().map(|n| (*n).to_owned()).collect();
    }
    tracker.judge(&ckpt, Depth::Structure, &reports)
}

fn trusting(patterns: &[&str]) -> ExpectedLayout {
    ExpectedLayout {
        trust_globals: patterns.iter().map(|p| (*p).to_owned()).collect(),
        ..run(false, 2, &["actor"])
    }
}

#[test]
fn what_is_imported_is_listed_unless_it_is_trusted() {
    let named = [
        (
            "actor/extra_state_world_size_2_rank_1.pt",
            &["z.Last", "my.state.Sampler"][..],
        ),
        ("data.pt", &["my.state.Sampler", "other.Thing"]),
    ];
    for (patterns, left) in [
        (&[][..], &["my.state.Sampler", "other.Thing", "z.Last"][..]),
        (&["my.state.Sampler"], &["other.Thing", "z.Last"]),
        (&["my.*", "z.Last"], &["other.Thing"]),
        (&["*"], &[]),
    ] {
        let seen = step(&trusting(patterns), &named);
        assert_eq!(seen.unfamiliar, left, "{patterns:?}");
        // Another question than whether it is whole.
        assert_eq!((seen.verdict, seen.proven), (Verdict::Whole, Some(Depth::Structure)));
    }
}

#[test]
fn a_list_that_is_full_may_hide_a_name() {
    let many: Vec<String> = (0..16).map(|n| format!("my.Name{n:02}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let named = [("data.pt", many.as_slice())];
    assert_eq!(step(&trusting(&["my.*"]), &named).unfamiliar.len(), 1);
    assert!(step(&trusting(&["*"]), &named).unfamiliar.is_empty());
    assert!(
        step(&trusting(&["my.*"]), &[("data.pt", &many[1..])])
            .unfamiliar
            .is_empty()
    );
    let more = [named[0], ("actor/optim_world_size_2_rank_0.pt", &["z.Z"])];
    assert_eq!(step(&trusting(&[]), &more).unfamiliar.len(), 16);
}

#[test]
fn danger_that_is_allowed_is_said_and_does_not_condemn() {
    let shard = "global_step_4/actor/model_world_size_2_rank_1.pt";
    let tree = Tree::new().ppo(4, 2, &["actor"]).finds(
        shard,
        Finding::error("unsafe_global", Verdict::Unsafe, "loading it calls os.system"),
    );
    let expect = run(false, 2, &["actor"]);
    assert_eq!(tree.judge(&expect, 4).verdict, Verdict::Unsafe);
    let allowed = ExpectedLayout {
        trust_unsafe: true,
        ..expect
    };
    let seen = tree.judge(&allowed, 4);
    assert_eq!((seen.verdict, seen.proven), (Verdict::Whole, Some(Depth::Structure)));
    assert_eq!(codes(&seen), ["unsafe_global"]);
    assert_eq!(seen.findings[0].level, FindingLevel::Warning);
    assert!(seen.findings[0].detail.ends_with("(allowed by proof.trust_unsafe)"));
    // Damage is damage all the same.
    let torn = tree.finds(
        "global_step_4/actor/optim_world_size_2_rank_0.pt",
        Finding::error("zip_truncated", Verdict::Damaged, "cut"),
    );
    assert_eq!(torn.judge(&allowed, 4).verdict, Verdict::Damaged);
}

#[test]
fn the_settings_of_a_run_reach_its_expectation() {
    let spec = |policy: Policy| RunSpec {
        policy,
        ..crate::launch::spec(supervise_trainers::verl::PPO, "train")
    };
    let told = expect(&spec(Policy {
        proof: ProofPolicy {
            trust_globals: vec!["my.*".to_owned()],
            trust_unsafe: true,
            ..ProofPolicy::default()
        },
        ..Policy::default()
    }));
    assert_eq!((told.trust_globals, told.trust_unsafe), (vec!["my.*".to_owned()], true));
    let plain = expect(&spec(Policy::default()));
    let from = |path: &str| RunSpec {
        resume: ResumeIntent::Path {
            path: path.into(),
            step: Step(4),
        },
        root: Some("/ckpt".into()),
        ..spec(Policy::default())
    };
    assert!(expect(&from("/elsewhere/global_step_4")).counts_anew);
    assert!(!expect(&from("/ckpt/global_step_4")).counts_anew);
    assert!(plain.trust_globals.is_empty() && !plain.trust_unsafe && !plain.counts_anew);
}
