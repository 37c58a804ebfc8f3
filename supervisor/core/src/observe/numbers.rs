//! Metrics that a trainer prints about training steps: the loss, and others that show whether a run continues as
//! before.
//!
//! They are read only from lines that a rule with keys matched. NaN is kept as printed.

use crate::id::Step;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// A metric that each trainer prints under its own name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrainingMetric {
    Loss,
    Reward,
    GradNorm,
    /// The mean entropy of the policy.
    Entropy,
    /// The mean length of the generated responses.
    Length,
    /// Any other number that marks a line as a training record; it is not kept.
    Mark,
}

pub const KEPT: [TrainingMetric; 5] = [
    TrainingMetric::Loss,
    TrainingMetric::Reward,
    TrainingMetric::GradNorm,
    TrainingMetric::Entropy,
    TrainingMetric::Length,
];

impl TrainingMetric {
    /// Its name in messages.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Reward => "reward",
            Self::GradNorm => "gradient norm",
            Self::Entropy => "entropy",
            Self::Length => "length",
            Self::Mark => "mark",
        }
    }
}

/// A number as printed. Two are equal if their bits are, so NaN equals itself.
#[derive(Debug, Clone, Copy)]
pub struct MetricValue(pub f64);

impl PartialEq for MetricValue {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for MetricValue {}

impl fmt::Display for MetricValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n.is_nan() => f.write_str("nan"),
            n => write!(f, "{n}"),
        }
    }
}

impl Serialize for MetricValue {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            n if n.is_finite() && reads_back(n) => s.serialize_f64(n),
            n if n.is_finite() => s.serialize_str(&n.to_string()),
            n if n.is_nan() => s.serialize_str("nan"),
            n if n > 0.0 => s.serialize_str("inf"),
            _ => s.serialize_str("-inf"),
        }
    }
}

/// A JSON parser may be off by the last bit; a number that does not survive the round trip is written as a string.
fn reads_back(n: f64) -> bool {
    let read = serde_json::to_string(&n)
        .ok()
        .and_then(|text| serde_json::from_slice::<f64>(text.as_bytes()).ok());
    read.map(f64::to_bits) == Some(n.to_bits())
}

impl<'de> Deserialize<'de> for MetricValue {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Number;
        impl de::Visitor<'_> for Number {
            type Value = MetricValue;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, nan, inf or -inf")
            }
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<MetricValue, E> {
                Ok(MetricValue(n))
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<MetricValue, E> {
                Ok(MetricValue(n as f64))
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<MetricValue, E> {
                Ok(MetricValue(n as f64))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<MetricValue, E> {
                match text {
                    "nan" => Ok(MetricValue(f64::NAN)),
                    "inf" => Ok(MetricValue(f64::INFINITY)),
                    "-inf" => Ok(MetricValue(f64::NEG_INFINITY)),
                    other => match other.parse::<f64>() {
                        Ok(n) => Ok(MetricValue(n)),
                        Err(_) => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                    },
                }
            }
        }
        d.deserialize_any(Number)
    }
}

/// Metrics of one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StepMetrics {
    /// The loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<MetricValue>,
    /// The mean reward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<MetricValue>,
    /// The gradient norm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grad_norm: Option<MetricValue>,
    /// The mean entropy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entropy: Option<MetricValue>,
    /// The mean length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<MetricValue>,
}

impl StepMetrics {
    /// The value of one metric.
    #[must_use]
    pub fn get(&self, what: TrainingMetric) -> Option<f64> {
        let found = match what {
            TrainingMetric::Loss => self.loss,
            TrainingMetric::Reward => self.reward,
            TrainingMetric::GradNorm => self.grad_norm,
            TrainingMetric::Entropy => self.entropy,
            TrainingMetric::Length => self.length,
            TrainingMetric::Mark => None,
        };
        found.map(|r| r.0)
    }

    /// Sets a metric unless it is set: the first key that an adapter names counts.
    pub fn set(&mut self, what: TrainingMetric, n: f64) {
        let place = match what {
            TrainingMetric::Loss => &mut self.loss,
            TrainingMetric::Reward => &mut self.reward,
            TrainingMetric::GradNorm => &mut self.grad_norm,
            TrainingMetric::Entropy => &mut self.entropy,
            TrainingMetric::Length => &mut self.length,
            TrainingMetric::Mark => return,
        };
        place.get_or_insert(MetricValue(n));
    }

    /// Returns true if no metric is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Metrics of a line about a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepNumbers {
    /// The step, if the line names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// The metrics.
    #[serde(flatten)]
    pub of: StepMetrics,
}

