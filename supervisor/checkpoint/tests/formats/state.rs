//! Files of state and configuration without a checksum: what a changed byte leaves that can be told.

use crate::build::{codes, full};
use supervise_checkpoint::{FileKind, FileReport};
use supervise_core::checkpoint::{Depth, Verdict};

const TRIAL: &str = "areal_sft_w2/checkpoints/trainer/real/t0";
const EXPORT: &str = "verl_ppo_fsdp2_w2/global_step_1/actor/huggingface";

#[expect(clippy::disallowed_methods, reason = "tests bring the bytes")]
fn fixture(path: &str) -> Vec<u8> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures");
    std::fs::read(format!("{root}/{path}")).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn look(path: &str, bytes: &[u8]) -> FileReport {
    full(FileKind::of(path), bytes)
}

/// The file with one piece of it replaced by another of the same length.
fn with(path: &str, from: &str, to: &str) -> FileReport {
    let mut bytes = fixture(path);
    assert_eq!(from.len(), to.len());
    let at = bytes.windows(from.len()).position(|w| w == from.as_bytes());
    let at = at.unwrap_or_else(|| panic!("{path} has no {from}"));
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    look(path, &bytes)
}

/// The share of single changed bits that is caught, in percent.
fn rate(path: &str) -> usize {
    let bytes = fixture(path);
    let mut caught = 0;
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 7);
        caught += usize::from(look(path, &changed).verdict != Verdict::Whole);
    }
    100 * caught / bytes.len()
}

#[test]
fn what_was_written_is_whole() {
    for file in [
        "config.json",
        "generation_config.json",
        "tokenizer_config.json",
        "tokenizer.json",
    ] {
        let path = format!("{EXPORT}/{file}");
        let report = look(&path, &fixture(&path));
        assert_eq!(
            (report.verdict, report.proven),
            (Verdict::Whole, Depth::Full),
            "{path}: {:?}",
            report.findings
        );
    }
    // A model that is not known here.
    let strange =
        br#"{"model_type": "x", "architectures": ["MyModel"], "n_wheels": 4, "hidden_act": "mine", "vocab_size": null,
        "hidden_size": [8, 16], "time_step_limit": [0.0, Infinity], "eot_token_id": 7, "use_cache": true}"#;
    assert_eq!(codes(&look("config.json", strange)), [""; 0]);
    // verl gives its critic a dropout in words.
    let critic = br#"{"model_type": "qwen2", "hidden_size": 8, "hidden_dropout": "0", "classifier_dropout": 0.0}"#;
    assert_eq!(codes(&look("config.json", critic)), [""; 0]);
    let torn = br#"{"model_type": "qwen2", "hidden_size": 8, "hidden_dropout": "p", "classifier_dropout": 0.0}"#;
    assert_eq!(look("config.json", torn).verdict, Verdict::Damaged);
    assert_eq!(
        look("config.json", br#"{"_class_name": "UNet", "sample_size": 64}"#).verdict,
        Verdict::Whole
    );
}

#[test]
fn a_key_or_word_with_a_changed_byte_is_told() {
    let config = format!("{EXPORT}/config.json");
    for (from, to) in [
        ("hidden_size", "hidden_sizf"),
        ("model_type", "model_tyPe"),
        ("rope_theta", "rope_thet!"),
        ("\"silu\"", "\"sixu\""),
        ("\"float32\"", "\"float72\""),
        ("\"5.9.0\"", "\"5.9x0\""),
        ("1e-06", "1e-86"),
        ("0.02", "-.02"),
        ("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"),
        ("Qwen2ForCausalLM", "Qwan2ForCausalLM"),
        ("full_attention", "fulm_attention"),
    ] {
        let report = with(&config, from, to);
        assert_eq!(report.verdict, Verdict::Damaged, "{from} → {to}: {:?}", report.findings);
    }
}

#[test]
fn a_torn_tokenizer_or_configuration_is_told() {
    for file in [
        "tokenizer.json",
        "generation_config.json",
        "tokenizer_config.json",
        "config.json",
    ] {
        let path = format!("{EXPORT}/{file}");
        let bytes = fixture(&path);
        assert_eq!(
            codes(&look(&path, &bytes[..bytes.len() / 2])),
            ["json_truncated"],
            "{path}"
        );
        assert_eq!(codes(&look(&path, b"")), ["empty_file"], "{path}");
        assert_eq!(codes(&look(&path, &vec![0; bytes.len()])), ["zero_filled"], "{path}");
    }
    let tokenizer = format!("{EXPORT}/tokenizer.json");
    assert_eq!(with(&tokenizer, "\"model\":", "\"modem\":").verdict, Verdict::Damaged);
}

#[test]
fn the_place_in_the_data_is_what_a_loader_writes() {
    let path = format!("{TRIAL}/recover_info/dataloader_info.pkl");
    for (from, to) in [
        ("_num_yielded", "_num_yieldee"),
        ("samples_yielded", "samples_yieldgd"),
        ("_shared_seed", "_shared_sffd"),
        ("_iterator_finished", "_iterator-finished"),
    ] {
        let report = with(&path, from, to);
        assert_eq!(codes(&report), ["loader_state"], "{from} → {to}");
    }
    // A loader of another kind is nobody's business here.
    assert_eq!(
        look(&path, b"\x80\x04}\x94\x8c\x01a\x94K\x01s.").verdict,
        Verdict::Whole
    );
}

