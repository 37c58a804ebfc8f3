//! The task and the order in which its samples are seen.
//!
//! The samples follow from the seed alone. The order is a fresh permutation in each
//! epoch; its state (epoch, position, permutation, generator) lives at rank 0, is saved in
//! `data.pt`, and is lost, as with verl, when that file is missing.

use crate::torch_file::{Storage, Tensor, Value, dict};

use super::network::Sample;
use super::random::Random;

/// The number of inputs of the task.
pub const INPUTS: usize = 16;
/// The number of outputs of the task.
pub const OUTPUTS: usize = 8;

/// One sample of the task.
pub fn sample(seed: u64, index: usize) -> Sample {
    let mut random = Random::new(seed, 1000 + index as u64);
    let input: Vec<f32> = (0..INPUTS).map(|_| random.unit()).collect();
    let target = (0..OUTPUTS)
        .map(|o| {
            let a = input[o] * 2.0 + input[o + OUTPUTS];
            let b = input[(o * 3 + 1) % INPUTS];
            a.sin() * 0.5 + a * b * 0.25
        })
        .collect();
    Sample { input, target }
}

/// The order of samples: where in which permutation the next batch begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    random: Random,
    epoch: i64,
    position: usize,
    permutation: Vec<i64>,
}

impl Order {
    /// The order before the first step.
    pub fn new(seed: u64, samples: usize) -> Self {
        let mut order = Order {
            random: Random::new(seed, 2),
            epoch: 0,
            position: 0,
            permutation: vec![],
        };
        order.permutation = order.shuffled(samples);
        order
    }

    /// The epoch of the next batch.
    pub fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Counts on to an epoch without restoring anything, as after a lost `data.pt`.
    pub fn skip_to_epoch(&mut self, epoch: i64) {
        self.epoch = epoch;
    }

    /// The samples of the next step.
    pub fn next_batch(&mut self, size: usize) -> Vec<usize> {
        if self.position + size > self.permutation.len() {
            self.epoch += 1;
            self.position = 0;
            self.permutation = self.shuffled(self.permutation.len());
        }
        let batch = self.permutation.iter().skip(self.position).take(size);
        let batch = batch.map(|index| *index as usize).collect();
        self.position += size;
        batch
    }

    /// Content of `data.pt`.
    pub fn to_value(&self) -> Value {
        dict([
            ("_sampler_iter_yielded", Value::Int(self.position as i64)),
            ("_epoch", Value::Int(self.epoch)),
            ("_permutation", Tensor::longs(&self.permutation)),
            ("_generator", Tensor::bytes(&self.random.state())),
            ("_iterator_finished", Value::Bool(false)),
        ])
    }

    /// The order that `data.pt` holds.
    pub fn from_value(value: &Value) -> Option<Self> {
        let Storage::Long(permutation) = value.get("_permutation")?.storage()? else {
            return None;
        };
        let Storage::Byte(state) = value.get("_generator")?.storage()? else {
            return None;
        };
        Some(Order {
            random: Random::from_state(state)?,
            epoch: value.get("_epoch")?.as_int()?,
            position: usize::try_from(value.get("_sampler_iter_yielded")?.as_int()?).ok()?,
            permutation: permutation.clone(),
        })
    }

    fn shuffled(&mut self, samples: usize) -> Vec<i64> {
        let mut order: Vec<i64> = (0..samples as i64).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, self.random.below(i + 1));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_sees_each_sample_once_and_a_restored_order_goes_on() {
        let mut order = Order::new(5, 12);
        let mut seen: Vec<usize> = (0..3).flat_map(|_| order.next_batch(4)).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..12).collect::<Vec<_>>());
        order.next_batch(4);
        assert_eq!(order.epoch(), 1);
        let mut restored = Order::from_value(&order.to_value()).unwrap();
        assert_eq!(restored, order);
        assert_eq!(restored.next_batch(8), order.next_batch(8));
        assert_eq!(restored.next_batch(4), order.next_batch(4));
    }
}
