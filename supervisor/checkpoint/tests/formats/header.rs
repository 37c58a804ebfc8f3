//! Files that torch's own reader refuses although every byte has its checksum, and those that it takes.

use crate::build::{Zip, codes, floats, full, text};
use supervise_checkpoint::{FileKind, FileReport};
use supervise_core::checkpoint::Verdict;

/// A tensor of four floats whose storage is named by these opcodes.
fn tensor(reference: &[u8]) -> Vec<u8> {
    let mut p = b"\x80\x02}".to_vec();
    text(&mut p, "a");
    p.extend(b"ctorch._utils\n_rebuild_tensor_v2\n(");
    p.extend(reference);
    p.extend(b"QK\x00K\x04\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtRs.");
    p
}

fn reference(parts: &[&[u8]], end: &[u8]) -> Vec<u8> {
    [b"(", parts.concat().as_slice(), end].concat()
}

fn word(s: &str) -> Vec<u8> {
    let mut out = Vec::new();
    text(&mut out, s);
    out
}

fn usual(place: &str) -> Vec<u8> {
    reference(
        &[
            &word("storage"),
            b"ctorch\nFloatStorage\n",
            &word("0"),
            &word(place),
            b"K\x04",
        ],
        b"t",
    )
}

fn file(pickle: &[u8], entries: &[(&str, &str)]) -> FileReport {
    let zip = Zip::new("archive")
        .with("data.pkl", pickle)
        .with("data/0", floats(4, 1));
    let zip = entries
        .iter()
        .fold(zip, |z, (name, value)| z.with(name, value.as_bytes()));
    full(FileKind::TorchZip, &zip.bytes())
}

#[test]
fn version_byteorder_and_alignment_are_torchs() {
    let good = [
        ("version", "3\n"),
        ("byteorder", "little"),
        (".storage_alignment", "64"),
    ];
    let with = |name: &str, value: Option<&str>| {
        let kept = good.iter().filter(|(n, _)| *n != name).copied();
        let own: Vec<(&str, &str)> = kept.chain(value.map(|v| (name, v))).collect();
        file(&tensor(&usual("cpu")), &own)
    };
    for (name, value, sound) in [
        ("version", Some("3"), true),
        ("version", Some("10\n"), true),
        ("version", None, false),
        ("version", Some(""), false),
        ("version", Some("x"), false),
        ("version", Some("0\n"), false),
        ("version", Some("11\n"), false),
        ("version", Some("-3"), false),
        ("byteorder", None, true),
        ("byteorder", Some("big"), true),
        ("byteorder", Some(""), false),
        ("byteorder", Some("little\n"), false),
        ("byteorder", Some("native"), false),
        (".storage_alignment", None, true),
        (".storage_alignment", Some("4096"), true),
        (".storage_alignment", Some("x"), false),
        (".storage_alignment", Some(""), false),
        (".storage_alignment", Some("64.0"), false),
        (".format_version", Some("x"), true),
    ] {
        let report = with(name, value);
        assert_eq!(
            report.verdict == Verdict::Whole,
            sound,
            "{name} {value:?}: {:?}",
            report.findings
        );
        assert!(
            sound || codes(&report) == ["torch_header"],
            "{name} {value:?}: {:?}",
            report.findings
        );
    }
}

#[test]
fn references_to_storages_are_torchs() {
    let class = b"ctorch\nFloatStorage\n".as_slice();
    let (kind, key, cpu) = (word("storage"), word("0"), word("cpu"));
    let five = [&kind, class, &key, &cpu, b"K\x04"];
    for (name, reference, sound) in [
        ("as written", reference(&five, b"t"), true),
        (
            "bytes for its kind",
            reference(&[b"C\x07storage", class, &key, &cpu, b"K\x04"], b"t"),
            true,
        ),
        ("a list", reference(&five, b"l"), false),
        ("six parts", reference(&[five.concat().as_slice(), b"N"], b"t"), false),
        ("four parts", reference(&five[..4], b"t"), false),
        (
            "another kind",
            reference(&[&word("module"), class, &key, &cpu, b"K\x04"], b"t"),
            false,
        ),
        (
            "a key of bytes",
            reference(&[&kind, class, b"C\x010", &cpu, b"K\x04"], b"t"),
            false,
        ),
        (
            "no place",
            reference(&[&kind, class, &key, b"N", b"K\x04"], b"t"),
            false,
        ),
        (
            "a count below none",
            reference(&[&kind, class, &key, &cpu, b"J\xff\xff\xff\xff"], b"t"),
            false,
        ),
        (
            "a count that is none",
            reference(&[&kind, class, &key, &cpu, b"\x88"], b"t"),
            false,
        ),
        ("no class", reference(&[&kind, b"N", &key, &cpu, b"K\x04"], b"t"), false),
    ] {
        let report = file(&tensor(&reference), &[("version", "3\n")]);
        assert_eq!(report.verdict == Verdict::Whole, sound, "{name}: {:?}", report.findings);
    }
}

#[test]
fn devices_are_those_that_torch_knows() {
    for (place, sound) in [
        ("cpu", true),
        ("cuda", true),
        ("cuda:0", true),
        ("cuda:15", true),
        ("xpu:0", true),
        ("npu:3", true),
        ("mps", true),
        ("meta", true),
        ("gpu", false),
        ("CPU", false),
        ("cpu:0", false),
        ("cpux", false),
        ("", false),
        ("cuda:", false),
        ("cuda:x", false),
        ("cuda:-1", false),
        ("rocm:0", false),
    ] {
        let report = file(&tensor(&usual(place)), &[("version", "3\n")]);
        assert_eq!(
            report.verdict == Verdict::Whole,
            sound,
            "{place}: {:?}",
            report.findings
        );
        assert!(
            sound || codes(&report) == ["unknown_device"],
            "{place}: {:?}",
            report.findings
        );
    }
}
