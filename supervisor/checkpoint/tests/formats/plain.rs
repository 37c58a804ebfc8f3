//! JSON, safetensors, text and the rest.

use crate::build::{codes, full, structure};
use supervise_checkpoint::{FileKind, FileReport, FloatTally, InspectLimits, inspect, judge_file};
use supervise_core::checkpoint::{Depth, Verdict};

fn said(report: &FileReport) -> (Verdict, Vec<&str>) {
    (report.verdict, codes(report))
}

#[test]
fn names_choose_the_kind() {
    for (name, kind) in [
        ("actor/model_world_size_2_rank_0.pt", FileKind::TorchZip),
        ("data.pt", FileKind::TorchZip),
        ("actor/fsdp_config.json", FileKind::FsdpConfig),
        ("huggingface/config.json", FileKind::ModelConfig),
        ("actor/transformer_config.json", FileKind::ModelConfig),
        ("huggingface/tokenizer_config.json", FileKind::Settings),
        ("huggingface/tokenizer.json", FileKind::Tokenizer),
        ("huggingface/vocab.json", FileKind::Json),
        ("huggingface/model.safetensors.index.json", FileKind::SafetensorsIndex),
        ("huggingface/model-00001-of-00002.safetensors", FileKind::Safetensors),
        ("huggingface/merges.txt", FileKind::Text),
        ("huggingface/chat_template.jinja", FileKind::Text),
        ("huggingface/tokenizer.model", FileKind::Opaque),
        ("dist_ckpt/.metadata", FileKind::DcpMetadata),
        ("actor/ckpt_contents.json", FileKind::CkptContents),
        ("recover_info/dataloader_info.pkl", FileKind::Pickle),
        ("pytorch_model-00001-of-00002.bin", FileKind::TorchZip),
        ("pytorch_model.bin.index.json", FileKind::SafetensorsIndex),
        ("training_args.bin", FileKind::Opaque),
        ("dist_ckpt/__0_0.distcp", FileKind::Distcp),
        (".pt", FileKind::Opaque),
        ("", FileKind::Opaque),
    ] {
        assert_eq!(FileKind::of(name), kind, "{name}");
    }
}

#[test]
fn fsdp_config_is_read_strictly() {
    let good = full(
        FileKind::FsdpConfig,
        b"{\n    \"FSDP_version\": 1,\n    \"world_size\": 8\n}",
    );
    assert_eq!((said(&good), good.proven), ((Verdict::Whole, vec![]), Depth::Full));
    assert_eq!((good.facts.world_size, good.facts.fsdp_version), (Some(8), Some(1)));
    for (bytes, verdict, code) in [
        (b"".as_slice(), Verdict::Incomplete, "empty_file"),
        (b"{\"FSDP_version\": 1, \"wor", Verdict::Incomplete, "json_truncated"),
        (b"\0\0\0\0\0\0", Verdict::Damaged, "zero_filled"),
        (b"{\"FSDP_version\": 1\0\0\0\0", Verdict::Damaged, "torn_write"),
        (b"{\"FSDP_version\": 1}", Verdict::Damaged, "json_content"),
        (b"{\"world_size\": 2}", Verdict::Damaged, "json_content"),
        (
            b"{\"FSDP_version\": 1, \"world_size\": 0}",
            Verdict::Damaged,
            "json_content",
        ),
        (
            b"{\"FSDP_version\": 7, \"world_size\": 2}",
            Verdict::Damaged,
            "json_content",
        ),
        (
            b"{\"FSDP_version\": 2, \"worle_size\": 2}",
            Verdict::Damaged,
            "json_content",
        ),
        (b"{\"world_size\": -1}", Verdict::Damaged, "json_content"),
        (b"{\"world_size\": 2.5}", Verdict::Damaged, "json_content"),
        (b"{\"world_size\": \"2\"}", Verdict::Damaged, "json_content"),
        (b"[2]", Verdict::Damaged, "json_content"),
        (b"{\"world_size\": 2} x", Verdict::Damaged, "json_broken"),
    ] {
        let report = structure(FileKind::FsdpConfig, bytes);
        assert_eq!(
            said(&report),
            (verdict, vec![code]),
            "{}",
            String::from_utf8_lossy(bytes)
        );
    }
}

#[test]
fn json_must_be_one_object() {
    for (bytes, verdict) in [
        (b"{}".as_slice(), Verdict::Whole),
        (b"  {\"a\": [1, {\"b\": null}]}\n", Verdict::Whole),
        (b"[]", Verdict::Damaged),
        (b"1", Verdict::Damaged),
        (b"{\"a\": 1,}", Verdict::Damaged),
        (b"{\"a\": [1, 2", Verdict::Incomplete),
        (b"\xff\xfe{}", Verdict::Damaged),
    ] {
        assert_eq!(
            structure(FileKind::Json, bytes).verdict,
            verdict,
            "{}",
            String::from_utf8_lossy(bytes)
        );
    }
    let deep = vec![b'['; 100_000];
    assert_eq!(
        structure(FileKind::Json, &[b"{\"a\":".to_vec(), deep].concat()).verdict,
        Verdict::Unknown
    );
    let limits = InspectLimits {
        json_bytes: 4,
        ..InspectLimits::default()
    };
    let report = judge_file(&inspect(FileKind::Json, &b"{    }".as_slice(), &limits), &[]);
    assert_eq!(said(&report), (Verdict::Unknown, vec!["limit_reached"]));
}

fn tensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

const TWO: &str = r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},"a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}}"#;

