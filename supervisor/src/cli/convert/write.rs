//! Writes the target directory: under a temporary name, checked as a merge would read it, then renamed.

use crate::cli::merge::files::SideFiles;
use crate::cli::model::{self, OpenModel};
use crate::cli::new_dir::{self, Opened};
use crate::error::CliError;
use crate::printer::ByteMeter;
use camino::Utf8Path;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use supervise_checkpoint::Dtype;
use supervise_host::output_dir::OutputDir;
use supervise_weights::megatron::MegatronModel;
use supervise_weights::torch_dist::{self, TorchDistPlan};
use supervise_weights::{ModelError, hf};

/// Directory of configuration and tokenizer, as verl names it.
const BESIDE: &str = "huggingface";

pub(super) struct ConvertStats {
    pub(super) files: Vec<String>,
    /// Bytes of weights, including headers.
    pub(super) bytes: u64,
    pub(super) took: Duration,
}

/// Writes everything, then renames the directory.
pub(super) fn all(
    target: &Utf8Path,
    source: &OpenModel,
    made: MegatronModel,
    beside: &SideFiles,
    dtype: Option<Dtype>,
) -> Result<ConvertStats, CliError> {
    let began = Instant::now();
    let plan = torch_dist::plan(made).map_err(|e| CliError::checkpoint(e.verdict, e.text))?;
    let bytes = plan.files().map(|(_, n)| n).sum();
    let dir = new_dir::begin(target, bytes)?;
    match fill(&dir, source, &plan, beside, dtype, bytes) {
        Ok(files) => {
            dir.finish()
                .map_err(|e| CliError::environment(format!("{target}: {e}")))?;
            Ok(ConvertStats {
                files,
                bytes,
                took: began.elapsed(),
            })
        }
        Err(e) => {
            dir.abandon();
            Err(e)
        }
    }
}

/// Writes all files. Returns their names.
fn fill(
    dir: &OutputDir,
    source: &OpenModel,
    plan: &TorchDistPlan,
    beside: &SideFiles,
    dtype: Option<Dtype>,
    total: u64,
) -> Result<Vec<String>, CliError> {
    let opened = Opened::create(dir, plan.files())?;
    let mut meter = ByteMeter::of_writing();
    let written = plan.write(
        &source.weights,
        &source.sources,
        &opened,
        new_dir::threads(),
        &mut |done| {
            meter.tell(done, Some(total));
            ControlFlow::Continue(())
        },
    );
    meter.end();
    let at = |problem: ModelError| CliError::checkpoint(problem.verdict, problem.text);
    written.map_err(|e| new_dir::ended(dir, e, at))?;
    opened.finish(dir)?;
    let mut names: Vec<String> = plan.files().map(|(name, _)| name.to_owned()).collect();
    let mut put = |name: String, bytes: &[u8], mode| {
        let done = dir.write_as(&name, bytes, mode).map_err(|e| new_dir::failed(dir, &e));
        names.push(name);
        done
    };
    for (name, bytes) in plan.small() {
        put(name.to_owned(), bytes, 0o666)?;
    }
    put(
        format!("{BESIDE}/config.json"),
        beside.config.with_dtype(dtype).as_bytes(),
        beside.config_mode,
    )?;
    names.extend(beside.copy(dir, &format!("{BESIDE}/"))?);
    judge(dir, source, beside)?;
    Ok(names)
}

fn judge(dir: &OutputDir, source: &OpenModel, beside: &SideFiles) -> Result<(), CliError> {
    let wrong = |what: String| CliError::internal(format!("{}, as it was written: {what}", dir.path()));
    let found = model::find(dir.path().as_str(), None, None, &mut ByteMeter::new())?;
    let made = model::open(&found, model::ModelOpenOptions::default())?;
    let plan = model::plan(&made, &beside.config, hf::Options::default()).map_err(|e| wrong(e.text))?;
    let odd = plan.model.iter().find(|tensor| {
        let own = source.weights.find(&tensor.name).map(|n| &source.weights.tensors[n]);
        own.is_none_or(|own| own.shape != tensor.shape)
    });
    match odd {
        None => Ok(()),
        Some(tensor) => Err(wrong(format!("{} is not what the model has", tensor.name))),
    }
}
