//! Batch sizes that verl divides by the number of ranks: if they do not divide, it fails at start, or silently trains
//! fewer samples per step.
//!
//! Source: verl 0.4.0 to 0.9.1, each of [`VerlRelease::KNOWN`](super::version::VerlRelease::KNOWN): `utils/config.py`
//! (before 0.6 `trainer/ppo/ray_trainer.py`, `_validate_config`), `workers/fsdp_workers.py` (until 0.7),
//! `workers/engine_workers.py`, `workers/engine/utils.py`, `trainer/sft_trainer.py`, `trainer/fsdp_sft_trainer.py`.
//! They differ as follows:
//!
//! - Before 0.6 all samples of a step must divide by the ranks even if micro-batches are cut by tokens.
//! - FSDP workers until 0.7 (0.5 to 0.7: unless `trainer.use_legacy_worker_impl=disable`) want micro-batches that divide
//!   a rank's share even if they do not use them, and divide `ppo_micro_batch_size` by the ranks.
//! - Since 0.6 a rollout engine's size is the product of its three parallel sizes.
//! - The newer SFT trainer of 0.6 takes any micro-batch size; later ones want it to divide a rank's share.

use super::VerlConfigReader;
use super::defaults::VerlBaseConfig;
use super::version::ReleaseSeries::{V0_5, V0_6, V0_7, V0_8};
use supervise_core::spec::RoleSpec;

const LARGEST: u64 = 1 << 16;
const ROLLOUT: &str = "actor_rollout_ref.rollout";
const ACTOR: &str = "actor_rollout_ref.actor";
/// verl's default values, the same in all releases.
const TRAIN_PPO: u64 = 1024;
const TRAIN_SFT: u64 = 256;
const MINI: u64 = 256;
const MICRO_SFT: u64 = 4;
const ENGINE: u64 = 2;

/// Settings that the ranks do not divide, each as text with an override that fits. Reported only when a step is
/// resharded: a value that cannot be read here is not an error.
pub(crate) fn indivisible(reader: &mut VerlConfigReader<'_>, roles: &[RoleSpec], world: Option<u32>) -> Vec<String> {
    let Some(world) = world
        .map(u64::from)
        .filter(|_| roles.iter().all(|r| r.megatron.is_none()))
    else {
        return Vec::new();
    };
    let mut out = BatchSizes {
        reader,
        world,
        words: Vec::new(),
    };
    match out.reader.basis.tree {
        VerlBaseConfig::Sft | VerlBaseConfig::SftMegatron => out.sft("engine.ulysses_sequence_parallel_size"),
        VerlBaseConfig::SftOld => out.sft("ulysses_sequence_parallel_size"),
        VerlBaseConfig::Ppo | VerlBaseConfig::PpoMegatron => out.ppo(roles),
    }
    out.words
}

struct BatchSizes<'a, 'b> {
    reader: &'a mut VerlConfigReader<'b>,
    world: u64,
    words: Vec<String>,
}

