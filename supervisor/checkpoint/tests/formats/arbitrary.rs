//! Whatever the bytes: an answer, no panic, no endless work.

use crate::build::{full, sample, torch_zip};
use crate::real;
use proptest::prelude::*;
use supervise_checkpoint::{FileKind, InspectLimits, pickle};
use supervise_core::checkpoint::Verdict;

const KINDS: [FileKind; 10] = [
    FileKind::TorchZip,
    FileKind::Json,
    FileKind::FsdpConfig,
    FileKind::ModelConfig,
    FileKind::Settings,
    FileKind::Pickle,
    FileKind::Safetensors,
    FileKind::SafetensorsIndex,
    FileKind::Text,
    FileKind::Opaque,
];

/// Opcodes and arguments that a pickle machine finds interesting.
const WORDS: &[&[u8]] = &[
    b"(",
    b".",
    b"0",
    b"1",
    b"2",
    b"N",
    b"\x88",
    b"]",
    b")",
    b"}",
    b"\x8f",
    b"a",
    b"e",
    b"s",
    b"u",
    b"t",
    b"l",
    b"d",
    b"\x85",
    b"\x86",
    b"\x87",
    b"\x90",
    b"\x91",
    b"\x94",
    b"q\x00",
    b"q\x07",
    b"h\x00",
    b"h\x07",
    b"r\xff\xff\xff\xff",
    b"j\xff\xff\xff\xff",
    b"p3\n",
    b"g3\n",
    b"K\x05",
    b"J\xff\xff\xff\xff",
    b"\x8a\x02ab",
    b"\x8b\xff\xff\xff\xff",
    b"X\x01\x00\x00\x00a",
    b"X\xff\xff\xff\xff",
    b"\x8c\x07storage",
    b"\x8c\x010",
    b"\x8c\x03cpu",
    b"ctorch\nFloatStorage\n",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ccollections\nOrderedDict\n",
    b"cbuiltins\ngetattr\n",
    b"ctorch._tensor\n_rebuild_from_type_v2\n",
    b"ctorch._utils\n_rebuild_wrapper_subclass\n",
    b"ctorch\nSize\n",
    b"\x8c\x0d_local_tensor",
    b"\x8c\x05_spec",
    b"Q",
    b"P1\n",
    b"R",
    b"b",
    b"\x81",
    b"\x92",
    b"\x93",
    b"\x82\x01",
    b"o",
    b"ia\nb\n",
    b"S'x'\n",
    b"V\\u0041\n",
    b"F1e400\n",
    b"G\x7f\xf8\x00\x00\x00\x00\x00\x00",
    b"L99999999999999999999L\n",
    b"\x95\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x80\x04",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_get_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        for kind in KINDS {
            let report = full(kind, &bytes);
            prop_assert_eq!(report.bytes, bytes.len() as u64);
        }
    }

    #[test]
    fn arbitrary_ends_get_an_answer(tail in proptest::collection::vec(any::<u8>(), 0..80), cut in 0_usize..120) {
        let mut bytes = sample();
        bytes.truncate(bytes.len().saturating_sub(cut));
        bytes.extend(tail);
        full(FileKind::TorchZip, &bytes);
    }

    #[test]
    fn arbitrary_pickles_get_an_answer(words in proptest::collection::vec(proptest::sample::select(WORDS), 0..120)) {
        let stream = words.concat();
        let read = pickle::read(stream.clone(), &InspectLimits::default());
        prop_assert!(read.used <= stream.len());
        prop_assert!(read.root.is_some() != read.error.is_some());
        full(FileKind::TorchZip, &torch_zip(&stream, &[vec![1; 8]]).bytes());
    }

    #[test]
    fn changed_words_in_a_real_directory_get_an_answer(at in 0_usize..2000, value in any::<u32>()) {
        let mut bytes = real::torch("adamw");
        let from = bytes.len().saturating_sub(4 + at % (bytes.len() - 4));
        let old = bytes[from..from + 4].to_vec();
        bytes[from..from + 4].copy_from_slice(&value.to_le_bytes());
        let report = full(FileKind::TorchZip, &bytes);
        prop_assert!(report.verdict != Verdict::Unreadable);
        if bytes[from..from + 4] == old {
            prop_assert_eq!(report.verdict, Verdict::Whole);
        }
    }
}

#[test]
fn values_shared_many_times_are_not_walked_forever() {
    // Each dict holds the one before it 10 times: 10^40 paths.
    let mut p = b"\x80\x02}".to_vec();
    for level in 0..40_u8 {
        p.extend([b'q', level, b'0', b'}', b'(']);
        for key in 0..10 {
            p.extend([b'K', key, b'h', level]);
        }
        p.push(b'u');
    }
    p.push(b'.');
    let report = full(FileKind::TorchZip, &torch_zip(&p, &[]).bytes());
    assert_eq!(report.verdict, Verdict::Whole);
    assert!(
        report.findings.iter().any(|f| f.code == "inventory_cut"),
        "{:?}",
        report.findings
    );
}

#[test]
fn values_that_contain_themselves_end() {
    let report = full(FileKind::TorchZip, &torch_zip(b"\x80\x02]q\x00h\x00a.", &[]).bytes());
    assert_eq!(report.verdict, Verdict::Whole);
    let nested = [vec![b']'; 50_000], vec![b'a'; 49_999], vec![b'.']].concat();
    assert_eq!(
        full(FileKind::TorchZip, &torch_zip(&nested, &[]).bytes()).verdict,
        Verdict::Whole
    );
}
