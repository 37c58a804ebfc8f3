//! Files that AReaL writes at a save, in its order and in place: the engines' state, then what is kept of the run.
//!
//! Two ranks of one engine (or of several), each with a tensor of weights and Adam's state for it, as
//! `torch.distributed.checkpoint` lays them out. A save can be cut short after any of its operations, as a kill does it.

mod table;

use crate::torch_file::{Tensor, Value, dict, encode};
use serde_json::json;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use table::{Part, table};

/// Form of a save.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Engines: `default`, `critic`.
    pub engines: Vec<&'static str>,
    /// Ranks of each.
    pub ranks: u32,
    /// Processes that write their place in the data.
    pub data_ranks: u32,
    /// Steps of an epoch.
    pub epoch: u64,
    /// Numbers in each rank's weights.
    pub numbers: usize,
    /// Ranks, the first ones, whose shards count no updates: torch writes what all ranks have in one of them only.
    pub silent: u32,
    /// The id of the saving process: two saves of one step by two processes have other names, as torch draws one for each.
    pub by: u32,
    /// As newer builds write: each save in a directory of its own, named by `LATEST` when it is all there, and the one before deleted.
    pub own: bool,
    /// Batches that were given out at each save, where that does not go by steps: to rollouts, which run ahead.
    pub given: Option<u64>,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            engines: vec!["default"],
            ranks: 2,
            data_ranks: 2,
            epoch: 1000,
            numbers: 64,
            silent: 0,
            by: 0,
            own: false,
            given: None,
        }
    }
}

/// One operation on the disk.
enum Op {
    /// Truncates the file and writes it: the inode stays.
    Overwrite(PathBuf, Vec<u8>),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
    RemoveTree(PathBuf),
}

/// Saves `step` (steps that were trained: AReaL's `global_step` is one less) below `root`.
///
/// # Errors
/// The disk's.
pub fn save(root: &Path, step: u64, shape: &Shape) -> io::Result<()> {
    save_until(root, step, shape, usize::MAX).map(|_| ())
}

/// The same, cut short after so many operations; answers how many a whole save has.
///
/// # Errors
/// The disk's.
pub fn save_until(root: &Path, step: u64, shape: &Shape, until: usize) -> io::Result<usize> {
    let ops = operations(root, step, shape);
    for op in ops.iter().take(until) {
        perform(op)?;
    }
    Ok(ops.len())
}

/// The step whose weights stand below `root`: that of rank 0, as a loader that asks for nothing more takes it.
///
/// # Errors
/// A file is missing, or is no archive.
pub fn weights_of(root: &Path) -> io::Result<u64> {
    let dir = match named(root) {
        Some(generation) => generation.join("payloads/default"),
        None => root.join("default/recover_checkpoint"),
    };
    fs::metadata(dir.join(".metadata"))?;
    let name = "__0_0.distcp";
    let bytes = fs::read(dir.join(name))?;
    for step in 1..10_000 {
        let (whole, _) = shard(0, step, &Shape::default(), name);
        if whole == bytes {
            return Ok(step);
        }
    }
    Err(io::Error::other("it holds no weights that were ever saved"))
}

/// The generation that `LATEST` names, where there is one.
#[must_use]
pub fn named(root: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(root.join("LATEST")).ok()?;
    let pointer: serde_json::Value = serde_json::from_str(&text).ok()?;
    Some(
        root.join("checkpoint_generations")
            .join(pointer["generation"].as_str()?),
    )
}

fn perform(op: &Op) -> io::Result<()> {
    match op {
        Op::Overwrite(path, bytes) => {
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
            let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
            file.write_all(bytes)
        }
        Op::Remove(path) => match fs::remove_file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        },
        Op::Rename(from, to) => fs::rename(from, to),
        Op::RemoveTree(path) => match fs::remove_dir_all(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        },
    }
}

fn operations(root: &Path, step: u64, shape: &Shape) -> Vec<Op> {
    if shape.own {
        return beside(root, step, shape);
    }
    let mut out = Vec::new();
    for engine in &shape.engines {
        let dir = root.join(engine).join("recover_checkpoint");
        state(&mut out, &dir, engine, step, shape);
    }
    info(&mut out, &root.join("recover_info"), step, shape);
    out
}

/// The run's own files come first here; what counts is the pointer, which comes last.
fn beside(root: &Path, step: u64, shape: &Shape) -> Vec<Op> {
    let name = format!("generation_step{:08}", step.saturating_sub(1));
    let generation = root.join("checkpoint_generations").join(&name);
    let mut out = vec![Op::RemoveTree(generation.clone())];
    info(&mut out, &generation.join("manifest"), step, shape);
    for engine in &shape.engines {
        state(&mut out, &generation.join("payloads").join(engine), engine, step, shape);
    }
    let pointer = json!({
        "format_version": 1, "generation": name, "global_step": step.saturating_sub(1), "engines": shape.engines,
    });
    let (tmp, latest) = (root.join(".LATEST.new"), root.join("LATEST"));
    out.push(Op::Overwrite(tmp.clone(), format!("{pointer:#}").into_bytes()));
    out.push(Op::Rename(tmp, latest));
    out.extend(named(root).filter(|old| *old != generation).map(Op::RemoveTree));
    out
}

