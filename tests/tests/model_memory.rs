//! Memory of the whole program over files that are made to take much: what it ever had, as the system counts it.
//!
//! The peak of all programs that a test process started is one number, so each test here has the same bound, and this process itself stays small.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use camino::{Utf8Path, Utf8PathBuf};
use nix::sys::resource::{UsageWho, getrusage};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::process::{Command, Stdio};

/// `proof.memory`, as it is where nobody sets it.
const ALLOWED: i64 = 256 << 20;
/// The program itself, with its code, which a debug build has 50 MiB of, and its threads.
const PROGRAM: i64 = 64 << 20;

struct World {
    _keep: tempfile::TempDir,
    dir: Utf8PathBuf,
}

impl World {
    fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let dir = Utf8PathBuf::from_path_buf(keep.path().canonicalize().unwrap()).unwrap();
        let from = Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/verl_ppo_fsdp2_w2");
        copy(&from, &dir.join("ppo"));
        Self { _keep: keep, dir }
    }

    /// Runs the program; gives its exit code and what it said.
    fn run(&self, args: &[&str]) -> (i32, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_supervise"))
            .args(args)
            .current_dir(&self.dir)
            .env_clear()
            .env("HOME", self.dir.join("home"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.code().unwrap_or(-1),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }

    /// Writes a file of pieces that are alike.
    fn write(&self, name: &str, begin: &str, piece: &mut dyn FnMut(u64) -> String, count: u64, end: &str) {
        let mut file = BufWriter::new(File::create(self.dir.join(name)).unwrap());
        file.write_all(begin.as_bytes()).unwrap();
        for n in 0..count {
            file.write_all(piece(n).as_bytes()).unwrap();
        }
        file.write_all(end.as_bytes()).unwrap();
        file.flush().unwrap();
    }
}

fn copy(from: &Utf8Path, to: &Utf8Path) {
    fs::create_dir_all(to).unwrap();
    for entry in from.read_dir_utf8().unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(entry.path(), &target),
            false => drop(fs::copy(entry.path(), &target).unwrap()),
        }
    }
}

/// The most that any program took that was started here.
#[track_caller]
fn within(what: &str) {
    let peak = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss() * 1024;
    assert!(peak > 4 << 20, "{what}: nothing was measured");
    assert!(
        peak <= ALLOWED + PROGRAM,
        "{what}: {} MiB, and {} are allowed",
        peak >> 20,
        (ALLOWED + PROGRAM) >> 20
    );
}

/// Values that take many times their bytes in memory.
const SHAPES: [&str; 4] = ["0,", "[[0],[0]],", "{\"a\":0},", "\"\","];

#[test]
fn a_model_configuration_of_any_size_takes_what_is_allowed() {
    let world = World::new();
    let huggingface = "ppo/global_step_2/actor/huggingface";
    let before = fs::read_to_string(world.dir.join(huggingface).join("config.json")).unwrap();
    let begin = format!("{}, \"more\": [", before.trim_end().trim_end_matches('}').trim_end());
    let role = "ppo/global_step_2/actor";
    for bytes in [1_u64 << 20, 60 << 20, 210 << 20] {
        for shape in SHAPES {
            let block = shape.repeat(1000);
            let count = bytes / block.len() as u64;
            let name = format!("{huggingface}/config.json");
            world.write(&name, &begin, &mut |_| block.clone(), count, "0]}");
            let (code, said) = world.run(&["merge", role, "--target", "model"]);
            assert!(!said.contains("panicked"), "{said}");
            assert_eq!(code == 0, bytes < 2 << 20, "{bytes} of {shape}: {said}");
            assert!(code == 0 || said.contains("config.json"), "{said}");
            within(&format!("merge, {bytes} of {shape}"));
            let _ = fs::remove_dir_all(world.dir.join("model"));
        }
    }
    for name in ["lora_train_meta.json", "adapter_config.json"] {
        fs::write(world.dir.join(huggingface).join("config.json"), &before).unwrap();
        let block = "[0],".repeat(1000);
        let name = format!("{role}/{name}");
        world.write(
            &name,
            "{\"peft_type\": \"LORA\", \"more\": [",
            &mut |_| block.clone(),
            15_000,
            "0]}",
        );
        world.run(&["merge", role, "--target", "model"]);
        world.run(&["merge", role, "--fold-lora", "--target", "folded"]);
        within(&name);
        fs::remove_file(world.dir.join(&name)).unwrap();
        let _ = fs::remove_dir_all(world.dir.join("model"));
    }
}

