//! JSON as Python's `json` reads it: each text here was given to it, and what it said stands beside.

use crate::build::{codes, structure};
use supervise_checkpoint::FileKind;
use supervise_core::checkpoint::Verdict;

/// Texts that `json.loads` of Python 3.11 makes a dict of.
const READ: &[&str] = &[
    r#"{}"#,
    "\t{ \"a\" : 1 \r\n}\n ",
    r#"{"time_step_limit": [0.0, Infinity], "b": -Infinity, "c": NaN}"#,
    r#"{"a": 1e999, "b": -1E+400, "c": 1e-400, "d": -0, "e": -0.0}"#,
    r#"{"model_max_length": 1000000000000000019884624838656}"#,
    r#"{"a": 1, "a": 2}"#,
    r#"{"": {"": ""}}"#,
    r#"{"lone": "\ud800", "low": "\udc00", "pair": "\ud83d\ude00", "both": "\ud800\ud800", "then": "\ud800x\n"}"#,
    r#"{"\ud800": 1, "\/": "\b\f\n\r\t\"\\"}"#,
    "{\"\u{7f}\u{80}\u{2028}\": \"\u{ffff}\"}",
];

/// Texts that it refuses, or makes something else of, with what is said of each.
const REFUSED: &[(&str, &str)] = &[
    (r#"{"a": infinity}"#, "json_broken"),
    (r#"{"a": -NaN}"#, "json_broken"),
    (r#"{"a": +1}"#, "json_broken"),
    (r#"{"a": 01}"#, "json_broken"),
    (r#"{"a": 1.}"#, "json_broken"),
    (r#"{"a": .5}"#, "json_broken"),
    (r#"{"a": 1e}"#, "json_broken"),
    (r#"{"a": 0x10}"#, "json_broken"),
    (r#"{"a": 1,}"#, "json_broken"),
    (r#"{"a": [1,]}"#, "json_broken"),
    (r#"{"a" 1}"#, "json_broken"),
    (r#"{a: 1}"#, "json_broken"),
    (r#"{'a': 1}"#, "json_broken"),
    (r#"{"a": "\x41"}"#, "json_broken"),
    (r#"{"a": "\u12g4"}"#, "json_broken"),
    (r#"{"a": "\u+123"}"#, "json_broken"),
    ("{\"a\": \"\n\"}", "json_broken"),
    ("{\"a\": \"\0\"}", "json_broken"),
    ("\u{feff}{}", "json_broken"),
    ("\u{a0}{}", "json_broken"),
    ("{} {}", "json_broken"),
    ("{}//", "json_broken"),
    (r#"{"a": nul}"#, "json_broken"),
    (r#"{"a": Inf}"#, "json_broken"),
    ("Infinity", "json_content"),
    ("[1, 2]", "json_content"),
    ("\"a\"", "json_content"),
    ("null", "json_content"),
    (r#"{"a": nul"#, "json_truncated"),
    (r#"{"a": Infin"#, "json_truncated"),
    (r#"{"a": "\ud8"#, "json_truncated"),
    (r#"{"a": 1"#, "json_truncated"),
    (r#"{"a": "b"#, "json_truncated"),
    ("{", "json_truncated"),
    (" ", "json_truncated"),
];

#[test]
fn what_python_reads_is_read() {
    for text in READ {
        let report = structure(FileKind::Json, text.as_bytes());
        assert_eq!(report.verdict, Verdict::Whole, "{text}: {:?}", report.findings);
    }
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(400), "]".repeat(400));
    assert_eq!(structure(FileKind::Json, deep.as_bytes()).verdict, Verdict::Whole);
}

#[test]
fn what_python_refuses_is_refused() {
    for (text, code) in REFUSED {
        let report = structure(FileKind::Json, text.as_bytes());
        assert_eq!(codes(&report), [*code], "{text}: {:?}", report.findings);
    }
    let digits = format!("{{\"a\": {}}}", "1".repeat(4301));
    assert_eq!(codes(&structure(FileKind::Json, digits.as_bytes())), ["json_broken"]);
    // A surrogate may be escaped, but it has no place in UTF-8.
    assert_eq!(
        codes(&structure(FileKind::Json, b"{\"\xed\xa0\x80\": 1}")),
        ["json_broken"]
    );
    assert_eq!(
        codes(&structure(FileKind::Json, b"{\"a\": \"\xe2\x82")),
        ["json_truncated"]
    );
}

#[test]
fn depth_and_memory_are_bounded() {
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(codes(&structure(FileKind::Json, deep.as_bytes())), ["limit_reached"]);
    // Values that nobody asks for cost nothing, however many they are.
    let many = format!("{{\"a\": [{}0]}}", "{\"b\": [1, 2.5, null]},".repeat(1 << 18));
    assert_eq!(structure(FileKind::Json, many.as_bytes()).verdict, Verdict::Whole);
    let weights = format!(
        "{{\"weight_map\": {{\"a\": \"b\"}}, \"x\": [{}0]}}",
        "0,".repeat(9 << 20)
    );
    assert_eq!(
        codes(&structure(FileKind::SafetensorsIndex, weights.as_bytes())),
        ["limit_reached"]
    );
}

#[test]
fn files_that_say_something_are_read_alike() {
    let config = br#"{"world_size": 1, "FSDP_version": 2, "world_size": 4, "x": Infinity, "y": "\ud800"}"#;
    let report = structure(FileKind::FsdpConfig, config);
    assert_eq!(
        (report.verdict, report.facts.world_size),
        (Verdict::Whole, Some(4)),
        "{:?}",
        report.findings
    );
    let index = br#"{"metadata": {"x": NaN}, "weight_map": {"a": "b.safetensors", "a": "c.safetensors"}}"#;
    let report = structure(FileKind::SafetensorsIndex, index);
    assert_eq!(report.facts.shards, ["c.safetensors"], "{:?}", report.findings);
    let config = br#"{"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1, "context_parallel_size": 1,
        "expert_model_parallel_size": 1, "moe_capacity": Infinity}"#;
    let report = structure(FileKind::ModelConfig, config);
    assert_eq!(report.facts.parallel.map(|p| p.tensor), Some(2));
}

/// The library of safetensors is written in Rust: null for no notes, strings in them, and JSON as the standard has it.
#[test]
fn notes_of_safetensors_are_strings_or_nothing() {
    for (notes, whole) in [
        ("null", true),
        ("{}", true),
        (r#"{"format":"pt"}"#, true),
        (r#"{"format":1}"#, false),
        (r#"["pt"]"#, false),
        (r#"{"format":NaN}"#, false),
    ] {
        let header = format!(r#"{{"__metadata__":{notes},"a":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#);
        let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), b"\x01"].concat();
        let report = structure(FileKind::Safetensors, &file);
        assert_eq!(
            report.verdict == Verdict::Whole,
            whole,
            "{notes}: {:?}",
            report.findings
        );
    }
}
