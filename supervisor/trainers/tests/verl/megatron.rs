//! Steps that Megatron's checkpoint manager wrote.

use crate::fixtures::{Files, files, judge, prove};
use crate::tree::{codes, run, why};
use camino::{Utf8Path, Utf8PathBuf};
use supervise_checkpoint::EarlierStep;
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Depth, FileFact, Resumability, StateKind, Verdict};
use supervise_core::id::Step;
use supervise_trainers::{ExpectedLayout, adapter};

const ALL: [(&str, u64); 4] = [
    ("verl_megatron_v2_tp2", 2),
    ("verl_megatron_v2_dp_reshardable", 2),
    ("verl_megatron_v2_fully_reshardable", 2),
    ("verl_megatron_v2_flattened", 1),
];

/// The newest step of a set whose files and facts were changed.
fn newest(files: &Files, facts: &[FileFact]) -> CheckpointSummary {
    judge(files, facts, &ExpectedLayout::default()).remove(0)
}

fn edit(files: &Files, path: &str, from: &str, to: &str) -> Files {
    let mut out = files.clone();
    let bytes = out.get_mut(Utf8Path::new(path)).unwrap();
    let text = String::from_utf8(bytes.clone()).unwrap();
    assert!(text.contains(from), "{from} is not in {path}");
    *bytes = text.replace(from, to).into_bytes();
    out
}

#[test]
fn genuine_steps_are_whole_and_only_the_schedule_is_lost() {
    for (set, step) in ALL {
        let (files, facts) = files(set);
        let seen = newest(&files, &facts);
        assert_eq!(
            (seen.step, seen.verdict),
            (Step(step), Verdict::Whole),
            "{set}: {:?}",
            seen.findings
        );
        assert_eq!(seen.proven, Some(Depth::Structure), "{set}");
        assert_eq!((seen.layout.as_ref(), seen.world), ("verl_megatron_ppo", Some(2)));
        assert_eq!(seen.contents, ["model", "optimizer", "extra"]);
        assert_eq!(seen.roles, ["actor"]);
        // Their script writes no data.pt.
        assert_eq!(codes(&seen), ["no_data_state"], "{set}");
        let lost = vec![StateKind::LrSchedule, StateKind::DataOrder];
        assert_eq!(seen.resume, Resumability::Degraded { lost });
    }
}

#[test]
fn every_file_that_the_manifest_promises_is_needed() {
    for (set, step) in ALL {
        let (files, facts) = files(set);
        let dir = format!("global_step_{step}/");
        for path in files.keys().filter(|p| p.as_str().starts_with(&dir)) {
            let without: Vec<FileFact> = facts.iter().filter(|f| f.path != *path).cloned().collect();
            let seen = newest(&files, &without);
            assert_eq!(
                seen.verdict,
                Verdict::Incomplete,
                "{set} without {path}: {:?}",
                seen.findings
            );
            let named = seen.findings.iter().filter_map(|f| f.file.as_deref());
            let file = path.strip_prefix(&dir).unwrap();
            let dirs: Vec<&Utf8Path> = named.collect();
            assert!(
                dirs.iter()
                    .any(|named| file.starts_with(named) || named.parent() == file.parent()),
                "{path} is not named: {:?}",
                seen.findings
            );
        }
    }
}

#[test]
fn every_cut_and_every_zeroed_block_is_noticed() {
    let (files, facts) = files("verl_megatron_v2_tp2");
    for path in files.keys().filter(|p| p.starts_with("global_step_2")) {
        for keep in [0, 1, files[path].len() / 2, files[path].len() - 1] {
            let mut cut = files.clone();
            cut.get_mut(path).unwrap().truncate(keep);
            let facts: Vec<FileFact> = facts.iter().map(|f| resized(f, path, keep as u64)).collect();
            let seen = newest(&cut, &facts);
            assert_ne!(seen.verdict, Verdict::Whole, "{path} cut to {keep}");
            assert_eq!(seen.proven, None);
        }
    }
}

