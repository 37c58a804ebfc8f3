//! `.metadata`: the pickle in which `torch.distributed.checkpoint` says what stands where.

/// One tensor of a shard.
pub(super) struct Part {
    pub(super) fqn: String,
    pub(super) shape: Vec<i64>,
    pub(super) file: String,
    pub(super) offset: i64,
    pub(super) length: i64,
}

/// The whole table; `save_id` tells this save from all others.
pub(super) fn table(parts: &[Part], save_id: &str) -> Vec<u8> {
    let mut p = Pickle(b"\x80\x02".to_vec());
    p.meta("Metadata").raw(b"}(").text("state_dict_metadata").raw(b"}(");
    for part in parts {
        p.text(&part.fqn).tensor(&part.shape);
    }
    p.raw(b"u")
        .text("planner_data")
        .raw(b"N")
        .text("storage_data")
        .raw(b"}(");
    for part in parts {
        p.place(part);
    }
    p.raw(b"u").text("storage_meta").meta("StorageMeta").raw(b"}(");
    p.text("save_id").text(save_id).raw(b"ubub.");
    p.0
}

struct Pickle(Vec<u8>);

impl Pickle {
    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.raw(b"X")
            .raw(&(text.len() as u32).to_le_bytes())
            .raw(text.as_bytes())
    }

    fn int(&mut self, n: i64) -> &mut Self {
        self.raw(b"\x8a\x08").raw(&n.to_le_bytes())
    }

    /// An object of a class, before its state.
    fn object(&mut self, module: &str, class: &str) -> &mut Self {
        self.raw(format!("c{module}\n{class}\n").as_bytes()).raw(b")\x81")
    }

    fn meta(&mut self, class: &str) -> &mut Self {
        self.object("torch.distributed.checkpoint.metadata", class)
    }

    fn size(&mut self, dims: &[i64]) -> &mut Self {
        self.raw(b"ctorch\nSize\n(");
        for d in dims {
            self.int(*d);
        }
        self.raw(b"t\x85R")
    }

    fn tensor(&mut self, shape: &[i64]) -> &mut Self {
        self.meta("TensorStorageMetadata").raw(b"}(").text("properties");
        self.meta("TensorProperties").raw(b"(ctorch\nfloat32\ntb");
        self.text("size").size(shape).text("chunks").raw(b"](");
        let zeros = vec![0; shape.len()];
        self.meta("ChunkStorageMetadata")
            .raw(b"}(")
            .text("offsets")
            .size(&zeros);
        self.text("sizes").size(shape).raw(b"ubeub")
    }

    fn place(&mut self, part: &Part) -> &mut Self {
        let zeros = vec![0; part.shape.len()];
        self.meta("MetadataIndex").raw(b"}(").text("fqn").text(&part.fqn);
        self.text("offset").size(&zeros).raw(b"ub");
        self.object("torch.distributed.checkpoint.filesystem", "_StorageInfo")
            .raw(b"}(");
        self.text("relative_path")
            .text(&part.file)
            .text("offset")
            .int(part.offset);
        self.text("length").int(part.length).raw(b"ub")
    }
}
