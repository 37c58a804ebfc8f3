//! FSDP1's optimizer: one flat parameter per wrapped unit, with one piece of each per rank.
//!
//! Source: torch 2.11 `torch/distributed/fsdp/_flat_param.py` (`_get_shard`: `torch.chunk` of the flat parameter, zero-padded until all
//! pieces are as long as the first), `wrap.py`; verl 0.9 `verl/utils/fsdp_utils.py` (`get_fsdp_wrap_policy`: each layer is a unit, the
//! rest is one) and `fsdp_checkpoint_manager.py` (the optimizer's own `state_dict()`, whose numbers count `parameters()`: the root's flat
//! parameter first). With `use_orig_params`, pieces are those of single parameters, in another layout.

use super::{FsdpShard, storages};
use crate::model::elements;
use crate::problem::ModelError;
use crate::read::SharedSource;
use std::collections::BTreeSet;
use supervise_checkpoint::source::fill;
use supervise_core::checkpoint::Verdict;

/// Elements of each flat parameter without padding, by its number in the optimizer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlatParams(Vec<u64>);

/// Detects the flat parameters from the optimizer's shards and the first rank's model shard.
///
/// # Errors
/// Pieces that do not match units as verl makes them.
pub fn flat(model: &FsdpShard, optimizer: &[FsdpShard]) -> Result<FlatParams, ModelError> {
    let [first, ..] = optimizer else {
        return Ok(FlatParams::default());
    };
    let world = optimizer.len() as u64;
    let parts = &first.found.inventory;
    let numbers: BTreeSet<usize> = parts.iter().filter_map(|p| number(&p.name)).collect();
    // Nothing was trained yet.
    if numbers.is_empty() {
        return Ok(FlatParams::default());
    }
    let fits = |units: &Vec<u64>| {
        numbers.iter().copied().eq(0..units.len())
            && parts.iter().all(|p| match (number(&p.name), p.shape.as_slice()) {
                (Some(n), [own]) => units.get(n).is_some_and(|unit| unit.div_ceil(world) == *own),
                _ => true,
            })
    };
    let found: Vec<Vec<u64>> = candidates(model).into_iter().filter(fits).collect();
    match found.as_slice() {
        [one] => Ok(FlatParams(one.clone())),
        // They differ only in padding, so the real one cannot be determined.
        [_, _, ..] => Err(ModelError::unknown(format!(
            "{}: the length of FSDP1's flat parameters cannot be told from their pieces",
            first.path
        ))),
        [] => Err(ModelError::unknown(format!(
            "{}: FSDP1's flat parameters are not one for each layer and one for the rest, as verl makes them without use_orig_params and adapters",
            first.path
        ))),
    }
}

/// Checks that the padding of the last pieces is zero. Units are identified by the lengths of their pieces, and two units of different
/// lengths may have equally long pieces: numbers in the padding show that one was mistaken for the other. Units of equal length are
/// divided alike, so it does not matter which is which.
///
/// # Errors
/// Numbers in the padding, or bytes that cannot be read.
pub fn filled_with_zeros(
    shards: &[FsdpShard],
    sources: &[Box<SharedSource>],
    flat: &FlatParams,
) -> Result<(), ModelError> {
    for (rank, (shard, source)) in shards.iter().zip(sources).enumerate() {
        let places = storages(shard);
        for part in &shard.found.inventory {
            let (Some(n), [own]) = (flat.elements(&part.name, &part.shape), part.shape.as_slice()) else {
                continue;
            };
            let numbers = n.saturating_sub((rank as u64).saturating_mul(*own)).min(*own);
            let place = part.storage.as_deref().and_then(|key| places.get(key));
            // A tensor without type or storage was already rejected.
            let (Some(dtype), Some(place)) = (part.dtype, place) else {
                continue;
            };
            // Fewer than there are ranks.
            let mut filling = vec![0; ((own - numbers).min(shards.len() as u64) * dtype.size()) as usize];
            let at = place.saturating_add(part.offset.saturating_add(numbers).saturating_mul(dtype.size()));
            fill(source.as_ref(), shard.found.bytes, at, &mut filling)
                .map_err(|e| ModelError::new(Verdict::Unreadable, format!("{}: {e}", shard.path)))?;
            if filling.iter().any(|byte| *byte != 0) {
                return Err(ModelError::unknown(format!(
                    "{}: {} has numbers beyond the {n} of the unit that it is taken for: which unit FSDP1 keeps there cannot be told",
                    shard.path, part.name
                )));
            }
        }
    }
    Ok(())
}

