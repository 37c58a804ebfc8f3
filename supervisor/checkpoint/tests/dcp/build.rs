//! `.metadata` and `.distcp` files made by hand, so that tests can make them wrong.

use crate::archive::{floats, state_dict, torch_zip};
use crate::tree::Tree;

/// A chunk: where it begins and how far it reaches.
pub(crate) type Chunk = (Vec<i64>, Vec<i64>);

/// A pickle being written, as protocol 2 does.
pub(crate) struct Pickle(pub(crate) Vec<u8>);

impl Pickle {
    pub(crate) fn new() -> Self {
        Self(b"\x80\x02".to_vec())
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend(bytes);
        self
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        crate::archive::text(&mut self.0, text);
        self
    }

    pub(crate) fn int(&mut self, n: i64) -> &mut Self {
        self.raw(b"\x8a\x08").raw(&n.to_le_bytes())
    }

    /// An object of a class, before its state.
    pub(crate) fn object(&mut self, module: &str, class: &str) -> &mut Self {
        self.raw(format!("c{module}\n{class}\n").as_bytes()).raw(b")\x81")
    }

    pub(crate) fn meta(&mut self, class: &str) -> &mut Self {
        self.object("torch.distributed.checkpoint.metadata", class)
    }

    pub(crate) fn size(&mut self, dims: &[i64]) -> &mut Self {
        self.raw(b"ctorch\nSize\n(");
        for d in dims {
            self.int(*d);
        }
        self.raw(b"t\x85R")
    }

    pub(crate) fn tensor(&mut self, shape: &[i64], chunks: &[Chunk]) -> &mut Self {
        self.meta("TensorStorageMetadata").raw(b"}(").text("properties");
        self.meta("TensorProperties").raw(b"(ctorch\nfloat32\ntb");
        self.text("size").size(shape).text("chunks").raw(b"](");
        for (offsets, sizes) in chunks {
            self.meta("ChunkStorageMetadata")
                .raw(b"}(")
                .text("offsets")
                .size(offsets);
            self.text("sizes").size(sizes).raw(b"ub");
        }
        self.raw(b"eub")
    }

    pub(crate) fn index(&mut self, fqn: &str, offsets: Option<&[i64]>) -> &mut Self {
        self.meta("MetadataIndex").raw(b"}(").text("fqn").text(fqn);
        if let Some(offsets) = offsets {
            self.text("offset").size(offsets);
        }
        self.raw(b"ub")
    }

    pub(crate) fn place(&mut self, file: &str, off: i64, len: i64) -> &mut Self {
        self.object("torch.distributed.checkpoint.filesystem", "_StorageInfo")
            .raw(b"}(");
        self.text("relative_path").text(file).text("offset").int(off);
        self.text("length").int(len).raw(b"ub")
    }
}

/// A table: `items` and `places` write the pairs of its two dicts.
pub(crate) fn table(items: impl FnOnce(&mut Pickle), places: impl FnOnce(&mut Pickle)) -> Vec<u8> {
    let mut p = Pickle::new();
    p.meta("Metadata").raw(b"}(").text("state_dict_metadata").raw(b"}(");
    items(&mut p);
    p.raw(b"u")
        .text("planner_data")
        .raw(b"N")
        .text("storage_data")
        .raw(b"}(");
    places(&mut p);
    p.raw(b"uub.");
    p.0
}

/// A table with one tensor `w`, each chunk in a range of its own that would be large enough.
pub(crate) fn one_tensor(shape: &[i64], chunks: &[Chunk]) -> Vec<u8> {
    table(
        |p| {
            p.text("w").tensor(shape, chunks);
        },
        |p| {
            let mut at = 0_i64;
            for (offsets, sizes) in chunks {
                let elements = sizes.iter().fold(1_i64, |n, d| n.saturating_mul(d.saturating_abs()));
                let len = elements.saturating_mul(4).saturating_add(2000);
                p.index("w", Some(offsets)).place("__0_0.distcp", at, len);
                at = at.saturating_add(len);
            }
        },
    )
}

/// A save of one tensor.
pub(crate) fn part(elements: u32, seed: u32) -> Vec<u8> {
    let dict = state_dict(&[("w", elements)]);
    // The value of the one key, without the dict around it.
    let tensor = &dict[4 + 1 + 4 + 1..dict.len() - 2];
    let pickle = [b"\x80\x02".as_slice(), tensor, b"."].concat();
    torch_zip(&pickle, &[floats(elements, seed)]).bytes()
}

/// A directory whose files hold one-dimensional tensors: `(file, name, bytes of the part, elements)`.
pub(crate) fn tree(parts: &[(&str, &str, Vec<u8>, i64)]) -> Tree {
    let mut out = Tree::default();
    let mut places = Vec::new();
    for (file, name, bytes, _) in parts {
        let data = out.0.entry((*file).to_owned()).or_default();
        places.push((*name, *file, data.len() as i64, bytes.len() as i64));
        data.extend(bytes);
    }
    let metadata = table(
        |p| {
            for (_, name, _, elements) in parts {
                p.text(name).tensor(&[*elements], &[(vec![0], vec![*elements])]);
            }
        },
        |p| {
            for (name, file, off, len) in places {
                p.index(name, Some(&[0])).place(file, off, len);
            }
        },
    );
    out.0.insert(".metadata".to_owned(), metadata);
    out
}
