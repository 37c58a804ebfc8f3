//! Python's refusals are ours: text that is no UTF-8, keys that nobody takes, archives of the old format.

use supervise_checkpoint::{FileKind, FileReport, InspectLimits, inspect, judge_file};
use supervise_core::checkpoint::Verdict;

fn report(kind: FileKind, bytes: &[u8]) -> FileReport {
    judge_file(&inspect(kind, &bytes, &InspectLimits::default()), &[])
}

fn code(report: &FileReport) -> (Verdict, Option<&str>) {
    (report.verdict, report.why().map(|f| &*f.code))
}

#[test]
fn strings_of_pickles_are_utf_8_with_lone_surrogates() {
    let with = |text: &[u8]| {
        let head = [0x80, 4, 0x8c, u8::try_from(text.len()).unwrap()];
        report(FileKind::Pickle, &[&head, text, b"."].concat())
    };
    for sound in ["plain".as_bytes(), "größe".as_bytes(), b"a\xed\xa0\x80\xed\xbf\xbfb"] {
        assert_eq!(with(sound).verdict, Verdict::Whole, "{sound:x?}");
    }
    for broken in [
        b"\xb1".as_slice(),
        b"a\xe5b",
        b"\xed\xa0",
        b"\xc0\x80",
        b"\xf5\x80\x80\x80",
    ] {
        assert_eq!(
            code(&with(broken)),
            (Verdict::Damaged, Some("pickle_broken")),
            "{broken:x?}"
        );
    }
    let import = report(FileKind::Pickle, b"\x80\x02ctorch\xff\nSize\n.");
    assert_eq!(code(&import), (Verdict::Unsafe, Some("unsafe_global")));
}

#[test]
fn json_is_utf_8_also_in_values_that_are_dropped() {
    assert_eq!(
        report(FileKind::Json, "{\"a\": \"ö\"}".as_bytes()).verdict,
        Verdict::Whole
    );
    let found = report(FileKind::Json, b"{\"a\": \"\xae\"}");
    assert_eq!(code(&found), (Verdict::Damaged, Some("json_broken")));
    assert_eq!(found.findings[0].offset, Some(7));
}

#[test]
fn a_header_of_weights_is_utf_8() {
    let file = |note: &[u8]| {
        let text = [b"{\"__metadata__\":{\"format\":\"", note, b"\"}}"].concat();
        [&(text.len() as u64).to_le_bytes(), text.as_slice()].concat()
    };
    assert_eq!(report(FileKind::Safetensors, &file(b"pt")).verdict, Verdict::Whole);
    assert_eq!(report(FileKind::Safetensors, &file(b"p\xff")).verdict, Verdict::Damaged);
}

#[test]
fn megatron_takes_four_keys_and_one_version() {
    let of = |text: &str| report(FileKind::MegatronMetadata, text.as_bytes());
    assert_eq!(of(r#"{"sharded_backend": "torch_dist"}"#).verdict, Verdict::Whole);
    let odd = of(r#"{"sharded_backend": "torch_dist", "common_jackend": "torch"}"#);
    assert_eq!(code(&odd), (Verdict::Damaged, Some("json_content")));
    let newer = of(r#"{"sharded_backend": "torch_dist", "sharded_backend_version": 5}"#);
    assert_eq!(code(&newer), (Verdict::Unknown, Some("dist_backend")));
}

#[test]
fn the_old_format_is_known_in_every_protocol() {
    let magic = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
    let frame = b"\x95\x0d\0\0\0\0\0\0\0";
    for head in [
        [b"\x80\x02".as_slice(), magic].concat(),
        [b"\x80\x03".as_slice(), magic].concat(),
        [b"\x80\x04".as_slice(), frame, magic].concat(),
        [b"\x80\x05".as_slice(), magic].concat(),
    ] {
        let found = report(FileKind::TorchZip, &[head.as_slice(), &[b'x'; 400]].concat());
        assert_eq!(code(&found), (Verdict::Unknown, Some("legacy_torch_file")), "{head:x?}");
    }
}

/// Python's loader in C wants the whole frame.
#[test]
fn a_frame_that_reaches_beyond_the_end_is_no_pickle() {
    let of = |len: u8| {
        report(
            FileKind::Pickle,
            &[b"\x80\x04\x95".as_slice(), &[len, 0, 0, 0, 0, 0, 0, 0], b"N."].concat(),
        )
    };
    assert_eq!(of(2).verdict, Verdict::Whole);
    assert_eq!(code(&of(3)), (Verdict::Incomplete, Some("pickle_broken")));
}

/// torch's distributed writer leaves pieces in files of its own, which say so.
#[test]
fn weights_in_pieces_are_not_taken_for_tensors() {
    let header = r#"{"__metadata__":{"DCP_VERSION":"1.0","DCP_SHARDING_INFO":"{}"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[1, 2, 3, 4]].concat();
    let found = report(FileKind::Safetensors, &bytes);
    assert_eq!(code(&found), (Verdict::Unknown, Some("weights_in_pieces")));
}
