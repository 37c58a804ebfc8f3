//! Tables and parts that were made to hurt: bounded, named, never followed.

use crate::archive::{Zip, torch_zip};
use crate::build::{Pickle, one_tensor, part, table, tree};
use proptest::prelude::*;
use supervise_checkpoint::dcp::{StorageRange, StoredValue};
use supervise_checkpoint::{
    DcpMetadata, Dtype, FileDescription, FileKind, InspectLimits, InspectedFile, SetKind, inspect, inspect_described,
    set,
};
use supervise_core::checkpoint::{Depth, Verdict};

fn look(bytes: &[u8]) -> (Verdict, Vec<String>, InspectedFile) {
    let inspected = inspect(FileKind::DcpMetadata, &bytes, &InspectLimits::default());
    let verdict = inspected
        .findings
        .iter()
        .fold(Verdict::Whole, |v, f| v.worst(f.effect()));
    let codes = inspected.findings.iter().map(|f| f.code.to_string()).collect();
    (verdict, codes, inspected)
}

/// A table with the tensor `w` of four elements, its one place as told.
fn placed(place: impl FnOnce(&mut Pickle)) -> Vec<u8> {
    table(
        |p| {
            p.text("w").tensor(&[4], &[(vec![0], vec![4])]);
        },
        |p| {
            p.index("w", Some(&[0]));
            place(p);
        },
    )
}

#[test]
fn a_file_outside_the_directory_is_refused() {
    for path in [
        "../other.distcp",
        "/etc/passwd",
        "a/../../b",
        "",
        ".",
        "a//b",
        "a\\b",
        "a\0b",
    ] {
        let (verdict, codes, inspected) = look(&placed(|p| {
            p.place(path, 0, 2000);
        }));
        assert_eq!(
            (verdict, codes),
            (Verdict::Damaged, vec!["dcp_path".to_owned()]),
            "{path}"
        );
        assert!(inspected.description.is_none(), "{path}");
    }
    let (verdict, ..) = look(&placed(|p| {
        p.place("__0_0.distcp", 0, 2000);
    }));
    assert_eq!(verdict, Verdict::Whole);
}

#[test]
fn places_that_cannot_be_are_refused() {
    for (off, len) in [(-1, 2000), (0, -1), (0, 15), (i64::MAX, i64::MAX), (0, 0)] {
        let (verdict, codes, _) = look(&placed(|p| {
            p.place("__0_0.distcp", off, len);
        }));
        let said = ["dcp_metadata", "dcp_ranges"].contains(&codes[0].as_str());
        assert!(verdict == Verdict::Damaged && said, "{off} {len}: {codes:?}");
    }
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    for (shape, offsets, sizes) in [
        (vec![-1], vec![0], vec![-1]),
        (vec![4], vec![-4], vec![8]),
        (vec![4], vec![i64::MAX], vec![i64::MAX]),
        (vec![4], vec![0, 0], vec![4, 1]),
        (vec![4, 4], vec![0], vec![4]),
    ] {
        let (verdict, codes, _) = look(&one_tensor(&shape, &[(offsets.clone(), sizes.clone())]));
        assert_eq!(verdict, Verdict::Damaged, "{shape:?} {offsets:?} {sizes:?}: {codes:?}");
    }
    // Elements that no file could hold.
    let (verdict, codes, _) = look(&one_tensor(
        &[i64::MAX, i64::MAX],
        &[(vec![0, 0], vec![i64::MAX, i64::MAX])],
    ));
    assert_eq!((verdict, codes[0].as_str()), (Verdict::Damaged, "dcp_ranges"));
}

#[test]
fn values_and_places_that_do_not_fit_each_other_are_refused() {
    let no_place = table(
        |p| {
            p.text("w").tensor(&[4], &[(vec![0], vec![4])]);
        },
        |_| {},
    );
    let twice = placed(|p| {
        p.place("a.distcp", 0, 2000)
            .index("w", Some(&[0]))
            .place("b.distcp", 0, 2000);
    });
    let stranger = placed(|p| {
        p.place("a.distcp", 0, 2000)
            .index("v", Some(&[0]))
            .place("b.distcp", 0, 2000);
    });
    for (what, bytes) in [("no place", no_place), ("two places", twice), ("stranger", stranger)] {
        let (verdict, codes, _) = look(&bytes);
        assert_eq!((verdict, codes[0].as_str()), (Verdict::Damaged, "dcp_places"), "{what}");
    }
    let overlap = table(
        |p| {
            for name in ["v", "w"] {
                p.text(name).tensor(&[4], &[(vec![0], vec![4])]);
            }
        },
        |p| {
            p.index("v", Some(&[0])).place("a.distcp", 0, 2000);
            p.index("w", Some(&[0])).place("a.distcp", 1999, 2000);
        },
    );
    let (verdict, codes, _) = look(&overlap);
    assert_eq!((verdict, codes[0].as_str()), (Verdict::Damaged, "dcp_ranges"));
}