#[test]
fn other_files_beside_a_model_are_copied_in_pieces() {
    let world = World::new();
    let block = "a word and another one\n".repeat(1000);
    let name = "ppo/global_step_2/actor/huggingface/merges.txt";
    world.write(name, "", &mut |_| block.clone(), 9_000, "");
    let (code, said) = world.run(&["merge", "ppo/global_step_2/actor", "--target", "model"]);
    assert_eq!(code, 0, "{said}");
    let made = fs::metadata(world.dir.join("model/merges.txt")).unwrap();
    assert_eq!(made.len(), 9_000 * block.len() as u64);
    within("207 MB of merges.txt");
}

#[test]
fn a_header_of_very_many_tensors_takes_what_is_allowed() {
    let world = World::new();
    let tensor = |n: u64| {
        format!(
            "\"t{n}\":{{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[{},{}]}}",
            4 * n,
            4 * n + 4
        )
    };
    for count in [1000_u64, 400_000, 1_000_000, 1_400_000] {
        fs::create_dir_all(world.dir.join("model")).unwrap();
        let name = "model/model.safetensors";
        let join = |n: u64| if n == 0 { tensor(n) } else { format!(",{}", tensor(n)) };
        let length: u64 = 2 + (0..count).map(|n| join(n).len() as u64).sum::<u64>();
        world.write(name, "", &mut |_| String::new(), 0, "");
        let mut file = BufWriter::new(File::create(world.dir.join(name)).unwrap());
        file.write_all(&length.to_le_bytes()).unwrap();
        file.write_all(b"{").unwrap();
        (0..count).for_each(|n| file.write_all(join(n).as_bytes()).unwrap());
        file.write_all(b"}").unwrap();
        (0..count).for_each(|n| file.write_all(&(n as f32).to_le_bytes()).unwrap());
        drop(file);
        for depth in ["structure", "full"] {
            let (code, said) = world.run(&["verify", name, "--depth", depth]);
            let wanted = if count < 100_000 { 0 } else { code };
            assert_eq!(code, wanted, "{count}: {said}");
            assert!(matches!(code, 0 | 24), "{count}: {said}");
            assert!(code == 0 || said.contains("proof.memory"), "{count}: {said}");
            within(&format!("{count} tensors, {depth}"));
        }
    }
    // Notes that are read and dropped.
    let mut file = BufWriter::new(File::create(world.dir.join("model/model.safetensors")).unwrap());
    let block = "\"\":\"\",".repeat(1000);
    let length = block.len() as u64 * 13_000 + "{\"__metadata__\":{\"\":\"\"}}".len() as u64;
    file.write_all(&length.to_le_bytes()).unwrap();
    file.write_all(b"{\"__metadata__\":{").unwrap();
    (0..13_000).for_each(|_| file.write_all(block.as_bytes()).unwrap());
    file.write_all(b"\"\":\"\"}}").unwrap();
    drop(file);
    world.run(&["verify", "model/model.safetensors"]);
    within("78 MB of notes");
}

#[test]
fn an_index_of_very_many_tensors_takes_what_is_allowed() {
    let world = World::new();
    fs::create_dir_all(world.dir.join("model")).unwrap();
    let name = "model/model.safetensors.index.json";
    for count in [300_000_u64, 3_000_000] {
        let mut pair = |n: u64| format!("\"t{n}\":\"a\",");
        world.write(name, "{\"weight_map\":{", &mut pair, count, "\"x\":\"a\"}}");
        for args in [
            &["verify", name][..],
            &["verify", "model"],
            &["convert", "hf-to-megatron", "model", "--target", "megatron"],
        ] {
            let (_, said) = world.run(args);
            assert!(!said.contains("panicked"), "{said}");
            within(&format!("{count} pairs, {args:?}"));
        }
    }
}
