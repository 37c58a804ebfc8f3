//! Measures a step of very many files: how long a proof of it takes, and how long after its last file is closed an I/O worker
//! that watched the save knows that it is complete.
//!
//! usage: many_files SUPERVISE FOLDER [RANKS]
//!
//! Lays out two steps of `RANKS` times three shards (16384 by default) as verl's FSDP writes them, under FOLDER, which
//! must not exist, asks a real I/O worker, and prints one line of JSON. FOLDER is left to be deleted by the caller.

use camino::{Utf8Path, Utf8PathBuf};
use serde_json::{Value as Json, json};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use supervise_core::checkpoint::{CheckpointSummary, Depth, Verdict};
use supervise_host::io_worker::{IoAnswer, IoClient, IoQuestion};
use supervise_tests::bare_spec::bare;
use supervise_tests::torch_file::{Tensor, Value, dict, encode_as};

type Failure = Box<dyn std::error::Error>;

/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let ranks = args.get(2).map_or(Ok(16_384), |n| n.parse::<u32>());
    let (Some(exe), Some(folder), Ok(ranks)) = (args.first(), args.get(1), ranks) else {
        let _ = writeln!(std::io::stderr(), "usage: many_files SUPERVISE FOLDER [RANKS]");
        return ExitCode::from(64);
    };
    match measure(Path::new(exe), Utf8Path::new(folder), ranks) {
        Ok(result) => {
            let _ = writeln!(std::io::stdout(), "{result}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "many_files: {e}");
            ExitCode::FAILURE
        }
    }
}

fn measure(exe: &Path, folder: &Utf8Path, ranks: u32) -> Result<Json, Failure> {
    fs::create_dir(folder)?;
    let root = folder.canonicalize_utf8()?.join("checkpoints");
    let (first, second) = (Step::new(&root, 1, ranks), Step::new(&root, 2, ranks));
    let laid = Instant::now();
    first.begin()?;
    first.shards(0..ranks)?;
    first.finish()?;
    first.point()?;
    let laid = laid.elapsed();

    let mut io_worker = ScanWorker::start(exe, &root)?;
    let (proof, step) = io_worker.scan(true)?;
    let proof_cpu = io_worker.worked()?;
    let bytes = step.len();
    expect_whole(&step, 1)?;
    let (again, _) = io_worker.scan(true)?;
    let (quick, _) = io_worker.scan(false)?;
    io_worker.watch()?;
    io_worker.scan(false)?;

    // A save that the I/O worker watches: all but the last shard, then time to look into them.
    second.begin()?;
    second.shards(0..ranks - 1)?;
    second.finish()?;
    io_worker.rest()?;
    let begun = Instant::now();
    second.shards(ranks - 1..ranks)?;
    let by_file = io_worker.until_whole(begun)?;
    let begun = Instant::now();
    second.point()?;
    let by_pointer = io_worker.until_whole(begun)?;
    let memory = io_worker.memory()?;
    let before = io_worker.worked()?;
    io_worker.scan(false)?;
    let quick_cpu = io_worker.worked()? - before;
    let ended = Instant::now();
    io_worker.client.end(PATIENCE);
    let ended = ended.elapsed();

    // The next term: nothing was touched, nothing is read.
    let mut next = ScanWorker::start(exe, &root)?;
    let (recorded, step) = next.scan(true)?;
    let recorded_cpu = next.worked()?;
    expect_whole(&step, 2)?;
    let ms = |d: Duration| (d.as_secs_f64() * 1e5).round() / 100.0;
    Ok(json!({
        "name": "many_files", "ranks": ranks, "files": 3 * ranks + 3, "answer_bytes": bytes, "io_worker_mib": memory,
        "lay_out_ms": ms(laid), "proof_ms": ms(proof), "proof_again_ms": ms(again), "quick_look_ms": ms(quick),
        "complete_after_last_file_ms": ms(by_file), "complete_after_pointer_ms": ms(by_pointer),
        "write_records_ms": ms(ended), "proof_by_record_ms": ms(recorded),
        "proof_cpu_ms": proof_cpu, "quick_look_cpu_ms": quick_cpu, "proof_by_record_cpu_ms": recorded_cpu,
    }))
}

fn expect_whole(report: &str, step: u64) -> Result<(), Failure> {
    let steps: Vec<CheckpointSummary> = serde_json::from_str(report)?;
    match steps.first() {
        Some(c) if c.step.0 == step && c.is_proven(Depth::Structure) => Ok(()),
        Some(c) => Err(format!("{} is {}: {:?}", c.id, c.verdict, c.findings.first()).into()),
        None => Err("no step was found".into()),
    }
}

/// An I/O worker of the real program.
struct ScanWorker {
    client: IoClient,
}

impl ScanWorker {
    fn start(exe: &Path, root: &Utf8Path) -> Result<Self, Failure> {
        let mut client = IoClient::start(exe)?;
        client.ask(
            IoQuestion::Spec(Box::new(bare("many-files", root, &root.join(".supervise")))),
            PATIENCE,
        )?;
        Ok(Self { client })
    }