/// Steps whose metrics are kept.
pub const KEPT_STEPS: usize = 256;

/// Adds newer metrics. The newest line of a step counts, and the newest steps are kept.
pub fn keep(kept: &mut Vec<StepNumbers>, newer: &[StepNumbers]) {
    let numbered = newer.iter().filter(|n| n.step.is_some());
    for n in numbered {
        kept.retain(|k| k.step != n.step);
        kept.push(*n);
    }
    kept.sort_by_key(|k| k.step);
    let over = kept.len().saturating_sub(KEPT_STEPS);
    kept.drain(..over);
}

/// The number after a key in a line: `key:1.5`, `'key': 1.5`, `key=1.5`, `key:np.float64(1.5)`, `"key": "nan"`.
#[must_use]
pub fn number_of(line: &[u8], key: &str) -> Option<f64> {
    memchr::memmem::find_iter(line, key.as_bytes()).find_map(|at| {
        let before = at.checked_sub(1).and_then(|i| line.get(i));
        if before.is_some_and(|b| is_of_a_name(*b)) {
            return None;
        }
        let mut rest = line.get(at + key.len()..)?;
        rest = skip(rest, |b| matches!(b, b'\'' | b'"'));
        rest = skip(rest, |b| b == b' ');
        rest = rest.strip_prefix(b":").or_else(|| rest.strip_prefix(b"="))?;
        rest = skip(rest, |b| matches!(b, b' ' | b'\'' | b'"'));
        number(rest, true)
    })
}

fn number(text: &[u8], is_typed: bool) -> Option<f64> {
    let end = text
        .iter()
        .position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.' | b'_')));
    let word = text.get(..end.unwrap_or(text.len()))?;
    // Array libraries print a scalar with its type around it.
    match text.get(word.len()) {
        Some(b'(') if is_typed => number(text.get(word.len() + 1..)?, false),
        _ => std::str::from_utf8(word).ok()?.parse().ok(),
    }
}

fn skip(text: &[u8], is_skipped: impl Fn(u8) -> bool) -> &[u8] {
    let n = text.iter().take_while(|b| is_skipped(**b)).count();
    text.get(n..).unwrap_or_default()
}

fn is_of_a_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'/' | b'-' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_behind_its_key_however_it_is_printed() {
        let of = |line: &str| number_of(line.as_bytes(), "loss");
        assert_eq!(of("step:3 - loss:0.25 - lr:1e-5"), Some(0.25));
        assert_eq!(of("{'loss': 1.5, 'grad_norm': 2.0}"), Some(1.5));
        assert_eq!(of("{'loss': '3.25e-2'}"), Some(0.0325));
        assert_eq!(of("loss=-4"), Some(-4.0));
        assert_eq!(of("loss:np.float64(0.125) - x"), Some(0.125));
        assert_eq!(of("loss: tensor(7., device='cuda:0')"), Some(7.0));
        assert!(of("{'loss': nan}").is_some_and(f64::is_nan));
        assert_eq!(of("loss:inf"), Some(f64::INFINITY));
        for line in [
            "train/loss:1",
            "loss_scale:1",
            "pg_loss:1",
            "loss",
            "loss:",
            "loss: none",
            "the loss is 3",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
        assert_eq!(of("val/loss:2 - loss:3"), Some(3.0));
        assert_eq!(of(&format!("loss:{}", "x(".repeat(1500))), None);
    }

    #[test]
    fn what_is_not_finite_survives_the_journal() {
        let told = StepNumbers {
            step: Some(Step(4)),
            of: StepMetrics {
                loss: Some(MetricValue(f64::NAN)),
                reward: Some(MetricValue(f64::NEG_INFINITY)),
                grad_norm: Some(MetricValue(1.5)),
                ..StepMetrics::default()
            },
        };
        let text = serde_json::to_string(&told).unwrap();
        assert_eq!(text, r#"{"step":4,"loss":"nan","reward":"-inf","grad_norm":1.5}"#);
        assert_eq!(serde_json::from_str::<StepNumbers>(&text).unwrap(), told);
        assert_eq!(serde_json::from_str::<MetricValue>("3").unwrap(), MetricValue(3.0));
        let mut n = 1.0e-30_f64;
        for _ in 0..2000 {
            n *= 1.077_123_4;
            let text = serde_json::to_string(&MetricValue(n)).unwrap();
            assert_eq!(
                serde_json::from_str::<MetricValue>(&text).unwrap(),
                MetricValue(n),
                "{text}"
            );
        }
    }
}
