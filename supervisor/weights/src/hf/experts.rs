//! Experts: one tensor for all of them in memory, one for each on disk.

use crate::layout::{OutTensor, TensorRange};
use crate::problem::ModelError;

/// Model types whose experts are written as `mlp.experts.N.gate_proj.weight`, `up_proj` and `down_proj`.
const PROJECTIONS: [&str; 16] = [
    "qwen2_moe",
    "qwen3_moe",
    "qwen3_next",
    "deepseek_v2",
    "deepseek_v3",
    "dots1",
    "ernie4_5_moe",
    "glm4_moe",
    "glm4_moe_lite",
    "longcat_flash",
    "hunyuan_v1_moe",
    "flex_olmo",
    "olmoe",
    "exaone_moe",
    "solar_open",
    "afmoe",
];

/// Model types whose experts are written as `block_sparse_moe.experts.N.w1.weight` (gate), `w3` (up) and `w2` (down).
const NUMBERED: [&str; 3] = ["mixtral", "minimax", "minimax_m2"];

pub(super) fn is_known(kind: &str) -> bool {
    PROJECTIONS.contains(&kind) || NUMBERED.contains(&kind)
}

/// Adds a tensor as it is written: one per expert, if it contains all of them.
pub(super) fn split(tensor: OutTensor, kind: &str, out: &mut Vec<OutTensor>) -> Result<(), ModelError> {
    let numbered = NUMBERED.contains(&kind);
    if !is_known(kind) {
        out.push(tensor);
        return Ok(());
    }
    let words: [&str; 3] = match numbered {
        true => ["w1", "w3", "w2"],
        false => ["gate_proj", "up_proj", "down_proj"],
    };
    let on_disk = |name: &str| match numbered {
        true => name.replace(".mlp.", ".block_sparse_moe."),
        false => name.to_owned(),
    };
    let (stem, parts): (&str, &[&str]) = if let Some(stem) = tensor.name.strip_suffix(".experts.gate_up_proj") {
        (stem, &words[..2])
    } else if let Some(stem) = tensor.name.strip_suffix(".experts.down_proj") {
        (stem, &words[2..])
    } else {
        let name = on_disk(&tensor.name);
        out.push(OutTensor { name, ..tensor });
        return Ok(());
    };
    let [experts, rows, columns] = *tensor.shape.as_slice() else {
        let text = format!(
            "{}: its shape {:?} is not that of all experts",
            tensor.name, tensor.shape
        );
        return Err(ModelError::unknown(text));
    };
    if crate::model::elements(&tensor.shape) == 0 {
        return Err(ModelError::unknown(format!("{}: it holds no number", tensor.name)));
    }
    let rows = rows / parts.len() as u64;
    let (size, source) = (rows * columns, tensor.pieces[0]);
    let each = (0..experts).flat_map(|e| parts.iter().map(move |part| (e, *part)));
    out.extend(each.zip(0_u64..).map(|((expert, part), n)| OutTensor {
        name: on_disk(&format!("{stem}.experts.{expert}.{part}.weight")),
        dtype: tensor.dtype,
        shape: vec![rows, columns],
        pieces: vec![TensorRange {
            from: source.from + n * size,
            to: source.from + (n + 1) * size,
            ..source
        }],
    }));
    Ok(())
}
