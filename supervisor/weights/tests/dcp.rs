//! Which tensors of a checkpoint of `torch.distributed.checkpoint` are the model, and where their elements lie.

use supervise_checkpoint::dcp::DcpTensor;
use supervise_checkpoint::{DcpMetadata, Dtype, FileKind, InspectLimits, InspectedFile, inspect, inspect_described};
use supervise_core::checkpoint::Verdict;
use supervise_weights::dcp::{choose, choose_megatron, gather, is_megatron, table};
use supervise_weights::fsdp::FsdpShard;
use supervise_weights::{ModelReader, SharedSource};

fn of(names: &[&str]) -> DcpMetadata {
    let tensor = |name: &&str| DcpTensor {
        name: (*name).into(),
        dtype: Some(Dtype::F32),
        shape: vec![2],
        chunks: 1,
    };
    DcpMetadata {
        tensors: names.iter().map(tensor).collect(),
        ..DcpMetadata::default()
    }
}

fn chosen(names: &[&str], prefix: Option<&str>) -> Result<Vec<String>, String> {
    match choose(&of(names), prefix) {
        Ok(choice) => Ok(choice.names.into_values().collect()),
        Err(problem) => {
            assert_eq!(problem.verdict, Verdict::Unknown);
            Err(problem.text)
        }
    }
}

#[test]
fn the_model_is_found_among_what_is_saved_with_it() {
    let model = ["lm_head.weight", "model.embed_tokens.weight"];
    let areal = [
        "dcp.model.lm_head.weight",
        "dcp.model.model.embed_tokens.weight",
        "dcp.optim.state.lm_head.weight.exp_avg",
    ];
    assert_eq!(chosen(&areal, None).unwrap(), model);
    let torch = [
        "model.lm_head.weight",
        "model.model.embed_tokens.weight",
        "optim.state.lm_head.weight.step",
        "rng.0",
    ];
    assert_eq!(chosen(&torch, None).unwrap(), model);
    let flat = [
        "lm_head.weight",
        "model.embed_tokens.weight",
        "optimizer.state.lm_head.weight.step",
    ];
    assert_eq!(chosen(&flat, None).unwrap(), model);
    assert_eq!(
        chosen(
            &["app.model.lm_head.weight", "app.model.model.embed_tokens.weight"],
            None
        )
        .unwrap(),
        model
    );
    // Tied embeddings: the optimizer tells what the parameter is called.
    let tied = [
        "model.embed_tokens.weight",
        "optim.state.model.embed_tokens.weight.step",
    ];
    assert_eq!(chosen(&tied, None).unwrap(), model[1..]);
    let base = ["model.embed_tokens.weight", "optim.state.embed_tokens.weight.step"];
    assert_eq!(chosen(&base, None).unwrap(), ["embed_tokens.weight"]);
}

#[test]
fn what_can_be_read_in_two_ways_is_refused_until_the_prefix_is_given() {
    let names = ["model.embed_tokens.weight", "model.norm.weight"];
    let said = chosen(&names, None).unwrap_err();
    assert!(
        said.contains("model.embed_tokens.weight") && said.contains(": embed_tokens.weight or"),
        "{said}"
    );
    assert_eq!(chosen(&names, Some("")).unwrap(), names);
    assert_eq!(
        chosen(&names, Some("model")).unwrap(),
        ["embed_tokens.weight", "norm.weight"]
    );
    let two = ["actor.model.norm.weight", "critic.model.norm.weight"];
    assert!(chosen(&two, None).unwrap_err().contains("actor, critic"));
    assert_eq!(chosen(&two, Some("critic.")).unwrap(), ["model.norm.weight"]);
    assert!(chosen(&two, Some("acto")).unwrap_err().contains("begins with acto."));
    assert!(chosen(&[], None).is_err());
}

#[test]
fn of_megatrons_tensors_all_but_the_optimizers_are_taken() {
    let names = [
        "decoder.layers.mlp.linear_fc1.weight",
        "embedding.word_embeddings.weight",
        "optimizer.state.exp_avg.embedding.word_embeddings.weight",
        "chained_0.optimizer.state.exp_avg.decoder.layers.mlp.linear_fc1.weight",
        "decoder.layers.mlp.linear_fc1._extra_state",
    ];
    assert!(is_megatron(&of(&names)) && !is_megatron(&of(&["model.decoder.layers.0.fc1.weight"])));
    let choice = choose_megatron(&of(&names));
    assert_eq!(choice.names.into_keys().collect::<Vec<_>>(), names[..2]);
    assert_eq!(choice.left_out.values().sum::<u64>(), 3);
}

