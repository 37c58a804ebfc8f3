//! One rank's part of the weights and of the optimizer's state, the learning-rate
//! schedule, and how each becomes a file's content and comes back.

use crate::torch_file::{Storage, Tensor, Value, dict};

use super::network::Network;
use super::random::Random;

const BETAS: (f64, f64) = (0.9, 0.999);
const EPSILON: f32 = 1e-8;
const WEIGHT_DECAY: f32 = 0.01;
const BASE_RATE: f64 = 3e-3;
const WARMUP: f64 = 4.0;
/// Bytes of the state of torch's generator.
const TORCH_STATE: usize = 5056;

/// This rank's slice of one layer.
#[derive(Debug, Clone, PartialEq)]
struct Slice {
    weights: Vec<f32>,
    mean: Vec<f32>,
    square: Vec<f32>,
}

/// Everything of one rank that a checkpoint holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Shards {
    slices: Vec<Slice>,
    /// Steps the optimizer has taken; corrects its bias.
    taken: i64,
    /// Steps the schedule has taken; sets the rate.
    scheduled: i64,
    /// The generator of this rank's noise.
    pub random: Random,
}

impl Shards {
    /// This rank's state before the first step.
    pub fn new(network: &Network, seed: u64, rank: usize, world: usize) -> Self {
        let slices = network
            .initial(seed)
            .iter()
            .map(|flat| {
                let part = flat.len() / world;
                let weights = flat[rank * part..(rank + 1) * part].to_vec();
                Slice {
                    mean: vec![0.0; part],
                    square: vec![0.0; part],
                    weights,
                }
            })
            .collect();
        Shards {
            slices,
            taken: 0,
            scheduled: 0,
            random: Random::new(seed, 100 + rank as u64),
        }
    }

    /// The weights of this rank, one slice for each layer.
    pub fn weights(&self) -> impl Iterator<Item = &[f32]> {
        self.slices.iter().map(|s| &s.weights[..])
    }

    /// The learning rate of the next step: a short warm-up, then a slow decay.
    pub fn rate(&self) -> f64 {
        let step = self.scheduled as f64;
        BASE_RATE * ((step + 1.0) / WARMUP).min(1.0) / (1.0 + 0.02 * step)
    }

    /// Takes one step of Adam with decoupled weight decay.
    pub fn update(&mut self, gradients: &[Vec<f32>]) {
        let rate = self.rate() as f32;
        self.taken += 1;
        self.scheduled += 1;
        let (b1, b2) = (BETAS.0 as f32, BETAS.1 as f32);
        let fix1 = 1.0 - BETAS.0.powi(self.taken as i32) as f32;
        let fix2 = 1.0 - BETAS.1.powi(self.taken as i32) as f32;
        for (slice, gradient) in self.slices.iter_mut().zip(gradients) {
            let state = slice.mean.iter_mut().zip(&mut slice.square);
            for ((w, (m, v)), g) in slice.weights.iter_mut().zip(state).zip(gradient) {
                *m = b1 * *m + (1.0 - b1) * g;
                *v = b2 * *v + (1.0 - b2) * g * g;
                let direction = (*m / fix1) / ((*v / fix2).sqrt() + EPSILON);
                *w -= rate * (direction + WEIGHT_DECAY * *w);
            }
        }
    }

    /// The weights are no numbers any more.
    pub fn spoil(&mut self) {
        let weights = self.slices.iter_mut().flat_map(|s| &mut s.weights);
        weights.for_each(|w| *w = f32::NAN);
    }

