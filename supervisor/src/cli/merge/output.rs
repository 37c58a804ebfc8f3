//! The directory that is made: written beside, looked at as any reader would, renamed.

use super::files::{AdapterOut, Beside};
use crate::cli::model::Model;
use crate::cli::new_dir::{self, Opened};
use crate::error::CliError;
use crate::printer::Meter;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use supervise_checkpoint::SweepOptions;
use supervise_checkpoint::set::{self, SetKind};
use supervise_core::checkpoint::{Depth, Verdict};
use supervise_host::io_worker::{FileProver, read_small};
use supervise_host::output_dir::OutputDir;
use supervise_weights::hf::Plan;
use supervise_weights::layout;
use supervise_weights::{OutFile, OutTensor, Problem, Reading};

/// Directory of the adapter, as verl names it.
const ADAPTER: &str = "lora_adapter";

/// The result.
pub(super) struct Written {
    pub(super) files: Vec<String>,
    /// Bytes of weights.
    pub(super) bytes: u64,
    /// Bytes of the source that were compared with their checksums.
    pub(super) checked: u64,
    pub(super) took: Duration,
}

/// Writes everything and gives it its name.
pub(super) fn write(
    target: &Utf8Path,
    most: u64,
    model: &Model,
    plan: &Plan,
    adapter: Option<AdapterOut>,
    files: &Beside,
) -> Result<Written, CliError> {
    let began = Instant::now();
    let mut all = plan.model.clone();
    let mut out = layout::files(&all, "model", most);
    let index = layout::index(&out, &all);
    if let Some(adapter) = &adapter {
        add_adapter(&mut all, &mut out, &adapter.tensors);
    }
    let bytes = out.iter().map(|f| f.bytes).sum();
    let dir = new_dir::begin(target, bytes)?;
    let made = Made {
        dir: &dir,
        tensors: &all,
        files: &out,
    };
    let config = match plan.critic {
        true => files.config.of_critic(),
        false => files.config.clone(),
    };
    let small = Small {
        config: config.with_dtype(plan.dtype()),
        files,
        index,
        adapter: adapter.map(|a| a.config),
    };
    match made.fill(model, &small) {
        Ok((names, checked)) => {
            dir.finish()
                .map_err(|e| CliError::environment(format!("{}: {e}", target)))?;
            Ok(Written {
                files: names,
                bytes,
                checked,
                took: began.elapsed(),
            })
        }
        Err(e) => {
            dir.abandon();
            Err(e)
        }
    }
}

/// The adapter's tensors are written in the same pass, into a directory of their own.
fn add_adapter(all: &mut Vec<OutTensor>, out: &mut Vec<OutFile>, tensors: &[OutTensor]) {
    let first = all.len();
    for mut file in layout::files(tensors, "adapter_model", u64::MAX) {
        file.name = format!("{ADAPTER}/{}", file.name);
        for (n, _) in &mut file.tensors {
            *n += first;
        }
        out.push(file);
    }
    all.extend_from_slice(tensors);
}

/// Files beside the weights.
struct Small<'a> {
    config: String,
    files: &'a Beside,
    index: Option<String>,
    adapter: Option<String>,
}

/// A directory that is being filled.
struct Made<'a> {
    dir: &'a OutputDir,
    tensors: &'a [OutTensor],
    files: &'a [OutFile],
}

impl Made<'_> {
    /// Gives the names of all files, and how many bytes of the source were compared.
    fn fill(&self, model: &Model, small: &Small<'_>) -> Result<(Vec<String>, u64), CliError> {
        let opened = Opened::create(self.dir, self.files.iter().map(|f| (f.name.as_str(), f.bytes)))?;
        let total: u64 = self.files.iter().map(|f| f.bytes).sum();
        let mut meter = Meter::of_writing();
        let threads = new_dir::threads();
        let reading = Reading::new(&model.weights, &model.sources);
        let checked = supervise_weights::write(reading, self.tensors, self.files, &opened, threads, &mut |done| {
            meter.tell(done, Some(total));
            ControlFlow::Continue(())
        });
        meter.end();
        let source = |problem: Problem| CliError::checkpoint(problem.verdict, problem.text);
        let checked = checked.map_err(|e| new_dir::ended(self.dir, e, source))?;
        let small = self.small(small)?;
        opened.finish(self.dir)?;
        self.judge()?;
        let names = self.files.iter().map(|f| f.name.clone());
        Ok((names.chain(small).collect(), checked))
    }

    fn small(&self, small: &Small<'_>) -> Result<Vec<String>, CliError> {
        let mut names = Vec::new();
        let mut put = |name: &str, bytes: &[u8]| {
            names.push(name.to_owned());
            self.dir.write(name, bytes).map_err(|e| self.failed(&e))
        };
        put("config.json", small.config.as_bytes())?;
        if let Some(index) = &small.index {
            put("model.safetensors.index.json", index.as_bytes())?;
        }
        if let Some(config) = &small.adapter {
            put(&format!("{ADAPTER}/adapter_config.json"), config.as_bytes())?;
        }
        for (name, path) in &small.files.others {
            let bytes = read_small(path, u64::MAX).map_err(|e| CliError::environment(format!("{path}: {e}")))?;
            put(name, &bytes)?;
        }
        Ok(names)
    }

    /// Looks at the weights as any reader would: headers, sizes, the index.
    fn judge(&self) -> Result<(), CliError> {
        let of = |file: &OutFile| {
            Utf8Path::new(&file.name)
                .parent()
                .map(|below| self.dir.path().join(below))
        };
        let dirs: BTreeSet<Utf8PathBuf> = self.files.iter().filter_map(of).collect();
        dirs.iter().try_for_each(|dir| self.judge_in(dir))
    }

    fn judge_in(&self, dir: &Utf8Path) -> Result<(), CliError> {
        let names: BTreeMap<String, u64> = dir
            .read_dir_utf8()
            .and_then(|entries| {
                let size = |e: io::Result<camino::Utf8DirEntry>| {
                    let e = e?;
                    Ok((e.file_name().to_owned(), e.metadata()?.len()))
                };
                entries.map(size).collect()
            })
            .map_err(|e| self.failed(&e))?;
        let needs = set::needs(SetKind::Weights, names.keys().map(String::as_str));
        let options = SweepOptions {
            zero: false,
            finite: false,
        };
        let reports = FileProver::new(dir)
            .prove(&needs, Depth::Structure, options, &mut |_| ControlFlow::Continue(()))
            .into_iter()
            .map(|(path, report)| (path.into_string(), report))
            .collect();
        let judged = set::judge(SetKind::Weights, &names, &reports);
        match judged.verdict {
            Verdict::Whole => Ok(()),
            verdict => {
                let why = judged.findings.first().map(ToString::to_string).unwrap_or_default();
                Err(CliError::checkpoint(
                    verdict,
                    format!("what would be written is {verdict}: {why}"),
                ))
            }
        }
    }

    fn failed(&self, e: &io::Error) -> CliError {
        new_dir::failed(self.dir, e)
    }
}