fn resized(fact: &FileFact, path: &Utf8PathBuf, size: u64) -> FileFact {
    let mut fact = fact.clone();
    if fact.path == *path {
        fact.size = size;
    }
    fact
}

#[test]
fn a_save_without_its_manifest_was_not_finished() {
    let (files, facts) = files("verl_megatron_v2_tp2");
    let manifest = Utf8Path::new("global_step_2/actor/ckpt_contents.json");
    let without: Vec<FileFact> = facts.iter().filter(|f| f.path != manifest).cloned().collect();
    let seen = newest(&files, &without);
    assert_eq!((seen.verdict, why(&seen)), (Verdict::Incomplete, "manifest_missing"));
    assert_eq!(seen.layout, "verl_megatron_ppo");
}

#[test]
fn empty_directories_prove_nothing() {
    let (files, facts) = files("verl_megatron_v2_tp2");
    for part in ["model", "optimizer", "extra"] {
        let inside = format!("global_step_2/actor/{part}/dist_ckpt/");
        let without: Vec<FileFact> = facts
            .iter()
            .filter(|f| !f.path.as_str().starts_with(&inside))
            .cloned()
            .collect();
        let seen = newest(&files, &without);
        assert_eq!(
            (seen.verdict, why(&seen)),
            (Verdict::Incomplete, "dist_missing"),
            "{part}"
        );
        assert_eq!(
            seen.why().unwrap().file.as_deref(),
            Some(Utf8Path::new(&format!("actor/{part}/dist_ckpt")))
        );
    }
    // The directories of a save that has only begun.
    let begun: Vec<FileFact> = facts.iter().filter(|f| !files.contains_key(&f.path)).cloned().collect();
    let seen = newest(&files, &begun);
    assert_eq!(
        (seen.verdict, why(&seen)),
        (Verdict::Incomplete, "nothing_saved"),
        "{:?}",
        seen.findings
    );
}

#[test]
fn a_manifest_that_speaks_of_something_else_is_damage() {
    let (files, facts) = files("verl_megatron_v2_tp2");
    let manifest = "global_step_2/actor/ckpt_contents.json";
    for (from, to, verdict, code) in [
        (
            "\"global_step\": 2",
            "\"global_step\": 1",
            Verdict::Damaged,
            "step_differs",
        ),
        (
            "\"role\": \"actor\"",
            "\"role\": \"critic\"",
            Verdict::Damaged,
            "role_differs",
        ),
        (
            "\"path\": \"optimizer/dist_ckpt\"",
            "\"path\": \"../../global_step_1/actor/optimizer/dist_ckpt\"",
            Verdict::Damaged,
            "manifest_path",
        ),
        (
            "\"path\": \"model/dist_ckpt\"",
            "\"path\": \"/etc\"",
            Verdict::Damaged,
            "manifest_path",
        ),
        (
            "\"path\": \"model/dist_ckpt\"",
            "\"path\": \"model/elsewhere\"",
            Verdict::Incomplete,
            "dist_missing",
        ),
        (
            "\"world_size\": 2",
            "\"world_size\": 1",
            Verdict::Damaged,
            "manifest_differs",
        ),
        (
            "\"saved_any_dist_ckpt\": true",
            "\"saved_any_dist_ckpt\": false",
            Verdict::Damaged,
            "manifest_differs",
        ),
        (
            "\"framework\": \"megatron\"",
            "\"framework\": \"other\"",
            Verdict::Unknown,
            "layout_unknown",
        ),
        (
            "\"schema_version\": 2",
            "\"schema_version\": 3",
            Verdict::Unknown,
            "manifest_version",
        ),
        (
            "\"rng_state\": {",
            "\"rng\": {",
            Verdict::Incomplete,
            "manifest_incomplete",
        ),
        (
            "\"optimizer\": {",
            "\"opt\": {",
            Verdict::Incomplete,
            "manifest_incomplete",
        ),
        (
            "\"model\",\n    \"optimizer\"",
            "\"model\", \"hf_model\",\n    \"optimizer\"",
            Verdict::Incomplete,
            "manifest_incomplete",
        ),
    ] {
        let seen = newest(&edit(&files, manifest, from, to), &facts);
        assert_eq!((seen.verdict, why(&seen)), (verdict, code), "{to}: {:?}", seen.findings);
    }
    // The schedule is said to be in a directory whose common state is another's.
    let optimizer = "\"key\": \"lr_scheduler\",\n      \"path\": \"optimizer/dist_ckpt\"";
    let elsewhere = optimizer.replace("optimizer/dist_ckpt", "model/dist_ckpt");
    let seen = newest(&edit(&files, manifest, optimizer, &elsewhere), &facts);
    let told = &seen.why().unwrap().detail;
    assert!(told.contains("it names lr_scheduler"), "{:?}", seen.findings);
    let copied = moved(&files, &facts, "global_step_2", "global_step_7");
    let seen = newest(&copied.0, &copied.1);
    assert_eq!(
        (seen.step, seen.verdict, why(&seen)),
        (Step(7), Verdict::Damaged, "step_differs")
    );
}

