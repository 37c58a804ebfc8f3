//! Sizes of batches that verl divides by the number of its ranks: where they do not divide it fails at its start, or trains fewer samples a step
//! than was asked for, without a word (verl 0.9.1 `utils/config.py`, `trainer/sft_trainer.py`, `workers/engine_workers.py`,
//! `workers/engine/utils.py`).

use super::Reader;
use super::defaults::Tree;
use supervise_core::spec::RoleSpec;

/// Values beyond this are tried by nobody.
const LARGEST: u64 = 1 << 16;
const ROLLOUT: &str = "actor_rollout_ref.rollout";

/// Settings that do not divide by the ranks, each in words, with an override that does. They are told where a step is cut anew only: a
/// value that cannot be read here is no mistake.
pub(crate) fn indivisible(reader: &mut Reader<'_>, roles: &[RoleSpec], world: Option<u32>) -> Vec<String> {
    let Some(world) = world
        .map(u64::from)
        .filter(|_| roles.iter().all(|r| r.megatron.is_none()))
    else {
        return Vec::new();
    };
    let mut out = Sizes {
        reader,
        world,
        words: Vec::new(),
    };
    match out.reader.basis.tree {
        Tree::Sft | Tree::SftMegatron => out.sft("engine.ulysses_sequence_parallel_size"),
        Tree::SftOld => out.sft("ulysses_sequence_parallel_size"),
        Tree::Ppo | Tree::PpoMegatron => out.ppo(roles),
    }
    out.words
}

struct Sizes<'a, 'b> {
    reader: &'a mut Reader<'b>,
    world: u64,
    words: Vec<String>,
}

impl Sizes<'_, '_> {
    /// A number above zero, where it is known.
    fn size(&mut self, key: &str) -> Option<u64> {
        let problems = self.reader.problems.len();
        let found = self.reader.int(key);
        self.reader.problems.truncate(problems);
        found.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0)
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
        let Some(batch) = self.size(key) else { return };
        if self.multiple(key, batch, 1, parts) {
            let dynamic = "data.use_dynamic_bsz";
            let varies = self.reader.has(dynamic) && self.flag(dynamic);
            self.micro("data.micro_batch_size_per_gpu", batch / parts, varies);
        }
    }

    fn ppo(&mut self, roles: &[RoleSpec]) {
        let size = format!("{ROLLOUT}.tensor_model_parallel_size");
        if let Some(engine) = self.size(&size).filter(|n| !self.world.is_multiple_of(*n)) {
            self.words.push(format!(
                "{size}={engine} does not divide {} ranks: {size}={}",
                self.world,
                divisor(self.world, engine)
            ));
        }
        let samples = self.size(&format!("{ROLLOUT}.n")).unwrap_or(1);
        for role in roles {
            self.role(&role.name, samples);
        }
    }

    fn role(&mut self, role: &str, samples: u64) {
        let actor = "actor_rollout_ref.actor";
        let at = if role == "critic" { "critic" } else { actor };
        let sequences = [
            format!("{at}.fsdp_config.ulysses_sequence_parallel_size"),
            format!("{at}.fsdp.ulysses_sequence_parallel_size"),
            format!("{at}.ulysses_sequence_parallel_size"),
        ];
        let sequences: Vec<&str> = sequences.iter().map(String::as_str).collect();
        let Some(parts) = self.parts(&sequences) else { return };
        let varies = self.flag(&format!("{at}.use_dynamic_bsz"));
        let train = "data.train_batch_size";
        if at == actor
            && !varies
            && let Some(batch) = self.size(train)
        {
            self.multiple(train, batch, samples, self.world);
        }
        let mini = format!("{at}.ppo_mini_batch_size");
        let Some(batch) = self.size(&mini).filter(|_| self.reader.has(&mini)) else {
            return;
        };
        if self.multiple(&mini, batch, samples, parts) {
            let per_rank = batch.saturating_mul(samples) / parts;
            self.micro(&format!("{at}.ppo_micro_batch_size_per_gpu"), per_rank, varies);
        }
    }

    /// How many parts a batch is divided into: the ranks that share a sequence get the same part.
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

    /// Returns true if so many batches of a size can be divided.
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

    /// A rank works off its share in pieces; where they are cut by the number of tokens, any number will do.
    fn micro(&mut self, key: &str, per_rank: u64, varies: bool) {
        if let Some(micro) = self.size(key).filter(|n| !varies && !per_rank.is_multiple_of(*n)) {
            self.words.push(format!(
                "{key}={micro} does not divide the {per_rank} samples of a rank: {key}={}",
                divisor(per_rank, micro)
            ));
        }
    }
}

/// The largest divisor of a number that is no larger than another.
fn divisor(of: u64, most: u64) -> u64 {
    (1..=most.min(of).min(LARGEST))
        .rev()
        .find(|n| of.is_multiple_of(*n))
        .unwrap_or(1)
}

/// The greatest common divisor.
fn common(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { common(b, a % b) }
}
