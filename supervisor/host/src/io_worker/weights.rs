//! Searches the weights of a step for non-finite values.

use super::scan::RootProver;
use camino::Utf8Path;
use std::ops::ControlFlow;
use supervise_checkpoint::{FileReport, RequiredFile, SweepOptions};
use supervise_core::checkpoint::finiteness::OddTensors;
use supervise_core::checkpoint::{CkptId, Depth, Verdict};

const OTHERS: [&str; 6] = [
    "extra_state",
    "rng",
    "random_states",
    "scheduler",
    "dataloader",
    "data.",
];

impl RootProver {
    /// Number of the step's model files with non-finite values, and their tensors; `None`: it could not be read
    /// completely. Nothing is cached.
    pub(super) fn odd_weights(&mut self, id: &CkptId, working: &mut dyn FnMut(u64)) -> Option<(u32, OddTensors)> {
        let needs = self.cache.needs(id, Depth::Full);
        let inside = |need: &RequiredFile| need.path.strip_prefix(&id.0).unwrap_or(&need.path).to_owned();
        let needs: Vec<RequiredFile> = needs.iter().filter(|n| holds_weights(&inside(n))).cloned().collect();
        let options = SweepOptions {
            zero: false,
            finite: true,
        };
        let files = self.files.clone().in_background();
        let reports = files.prove(&needs, Depth::Full, options, &mut |p| {
            working(p.done);
            ControlFlow::Continue(())
        });
        let unread = |r: &FileReport| r.verdict == Verdict::Unreadable;
        if needs.is_empty() || reports.len() < needs.len() || reports.values().any(unread) {
            return None;
        }
        let odd = reports.values().filter(|r| !r.floats.odd.is_empty()).count();
        let of = reports.values().fold(0, |sum: u64, r| sum.saturating_add(r.floats.of));
        let names = reports.iter().flat_map(|(path, r)| {
            let inside = path.strip_prefix(&id.0).unwrap_or(path).as_str().as_bytes();
            r.floats.odd.iter().map(move |name| {
                let mut hash = crc32fast::Hasher::new_with_initial(*name);
                hash.update(inside);
                hash.finalize()
            })
        });
        Some((u32::try_from(odd).ok()?, OddTensors::new(of, names.collect())))
    }
}

/// Returns true for a file of the model, by its path in the step: not of the optimizer or other restored state.
fn holds_weights(path: &Utf8Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_ascii_lowercase();
    let of_optimizer = path
        .components()
        .any(|c| c.as_str().to_ascii_lowercase().contains("optim"));
    !of_optimizer && !OTHERS.iter().any(|other| name.starts_with(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_told_from_what_stands_beside_them() {
        for path in [
            "actor/model_world_size_4_rank_0.pt",
            "critic/model_world_size_4_rank_3.pt",
            "pytorch_model_fsdp_0/__0_0.distcp",
            "model-00001-of-00002.safetensors",
            "mp_rank_00_model_states.pt",
            "actor/dist_ckpt/__0_0.distcp",
        ] {
            assert!(holds_weights(path.into()), "{path}");
        }
        for path in [
            "actor/optim_world_size_4_rank_0.pt",
            "actor/extra_state_world_size_4_rank_0.pt",
            "data.pt",
            "optimizer_0/__0_0.distcp",
            "zero_pp_rank_0_mp_rank_00_optim_states.pt",
            "rng_state_0.pth",
            "scheduler.pt",
        ] {
            assert!(!holds_weights(path.into()), "{path}");
        }
    }
}
