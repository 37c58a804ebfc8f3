//! Trainers whose checkpoints are recognized by name only, so that none of them is taken for a broken step of another
//! trainer.

use crate::declared::fits_word;
use std::fmt;

/// A trainer, and the paths in its checkpoint root or step that only it writes. `*` matches within one name.
struct TrainerPaths {
    trainer: &'static str,
    paths: &'static [&'static str],
}

const KNOWN: [TrainerPaths; 4] = [
    TrainerPaths {
        trainer: "OpenRLHF",
        paths: &["_actor/global_step*/*_states.pt", "_critic/global_step*/*_states.pt"],
    },
    TrainerPaths {
        trainer: "DeepSpeed",
        paths: &["*mp_rank_*_states.pt", "global_step*/*mp_rank_*_states.pt"],
    },
    TrainerPaths {
        trainer: "Lightning",
        paths: &["*step=*.ckpt", "*/*step=*.ckpt", "last.ckpt"],
    },
    TrainerPaths {
        trainer: "Megatron-LM",
        paths: &["iter_*/mp_rank_*/model_optim_rng.pt", "mp_rank_*/model_optim_rng.pt"],
    },
];

/// A trainer whose checkpoint this may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LikelyTrainer {
    pub trainer: &'static str,
    /// A path that only it writes.
    pub path: String,
}

impl fmt::Display for LikelyTrainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.trainer, self.path)
    }
}

/// The trainer that wrote these paths, relative to a checkpoint root or a step; `None` if no name tells.
pub fn looks_like<'a>(paths: impl Iterator<Item = &'a str> + Clone) -> Option<LikelyTrainer> {
    KNOWN.iter().find_map(|known| {
        let marked = paths
            .clone()
            .find(|path| known.paths.iter().any(|mark| fits(mark, path)));
        Some(LikelyTrainer {
            trainer: known.trainer,
            path: marked?.to_owned(),
        })
    })
}

fn fits(mark: &str, path: &str) -> bool {
    let (mut marks, mut names) = (mark.split('/'), path.split('/'));
    loop {
        match (marks.next(), names.next()) {
            (None, None) => return true,
            (Some(mark), Some(name)) if fits_word(mark, name) => {}
            _ => return false,
        }
    }
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
            (&["ckpt.pt"], None),
            (&["global_step_2/data.pt", "latest_checkpointed_iteration.txt"], None),
            (&["checkpoint-2/global_step2/mp_rank_00_model_states.pt"], None),
            (&["my_ckpt.pt", "step.ckpt", "a/b/ckpt.pt"], None),
        ] {
            let found = looks_like(paths.iter().copied());
            assert_eq!(found.map(|f| f.trainer), trainer, "{paths:?}");
        }
    }
}