    fn watch(&mut self) -> Result<(), Failure> {
        self.client.ask(IoQuestion::Watch, PATIENCE)?;
        Ok(())
    }

    /// How long a scan takes, and its steps as they were told.
    fn scan(&mut self, thorough: bool) -> Result<(Duration, String), Failure> {
        let (depth, whole) = (Depth::Structure, 1);
        let began = Instant::now();
        match self.client.ask(IoQuestion::Scan { depth, whole, thorough }, PATIENCE)? {
            IoAnswer::Scan(report) => Ok((began.elapsed(), serde_json::to_string(&report.steps)?)),
            other => Err(format!("not an answer to a scan: {other:?}").into()),
        }
    }

    /// As the driver does: when something changed, ask.
    fn until_whole(&mut self, begun: Instant) -> Result<Duration, Failure> {
        while begun.elapsed() < PATIENCE {
            if !self.client.touched(PATIENCE)? {
                break;
            }
            let (_, report) = self.scan(false)?;
            let steps: Vec<CheckpointSummary> = serde_json::from_str(&report)?;
            let newest = steps.first().map(|c| (c.step.0, c.verdict, c.proven));
            if newest == Some((2, Verdict::Whole, Some(Depth::Structure))) {
                return Ok(begun.elapsed());
            }
        }
        Err("the I/O worker never said that the step is complete".into())
    }

    /// Waits until the I/O worker has nothing to do.
    fn rest(&mut self) -> Result<(), Failure> {
        loop {
            let before = self.worked()?;
            if !self.client.touched(Duration::from_millis(500))? && self.worked()? == before {
                return Ok(());
            }
        }
    }

    /// Processor time that the I/O worker has used, in milliseconds (of a clock that counts a hundred to the second).
    fn worked(&self) -> Result<u64, Failure> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.client.pid()))?;
        let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let times = after.split_whitespace().skip(11).take(2);
        Ok(times.filter_map(|t| t.parse::<u64>().ok()).sum::<u64>() * 10)
    }

    /// The most memory the I/O worker had, in MiB.
    fn memory(&self) -> Result<u64, Failure> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.client.pid()))?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        let kib = line.and_then(|l| l.trim().split(' ').next()?.parse::<u64>().ok());
        Ok(kib.unwrap_or(0) / 1024)
    }
}

/// A step directory.
struct Step {
    root: Utf8PathBuf,
    role: Utf8PathBuf,
    number: u64,
    ranks: u32,
}

impl Step {
    fn new(root: &Utf8Path, number: u64, ranks: u32) -> Self {
        Self {
            root: root.to_owned(),
            role: root.join(format!("global_step_{number}/actor")),
            number,
            ranks,
        }
    }

    fn begin(&self) -> Result<(), Failure> {
        Ok(fs::create_dir_all(self.role.join("huggingface"))?)
    }

    fn shards(&self, ranks: std::ops::Range<u32>) -> Result<(), Failure> {
        for rank in ranks {
            for (part, value) in [
                ("model", weights(rank)),
                ("optim", optimizer(rank, self.number)),
                ("extra_state", extra()),
            ] {
                let stem = format!("{part}_world_size_{}_rank_{rank}", self.ranks);
                fs::write(self.role.join(format!("{stem}.pt")), encode_as(&value, &stem))?;
            }
        }
        Ok(())
    }

    /// Files that rank 0 writes after its shards, and the dataloader's state.
    fn finish(&self) -> Result<(), Failure> {
        let config = json!({ "FSDP_version": 1, "world_size": self.ranks });
        fs::write(self.role.join("huggingface/config.json"), r#"{"model_type": "none"}"#)?;
        fs::write(self.role.join("fsdp_config.json"), config.to_string())?;
        let data = dict([("_snapshot", dict([("_snapshot_step", Value::Int(self.number as i64))]))]);
        Ok(fs::write(
            self.root.join(format!("global_step_{}/data.pt", self.number)),
            encode_as(&data, "data"),
        )?)
    }

    fn point(&self) -> Result<(), Failure> {
        Ok(fs::write(
            self.root.join("latest_checkpointed_iteration.txt"),
            self.number.to_string(),
        )?)
    }
}

fn weights(rank: u32) -> Value {
    Value::Ordered(vec![(
        Value::Str("weight".into()),
        Tensor::floats(&[rank as f32, 0.5, 0.25, 1.0]),
    )])
}

fn optimizer(rank: u32, step: u64) -> Value {
    let state = dict([
        ("step", Tensor::scalar(step as f32)),
        ("exp_avg", Tensor::floats(&[rank as f32, 0.5, 0.25, 1.0])),
        ("exp_avg_sq", Tensor::floats(&[0.5; 4])),
    ]);
    let group = dict([("lr", Value::Float(1e-3)), ("params", Value::List(vec![Value::Int(0)]))]);
    dict([
        ("state", Value::Dict(vec![(Value::Int(0), state)])),
        ("param_groups", Value::List(vec![group])),
    ])
}

fn extra() -> Value {
    dict([
        ("lr_scheduler", dict([("last_epoch", Value::Int(1))])),
        ("rng", dict([("cpu", Tensor::bytes(&[7; 5056]))])),
    ])
}
