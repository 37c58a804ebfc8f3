//! Which files of a step have to be looked into before it can be called proven.
//!
//! All that verl itself would load, and all that says how many files there must be. The same files at every depth: how much of each is
//! read is the prover's business.

use super::names::Content;
use super::survey::{RoleFiles, Survey};
use camino::{Utf8Path, Utf8PathBuf};
use supervise_checkpoint::FileKind;

/// Files to be inspected, relative to the step, each with what it should be.
pub(crate) fn needs(survey: &Survey<'_>) -> Vec<(Utf8PathBuf, FileKind)> {
    let mut out = Vec::new();
    for (role, files) in &survey.roles {
        role_needs(Utf8Path::new(role), files, &mut out);
    }
    if survey.data.is_some() {
        out.push(("data.pt".into(), FileKind::TorchZip));
    }
    out.extend(
        survey
            .data_parts
            .keys()
            .map(|part| (data_part_file(*part), FileKind::TorchZip)),
    );
    if survey.queue.contains_key("metadata.json") {
        out.push((QUEUE_METADATA.into(), FileKind::Json));
    }
    out
}

/// The description of a saved transfer queue.
pub(crate) const QUEUE_METADATA: &str = "transfer_queue/metadata.json";

/// The file of one data-parallel rank's dataloader state.
pub(crate) fn data_part_file(part: u32) -> Utf8PathBuf {
    format!("data_{part}.pt").into()
}

fn role_needs(role: &Utf8Path, files: &RoleFiles<'_>, out: &mut Vec<(Utf8PathBuf, FileKind)>) {
    for ((world, content), ranks) in &files.shards {
        out.extend(
            ranks
                .keys()
                .map(|rank| (role.join(content.file(*world, *rank)), FileKind::TorchZip)),
        );
    }
    for (there, path, kind) in [
        (files.fsdp_config, "fsdp_config.json", FileKind::FsdpConfig),
        (files.root_config && !files.fsdp_config, "config.json", FileKind::Json),
        (files.hf_config, "huggingface/config.json", FileKind::Json),
    ] {
        if there {
            out.push((role.join(path), kind));
        }
    }
    let weights = files.weights.keys().copied().chain(files.weights_index);
    out.extend(weights.map(|name| {
        // The older format's index is plain JSON, its parts are files of torch.save.
        let kind = match FileKind::of(name) {
            FileKind::Opaque => FileKind::TorchZip,
            kind => kind,
        };
        (role.join("huggingface").join(name), kind)
    }));
}

/// The file of one rank, relative to the step.
pub(crate) fn shard_file(role: &str, content: Content, world: u32, rank: u32) -> Utf8PathBuf {
    Utf8Path::new(role).join(content.file(world, rank))
}