#[test]
fn counters_of_saves_follow_from_each_other() {
    let path = format!("{TRIAL}/recover_info/checkpoint_info.json");
    for (from, to) in [
        ("\"steps\": 3", "\"steps\": 7"),
        ("\"last_steps\": 3", "\"last_steps\": 9"),
        ("\"interval_steps\": 3", "\"interval_steps\": 2"),
        ("\"start_time\": 1795", "\"start_time\": 9795"),
    ] {
        let report = with(&path, from, to);
        assert_eq!(codes(&report), ["json_content"], "{from} → {to}: {:?}", report.findings);
    }
    let stats = format!("{TRIAL}/recover_info/stats_logger_info.json");
    assert_eq!(codes(&with(&stats, "_step\": 1", "_step\": -")), ["json_broken"]);
    assert_eq!(codes(&look(&stats, br#"{"last_commit_step": -7}"#)), ["json_content"]);
}

#[test]
fn most_changed_bits_of_state_are_caught() {
    for (path, least) in [
        (format!("{TRIAL}/recover_info/dataloader_info.pkl"), 90),
        (format!("{TRIAL}/recover_info/checkpoint_info.json"), 93),
        (format!("{TRIAL}/recover_info/step_info.json"), 97),
        ("verl_ppo_fsdp2_w2/global_step_1/actor/fsdp_config.json".to_owned(), 95),
        (format!("{EXPORT}/config.json"), 90),
        (format!("{EXPORT}/generation_config.json"), 85),
        (format!("{EXPORT}/tokenizer_config.json"), 80),
        (format!("{EXPORT}/tokenizer.json"), 96),
        (
            "verl_megatron_v2_tp2/global_step_1/actor/transformer_config.json".to_owned(),
            96,
        ),
    ] {
        let caught = rate(&path);
        assert!(
            caught >= least,
            "{path}: {caught} % of changed bits are caught, {least} % at least"
        );
    }
}

/// References between the parts of a tokenizer, and those that lead nowhere.
#[test]
fn a_tokenizer_that_contradicts_itself_is_told() {
    let path = format!("{EXPORT}/tokenizer.json");
    for (from, to) in [
        ("\"What\": 45", "\"What\": 47"),
        ("\"What\": 45", "\"Whaf\": 45"),
        ("\"content\": \"<|im_end|>\"", "\"content\": \"<|im_enk|>\""),
        ("\"single_word\"", "\"single_wood\""),
        ("\"TemplateProcessing\"", "\"TemplateProcassing\""),
        ("\"ByteLevel\"", "\"ByteLavel\""),
        ("\"Isolated\"", "\"Isonated\""),
        ("\"trim_offsets\"", "\"trim_offzets\""),
        ("\"merges\"", "\"merggs\""),
        ("\"BPE\"", "\"BQE\""),
    ] {
        let report = with(&path, from, to);
        assert_eq!(report.verdict, Verdict::Damaged, "{from} → {to}: {:?}", report.findings);
    }
    let vocab = |text: &str| {
        look(
            "tokenizer.json",
            format!("{{\"version\": \"1.0\", \"model\": {{{text}}}}}").as_bytes(),
        )
        .verdict
    };
    // Words may be taken out, and merges be written as text.
    for whole in [
        r#""type": "BPE", "vocab": {"a": 0, "b": 5, "ab": 6}, "merges": ["a b"]"#,
        r#""type": "BPE", "vocab": {"a": 3, "b": 0, "ab": 9}, "merges": [["a", "b"]]"#,
        r###""type": "BPE", "continuing_subword_prefix": "##", "vocab": {"a": 0, "##b": 1, "ab": 2}, "merges": ["a ##b"]"###,
        r#""type": "WordLevel", "vocab": {}, "unk_token": "x""#,
        r#""type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0], ["b", -1.5]]"#,
        r#""type": "Mine", "words": 7"#,
    ] {
        assert_eq!(vocab(whole), Verdict::Whole, "{whole}");
    }
    for damaged in [
        r#""type": "BPE", "vocab": {"a": 0, "b": 1, "ac": 2}, "merges": ["a b"]"#,
        r#""type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "c"]]"#,
        r#""type": "BPE", "vocab": {"a": 0, "b": 1, "b": 2}, "merges": []"#,
        r#""type": "WordLevel", "vocab": {"a": 0, "b": 7, "c": 2}"#,
        r#""type": "WordLevel", "vocab": {"a": 0, "b": -1, "c": 2}"#,
    ] {
        assert_eq!(vocab(damaged), Verdict::Damaged, "{damaged}");
    }
}

#[test]
fn what_megatron_writes_of_a_model_is_known() {
    let path = "verl_megatron_v2_tp2/global_step_1/actor/transformer_config.json";
    assert_eq!(look(path, &fixture(path)).verdict, Verdict::Whole);
    for (from, to) in [
        ("grad_scale_func", "grad_scalE_func"),
        ("moe_grouped_gemm", "moe_grouped_gemy"),
        ("mtp_standalone", "mtp_st-ndalone"),
        ("\"most_recent\"", "\"most_rexent\""),
    ] {
        let report = with(path, from, to);
        assert_eq!(report.verdict, Verdict::Damaged, "{from} → {to}: {:?}", report.findings);
    }
    // A later release has more fields, and a person may write 1 for true.
    let mut text = String::from_utf8(fixture(path)).unwrap();
    text = text.replacen('{', "{\"a_field_of_tomorrow\": [1], \"bf16_too\": true,", 1);
    text = text.replace("\"moe_grouped_gemm\": false", "\"moe_grouped_gemm\": 1");
    assert_eq!(look(path, text.as_bytes()).verdict, Verdict::Whole);
}