/// The same files under other paths.
fn moved(files: &Files, facts: &[FileFact], from: &str, to: &str) -> (Files, Vec<FileFact>) {
    let path = |p: &Utf8PathBuf| Utf8PathBuf::from(p.as_str().replacen(from, to, 1));
    let fact = |f: &FileFact| FileFact {
        path: path(&f.path),
        ..f.clone()
    };
    (
        files.iter().map(|(p, b)| (path(p), b.clone())).collect(),
        facts.iter().map(fact).collect(),
    )
}

#[test]
fn a_part_of_another_step_is_noticed_by_its_count() {
    let (files, facts) = files("verl_megatron_v2_tp2");
    let ckpt = |n| CkptId(format!("global_step_{n}").into());
    let mut tracker = adapter(supervise_trainers::verl::PPO).tracker(&ExpectedLayout::default());
    facts.iter().for_each(|f| tracker.note(f));
    let marks = |n| tracker.marks(&ckpt(n), &prove(&files, &*tracker, &ckpt(n), Depth::Full));
    let (one, two) = (marks(1), marks(2));
    assert!(
        one.counters["actor.optimizer"] < two.counters["actor.optimizer"],
        "{one:?} {two:?}"
    );
    assert!(one.digest.is_some() && one.digest != two.digest);
    // Step 1 remembered with the count of step 2: step 2 now holds an older state.
    let mut ahead = two.clone();
    *ahead.counters.get_mut("actor.optimizer").unwrap() += 1;
    tracker.remember(vec![EarlierStep {
        step: Step(1),
        marks: ahead,
    }]);
    let reports = prove(&files, &*tracker, &ckpt(2), Depth::Full);
    let seen = tracker.judge(&ckpt(2), Depth::Full, &reports);
    assert_eq!((seen.verdict, why(&seen)), (Verdict::Damaged, "counters_went_back"));
}

#[test]
fn a_critic_is_a_role_of_its_own_and_sft_has_none() {
    let (mut all, mut facts) = files("verl_megatron_v2_tp2");
    let critic = moved(&all, &facts, "/actor", "/critic");
    let manifest = "global_step_2/critic/ckpt_contents.json";
    let seen_as = |files: &Files| edit(files, manifest, "\"role\": \"actor\"", "\"role\": \"critic\"");
    let second = |p: &Utf8PathBuf| p.starts_with("global_step_2/critic");
    all.extend(seen_as(&critic.0).into_iter().filter(|(p, _)| second(p)));
    facts.extend(critic.1.into_iter().filter(|f| second(&f.path)));
    let seen = newest(&all, &facts);
    assert_eq!(
        (seen.verdict, seen.roles.len()),
        (Verdict::Whole, 2),
        "{:?}",
        seen.findings
    );
    let without: Vec<FileFact> = facts
        .iter()
        .filter(|f| !f.path.starts_with("global_step_2/critic/optimizer"))
        .cloned()
        .collect();
    let seen = newest(&all, &without);
    assert_eq!((seen.verdict, why(&seen)), (Verdict::Incomplete, "dist_missing"));
    assert_eq!(seen.why().unwrap().role.as_deref(), Some("critic"));

    let (all, facts) = files("verl_megatron_v2_tp2");
    let (flat, facts) = moved(&all, &facts, "/actor", "");
    let seen = newest(&flat, &facts);
    assert_eq!(
        (seen.verdict, seen.layout.as_ref()),
        (Verdict::Whole, "verl_megatron_sft"),
        "{:?}",
        seen.findings
    );
    assert_eq!(seen.roles, [""]);
}

