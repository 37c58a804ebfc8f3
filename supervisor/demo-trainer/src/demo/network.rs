//! The network: a multi-layer perceptron with tanh, its loss and its gradient.
//!
//! Each layer's weights and biases are one flat vector, padded so that it splits evenly
//! over the ranks, as FSDP does. All sums run in a fixed order.

use super::random::Random;

/// The widths of the layers, from input to output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    widths: Vec<usize>,
    world: usize,
}

/// One input with its wanted output.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Input of the network.
    pub input: Vec<f32>,
    /// The expected answer.
    pub target: Vec<f32>,
}

impl Network {
    /// A network between fixed ends, its layers cut for `world` ranks.
    pub fn new(inputs: usize, hidden: &[usize], outputs: usize, world: usize) -> Self {
        let mut widths = vec![inputs];
        widths.extend_from_slice(hidden);
        widths.push(outputs);
        Network { widths, world }
    }

    /// The number of layers.
    pub fn layers(&self) -> usize {
        self.widths.len() - 1
    }

    /// The widths of the layers, from input to output.
    pub fn widths(&self) -> &[usize] {
        &self.widths
    }

    /// The length of one layer's flat vector, padding included.
    pub fn flat_length(&self, layer: usize) -> usize {
        ((self.widths[layer] + 1) * self.widths[layer + 1]).next_multiple_of(self.world)
    }

    /// The weights before the first step; the same on every rank.
    pub fn initial(&self, seed: u64) -> Vec<Vec<f32>> {
        let mut random = Random::new(seed, 1);
        (0..self.layers())
            .map(|layer| {
                let (inputs, outputs) = (self.widths[layer], self.widths[layer + 1]);
                let scale = (1.0 / inputs as f32).sqrt();
                let mut flat = vec![0.0; self.flat_length(layer)];
                flat[..inputs * outputs].fill_with(|| random.unit() * scale);
                flat
            })
            .collect()
    }

    /// The mean squared error over samples.
    pub fn loss(&self, weights: &[Vec<f32>], samples: &[Sample]) -> f32 {
        let total: f32 = samples
            .iter()
            .map(|s| {
                let outputs = self.forward(weights, &s.input);
                squared_error(outputs.last().map_or(&[], |o| &o[..]), &s.target)
            })
            .sum();
        total / samples.len().max(1) as f32
    }

    /// The mean squared error over samples, and its gradient with respect to the weights.
    pub fn gradient(&self, weights: &[Vec<f32>], samples: &[Sample]) -> (f32, Vec<Vec<f32>>) {
        let mut gradient: Vec<Vec<f32>> = weights.iter().map(|w| vec![0.0; w.len()]).collect();
        let mut total = 0.0;
        let share = 1.0 / samples.len().max(1) as f32;
        for sample in samples {
            let values = self.forward(weights, &sample.input);
            let output = &values[self.layers()];
            total += squared_error(output, &sample.target);
            let mut delta: Vec<f32> = output
                .iter()
                .zip(&sample.target)
                .map(|(o, t)| 2.0 * (o - t) * share)
                .collect();
            for layer in (0..self.layers()).rev() {
                delta = self.backward(layer, weights, &values, &delta, &mut gradient[layer]);
            }
        }
        (total * share, gradient)
    }

    /// The values of every layer, the input first.
    fn forward(&self, weights: &[Vec<f32>], input: &[f32]) -> Vec<Vec<f32>> {
        let mut values = vec![input.to_vec()];
        for layer in 0..self.layers() {
            let (inputs, outputs) = (self.widths[layer], self.widths[layer + 1]);
            let (matrix, biases) = weights[layer].split_at(inputs * outputs);
            let last = layer + 1 == self.layers();
            let next = matrix
                .chunks_exact(inputs)
                .zip(biases)
                .map(|(row, bias)| {
                    let mut sum = *bias;
                    for (w, x) in row.iter().zip(&values[layer]) {
                        sum += w * x;
                    }
                    if last { sum } else { sum.tanh() }
                })
                .collect();
            values.push(next);
        }
        values
    }

    /// Adds one layer's gradient; returns the error at the layer below.
    fn backward(
        &self,
        layer: usize,
        weights: &[Vec<f32>],
        values: &[Vec<f32>],
        delta: &[f32],
        gradient: &mut [f32],
    ) -> Vec<f32> {
        let (inputs, outputs) = (self.widths[layer], self.widths[layer + 1]);
        let (matrix, biases) = gradient.split_at_mut(inputs * outputs);
        let below = &values[layer];
        let mut error = vec![0.0; inputs];
        let rows = matrix.chunks_exact_mut(inputs).zip(weights[layer].chunks_exact(inputs));
        for (((gradients, row), bias), d) in rows.zip(biases).zip(delta) {
            *bias += d;
            for (((g, w), x), e) in gradients.iter_mut().zip(row).zip(below).zip(&mut error) {
                *g += d * x;
                *e += d * w;
            }
        }
        if layer > 0 {
            for (e, x) in error.iter_mut().zip(below) {
                *e *= 1.0 - x * x;
            }
        }
        error
    }
}

fn squared_error(output: &[f32], target: &[f32]) -> f32 {
    output.iter().zip(target).map(|(o, t)| (o - t) * (o - t)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let network = Network::new(3, &[5, 4], 2, 4);
        let mut weights = network.initial(9);
        let samples = [Sample {
            input: vec![0.3, -0.7, 0.5],
            target: vec![0.2, -0.4],
        }];
        let (_, gradient) = network.gradient(&weights, &samples);
        for (layer, index) in [(0, 0), (0, 16), (1, 7), (2, 3), (2, 9)] {
            let before = weights[layer][index];
            weights[layer][index] = before + 1e-2;
            let above = network.loss(&weights, &samples);
            weights[layer][index] = before - 1e-2;
            let below = network.loss(&weights, &samples);
            weights[layer][index] = before;
            let slope = (above - below) / 2e-2;
            let found = gradient[layer][index];
            assert!(
                (slope - found).abs() < 1e-3,
                "layer {layer} at {index}: {slope} {found}"
            );
        }
    }

    #[test]
    fn layers_split_evenly_over_the_ranks() {
        let network = Network::new(3, &[5], 1, 4);
        assert_eq!((network.flat_length(0), network.flat_length(1)), (20, 8));
    }
}