    /// The bytes that a digest of this rank's state covers.
    pub fn digest_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for slice in &self.slices {
            for part in [&slice.weights, &slice.mean, &slice.square] {
                bytes.extend(part.iter().flat_map(|v| v.to_le_bytes()));
            }
        }
        bytes.extend(self.taken.to_le_bytes());
        bytes.extend(self.scheduled.to_le_bytes());
        bytes
    }

    /// The content of `model_world_size_W_rank_R.pt`.
    pub fn model_value(&self) -> Value {
        let layers = self.slices.iter().enumerate();
        Value::Ordered(
            layers
                .map(|(i, s)| (Value::Str(layer_name(i)), Tensor::floats(&s.weights)))
                .collect(),
        )
    }

    /// The content of `optim_world_size_W_rank_R.pt`.
    pub fn optimizer_value(&self) -> Value {
        let layers = self.slices.iter().enumerate();
        let state = layers.map(|(i, s)| {
            let entry = dict([
                ("step", Tensor::scalar(self.taken as f32)),
                ("exp_avg", Tensor::floats(&s.mean)),
                ("exp_avg_sq", Tensor::floats(&s.square)),
            ]);
            (Value::Int(i as i64), entry)
        });
        let indexes = (0..self.slices.len()).map(|i| Value::Int(i as i64)).collect();
        let group = dict([
            ("lr", Value::Float(self.rate())),
            (
                "betas",
                Value::Tuple(vec![Value::Float(BETAS.0), Value::Float(BETAS.1)]),
            ),
            ("eps", Value::Float(EPSILON.into())),
            ("weight_decay", Value::Float(WEIGHT_DECAY.into())),
            ("params", Value::List(indexes)),
        ]);
        dict([
            ("state", Value::Dict(state.collect())),
            ("param_groups", Value::List(vec![group])),
        ])
    }

    /// The content of `extra_state_world_size_W_rank_R.pt`.
    pub fn extra_value(&self) -> Value {
        dict([
            (
                "lr_scheduler",
                dict([
                    ("base_lrs", Value::List(vec![Value::Float(BASE_RATE)])),
                    ("last_epoch", Value::Int(self.scheduled)),
                    ("_step_count", Value::Int(self.scheduled + 1)),
                    ("_last_lr", Value::List(vec![Value::Float(self.rate())])),
                ]),
            ),
            ("rng", dict([("cpu", Tensor::bytes(&self.torch_state()))])),
        ])
    }

    /// The generator's state in a tensor as long as torch's own.
    fn torch_state(&self) -> Vec<u8> {
        let mut state = self.random.state();
        state.resize(TORCH_STATE, 0);
        state
    }

    /// Takes the weights from a model file's content; `None` where it does not fit.
    pub fn restore_model(&mut self, value: &Value) -> Option<()> {
        for (i, slice) in self.slices.iter_mut().enumerate() {
            fill(&mut slice.weights, value.get(&layer_name(i))?)?;
        }
        Some(())
    }

    /// Takes the optimizer's state from a file's content.
    pub fn restore_optimizer(&mut self, value: &Value) -> Option<()> {
        let state = value.get("state")?;
        for (i, slice) in self.slices.iter_mut().enumerate() {
            let entry = state.at(i as i64)?;
            fill(&mut slice.mean, entry.get("exp_avg")?)?;
            fill(&mut slice.square, entry.get("exp_avg_sq")?)?;
            let mut step = [0.0];
            fill(&mut step, entry.get("step")?)?;
            self.taken = step[0] as i64;
        }
        Some(())
    }

    /// Takes the schedule and the generator from a file's content.
    pub fn restore_extra(&mut self, value: &Value) -> Option<()> {
        let Storage::Byte(state) = value.get("rng")?.get("cpu")?.storage()? else {
            return None;
        };
        let ours = state
            .get(..Random::STATE_BYTES)
            .filter(|_| state.len() == TORCH_STATE)?;
        self.random = Random::from_state(ours)?;
        self.scheduled = value.get("lr_scheduler")?.get("last_epoch")?.as_int()?;
        Some(())
    }
}

fn layer_name(index: usize) -> String {
    format!("model.layers.{index}._flat_param")
}

fn fill(into: &mut [f32], from: &Value) -> Option<()> {
    let Storage::Float(values) = from.storage()? else {
        return None;
    };
    (values.len() == into.len()).then(|| into.copy_from_slice(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trained() -> (Network, Shards) {
        let network = Network::new(4, &[6], 2, 2);
        let mut shards = Shards::new(&network, 3, 1, 2);
        let gradients: Vec<Vec<f32>> = shards.weights().map(|w| w.to_vec()).collect();
        shards.update(&gradients);
        shards.random.next_u64();
        (network, shards)
    }

    #[test]
    fn what_is_saved_restores_everything() {
        let (network, shards) = trained();
        let mut other = Shards::new(&network, 4, 1, 2);
        other.restore_model(&shards.model_value()).unwrap();
        other.restore_optimizer(&shards.optimizer_value()).unwrap();
        other.restore_extra(&shards.extra_value()).unwrap();
        assert_eq!(other, shards);
    }

    #[test]
    fn each_lost_file_changes_the_next_step() {
        let (network, shards) = trained();
        let gradients: Vec<Vec<f32>> = shards.weights().map(|w| w.to_vec()).collect();
        let mut whole = shards.clone();
        whole.update(&gradients);
        let mut without_optimizer = Shards::new(&network, 3, 1, 2);
        without_optimizer.restore_model(&shards.model_value()).unwrap();
        without_optimizer.restore_extra(&shards.extra_value()).unwrap();
        without_optimizer.update(&gradients);
        assert_ne!(without_optimizer.slices[0].weights, whole.slices[0].weights);
        let mut without_extra = Shards::new(&network, 3, 1, 2);
        without_extra.restore_model(&shards.model_value()).unwrap();
        without_extra.restore_optimizer(&shards.optimizer_value()).unwrap();
        without_extra.update(&gradients);
        assert_ne!(without_extra.slices[0].weights, whole.slices[0].weights);
    }

    #[test]
    fn a_shard_of_another_size_does_not_fit() {
        let (_, shards) = trained();
        let mut other = Shards::new(&Network::new(4, &[8], 2, 2), 3, 1, 2);
        assert!(other.restore_model(&shards.model_value()).is_none());
    }
}
