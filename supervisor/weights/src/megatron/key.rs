//! Parses Megatron's tensor names.

use super::HfBuilder;
use super::tables::{PREDICTION, RowSplit, TOP, TensorRule};
use crate::problem::ModelError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TensorScope {
    Top,
    /// All layers, stacked as the first dimension.
    Layers,
    Layer(u64),
}

pub(super) struct Spot {
    pub(super) of: TensorScope,
    /// The expert in the key.
    pub(super) expert: Option<u64>,
    /// The half in the key, if the tensor is a pair.
    pub(super) half: Option<usize>,
    pub(super) row: &'static TensorRule,
}

impl HfBuilder<'_> {
    pub(super) fn spot(&self, key: &str) -> Result<Spot, ModelError> {
        let unknown = || {
            let kind = self.sizes.kind();
            // Megatron-Bridge's names for adapters, and for the tensors they are attached to.
            let what = match key.contains(".adapter.") || key.contains(".to_wrap.") {
                true => "it is an adapter's (LoRA), which is not put together here from Megatron's form".to_owned(),
                false => format!("no table says what it is in a model of the type {kind}"),
            };
            ModelError::unknown(format!("{key}: {what}"))
        };
        let (of, rest) = if let Some(rest) = key.strip_prefix("decoder.layers.") {
            match numbered(rest) {
                Some((n, rest)) if n < self.layers => (TensorScope::Layer(n), rest),
                Some(_) => {
                    let text = format!("{key}: config.json speaks of {} layers", self.layers);
                    return Err(ModelError::damaged(text));
                }
                None => (TensorScope::Layers, rest),
            }
        } else if let Some((n, rest)) = key.strip_prefix("mtp.layers.").and_then(numbered) {
            if n >= self.predicting {
                let text = format!(
                    "{key}: config.json (num_nextn_predict_layers) speaks of {}",
                    self.predicting
                );
                return Err(ModelError::damaged(text));
            }
            let of = TensorScope::Layer(self.layers + n);
            // Later versions of megatron-core have the second name for it, and write either.
            match rest
                .strip_prefix("transformer_layer.")
                .or(rest.strip_prefix("mtp_model_layer."))
            {
                Some(rest) => (of, rest),
                None => {
                    let row = PREDICTION.iter().find(|r| r.key == rest).ok_or_else(unknown)?;
                    return Ok(Spot {
                        of,
                        expert: None,
                        half: None,
                        row,
                    });
                }
            }
        } else {
            (TensorScope::Top, key)
        };
        const EXPERTS: &str = "mlp.experts.experts.";
        let one = rest.strip_prefix(EXPERTS).and_then(numbered);
        let rest = match one {
            Some((_, inner)) => format!("{EXPERTS}{inner}"),
            None => rest.to_owned(),
        };
        let (rest, half) = match (rest.strip_suffix("weight_w"), rest.strip_suffix("weight_v")) {
            (Some(stem), _) => (format!("{stem}weight"), Some(0)),
            (_, Some(stem)) => (format!("{stem}weight"), Some(1)),
            _ => (rest, None),
        };
        let row = match of {
            TensorScope::Top => TOP.iter().find(|r| r.key == rest),
            _ => self.tables.iter().copied().flatten().find(|r| r.key == rest),
        };
        let row = row.ok_or_else(unknown)?;
        let fits = (half.is_none() || matches!(row.rows, RowSplit::Pair(_))) && (one.is_none() || row.experts);
        fits.then_some(Spot {
            of,
            expert: one.map(|(n, _)| n),
            half,
            row,
        })
        .ok_or_else(unknown)
    }
}

/// Splits `3.mlp.…` into its number and the rest.
fn numbered(rest: &str) -> Option<(u64, &str)> {
    let (word, rest) = rest.split_once('.')?;
    let plain = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
    Some((word.parse().ok().filter(|_| plain)?, rest))
}
