//! The call by which a script starts verl: recognizing it, comparing it with the learned one, and adding our
//! overrides.

use crate::command::{self, EntryPoint};
use crate::job;
use crate::script_call::{RewrittenCall, difference};
use std::collections::BTreeMap;
use supervise_core::spec::script::{CallOrder, LearnedCall};

/// verl modules that prepare or inspect data and train nothing: a script may call them first.
const NO_TRAINERS: [&str; 4] = [
    "main_generation",
    "main_generation_server",
    "main_eval",
    "main_sft_eval",
];

/// Last parts of keys that decide what is saved, where, and by how many ranks.
const WATCHED: [&str; 14] = [
    "default_local_dir",
    "project_name",
    "experiment_name",
    "save_contents",
    "save_freq",
    "strategy",
    "nnodes",
    "n_gpus_per_node",
    "adv_estimator",
    "use_v1",
    "use_mbridge",
    "use_dist_checkpointing",
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
];

/// Parts of the default root: not compared if we set the root.
const ROOT: [&str; 3] = [
    "trainer.default_local_dir",
    "trainer.project_name",
    "trainer.experiment_name",
];

pub(super) fn is_call(words: &[String]) -> bool {
    match command::entry(words) {
        Some((EntryPoint::Other, at)) => {
            let module = module(words, at);
            !NO_TRAINERS.iter().any(|name| module.ends_with(&format!(".{name}")))
        }
        found => found.is_some(),
    }
}

fn module(words: &[String], at: usize) -> String {
    let word = words.get(at.saturating_sub(1)).map_or("", String::as_str);
    let dotted = word
        .strip_suffix(".py")
        .map_or_else(|| word.to_owned(), |path| path.replace('/', "."));
    match dotted.rfind("verl.") {
        Some(from) => dotted[from..].to_owned(),
        None => dotted,
    }
}

/// The keys that decide the checkpoint root, with their values.
pub(super) fn root(words: &[String]) -> String {
    let said = command::overrides_in(words).into_iter();
    let said = said.filter(|text| ROOT.contains(&command::override_key(text)));
    let last: BTreeMap<&str, &str> = said.map(|text| (command::override_key(text), text)).collect();
    last.into_values().collect::<Vec<_>>().join(" ")
}

/// The expected call of each attempt, and the words to add.
pub(crate) fn call_order(learnt: &LearnedCall, ours: &[String]) -> CallOrder {
    let words = &learnt.command;
    let at = command::entry(words).map_or(words.len(), |(_, at)| at);
    let mut pinned: Vec<String> = ours.iter().map(|o| command::override_key(o).to_owned()).collect();
    if pinned.iter().any(|key| key == ROOT[0]) {
        pinned.extend(ROOT.map(str::to_owned));
    }
    CallOrder {
        entry: module(words, at),
        expect: watched(words, &pinned),
        pinned,
        ahead: learnt.ahead.clone(),
        ours: ours.to_vec(),
        submission: None,
        resume: None,
        root: root(words),
    }
}

/// The compared words: watched overrides, Hydra's own options, and the ranks that torchrun starts.
fn watched(words: &[String], pinned: &[String]) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for text in command::overrides_in(words) {
        let key = command::override_key(text);
        let last = key.rsplit(['.', '/']).next().unwrap_or(key);
        let group = !key.contains('.') && crate::verl::read::GROUPS.contains(&key);
        if (WATCHED.contains(&last) || group) && !pinned.iter().any(|p| p == key) {
            let value = text.split_once('=').map_or("", |(_, value)| value);
            out.insert(key.to_owned(), value.to_owned());
        }
    }
    if let Some(config) = command::hydra_config(words) {
        out.insert("--config-name".to_owned(), config.name.unwrap_or_default());
    }
    if let Some(ranks) = command::torchrun_world(words) {
        out.insert("torchrun's ranks".to_owned(), ranks.to_string());
    }
    out
}