#[test]
fn a_run_of_fsdp_cannot_go_on_from_it() {
    let (files, facts) = files("verl_megatron_v2_tp2");
    let seen = judge(&files, &facts, &run(false, 2, &["actor"])).remove(0);
    assert_eq!(seen.verdict, Verdict::Whole, "{:?}", seen.findings);
    assert!(
        matches!(&seen.resume, Resumability::Not { why } if why.contains("Megatron")),
        "{:?}",
        seen.resume
    );
}

#[test]
fn ancient_layouts_are_named_and_not_taken_for_fsdp() {
    for (paths, words) in [
        (
            &[
                "actor/model/rank_0.pt",
                "actor/optim/distrib_optim_pp0_tp0.pt",
                "actor/rng_states/rng_0.pt",
                "actor/hf_config_and_tokenizer/config.json",
                "data.pt",
            ][..],
            "the Megatron layout of verl 0.4.0",
        ),
        (
            &["actor/mp_rank_00/model.pt", "data.pt"],
            "the Megatron layout of verl 0.3",
        ),
        (&["step-4/.metadata", "data.pt"], "TorchTitan"),
    ] {
        let mut tree = crate::tree::Tree::new();
        tree.dir("global_step_4");
        for path in paths {
            let path = Utf8Path::new("global_step_4").join(path);
            let mut above: Vec<&Utf8Path> = path.ancestors().skip(1).filter(|p| p.as_str().contains('/')).collect();
            above.reverse();
            above.into_iter().for_each(|dir| tree.dir(dir));
            tree.file(path, 1500);
        }
        let seen = tree.verify(4);
        assert_eq!(
            (seen.verdict, why(&seen), seen.layout.as_ref()),
            (Verdict::Unknown, "layout_unknown", "unknown")
        );
        assert!(seen.why().unwrap().detail.contains(words), "{:?}", seen.findings);
    }
}

#[test]
fn two_managers_in_one_directory_are_not_judged() {
    let (mut all, mut facts) = files("verl_megatron_v2_tp2");
    let (shards, more) = files("verl_ppo_fsdp2_w2");
    all.extend(shards);
    facts.extend(more);
    let seen = newest(&all, &facts);
    assert_eq!(
        (seen.verdict, why(&seen)),
        (Verdict::Unknown, "layouts_mixed"),
        "{:?}",
        seen.findings
    );
}