#[test]
fn safetensors_must_tile_their_file() {
    let good = tensors(TWO, &[1; 12]);
    let report = full(FileKind::Safetensors, &good);
    assert_eq!((said(&report), report.proven), ((Verdict::Whole, vec![]), Depth::Full));
    assert_eq!((report.facts.tensors, report.facts.elements), (Some(2), Some(4)));
    for len in 0..good.len() {
        let report = structure(FileKind::Safetensors, &good[..len]);
        assert_eq!(
            said(&report),
            (Verdict::Incomplete, vec!["safetensors_truncated"]),
            "cut at {len}"
        );
    }
    let long = structure(FileKind::Safetensors, &tensors(TWO, &[1; 13]));
    assert_eq!(said(&long), (Verdict::Damaged, vec!["safetensors_trailing"]));
    let zeros = structure(FileKind::Safetensors, &[0; 5000]);
    assert_eq!(said(&zeros), (Verdict::Damaged, vec!["zero_filled"]));
}

#[test]
fn safetensors_headers_must_make_sense() {
    for (what, header) in [
        (
            "size and shape differ",
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#,
        ),
        ("gap", r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#),
        (
            "overlap",
            r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#,
        ),
        ("backwards", r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}"#),
        (
            "overflow",
            r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,4]}}"#,
        ),
        (
            "same name twice",
            r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#,
        ),
        ("negative", r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#),
        ("no object", r#"["a"]"#),
    ] {
        let report = structure(FileKind::Safetensors, &tensors(header, &[1; 8]));
        assert_eq!(report.verdict, Verdict::Damaged, "{what}: {:?}", report.findings);
    }
    let strange = structure(
        FileKind::Safetensors,
        &tensors(r#"{"a":{"dtype":"F99","shape":[1],"data_offsets":[0,8]}}"#, &[1; 8]),
    );
    assert_eq!(said(&strange), (Verdict::Unknown, vec!["safetensors_dtype"]));
    let huge = [&u64::MAX.to_le_bytes()[..], b"{}"].concat();
    assert_eq!(structure(FileKind::Safetensors, &huge).verdict, Verdict::Damaged);
}

#[test]
fn a_missing_block_of_a_safetensors_file_is_doubtful() {
    let header = r#"{"a":{"dtype":"F32","shape":[2048],"data_offsets":[0,8192]}}"#;
    let report = full(FileKind::Safetensors, &tensors(header, &[0; 8192]));
    assert_eq!(said(&report), (Verdict::Whole, vec!["all_zero"]));
    let infinite: Vec<u8> = f32::INFINITY.to_le_bytes().repeat(2048);
    let report = full(FileKind::Safetensors, &tensors(header, &infinite));
    assert_eq!(said(&report), (Verdict::Whole, vec!["non_finite"]));
}

#[test]
fn an_index_names_files_of_its_own_folder() {
    let good = structure(
        FileKind::SafetensorsIndex,
        br#"{"metadata":{"total_size":1},"weight_map":{"a":"m-2.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}}"#,
    );
    assert_eq!(said(&good), (Verdict::Whole, vec![]));
    assert_eq!(good.facts.shards, ["m-1.safetensors", "m-2.safetensors"]);
    for bad in [
        r#"{"weight_map":{"a":"../x.safetensors"}}"#,
        r#"{"weight_map":{"a":"/etc/passwd"}}"#,
        r#"{"weight_map":{"a":"a/../../x"}}"#,
        r#"{"weight_map":{"a":""}}"#,
        r#"{"weight_map":{}}"#,
        r#"{"weight_map":{"a":1}}"#,
        r#"{"metadata":{}}"#,
    ] {
        assert_eq!(
            structure(FileKind::SafetensorsIndex, bad.as_bytes()).verdict,
            Verdict::Damaged,
            "{bad}"
        );
    }
}

#[test]
fn text_and_bytes_are_only_looked_over() {
    assert_eq!(said(&full(FileKind::Text, b"")), (Verdict::Whole, vec![]));
    assert_eq!(
        said(&full(FileKind::Opaque, b"")),
        (Verdict::Incomplete, vec!["empty_file"])
    );
    assert_eq!(
        said(&full(FileKind::Text, &[0; 100])),
        (Verdict::Damaged, vec!["zero_filled"])
    );
    assert_eq!(said(&full(FileKind::Opaque, &[0; 9000])).0, Verdict::Damaged);
    let report = full(FileKind::Opaque, b"abc");
    assert_eq!((report.verdict, report.proven), (Verdict::Whole, Depth::Full));
    assert_eq!(structure(FileKind::Opaque, b"abc").proven, Depth::Structure);
}

#[test]
fn what_should_be_an_archive_and_is_not() {
    for (bytes, verdict, code) in [
        (b"".to_vec(), Verdict::Incomplete, "empty_file"),
        (b"PK".to_vec(), Verdict::Incomplete, "zip_truncated"),
        (b"PK\x03\x04".to_vec(), Verdict::Incomplete, "zip_truncated"),
        (vec![0; 10_000], Verdict::Damaged, "zero_filled"),
        (b"not a checkpoint at all".to_vec(), Verdict::Damaged, "not_a_zip"),
    ] {
        let report = structure(FileKind::TorchZip, &bytes);
        assert_eq!(said(&report), (verdict, vec![code]), "{} bytes", bytes.len());
    }
}

#[test]
fn reports_survive_the_way_through_json() {
    let mut report = full(FileKind::TorchZip, &crate::build::sample());
    report.floats = FloatTally::default();
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<FileReport>(&text).unwrap(), report);
}