/// Files of a checkpoint by name, `.metadata` first.
macro_rules! files {
    ($dir:literal, $($name:literal),*) => {
        [$(($name, include_bytes!(concat!("../../../tests/fixtures/", $dir, "/", $name)).as_slice())),*]
    };
}

fn areal() -> [(&'static str, &'static [u8]); 3] {
    files!(
        "areal_sft_w2/checkpoints/trainer/real/t0/default/recover_checkpoint",
        ".metadata",
        "__0_0.distcp",
        "__1_0.distcp"
    )
}

/// A checkpoint, looked into as a merge does it.
fn look(files: &[(&str, &'static [u8])]) -> (InspectedFile, Vec<FsdpShard>, Vec<Box<SharedSource>>) {
    let limits = InspectLimits {
        all_parts: true,
        ..InspectLimits::default()
    };
    let metadata = inspect(FileKind::DcpMetadata, &files[0].1.to_vec(), &limits);
    let (mut shards, mut sources): (Vec<FsdpShard>, Vec<Box<SharedSource>>) = Default::default();
    for (name, bytes) in &files[1..] {
        let bytes = bytes.to_vec();
        let found = match metadata.description.as_deref() {
            Some(described) => inspect_described(FileKind::Distcp, &bytes, described, name, &limits),
            None => inspect(FileKind::Distcp, &bytes, &limits),
        };
        shards.push(FsdpShard {
            path: (*name).into(),
            found,
        });
        sources.push(Box::new(bytes));
    }
    (metadata, shards, sources)
}

#[test]
fn every_element_of_a_checkpoint_of_areal_is_found_and_fits_its_checksum() {
    let (metadata, shards, sources) = look(&areal());
    let table = table(&metadata).unwrap();
    let choice = choose(table, None).unwrap();
    let weights = gather(table, &choice, &shards).unwrap();
    assert_eq!((weights.tensors.len(), choice.left_out["optim"]), (15, 45));
    let head = &weights.tensors[weights.find("lm_head.weight").unwrap()];
    assert_eq!(
        (
            head.shape.as_slice(),
            head.chunks.len(),
            head.chunks[1].offsets.as_slice()
        ),
        (&[64, 8][..], 2, &[32, 0][..])
    );
    let reading = ModelReader::new(&weights, &sources);
    let mut scratch = Vec::new();
    for tensor in &weights.tensors {
        let mut buf = vec![0; (tensor.elements() * 4) as usize];
        reading.fill(tensor, 0, &mut buf, &mut scratch).unwrap();
        // Weights are small numbers; bytes from any other place would hold others.
        let values = buf.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
        assert!(values.clone().all(|v| v.abs() < 2.0), "{}", tensor.name);
        assert!(
            values.clone().any(|v| v != 0.0) || tensor.name.ends_with("bias"),
            "{}",
            tensor.name
        );
    }
    let bytes: u64 = weights.tensors.iter().map(|t| t.elements() * 4).sum();
    assert_eq!(reading.settle().unwrap(), bytes);
}

#[test]
fn a_file_that_is_not_there_and_parts_that_are_compressed_are_refused() {
    let (metadata, mut shards, _) = look(&areal());
    let areal = table(&metadata).unwrap();
    let choice = choose(areal, None).unwrap();
    shards.pop();
    let problem = gather(areal, &choice, &shards).unwrap_err();
    assert_eq!(problem.verdict, Verdict::Incomplete, "{problem}");
    let (metadata, shards, _) = look(&files!(
        "torch_dcp_zstd/step_1",
        ".metadata",
        "__0_0.distcp",
        "__1_0.distcp"
    ));
    let packed = table(&metadata).unwrap();
    let problem = gather(packed, &choose(packed, None).unwrap(), &shards).unwrap_err();
    assert_eq!(problem.verdict, Verdict::Unknown, "{problem}");
}