/// Step 2 with its weights in Hugging Face's format, as a bridge saves them.
fn exported(adapters: bool) -> (Files, Vec<FileFact>) {
    let (mut all, mut facts) = files("verl_megatron_v2_tp2");
    let (mut export, export_facts) = files("areal_sft_w2");
    let from = "checkpoints/trainer/real/t0/default/epoch0epochstep1globalstep1";
    let (to, entry) = match adapters {
        false => (
            "global_step_2/actor/model/huggingface",
            r#""model": {"backend": "mbridge", "format": "huggingface", "path": "model/huggingface"},
               "hf_config": {"format": "huggingface", "note": "x", "path": "model/huggingface"},
               "tokenizer": {"format": "huggingface", "path": "model/huggingface"},
               "hf_model": {"format": "huggingface", "note": ["y"], "path": "model/huggingface"},"#,
        ),
        true => (
            "global_step_2/actor/model/huggingface/adapter",
            r#""model": {"backend": "mbridge", "format": "huggingface", "path": "model/huggingface",
                         "peft_adapter_path": "model/huggingface/adapter"},
               "peft_adapters": {"format": "megatron_dist_checkpoint", "note": "z", "path": "model/dist_ckpt"},"#,
        ),
    };
    export.retain(|p, _| p.starts_with(from));
    let (export, export_facts) = moved(&export, &export_facts, from, to);
    let name = |p: &Utf8PathBuf| match adapters {
        true => p
            .as_str()
            .replace("/model.safetensors", "/adapter_model.safetensors")
            .replace("/config.json", "/adapter_config.json")
            .into(),
        false => p.clone(),
    };
    facts.extend(
        export_facts
            .into_iter()
            .filter(|f| export.contains_key(&f.path))
            .map(|mut f| {
                f.path = name(&f.path);
                f
            }),
    );
    all.extend(export.iter().map(|(p, bytes)| (name(p), bytes.clone())));
    let manifest = "global_step_2/actor/ckpt_contents.json";
    let old = String::from_utf8(all[Utf8Path::new(manifest)].clone()).unwrap();
    let old = old.replace("\"peft\": false", &format!("\"peft\": {adapters}"));
    let at = old.find("\"model\": {").unwrap();
    let end = at + old[at..].find("},").unwrap() + 2;
    let new = format!("{}{entry}{}", &old[..at], &old[end..]);
    all.insert(manifest.into(), new.into_bytes());
    if !adapters {
        facts.retain(|f| !f.path.as_str().starts_with("global_step_2/actor/model/dist_ckpt/"));
    }
    (all, facts)
}

#[test]
fn exported_weights_are_a_part_of_the_step_where_the_manifest_says_so() {
    let (files, facts) = exported(false);
    let seen = newest(&files, &facts);
    assert_eq!(
        (seen.verdict, seen.proven),
        (Verdict::Whole, Some(Depth::Structure)),
        "{:?}",
        seen.findings
    );
    assert_eq!(seen.contents, ["model", "optimizer", "extra", "hf_model"]);
    for (gone, code) in [
        ("model.safetensors", "hf_model_missing"),
        ("config.json", "manifest_file_missing"),
        ("tokenizer", "manifest_file_missing"),
    ] {
        let inside = format!("global_step_2/actor/model/huggingface/{gone}");
        let without: Vec<FileFact> = facts
            .iter()
            .filter(|f| !f.path.as_str().starts_with(&inside))
            .cloned()
            .collect();
        let seen = newest(&files, &without);
        assert_eq!(
            (seen.verdict, why(&seen)),
            (Verdict::Incomplete, code),
            "{gone}: {:?}",
            seen.findings
        );
    }
    let weights = Utf8PathBuf::from("global_step_2/actor/model/huggingface/model.safetensors");
    let mut cut = files.clone();
    cut.get_mut(&weights).unwrap().truncate(900);
    let seen = newest(
        &cut,
        &facts.iter().map(|f| resized(f, &weights, 900)).collect::<Vec<_>>(),
    );
    assert_ne!(seen.verdict, Verdict::Whole);
    assert_eq!(
        seen.why().unwrap().file.as_deref(),
        weights.strip_prefix("global_step_2").ok()
    );
}

#[test]
fn adapters_stand_in_their_own_directory() {
    let (files, facts) = exported(true);
    let seen = newest(&files, &facts);
    assert_eq!(
        (seen.verdict, seen.proven),
        (Verdict::Whole, Some(Depth::Structure)),
        "{:?}",
        seen.findings
    );
    for gone in [
        "huggingface/adapter/adapter_model.safetensors",
        "huggingface/adapter/adapter_config.json",
        "dist_ckpt/",
    ] {
        let inside = format!("global_step_2/actor/model/{gone}");
        let without: Vec<FileFact> = facts
            .iter()
            .filter(|f| !f.path.as_str().starts_with(&inside))
            .cloned()
            .collect();
        assert_eq!(newest(&files, &without).verdict, Verdict::Incomplete, "{gone}");
    }
}