#[test]
fn tables_of_another_kind_are_refused() {
    for (what, bytes) in [
        ("none", b"\x80\x02N.".to_vec()),
        ("a dict", b"\x80\x02}.".to_vec()),
        ("a list that holds itself", b"\x80\x02]q\x00h\x00a.".to_vec()),
        ("nothing in it", {
            let mut p = Pickle::new();
            p.meta("Metadata").raw(b".");
            p.0
        }),
        ("itself as its table", {
            let mut p = Pickle::new();
            p.meta("Metadata")
                .raw(b"q\x00}(")
                .text("state_dict_metadata")
                .raw(b"h\x00");
            p.text("storage_data").raw(b"h\x00ub.");
            p.0
        }),
        ("a stranger's class", {
            let mut p = Pickle::new();
            p.object("my.checkpoint", "Metadata")
                .raw(b"}(")
                .text("state_dict_metadata")
                .raw(b"}");
            p.text("storage_data").raw(b"}ub.");
            p.0
        }),
    ] {
        let (verdict, codes, inspected) = look(&bytes);
        let strange = what == "a stranger's class";
        let refused = if strange { Verdict::Unsafe } else { Verdict::Damaged };
        assert_eq!(verdict, refused, "{what}: {codes:?}");
        assert!(inspected.description.is_none(), "{what}");
    }
}

/// Attributes that older versions left out, spelled otherwise or kept elsewhere.
#[test]
fn tables_of_older_versions_are_read() {
    let mut p = Pickle::new();
    p.meta("Metadata").raw(b"}(").text("state_dict_metadata").raw(b"}(");
    p.text("w").meta("TensorStorageMetadata").raw(b"}(").text("properties");
    p.object("torch.distributed._shard.sharded_tensor.metadata", "TensorProperties");
    p.raw(b"}")
        .text("dtype")
        .raw(b"ctorch\nbfloat16\nsb")
        .text("size")
        .size(&[4, 2]);
    p.text("chunks").raw(b"]");
    p.meta("ChunkStorageMetadata").raw(b"}(").text("offsets").size(&[0, 0]);
    p.text("sizes").size(&[4, 2]).raw(b"uba").raw(b"ub");
    p.text("o").meta("BytesStorageMetadata").raw(b"uu");
    let items = p.0.split_off(2);
    let mut p = Pickle::new();
    p.raw(&items[..items.len() - 1]).text("storage_data").raw(b"}(");
    p.meta("MetadataIndex")
        .raw(b"}(")
        .text("fqn")
        .text("w")
        .text("offset")
        .size(&[0, 0]);
    p.text("index").raw(b"K\x00ub");
    // As arguments instead of a state.
    p.raw(b"ctorch.distributed.checkpoint.filesystem\n_StorageInfo\n(")
        .text("__0_0.distcp");
    p.int(0).int(2000).raw(b"tR");
    p.meta("MetadataIndex")
        .raw(b"}(")
        .text("fqn")
        .text("o")
        .text("offset")
        .raw(b"N")
        .text("index")
        .raw(b"Nub");
    p.place("__0_0.distcp", 2000, 1300).raw(b"uub.");
    let (verdict, codes, inspected) = look(&p.0);
    assert_eq!((verdict, codes), (Verdict::Whole, vec![]));
    let facts = inspected.facts.dcp.unwrap();
    assert_eq!((facts.tensors, facts.elements, facts.objects), (1, 8, 1));
    assert_eq!(facts.files["__0_0.distcp"].end, 3300);
    assert_eq!(inspected.inventory[0].dtype, Some(supervise_checkpoint::Dtype::Bf16));
}

/// One version of Megatron adds a table of its own to a class of its own.
#[test]
fn megatrons_own_table_is_read() {
    let plain = one_tensor(&[4], &[(vec![0], vec![4])]);
    let class = b"ctorch.distributed.checkpoint.metadata\nMetadata\n".as_slice();
    let rest = plain[2..].strip_prefix(class).unwrap();
    let mut p = Pickle::new();
    p.raw(b"cmegatron.core.dist_checkpointing.strategies.torch\nMCoreMetadata\n");
    p.raw(&rest[..rest.len() - 3])
        .text("mcore_data")
        .raw(b"}")
        .text("w")
        .raw(b"}s")
        .raw(b"ub.");
    let (verdict, codes, inspected) = look(&p.0);
    assert_eq!((verdict, codes), (Verdict::Whole, vec![]));
    assert_eq!(inspected.facts.dcp.unwrap().elements, 4);
    assert!(inspected.facts.torch.is_none(), "no name in it is strange");
}

