//! Targets that are models, put together from several files.

use crate::archive;
use crate::files::{limits, memory};
use crate::memory::within;
use supervise_checkpoint::{FileKind, inspect};
use supervise_weights::fsdp::FsdpShard;
use supervise_weights::{ModelReader, SharedSource, deepspeed};

/// Elements of a tensor that are read.
const ELEMENTS: u64 = 1 << 16;

/// States of a model and of an optimizer as DeepSpeed saves them: two bytes that tell how long the first pickle is, and both pickles.
pub(crate) fn deepspeed(bytes: &[u8]) {
    let Some((len, rest)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let len = usize::from(u16::from_le_bytes(*len)).min(rest.len());
    let (model, optimizer) = rest.split_at(len);
    let files = [model, optimizer].map(archive::around);
    let first = within(2 * memory(bytes.len()), || put_together(&files));
    assert_eq!(first, put_together(&files), "two looks at the same bytes");
}

/// Every number of what comes out, or why nothing does.
fn put_together(files: &[Vec<u8>; 2]) -> Result<Vec<Vec<u8>>, String> {
    let limits = limits();
    let shards = files.each_ref().map(|bytes| FsdpShard {
        path: "states.pt".into(),
        found: inspect(FileKind::TorchZip, bytes, &limits),
    });
    let sources = files.clone().map(|bytes| Box::new(bytes) as Box<SharedSource>);
    let weights = deepspeed::gather(deepspeed::ZeroSource {
        shards: &shards,
        sources: &sources,
        models: 1,
        limits: &limits,
    })
    .map_err(|e| e.text)?;
    let reading = ModelReader::new(&weights, &sources);
    let mut out = Vec::new();
    for tensor in &weights.tensors {
        let n = tensor.elements().min(ELEMENTS);
        let mut buf = vec![0; (n * tensor.dtype.size()) as usize];
        reading.fill(tensor, 0, &mut buf, &mut Vec::new()).map_err(|e| e.text)?;
        out.push(buf);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_models() {
        for (name, tensors) in [("two", 3), ("three", 2), ("frozen", 3)] {
            let path = format!("{}/../fuzz/corpus/deepspeed/{name}", env!("CARGO_MANIFEST_DIR"));
            let bytes = std::fs::read(&path).expect("it is there");
            let len = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
            let (model, optimizer) = bytes[2..].split_at(len);
            let made = put_together(&[model, optimizer].map(archive::around)).expect("it is sound");
            assert_eq!(made.len(), tensors, "{name}");
        }
    }
}
