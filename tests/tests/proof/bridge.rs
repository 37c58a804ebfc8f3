//! Weights in safetensors have no checksums: what a run has recorded of them is compared by whoever takes them.

use super::SUPERVISE;
use super::stage::{Stage, copy, of, set_time, tick, time};
use camino::Utf8Path;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Command, Output};
use supervise_core::checkpoint::Depth;

fn supervise(stage: &Stage, words: &[&str]) -> Output {
    let mut command = Command::new(SUPERVISE);
    command.args(words).env_clear().env("HOME", stage.path("home"));
    command.output().unwrap()
}

#[track_caller]
fn ends(done: &Output, code: i32, words: &str) {
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    assert_eq!(done.status.code(), Some(code), "{said}");
    assert!(said.contains(words), "{said}");
}

#[test]
fn a_model_that_rotted_since_it_was_proven_is_not_taken() {
    let stage = Stage::new();
    let fixtures = Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    copy(&fixtures.join("verl_megatron_v2_hf"), &stage.root);
    let model = stage.step(2).join("actor/model/huggingface");
    let fsdp = fixtures.join("verl_ppo_fsdp2_w2");
    fs::remove_dir_all(&model).unwrap();
    let made = supervise(&stage, &["merge", fsdp.as_str(), "--target", model.as_str()]);
    ends(&made, 0, "tensors");
    tick();
    let report = stage.prove(Depth::Full);
    assert!(of(&report, 2).is_proven(Depth::Full), "{report:?}");

    let merge = |target: &str, options: &[&str]| {
        let target = stage.path(target);
        let words = [&["merge", stage.root.as_str(), "--target", target.as_str()], options];
        supervise(&stage, &words.concat())
    };
    ends(&merge("sound", &[]), 0, "read and found as they were saved");
    ends(
        &merge("cast", &["--dtype", "float32"]),
        0,
        "read and found as they were saved",
    );
    // A bit of a number, by nobody's hand: size and time are as they were.
    let weights = model.join("model.safetensors");
    let before = time(&weights);
    let file = fs::OpenOptions::new().read(true).write(true).open(&weights).unwrap();
    let at = file.metadata().unwrap().len() - 3;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
    set_time(&weights, before);
    ends(
        &merge("linked", &[]),
        21,
        "its bytes changed while its size and time did not",
    );
    ends(
        &merge("cast-again", &["--dtype", "float32"]),
        21,
        "do not fit their checksum",
    );
    assert!(!stage.path("linked").exists() && !stage.path("cast-again").exists());
    // Written anew by somebody: what is recorded is of another file.
    fs::write(&weights, fs::read(&weights).unwrap()).unwrap();
    ends(&merge("anew", &[]), 0, "no run has recorded");
}
