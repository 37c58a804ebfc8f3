//! `docs/hazards/verl.md` and `docs/hazards/areal.md` are made of the comments above the tests.
//!
//! A test that shows a hazard says `/// [id] what the trainer does | what supervise does`; several ids stand in one pair of
//! brackets. A case of `tests/real/verl_hazards.py` or `areal_alone.py` says in its first line which ids it shows of the
//! trainer itself. The lists below and in `page_areal.rs` are what there has to be: an id without a test fails, and so does a
//! test with an id that is in no list.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The first part of the ids, the heading, what is said beneath it, the ids.
pub(crate) type Section = (&'static str, &'static str, &'static str, &'static [&'static str]);

/// A page about one trainer.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) trainer: &'static str,
    /// How its sources call it: the folder of the tests, and the file in `docs`.
    pub(crate) name: &'static str,
    /// What the files of its cases begin with, in `tests/real`.
    pub(crate) cases: &'static str,
    pub(crate) sections: &'static [Section],
    /// Hazards that no test shows yet, with what is known.
    pub(crate) not_yet: &'static [(&'static str, &'static str)],
}

const PAGES: [Page; 2] = [
    Page {
        trainer: "verl",
        name: "verl",
        cases: "verl_hazards",
        sections: SECTIONS,
        not_yet: NOT_YET,
    },
    super::page_areal::PAGE,
];

/// Sections of the page about verl.
const SECTIONS: &[Section] = &[
    (
        "fact",
        "Facts that break whoever trusts files and words",
        "",
        &[
            "01", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11", "12", "13", "14", "15", "16",
        ],
    ),
    (
        "failure",
        "Failures that users have reported",
        "",
        &[
            "async_save_fsdp",
            "async_save_megatron",
            "sft_epoch_boundary",
            "ppo_epoch_boundary",
            "data_order",
            "stop_iteration",
            "schedule_restarts",
            "fully_async_step",
            "async_warmup",
            "keep_one",
            "keep_actor_alone",
            "old_steps_pile_up",
            "node_local_disks",
            "other_node_count",
            "ray_package_directory",
            "megatron_resume",
            "invalid_argument",
            "host_memory",
            "tied_embeddings",
            "hang",
            "placement_group",
            "fewer_gpus",
            "slurm_registration",
            "wandb_run",
            "no_fault_tolerance",
            "deterministic",
        ],
    ),
    (
        "exit",
        "How its processes end",
        "",
        &[
            "exception",
            "override",
            "sigterm_early",
            "sigterm_late",
            "sigkill",
            "success",
            "ray_job",
            "torchrun",
        ],
    ),
    (
        "pattern",
        "What is printed when something goes wrong",
        "Classes and actions are those of `supervise explain`. A line that only follows from another is never the cause.",
        &[
            "gpu_memory",
            "host_memory",
            "nccl_timeout",
            "nccl",
            "worker_death",
            "node_loss",
            "disk_full",
            "gpu_fault",
            "hydra_wrapper",
            "configuration",
            "old_layout",
            "shard_missing",
            "megatron_incomplete",
            "pointer",
            "hdfs",
            "ray_address",
            "gpus_missing",
            "scratch",
            "ray_prefix",
        ],
    ),
    (
        "crash",
        "What a crash leaves behind",
        "",
        &[
            "shards",
            "critic",
            "data",
            "pointer",
            "retention",
            "power",
            "disk_full",
            "megatron",
            "sft",
        ],
    ),
    (
        "layout",
        "Layouts on disk",
        "",
        &[
            "ppo",
            "sft",
            "sft_ray",
            "fsdp",
            "fsdp_old",
            "unmarked",
            "mixed_world_sizes",
            "exported",
            "lora",
            "critic",
            "transfer_queue",
            "husk",
            "node_local",
            "megatron",
            "megatron_bridge",
            "megatron_fsdp",
            "megatron_old",
            "megatron_ancient",
            "migrated",
            "other_engines",
            "fully_async",
            "pointer",
            "swapped_data",
        ],
    ),
    (
        "proof",
        "Every file of a Megatron checkpoint",
        "On a genuine checkpoint of verl's Megatron manager, with the times of the files put back after each change.",
        &["deleted", "truncated", "swapped", "copied"],
    ),
    (
        "resume",
        "Where it resumes, and what it loads",
        "",
        &[
            "auto",
            "disable",
            "path",
            "other_word",
            "auto_alone",
            "none_at_all",
            "path_parsing",
            "world_size",
            "parallel_sizes",
            "incomplete",
            "load_contents",
            "load_once",
            "data_order",
            "epoch_boundary",
            "not_restored",
            "scratch_in_silence",
        ],
    ),
    (
        "switch",
        "Switches",
        "",
        &[
            "main_ppo",
            "megatron_trainer",
            "sft_trainer",
            "sft_trainer_ray",
            "fully_async",
            "one_step_off",
            "default_local_dir",
            "default_hdfs_dir",
            "save_freq",
            "val_before_train",
            "val_only",
            "max_ckpt_to_keep",
            "ulysses",
            "megatron_without_megatron",
            "remove_previous_ckpt",
            "total_training_steps",
            "ranks",
            "logger",
            "critic_warmup",
            "critic",
            "strategy",
            "save_contents",
            "save_lora_only",
            "vanilla_mbridge",
            "fully_reshardable",
            "parallel_sizes",
            "fsdp_size",
            "untouched",
            "sft_save_freq",
            "sft_engine",
            "overrides",
            "version",
        ],
    ),
    (
        "combination",
        "Megatron's writers, and what is to be saved",
        "",
        &[
            "bridge_model",
            "bridge_hf",
            "bridge_both",
            "shards_model",
            "shards_hf",
            "neither",
            "both_model",
            "both_both",
            "both_hf",
            "adapters",
            "no_weights",
        ],
    ),
    (
        "edge",
        "Other releases, forks, and what is no trainer",
        "Releases that cannot resume, and trainers built on verl's classes: `resume.none_at_all`, `resume.auto_alone`. Steps without `fsdp_config.json`: `layout.fsdp_old`, `layout.unmarked`.",
        &[
            "asked_and_failed",
            "easyr1",
            "plain_steps",
            "own_file",
            "asynchronous_file",
            "untrained",
        ],
    ),
];

/// Bytes of a heading beside its id.
const HEADING: usize = 90;

/// Hazards that no test shows yet, with what is known.
const NOT_YET: &[(&str, &str)] = &[];

/// A test.
#[derive(Debug)]
struct Shown {
    ids: Vec<String>,
    theirs: String,
    ours: String,
    name: String,
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The ids of a comment's or a docstring's beginning, and what follows.
fn ids(text: &str) -> Option<(Vec<String>, &str)> {
    let (list, rest) = text.trim().strip_prefix('[')?.split_once(']')?;
    Some((list.split(',').map(|id| id.trim().to_owned()).collect(), rest.trim()))
}

impl Page {
    /// All tests of this binary that show something.
    fn tests(&self) -> Vec<Shown> {
        let mut out = Vec::new();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/hazards")
            .join(self.name);
        for name in supervise_tests::harness::names(&folder) {
            let text = fs::read_to_string(folder.join(&name)).unwrap();
            let module = name.strip_suffix(".rs").unwrap();
            let mut comment = String::new();
            let mut is_test = false;
            for line in text.lines() {
                if let Some(words) = line.strip_prefix("/// ") {
                    comment = format!("{comment} {words}");
                } else if line.starts_with("#[test]") {
                    is_test = true;
                } else if let (true, Some(rest)) = (is_test, line.strip_prefix("fn ")) {
                    let function = rest.split('(').next().unwrap();
                    out.push(shown(&comment, format!("{module}::{function}")));
                    (comment, is_test) = (String::new(), false);
                } else if !line.starts_with("#[") {
                    comment.clear();
                }
            }
        }
        out
    }

    /// Cases against the trainer itself: id to their names.
    fn cases(&self) -> BTreeMap<String, Vec<String>> {
        let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("real");
        let parts = supervise_tests::harness::names(&folder)
            .into_iter()
            .filter(|n| n.starts_with(self.cases));
        let text: String = parts
            .map(|part| fs::read_to_string(folder.join(part)).unwrap())
            .collect();
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.windows(2) {
            let function = pair[0].strip_prefix("def ").and_then(|rest| rest.split('(').next());
            let said = pair[1].trim().strip_prefix("\"\"\"").and_then(ids);
            if let (Some(function), Some((ids, _))) = (function, said) {
                for id in ids {
                    out.entry(id).or_default().push(function.to_owned());
                }
            }
        }
        out
    }

    fn expected(&self) -> Vec<String> {
        let all = self
            .sections
            .iter()
            .flat_map(|(first, _, _, rest)| rest.iter().map(move |r| format!("{first}.{r}")));
        all.collect()
    }

    /// The sections, each with its hazards.
    fn text(&self) -> String {
        let (tests, cases) = (self.tests(), self.cases());
        let mut text = String::new();
        for (first, heading, words, rest) in self.sections {
            let _ = write!(text, "\n## {heading}\n\n");
            if !words.is_empty() {
                let _ = writeln!(text, "{}\n", wrapped(words, ""));
            }
            let trainer = self.trainer;
            for id in rest.iter().map(|r| format!("{first}.{r}")) {
                let about = tests.iter().find(|t| t.ids.contains(&id)).map(|t| in_short(&t.theirs));
                let _ = write!(text, "### `{id}` {}\n\n", about.unwrap_or_default());
                for test in tests.iter().filter(|t| t.ids.contains(&id)) {
                    let Shown { theirs, ours, name, .. } = test;
                    for said in [
                        format!("{trainer}: {theirs}."),
                        format!("`supervise`: {ours}."),
                        format!("test: `{name}`"),
                    ] {
                        let _ = writeln!(text, "- {}", wrapped(&said, "  "));
                    }
                }
                for (_, words) in self.not_yet.iter().filter(|(waiting, _)| *waiting == id) {
                    let _ = writeln!(text, "- {} (not tested yet)", wrapped(words, "  "));
                }
                if let Some(names) = cases.get(&id) {
                    let names: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
                    let _ = writeln!(text, "- {trainer} itself: {}", names.join(", "));
                }
                text.push('\n');
            }
            text.pop();
        }
        text
    }
}

/// The beginning of what is said, for a heading: the first sentence, or as much of it as has a meaning of its own and fits.
fn in_short(words: &str) -> &str {
    let fits = |at: &usize| (30..=HEADING).contains(at);
    let ends = |mark: &str| words.match_indices(mark).map(|(at, _)| at).find(fits);
    let end = [". ", "; ", ": ", ", ", " and ", " or ", " with ", " in "]
        .into_iter()
        .find_map(ends);
    let end = end.or((words.len() <= HEADING).then_some(words.len()));
    let end = end.or_else(|| {
        words
            .match_indices(' ')
            .map(|(at, _)| at)
            .take_while(|at| *at <= HEADING)
            .last()
    });
    &words[..end.unwrap_or(0)]
}

/// The same words in lines that fit a screen, each but the first after an indent.
fn wrapped(words: &str, indent: &str) -> String {
    let (mut out, mut width) = (String::new(), 0);
    for word in words.split(' ') {
        let longer = word.chars().count() + 1;
        if width + longer > 116 && width > 0 {
            let _ = write!(out, "\n{indent}");
            width = 0;
        } else if width > 0 {
            out.push(' ');
        }
        out.push_str(word);
        width += longer;
    }
    out
}

fn shown(comment: &str, name: String) -> Shown {
    let (ids, words) = ids(comment).unwrap_or_else(|| panic!("{name} names no hazard"));
    let (theirs, ours) = words
        .split_once(" | ")
        .unwrap_or_else(|| panic!("{name} says one thing"));
    assert!(!ours.contains('|') && !theirs.contains('|'), "{name} says three things");
    Shown {
        ids,
        theirs: theirs.to_owned(),
        ours: ours.to_owned(),
        name,
    }
}

#[test]
fn every_hazard_has_a_test() {
    for page in PAGES {
        let expected = page.expected();
        let known: BTreeSet<&String> = expected.iter().collect();
        assert_eq!(known.len(), expected.len(), "an id stands twice");
        let tests = page.tests();
        let shown: BTreeSet<&String> = tests.iter().flat_map(|t| &t.ids).collect();
        for test in &tests {
            assert!(
                test.ids.iter().all(|id| known.contains(id)),
                "{} shows what is in no list: {:?}",
                test.name,
                test.ids
            );
        }
        for id in page.cases().keys() {
            assert!(known.contains(id), "{} shows what is in no list: {id}", page.cases);
        }
        let waiting: BTreeSet<String> = page.not_yet.iter().map(|(id, _)| (*id).to_owned()).collect();
        let missing: Vec<&String> = expected
            .iter()
            .filter(|id| !shown.contains(id) && !waiting.contains(*id))
            .collect();
        assert!(missing.is_empty(), "no test shows {missing:?}");
        let both: Vec<_> = waiting
            .iter()
            .filter(|id| shown.contains(id) || !known.contains(id))
            .collect();
        assert!(both.is_empty(), "not tested yet, and tested, or unknown: {both:?}");
    }
}

#[test]
fn the_pages_are_made_of_the_tests() {
    for page in PAGES {
        let path = top().join(format!("docs/hazards/{}.md", page.name));
        let whole = fs::read_to_string(&path).unwrap();
        let (begin, end) = ("<!-- hazards:begin -->\n", "\n<!-- hazards:end -->");
        let (before, after) = (whole.split_once(begin).unwrap().0, whole.split_once(end).unwrap().1);
        let made = format!("{before}{begin}{}{end}{after}", page.text());
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, made).unwrap();
        } else {
            assert!(
                made == whole,
                "{} is out of date: run this test with UPDATE_DOCS=1",
                path.display()
            );
        }
    }
}
