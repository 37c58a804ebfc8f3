//! Trainers whose checkpoints are recognized by name only, so that none of them is taken for a broken step of another
//! trainer.

use std::fmt;

/// A trainer, and the paths in its checkpoint root or step that only it writes. `*` matches within one name.
struct Marks {
    trainer: &'static str,
    /// Its pointer to the newest step, if no other trainer has one of this name.
    tracker: Option<&'static str>,
    paths: &'static [&'static str],
}

const KNOWN: [Marks; 6] = [
    Marks {
        trainer: "SkyRL",
        tracker: Some("latest_ckpt_global_step.txt"),
        paths: &["trainer_state.pt", "global_step_*/trainer_state.pt"],
    },
    Marks {
        trainer: "OpenRLHF",
        tracker: None,
        paths: &["_actor/global_step*/*_states.pt", "_critic/global_step*/*_states.pt"],
    },
    Marks {
        trainer: "DeepSpeed",
        tracker: None,
        paths: &["*mp_rank_*_states.pt", "global_step*/*mp_rank_*_states.pt"],
    },
    Marks {
        trainer: "Lightning",
        tracker: None,
        paths: &["*step=*.ckpt", "*/*step=*.ckpt", "last.ckpt"],
    },
    Marks {
        trainer: "nanoGPT",
        tracker: None,
        paths: &["ckpt.pt"],
    },
    Marks {
        trainer: "Megatron-LM",
        tracker: None,
        paths: &["iter_*/mp_rank_*/model_optim_rng.pt", "mp_rank_*/model_optim_rng.pt"],
    },
];

/// How deep the paths of [`looks_like`] go.
pub const DEPTH: usize = 3;

/// A trainer whose checkpoint this may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LikelyTrainer {
    pub trainer: &'static str,
    /// A path that only it writes.
    pub path: String,
    /// Whether that path is its pointer to the newest step.
    pub by_tracker: bool,
}

impl fmt::Display for LikelyTrainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.trainer, self.path)
    }
}

/// The trainer that wrote these paths, relative to a checkpoint root or a step; `None` if no name tells.
pub fn looks_like<'a>(paths: impl Iterator<Item = &'a str> + Clone) -> Option<LikelyTrainer> {
    KNOWN.iter().find_map(|known| {
        let tracker = known.tracker.filter(|name| paths.clone().any(|p| p == *name));
        let marked = || {
            paths
                .clone()
                .find(|path| known.paths.iter().any(|mark| fits(mark, path)))
        };
        Some(LikelyTrainer {
            trainer: known.trainer,
            path: tracker.or_else(marked)?.to_owned(),
            by_tracker: tracker.is_some(),
        })
    })
}

fn fits(mark: &str, path: &str) -> bool {
    let (mut marks, mut names) = (mark.split('/'), path.split('/'));
    loop {
        match (marks.next(), names.next()) {
            (None, None) => return true,
            (Some(mark), Some(name)) if fits_name(mark, name) => {}
            _ => return false,
        }
    }
}

fn fits_name(mark: &str, name: &str) -> bool {
    let Some((head, rest)) = mark.split_once('*') else {
        return mark == name;
    };
    let Some(mut left) = name.strip_prefix(head) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let tail = parts.pop().unwrap_or_default();
    for part in parts {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trainer_is_known_by_paths_that_only_it_writes() {
        for (paths, trainer) in [
            (
                &["latest", "global_step2/mp_rank_00_model_states.pt"][..],
                Some("DeepSpeed"),
            ),
            (&["bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"], Some("DeepSpeed")),
            (
                &["_actor/latest", "_actor/global_step2/mp_rank_00_model_states.pt"],
                Some("OpenRLHF"),
            ),
            (&["epoch=0-step=4.ckpt"], Some("Lightning")),
            (&["ckpts/epoch=0-step=4.ckpt"], Some("Lightning")),
            (&["ckpt.pt"], Some("nanoGPT")),
            (
                &["global_step_2/data.pt", "global_step_2/trainer_state.pt"],
                Some("SkyRL"),
            ),
            (&["global_step_2/data.pt", "latest_ckpt_global_step.txt"], Some("SkyRL")),
            (&["global_step_2/data.pt", "latest_checkpointed_iteration.txt"], None),
            (&["checkpoint-2/global_step2/mp_rank_00_model_states.pt"], None),
            (&["my_ckpt.pt", "step.ckpt", "a/b/ckpt.pt"], None),
        ] {
            let found = looks_like(paths.iter().copied());
            assert_eq!(found.map(|f| f.trainer), trainer, "{paths:?}");
        }
    }

    #[test]
    fn a_tracker_says_more_than_a_step() {
        let found = looks_like(["global_step_2/trainer_state.pt", "latest_ckpt_global_step.txt"].into_iter()).unwrap();
        assert!(found.by_tracker);
        assert_eq!(found.to_string(), "SkyRL (latest_ckpt_global_step.txt)");
    }
}
