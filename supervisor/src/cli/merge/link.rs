//! Links a model that the trainer wrote in the wanted form: its files are proven at their new paths, and copied if neither blocks
//! nor files can be shared.

use super::files::SideFiles;
use super::index::ModelIndex;
use super::originals::{Original, Originals};
use super::output::{self, MergeStats};
use crate::cli::new_dir;
use crate::error::CliError;
use crate::printer::ByteMeter;
use camino::Utf8Path;
use std::ops::ControlFlow;
use std::time::Instant;
use supervise_core::checkpoint::Depth;
use supervise_host::model_folder::ModelFolder;
use supervise_host::output_dir::{OutputDir, ShareMethod};
use supervise_weights::hf::HfPlan;

/// Creates a directory of its files.
pub(super) fn link(
    target: &Utf8Path,
    index: Option<ModelIndex>,
    folder: &ModelFolder,
    originals: &Originals,
    plan: &HfPlan,
    files: &SideFiles,
) -> Result<MergeStats, CliError> {
    let began = Instant::now();
    let dir = new_dir::begin(target, 0)?;
    let done = fill(&dir, target, index, folder, originals, plan, files);
    output::finish(dir, done, target, began)
}

fn fill(
    dir: &OutputDir,
    target: &Utf8Path,
    index: Option<ModelIndex>,
    folder: &ModelFolder,
    originals: &Originals,
    plan: &HfPlan,
    files: &SideFiles,
) -> Result<MergeStats, CliError> {
    let mut out = MergeStats::default();
    let mut copies: Vec<&Original> = Vec::new();
    for file in &originals.files {
        let opened = file.open(folder)?;
        match dir.share(&file.name, &opened).map_err(|e| new_dir::failed(dir, &e))? {
            Some(shared) => {
                out.linked += 1;
                out.is_same_file |= shared == ShareMethod::File;
            }
            None => copies.push(file),
        }
    }
    out.bytes = copies.iter().map(|file| file.bytes()).sum();
    new_dir::enough_space(target, out.bytes)?;
    let mut meter = ByteMeter::of_writing();
    let mut written = 0;
    for file in copies {
        let mut tell = |n| {
            written += n;
            meter.tell(written, Some(out.bytes));
            Ok(())
        };
        let copied = dir.copy(&file.name, &mut file.open(folder)?, &mut tell);
        copied.map_err(|e| new_dir::failed(dir, &e))?;
    }
    meter.end();
    let index = index.map(|index| (index.text, index.mode));
    let small = output::small(plan, files, index, None).write(dir)?;
    let mut meter = ByteMeter::new();
    let reports = output::judged(dir, dir.path(), Depth::Full, &mut |p| {
        meter.tell(p.done, Some(p.of));
        ControlFlow::Continue(())
    });
    meter.end();
    let reports = reports?;
    for file in &originals.files {
        out.checked += file.compare(reports.get(&file.name).and_then(|r| r.crc))?;
    }
    originals.unchanged(folder)?;
    let names = originals.files.iter().map(|f| f.name.clone());
    out.files = names.chain(small).collect();
    Ok(out)
}