/// Appends our overrides to a call exactly once, even if the script already passed them on.
///
/// # Errors
/// Why this is not the call that was learned.
pub(crate) fn fill(
    words: &[String],
    order: &CallOrder,
    restarts_by_environment: bool,
) -> Result<RewrittenCall, String> {
    let Some((_, at)) = command::entry(words) else {
        return Err("the call names no entry point of verl".to_owned());
    };
    let entry = module(words, at);
    if entry != order.entry {
        return Err(format!(
            "the script starts {entry}, and {} was learnt of it: one run is one trainer; give each its own script",
            order.entry
        ));
    }
    let (head, tail) = words.split_at(at);
    let given: Vec<String> = tail
        .iter()
        .filter(|w| !order.ours.contains(w) && !order.ahead.contains(w))
        .cloned()
        .collect();
    let theirs: Vec<String> = head.iter().cloned().chain(given.iter().cloned()).collect();
    let now = watched(&theirs, &order.pinned);
    if now != order.expect {
        let difference = difference(&order.expect, &now);
        return Err(format!(
            "the script starts something else than was learnt of it: {difference}; start the run again to learn it anew"
        ));
    }
    let parts = [head, &order.ahead, &given, &order.ours];
    let mut out: Vec<String> = parts.into_iter().flatten().cloned().collect();
    let notes = [
        command::forbid_restarts(&mut out, restarts_by_environment),
        command::wait_for_job(&mut out),
        order.submission.as_ref().and_then(|id| job::name(&mut out, id)),
    ];
    Ok(RewrittenCall {
        words: out,
        notes: notes.into_iter().flatten().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn learnt(text: &str) -> LearnedCall {
        LearnedCall {
            command: words(text),
            ahead: Vec::new(),
            cwd: "/".into(),
            env: BTreeMap::new(),
            past: false,
            starts_ray: false,
        }
    }

    #[test]
    fn calls_of_trainers_are_told_from_other_programs() {
        for (text, is) in [
            ("python3 -m verl.trainer.main_ppo a=1", true),
            ("torchrun --nproc_per_node=2 -m verl.trainer.sft_trainer", true),
            ("ray job submit --no-wait -- python3 -m verl.trainer.main_ppo a=1", true),
            ("nohup env A=1 python /x/verl/trainer/main_ppo.py", true),
            ("python3 -m verl.trainer.main_generation", false),
            ("python3 prepare.py", false),
            ("ray start --head", false),
        ] {
            assert_eq!(is_call(&words(text)), is, "{text}");
        }
    }

    #[test]
    fn our_words_arrive_once_and_last() {
        let ours = words("trainer.resume_mode=disable trainer.default_local_dir=/c");
        let order = call_order(&learnt("python3 -m verl.trainer.main_ppo trainer.nnodes=1"), &ours);
        for given in [
            "python3 -m verl.trainer.main_ppo trainer.nnodes=1",
            "python3 -m verl.trainer.main_ppo trainer.resume_mode=disable trainer.default_local_dir=/c trainer.nnodes=1",
            "python3 -m verl.trainer.main_ppo trainer.nnodes=1 trainer.resume_mode=disable trainer.default_local_dir=/c",
        ] {
            let call = fill(&words(given), &order, false).unwrap();
            assert_eq!(
                call.words.join(" "),
                "python3 -m verl.trainer.main_ppo trainer.nnodes=1 trainer.resume_mode=disable trainer.default_local_dir=/c"
            );
        }
    }

    #[test]
    fn what_the_users_file_says_stands_before_the_scripts_own() {
        let mut learnt = learnt("python3 -m verl.trainer.main_ppo b=2");
        learnt.ahead = words("--config-path=/d a=1");
        let order = call_order(&learnt, &words("c=3"));
        let call = fill(&words("python3 -m verl.trainer.main_ppo b=2"), &order, false).unwrap();
        assert_eq!(
            call.words.join(" "),
            "python3 -m verl.trainer.main_ppo --config-path=/d a=1 b=2 c=3"
        );
    }

    #[test]
    fn another_call_than_was_learnt_is_refused() {
        let order = call_order(
            &learnt("torchrun --nproc_per_node=2 -m verl.trainer.sft_trainer trainer.save_freq=5 optim.lr=1"),
            &words("trainer.default_local_dir=/c"),
        );
        let try_it = |text: &str| fill(&words(text), &order, false).map(|c| c.words.len());
        assert!(
            try_it("torchrun --nproc_per_node=2 -m verl.trainer.sft_trainer trainer.save_freq=5 optim.lr=2").is_ok()
        );
        for (text, what) in [
            ("torchrun --nproc_per_node=2 -m verl.trainer.main_ppo", "main_ppo"),
            (
                "torchrun --nproc_per_node=2 -m verl.trainer.sft_trainer trainer.save_freq=6",
                "trainer.save_freq was `5`, it is `6` now",
            ),
            (
                "torchrun --nproc_per_node=4 -m verl.trainer.sft_trainer trainer.save_freq=5",
                "torchrun's ranks was `2`",
            ),
        ] {
            let why = try_it(text).unwrap_err();
            assert!(why.contains(what), "{text}: {why}");
        }
    }

    #[test]
    fn a_name_with_the_time_in_it_does_not_move_the_root() {
        let ours = words("trainer.default_local_dir=/c");
        let order = call_order(
            &learnt("python -m verl.trainer.main_ppo trainer.experiment_name=a_1158"),
            &ours,
        );
        assert!(
            fill(
                &words("python -m verl.trainer.main_ppo trainer.experiment_name=a_1203"),
                &order,
                false
            )
            .is_ok()
        );
        let as_is = call_order(
            &learnt("python -m verl.trainer.main_ppo trainer.experiment_name=a_1158"),
            &[],
        );
        assert!(
            fill(
                &words("python -m verl.trainer.main_ppo trainer.experiment_name=a_1203"),
                &as_is,
                false
            )
            .is_err()
        );
    }

    #[test]
    fn a_job_is_waited_for_and_torchrun_restarts_nothing() {
        let order = call_order(
            &learnt("ray job submit --no-wait -- python3 -m verl.trainer.main_ppo"),
            &[],
        );
        let call = fill(
            &words("ray job submit --no-wait -- python3 -m verl.trainer.main_ppo"),
            &order,
            false,
        )
        .unwrap();
        assert_eq!(
            call.words.join(" "),
            "ray job submit -- python3 -m verl.trainer.main_ppo"
        );
        assert_eq!(call.notes.len(), 1);
    }
}