impl BatchSizes<'_, '_> {
    fn size(&mut self, key: &str) -> Option<u64> {
        let problems = self.reader.problems.len();
        let found = self.reader.int(key);
        self.reader.problems.truncate(problems);
        found.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0)
    }

    /// The configured size, or the trainer's default if unset.
    fn size_or(&mut self, key: &str, own: u64) -> Option<u64> {
        match self.reader.has(key) {
            true => self.size(key),
            false => Some(own),
        }
    }

    fn flag(&mut self, key: &str) -> bool {
        let problems = self.reader.problems.len();
        let found = self.reader.flag(key);
        self.reader.problems.truncate(problems);
        found
    }

    fn sft(&mut self, sequence: &str) {
        let Some(parts) = self.parts(&[sequence]) else { return };
        let key = "data.train_batch_size";
        let Some(batch) = self.size_or(key, TRAIN_SFT) else {
            return;
        };
        if !self.multiple(key, batch, 1, parts) {
            return;
        }
        let is_old = self.reader.basis.tree == VerlBaseConfig::SftOld;
        let dynamic = "data.use_dynamic_bsz";
        // The older trainer lacks the switch; in the newer one it is on.
        let varies = !is_old && (!self.reader.has(dynamic) || self.flag(dynamic));
        let any_piece = !is_old && !self.reader.basis.since(V0_7, 0);
        self.micro(
            "data.micro_batch_size_per_gpu",
            Some(MICRO_SFT),
            batch / parts,
            varies || any_piece,
        );
    }

    fn ppo(&mut self, roles: &[RoleSpec]) {
        self.engines();
        let samples = self.size(&format!("{ROLLOUT}.n")).unwrap_or(1);
        for role in roles {
            self.role(&role.name, samples);
        }
    }

    /// Rollout engines share the ranks among them.
    fn engines(&mut self) {
        let tensor = format!("{ROLLOUT}.tensor_model_parallel_size");
        let Some(engine) = self.size_or(&tensor, ENGINE) else {
            return;
        };
        let mut all = engine;
        let mut named = format!("{tensor}={engine}");
        if self.reader.basis.since(V0_6, 0) {
            for key in ["data_parallel_size", "pipeline_model_parallel_size"] {
                if let Some(n) = self.size(&format!("{ROLLOUT}.{key}")).filter(|n| *n > 1) {
                    all = all.saturating_mul(n);
                    named = format!("{named} times {key}={n}");
                }
            }
        }
        if !self.world.is_multiple_of(all) {
            let rest = all / engine;
            let fits = match self.world.is_multiple_of(rest) {
                true => format!(": {tensor}={}", divisor(self.world / rest, engine)),
                false => String::new(),
            };
            self.words
                .push(format!("{named} does not divide {} ranks{fits}", self.world));
        }
    }

    /// Returns true if batches are divided by the workers that verl had before its engines.
    fn has_old_workers(&mut self) -> bool {
        if self.reader.basis.since(V0_8, 0) {
            return false;
        }
        let problems = self.reader.problems.len();
        let choice = self.reader.string("trainer.use_legacy_worker_impl");
        self.reader.problems.truncate(problems);
        !self.reader.basis.since(V0_5, 0) || choice.as_deref() != Some("disable")
    }

    fn role(&mut self, role: &str, samples: u64) {
        let at = if role == "critic" { "critic" } else { ACTOR };
        let sequences = [
            format!("{at}.fsdp_config.ulysses_sequence_parallel_size"),
            format!("{at}.fsdp.ulysses_sequence_parallel_size"),
            format!("{at}.ulysses_sequence_parallel_size"),
        ];
        let sequences: Vec<&str> = sequences.iter().map(String::as_str).collect();
        let Some(parts) = self.parts(&sequences) else { return };
        let dynamic = |at: &str| format!("{at}.use_dynamic_bsz");
        let by = if self.reader.has(&dynamic(at)) { at } else { ACTOR };
        let varies = self.flag(&dynamic(by));
        let train = "data.train_batch_size";
        if at == ACTOR
            && (!varies || !self.reader.basis.since(V0_6, 0))
            && let Some(batch) = self.size_or(train, TRAIN_PPO)
        {
            self.multiple(train, batch, samples, self.world);
        }
        let mini = |at: &str| format!("{at}.ppo_mini_batch_size");
        // A critic inherits the actor's.
        let by = if self.reader.has(&mini(at)) { at } else { ACTOR };
        let mini = mini(by);
        let Some(batch) = self.size_or(&mini, MINI) else { return };
        if !self.multiple(&mini, batch, samples, parts) {
            return;
        }
        let per_rank = batch.saturating_mul(samples) / parts;
        let old = self.has_old_workers();
        let (each, all) = (
            format!("{at}.ppo_micro_batch_size_per_gpu"),
            format!("{at}.ppo_micro_batch_size"),
        );
        match self.size(&all).filter(|_| old) {
            Some(micro) => {
                let piece = micro / parts;
                if piece == 0 || !per_rank.is_multiple_of(piece) {
                    let fits = divisor(per_rank, piece.max(1)) * parts;
                    self.words.push(format!(
                        "{all}={micro} is {piece} for each of {parts} and does not divide the {per_rank} samples of a rank: {all}={fits}"
                    ));
                }
            }
            None => self.micro(&each, None, per_rank, varies && !old),
        }
    }

    /// How many parts a batch is divided into: ranks that share a sequence get the same part.
    fn parts(&mut self, keys: &[&str]) -> Option<u64> {
        let mut found = None;
        for key in keys {
            let size = self.size(key).filter(|n| *n > 1).map(|n| (*key, n));
            found = found.or(size);
        }
        let (key, sequence) = found.unwrap_or(("", 1));
        if self.world.is_multiple_of(sequence) {
            return Some(self.world / sequence);
        }
        self.words.push(format!(
            "{key}={sequence} does not divide {} ranks: {key}={}",
            self.world,
            divisor(self.world, sequence)
        ));
        None
    }

    /// Returns true if `batch` times `times` divides by `parts`.
    fn multiple(&mut self, key: &str, batch: u64, times: u64, parts: u64) -> bool {
        let all = batch.saturating_mul(times);
        if all.is_multiple_of(parts) {
            return true;
        }
        let step = parts / common(parts, times);
        let next = batch.div_ceil(step).saturating_mul(step);
        let of = match times {
            1 => String::new(),
            n => format!(" times {ROLLOUT}.n={n}"),
        };
        self.words
            .push(format!("{key}={batch}{of} is no multiple of {parts}: {key}={next}"));
        false
    }

    /// A rank works in micro-batches; if they are cut by tokens, any size will do. `own`: the trainer's default.
    fn micro(&mut self, key: &str, own: Option<u64>, per_rank: u64, any: bool) {
        let micro = match own {
            Some(own) => self.size_or(key, own),
            None => self.size(key),
        };
        if let Some(micro) = micro.filter(|n| !any && !per_rank.is_multiple_of(*n)) {
            self.words.push(format!(
                "{key}={micro} does not divide the {per_rank} samples of a rank: {key}={}",
                divisor(per_rank, micro)
            ));
        }
    }
}

/// The largest divisor of `of` that is at most `most`.
fn divisor(of: u64, most: u64) -> u64 {
    (1..=most.min(of).min(LARGEST))
        .rev()
        .find(|n| of.is_multiple_of(*n))
        .unwrap_or(1)
}

fn common(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { common(b, a % b) }
}