#[test]
fn elements_of_an_unknown_type_cannot_be_proven() {
    let bytes = one_tensor(&[4], &[(vec![0], vec![4])]);
    let at = bytes.windows(7).position(|w| w == b"float32").unwrap();
    let mut other = bytes;
    other[at..at + 7].copy_from_slice(b"float99");
    let (verdict, codes, _) = look(&other);
    assert_eq!(verdict, Verdict::Unsafe, "the name is not torch's");
    assert!(codes.iter().any(|c| c == "dcp_unknown"), "{codes:?}");
}

#[test]
fn danger_in_the_table_is_named() {
    let (verdict, codes, _) = look(b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00id\x85R.");
    assert_eq!((verdict, codes[0].as_str()), (Verdict::Unsafe, "unsafe_global"));
    let hidden = placed(|p| {
        p.place("a.distcp", 0, 2000)
            .raw(b"cos\nsystem\nX\x02\x00\x00\x00id\x85RN");
    });
    assert_eq!(look(&hidden).0, Verdict::Unsafe);
}

#[test]
fn danger_in_a_part_is_named_with_its_place() {
    let evil = b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00id\x85R.";
    for (what, bytes) in [
        ("an archive", torch_zip(evil, &[]).bytes()),
        ("a bare pickle", evil.to_vec()),
    ] {
        let first = part(16, 1);
        let at = first.len() as u64;
        let mut tree = tree(&[
            ("__0_0.distcp", "a", first, 16),
            ("__0_0.distcp", "b", bytes.clone(), 16),
        ]);
        let metadata = table(
            |p| {
                p.text("a").tensor(&[16], &[(vec![0], vec![16])]);
                p.text("b").meta("BytesStorageMetadata");
            },
            |p| {
                p.index("a", Some(&[0])).place("__0_0.distcp", 0, at as i64);
                p.index("b", None).place("__0_0.distcp", at as i64, bytes.len() as i64);
            },
        );
        tree.0.insert(".metadata".to_owned(), metadata);
        let report = tree.judge(Depth::Structure);
        assert_eq!(report.verdict, Verdict::Unsafe, "{what}: {:?}", report.findings);
        let worst = &report.findings[0];
        assert!(
            worst.offset >= Some(at) && worst.detail.starts_with("b: "),
            "{what}: {worst}"
        );
    }
}

#[test]
fn strange_names_in_parts_are_listed() {
    let strange = b"\x80\x02cmy.project\nState\n)\x81}b.";
    let tree = tree(&[("__0_0.distcp", "a", torch_zip(strange, &[]).bytes(), 16)]);
    let metadata = table(
        |p| {
            p.text("a").meta("BytesStorageMetadata");
        },
        |p| {
            p.index("a", None)
                .place("__0_0.distcp", 0, tree.0["__0_0.distcp"].len() as i64);
        },
    );
    let mut tree = tree;
    tree.0.insert(".metadata".to_owned(), metadata);
    let needs = set::needs(SetKind::Dcp, tree.names());
    let reports = tree.prove(&needs, Depth::Structure);
    let names = |file: &str| reports[file].facts.torch.as_ref().map(|t| t.unfamiliar.clone());
    assert_eq!(names("__0_0.distcp"), Some(vec!["my.project.State".to_owned()]));
    assert_eq!(names(".metadata"), None);
    assert_eq!(reports["__0_0.distcp"].verdict, Verdict::Unsafe);
}

#[test]
fn parts_that_are_none_are_refused() {
    let zeros = vec![0; 2000];
    let text = b"once upon a time ".repeat(100);
    let broken_off = Zip::new("archive").with("version", *b"3\n").bytes();
    let two = torch_zip(
        &crate::archive::state_dict(&[("a", 16), ("b", 16)]),
        &[vec![1; 64], vec![2; 64]],
    )
    .bytes();
    for (what, bytes, code) in [
        ("zeros", zeros, "zero_filled"),
        ("text", text, "not_a_zip"),
        ("broken off", broken_off, "no_data_pkl"),
        ("two tensors", two, "distcp_content"),
        ("another size", part(17, 3), "distcp_content"),
    ] {
        let tree = tree(&[("__0_0.distcp", "a", part(16, 1), 16), ("__0_0.distcp", "b", bytes, 16)]);
        let report = tree.judge(Depth::Structure);
        assert_ne!(report.verdict, Verdict::Whole, "{what}");
        assert_eq!(report.findings[0].code, code, "{what}: {:?}", report.findings);
    }
}

/// A few bytes refer to a long list many times: what comes of it is bounded.
#[test]
fn shared_lists_do_not_multiply() {
    let mut p = Pickle::new();
    p.meta("Metadata").raw(b"}(").text("state_dict_metadata").raw(b"}(");
    p.text("first")
        .meta("TensorStorageMetadata")
        .raw(b"}(")
        .text("properties");
    p.meta("TensorProperties")
        .raw(b"(ctorch\nfloat32\ntb")
        .text("size")
        .size(&[4000]);
    p.text("chunks").raw(b"](");
    p.meta("ChunkStorageMetadata")
        .raw(b"}(")
        .text("offsets")
        .size(&[0])
        .text("sizes")
        .size(&[4])
        .raw(b"ubq\x01");
    for _ in 0..40_000 {
        p.raw(b"h\x01");
    }
    p.raw(b"eubq\x02");
    for n in 0..40_000 {
        p.text(&format!("{n}")).raw(b"h\x02");
    }
    p.raw(b"u").text("storage_data").raw(b"}ub.");
    let limits = InspectLimits {
        memory: 16 << 20,
        ..InspectLimits::default()
    };
    let inspected = inspect(FileKind::DcpMetadata, &p.0, &limits);
    assert_eq!(inspected.findings[0].code, "limit_reached", "{:?}", inspected.findings);
}

#[test]
fn too_many_corners_are_not_compared() {
    let chunks: Vec<_> = (0..64).map(|n| (vec![n; 20], vec![1; 20])).collect();
    let (verdict, codes, _) = look(&one_tensor(&[64; 20], &chunks));
    assert_eq!((verdict, codes), (Verdict::Unknown, vec!["limit_reached".to_owned()]));
}

/// Ranges as a table might claim them: in the file, across each other, beyond its end.
fn claims() -> impl Strategy<Value = Vec<StorageRange>> {
    let len = prop_oneof![0..3000_u64, Just(u64::MAX), Just(i64::MAX as u64)];
    let off = prop_oneof![0..6000_u64, Just(u64::MAX)];
    let what = prop_oneof![
        Just(StoredValue::Bytes),
        (0..40_u64).prop_map(|n| StoredValue::Tensor {
            dtype: Some(Dtype::F32),
            offsets: [0].into(),
            shape: [n].into(),
        }),
    ];
    let part = (off, len, what, any::<bool>()).prop_map(|(off, len, what, encoded)| StorageRange {
        off,
        len,
        fqn: "optim.state.w.step".into(),
        what,
        encoded,
    });
    prop::collection::vec(part, 0..12).prop_map(|mut parts| {
        parts.sort_by_key(|p| (p.off, p.len));
        parts
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    /// Whatever a table claims of whatever file, there is an answer, and what is to be read is inside the file.
    #[test]
    fn claims_about_any_file_give_an_answer(
        mut parts in claims(),
        honest in any::<bool>(),
        changes in prop::collection::vec((0..6000_usize, any::<u8>()), 0..20),
        cut in 0..8000_usize,
    ) {
        let save = part(16, 1);
        let mut bytes = [save.clone(), save.clone(), save.clone()].concat();
        if honest {
            for (n, p) in parts.iter_mut().enumerate().take(3) {
                (p.off, p.len) = ((n * save.len()) as u64, save.len() as u64);
            }
            parts.sort_by_key(|p| (p.off, p.len));
        }
        for (at, byte) in changes {
            let n = bytes.len();
            bytes[at % n] = byte;
        }
        bytes.truncate(cut);
        let mut dcp = DcpMetadata::default();
        dcp.parts.insert("__0_0.distcp".to_owned(), parts);
        let description = FileDescription::Dcp(dcp);
        let inspected = inspect_described(FileKind::Distcp, &bytes, &description, "__0_0.distcp", &InspectLimits::default());
        prop_assert!(inspected.findings.len() < 100);
        let mut at = 0;
        for e in &inspected.plan.extents {
            prop_assert!(e.off >= at && e.off + e.len <= bytes.len() as u64, "{:?}", inspected.plan);
            at = e.off + e.len;
        }
    }

    /// Whatever is done to a table, there is an answer.
    #[test]
    fn changed_tables_give_an_answer(
        changes in prop::collection::vec((0..2000_usize, any::<u8>()), 1..12),
        cut in 0..2000_usize,
    ) {
        let mut bytes = one_tensor(&[8, 4], &[(vec![0, 0], vec![4, 4]), (vec![4, 0], vec![4, 4])]);
        for (at, byte) in changes {
            let n = bytes.len();
            bytes[at % n] = byte;
        }
        if cut < bytes.len() {
            bytes.truncate(cut);
        }
        let (verdict, codes, inspected) = look(&bytes);
        prop_assert!(verdict == Verdict::Whole || !codes.is_empty());
        if let Some(facts) = inspected.facts.dcp {
            prop_assert!(facts.files.len() <= 2);
        }
    }
}
