//! Files of a step to inspect before it can be called proven.
//!
//! Everything verl itself would load, and everything that says how many files there must be. The files are the same
//! at every depth: the prover decides how much of each is read. They are visited by the paths of the listing, so that
//! judging a step copies none.

use super::evidence::StepFile;
use super::megatron;
use super::names;
use super::step_files::{RoleFiles, StepFiles};
use supervise_checkpoint::{FileKind, RequiredFile};

#[derive(Debug, Clone, Copy)]
pub(crate) struct VerlRequiredFile<'a> {
    pub(crate) file: StepFile<'a>,
    pub(crate) kind: FileKind,
    pub(crate) described_by: Option<&'a str>,
}

impl<'a> VerlRequiredFile<'a> {
    pub(crate) fn new(file: StepFile<'a>, kind: FileKind) -> Self {
        Self {
            file,
            kind,
            described_by: None,
        }
    }
}

/// Files to inspect, relative to the step, each with its expected kind.
pub(crate) fn all(survey: &StepFiles<'_>) -> Vec<RequiredFile> {
    let mut out = Vec::new();
    let _ = each(survey, &mut |wanted| {
        let need = RequiredFile::new(wanted.file.path, wanted.kind);
        out.push(match wanted.described_by {
            Some(other) => need.described_by(other),
            None => need,
        });
        Some(())
    });
    out
}

/// Visits the required files in order until a visit returns `None`.
pub(crate) fn each<'a>(
    survey: &StepFiles<'a>,
    visit: &mut dyn FnMut(VerlRequiredFile<'a>) -> Option<()>,
) -> Option<()> {
    for files in survey.roles.values() {
        if files.is_megatron() {
            megatron::each(&files.megatron, visit)?;
        } else if files.is_first_megatron() {
            megatron::layout_v1::each(files, visit)?;
        } else {
            role(files, visit)?;
        }
    }
    if let Some(file) = survey.data {
        visit(VerlRequiredFile::new(file, FileKind::TorchZip))?;
    }
    for (_, file) in &survey.data_parts {
        visit(VerlRequiredFile::new(*file, FileKind::TorchZip))?;
    }
    for (name, file) in &survey.queue {
        if let Some(kind) = names::queue_file(name) {
            visit(VerlRequiredFile::new(*file, kind))?;
        }
    }
    Some(())
}

fn role<'a>(files: &RoleFiles<'a>, visit: &mut dyn FnMut(VerlRequiredFile<'a>) -> Option<()>) -> Option<()> {
    for (_, file) in files.shards.values().flatten() {
        visit(VerlRequiredFile::new(*file, FileKind::TorchZip))?;
    }
    let root_config = files.root_config.filter(|_| files.fsdp_config.is_none());
    for file in [files.fsdp_config, root_config, files.hf_config].into_iter().flatten() {
        visit(VerlRequiredFile::new(file, FileKind::of(file.path)))?;
    }
    weights(files, visit)
}

/// Exported weights and their index, and what is read with a model.
pub(super) fn weights<'a>(
    files: &RoleFiles<'a>,
    visit: &mut dyn FnMut(VerlRequiredFile<'a>) -> Option<()>,
) -> Option<()> {
    for file in &files.beside {
        visit(VerlRequiredFile::new(*file, FileKind::of(file.path)))?;
    }
    let weights = files.weights.iter().map(|(name, file)| (*name, *file));
    for (name, file) in weights.chain(files.weights_index) {
        // The older format has a plain JSON index and parts written by `torch.save`.
        let kind = match FileKind::of(name) {
            FileKind::Opaque => FileKind::TorchZip,
            kind => kind,
        };
        visit(VerlRequiredFile::new(file, kind))?;
    }
    Some(())
}