/// Lengths of all units, for each known layout: the rest first, then the layers; or all in one.
fn candidates(model: &FsdpShard) -> Vec<Vec<u64>> {
    let mut rest = 0_u64;
    let mut layers: Vec<(&str, u64)> = Vec::new();
    let mut head = None;
    for part in &model.found.inventory {
        let Some(placement) = &part.placement else { continue };
        let n = elements(&placement.global);
        match layer(&part.name) {
            Some(layer) => match layers.iter_mut().find(|(l, _)| *l == layer) {
                Some((_, sum)) => *sum = sum.saturating_add(n),
                None => layers.push((layer, n)),
            },
            None => rest = rest.saturating_add(n),
        }
        if part.name == "lm_head.weight" {
            head = Some(n);
        }
    }
    let layers: Vec<u64> = layers.into_iter().map(|(_, n)| n).collect();
    let mut out: Vec<Vec<u64>> = Vec::new();
    // A head tied to the embeddings has a name of its own, but no numbers.
    for rest in [Some(rest), head.and_then(|n| rest.checked_sub(n))]
        .into_iter()
        .flatten()
    {
        let all = layers.iter().fold(rest, |sum, n| sum.saturating_add(*n));
        for units in [[&[rest], layers.as_slice()].concat(), vec![all]] {
            if !out.contains(&units) {
                out.push(units);
            }
        }
    }
    out
}

/// `model.layers.3` of `model.layers.3.mlp.up_proj.weight`.
fn layer(name: &str) -> Option<&str> {
    let mut end = 0;
    for word in name.split('.') {
        end += word.len();
        if word.bytes().all(|b| b.is_ascii_digit()) && !word.is_empty() {
            return Some(&name[..end]);
        }
        end += 1;
    }
    None
}

/// 3 of `state.3.exp_avg`.
fn number(name: &str) -> Option<usize> {
    let (number, _) = name.strip_prefix("state.")?.split_once('.')?;
    number.parse().ok()
}