fn state(out: &mut Vec<Op>, dir: &Path, engine: &str, step: u64, shape: &Shape) {
    let mut parts = Vec::new();
    for rank in 0..shape.ranks {
        let name = format!("__{rank}_0.distcp");
        let (bytes, mut more) = shard(rank, step, shape, &name);
        parts.append(&mut more);
        // Truncated first, then written: a kill between the two leaves nothing of it.
        out.push(Op::Overwrite(dir.join(&name), Vec::new()));
        out.push(Op::Overwrite(dir.join(&name), bytes));
    }
    let drawn = step
        .wrapping_add(u64::from(shape.by) << 32)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let save_id = format!("{engine}-{step}-{drawn:016x}");
    let (tmp, done) = (dir.join(".metadata.tmp"), dir.join(".metadata"));
    out.push(Op::Overwrite(tmp.clone(), table(&parts, &save_id)));
    out.push(Op::Remove(done.clone()));
    out.push(Op::Rename(tmp, done));
}

fn info(out: &mut Vec<Op>, dir: &Path, step: u64, shape: &Shape) {
    let files = infos(step, shape).into_iter();
    out.extend(files.map(|(name, bytes)| Op::Overwrite(dir.join(name), bytes)));
}

/// One rank's file and what stands in it.
fn shard(rank: u32, step: u64, shape: &Shape, name: &str) -> (Vec<u8>, Vec<Part>) {
    let seed = step.wrapping_mul(31).wrapping_add(u64::from(rank));
    let floats: Vec<f32> = (0..shape.numbers as u64)
        .map(|n| (n.wrapping_add(seed).wrapping_mul(0x9E37_79B9) % 1000) as f32 + 1.0)
        .collect();
    let owner = format!("w{rank}");
    let len = floats.len() as i64;
    let tensors = [
        (format!("dcp.model.{owner}"), Tensor::floats(&floats), vec![len]),
        (
            format!("dcp.optim.state.{owner}.exp_avg"),
            Tensor::floats(&floats),
            vec![len],
        ),
        (
            format!("dcp.optim.state.{owner}.step"),
            Tensor::scalar(step as f32),
            Vec::new(),
        ),
    ];
    let (mut bytes, mut parts) = (Vec::new(), Vec::new());
    let counted = if rank < shape.silent { 2 } else { 3 };
    for (fqn, value, shape) in tensors.into_iter().take(counted) {
        let slice = encode(&value);
        parts.push(Part {
            fqn,
            shape,
            file: name.to_owned(),
            offset: bytes.len() as i64,
            length: slice.len() as i64,
        });
        bytes.extend(slice);
    }
    (bytes, parts)
}

/// The run's own files, in the order they are written.
fn infos(step: u64, shape: &Shape) -> Vec<(&'static str, Vec<u8>)> {
    let global = step.saturating_sub(1);
    // As AReaL counts: what acts never keeps the steps since its beginning, what was never asked knows no interval.
    let counter = |every: Option<u64>, steps: u64| {
        let (last, interval) = every.map_or((0, steps), |every| (steps, every));
        json!({
            "frequence_seconds": null, "frequency_steps": every, "start_time": 1.0e9, "steps": steps, "last_time": 1.0e9,
            "last_steps": last, "interval_steps": (steps > 0).then_some(interval),
            "interval_seconds": (steps > 0).then_some(0.5), "initial_value": false,
        })
    };
    let frequency = |steps: u64| json!({ "epoch": counter(None, steps / shape.epoch), "step": counter(Some(1), steps), "time": counter(None, steps) });
    let text = |value: serde_json::Value| format!("{value:#}").into_bytes();
    let batches = Value::Int(shape.given.unwrap_or(global % shape.epoch + 1) as i64);
    let place = dict([
        ("_index_sampler_state", Value::None),
        ("_sampler_iter_state", Value::None),
        ("_sampler_iter_yielded", batches.clone()),
        ("_num_yielded", batches),
        ("_IterableDataset_len_called", Value::None),
        ("_shared_seed", Value::None),
        ("fetcher_state", Value::None),
        ("dataset_state", Value::None),
        ("_iterator_finished", Value::Bool(false)),
    ]);
    let places = Value::List(vec![place; shape.data_ranks as usize]);
    vec![
        (
            "step_info.json",
            text(json!({
                "epoch": global / shape.epoch, "epoch_step": global % shape.epoch, "global_step": global,
                "steps_per_epoch": shape.epoch,
            })),
        ),
        ("saver_info.json", text(frequency(step))),
        ("evaluator_info.json", text(frequency(0))),
        (
            "stats_logger_info.json",
            text(json!({ "last_commit_step": step as i64 - 2 })),
        ),
        ("checkpoint_info.json", text(frequency(step))),
        ("dataloader_info.pkl", crate::torch_file::pickled(&places)),
    ]
}