impl FlatParams {
    /// Elements of the flat parameter that an optimizer tensor is a piece of; `None` if it is not a piece of one.
    pub(crate) fn elements(&self, name: &str, shape: &[u64]) -> Option<u64> {
        let all = number(name).and_then(|n| self.0.get(n).copied());
        all.filter(|_| shape.len() == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise_checkpoint::torch::{Placement, TorchTensor};
    use supervise_checkpoint::{ByteExtent, Dtype, FileKind, InspectLimits, inspect};

    fn shard(tensors: Vec<TorchTensor>) -> FsdpShard {
        let mut found = inspect(FileKind::TorchZip, &Vec::new(), &InspectLimits::default());
        found.inventory = tensors;
        FsdpShard {
            path: "rank_0.pt".into(),
            found,
        }
    }

    fn tensor(name: &str, shape: &[u64], placement: Option<Placement>) -> TorchTensor {
        TorchTensor {
            name: name.to_owned(),
            dtype: None,
            shape: shape.to_vec(),
            stride: Vec::new(),
            storage: None,
            offset: 0,
            placement,
        }
    }

    /// Two layers of 12 and 15 numbers, embeddings and a head of 20 each, a norm of 3.
    fn model() -> FsdpShard {
        let sizes = [
            ("model.embed_tokens.weight", 20),
            ("model.layers.0.mlp.weight", 12),
            ("model.layers.1.mlp.weight", 12),
            ("model.layers.1.norm.weight", 3),
            ("model.norm.weight", 3),
            ("lm_head.weight", 20),
        ];
        let spread = |n| Placement {
            global: vec![n],
            words: vec!["Shard(0)".to_owned()],
            mesh: vec![4],
            rank: Some(0),
        };
        let mut all: Vec<TorchTensor> = sizes
            .iter()
            .map(|(name, n)| tensor(name, &[0], Some(spread(*n))))
            .collect();
        all.push(tensor("a_buffer", &[9], None));
        shard(all)
    }

    /// The optimizer of four ranks whose flat parameters have pieces of these lengths.
    fn optimizer(pieces: &[u64]) -> Vec<FsdpShard> {
        let state = |(n, own): (usize, &u64)| {
            ["exp_avg", "exp_avg_sq"].map(|key| tensor(&format!("state.{n}.{key}"), &[*own], None))
        };
        let ranks = (0..4).map(|_| {
            let steps = (0..pieces.len()).map(|n| tensor(&format!("state.{n}.step"), &[], None));
            shard(pieces.iter().enumerate().flat_map(state).chain(steps).collect())
        });
        ranks.collect()
    }

    #[test]
    fn units_are_told_by_the_lengths_of_their_pieces() {
        let of = |pieces: &[u64]| flat(&model(), &optimizer(pieces)).map(|flat| flat.0);
        assert_eq!(of(&[11, 3, 4]), Ok(vec![43, 12, 15]));
        // A tied head has no numbers of its own.
        assert_eq!(of(&[6, 3, 4]), Ok(vec![23, 12, 15]));
        // One unit; nothing trained yet.
        assert_eq!(of(&[18]), Ok(vec![70]));
        assert_eq!(of(&[]), Ok(Vec::new()));
        // Pieces of single parameters, more units, other lengths.
        for odd in [&[5, 3, 3, 1, 1, 5][..], &[11, 3], &[11, 3, 5], &[11, 4, 3]] {
            let refused = of(odd).unwrap_err();
            assert!(refused.text.contains("use_orig_params"), "{refused}");
        }
    }

    /// Two units of 12 and 11 numbers on four ranks have pieces of three each; only the padding shows which is which.
    #[test]
    fn numbers_where_nothing_should_be_are_refused() {
        let pieces = |numbers: [u64; 2]| {
            let rank = |rank: u64| {
                let mut shard = shard(Vec::new());
                let mut bytes = Vec::new();
                for (n, all) in numbers.into_iter().enumerate() {
                    let key = n.to_string();
                    shard.found.plan.extents.push(ByteExtent {
                        off: bytes.len() as u64,
                        len: 12,
                        crc: None,
                        dtype: Some(Dtype::F32),
                        what: format!("optim/data/{key}"),
                    });
                    bytes.extend(
                        (rank * 3..rank * 3 + 3).flat_map(|at| f32::to_le_bytes(if at < all { 1.5 } else { 0.0 })),
                    );
                    shard.found.inventory.push(TorchTensor {
                        dtype: Some(Dtype::F32),
                        storage: Some(key),
                        ..tensor(&format!("state.{n}.exp_avg"), &[3], None)
                    });
                }
                shard.found.bytes = bytes.len() as u64;
                (shard, Box::new(bytes) as Box<SharedSource>)
            };
            (0..4).map(rank).unzip::<_, _, Vec<_>, Vec<_>>()
        };
        let is_sound = |numbers: [u64; 2], taken_for: [u64; 2]| {
            let (shards, sources) = pieces(numbers);
            filled_with_zeros(&shards, &sources, &FlatParams(taken_for.to_vec()))
        };
        assert_eq!(is_sound([12, 11], [12, 11]), Ok(()));
        assert_eq!(is_sound([11, 11], [11, 11]), Ok(()));
        // A rank may have nothing but padding.
        assert_eq!(is_sound([9, 9], [9, 9]), Ok(()));
        let refused = is_sound([12, 11], [11, 12]).unwrap_err();
        assert!(
            refused.text.contains("state.0.exp_avg has numbers beyond the 11"),
            "{refused}"
        );
    }

    #[test]
    fn a_layer_is_told_by_the_first_number_in_a_name() {
        assert_eq!(
            layer("model.layers.13.mlp.experts.7.up_proj.weight"),
            Some("model.layers.13")
        );
        assert_eq!(layer("transformer.h.0.ln_1.bias"), Some("transformer.h.0"));
        assert_eq!(layer("model.embed_tokens.weight"), None);
        assert_eq!(number("state.12.exp_avg"), Some(12));
        assert_eq!(number("param_groups.0.lr"), None);
    }
}
