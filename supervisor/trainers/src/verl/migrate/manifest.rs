//! The manifest of a converted role, as verl would have written it, derived from the files.

use super::RoleSnapshot;
use super::listing::Listing;
use crate::verl::megatron::layout_v1::ArchiveContents;
use crate::verl::step_files::RoleFiles;
use supervise_checkpoint::megatron::{ManifestBackend, architecture};
use supervise_checkpoint::{DistManifest, ManifestEntry};
use supervise_core::spec::ParallelSizes;

const DIST: &str = "megatron_dist_checkpoint";
const EXPORT: &str = "model/huggingface";

/// Returns the archive's content and the manifest; `files` are those of the first layout.
pub(super) fn compose(
    seen: &RoleSnapshot<'_>,
    files: &RoleFiles<'_>,
    listing: &Listing<'_>,
) -> (ArchiveContents, DistManifest) {
    let held = ArchiveContents::of(&files.megatron.archive, "dist_ckpt").unwrap_or_default();
    let exported = !files.weights.is_empty();
    let mut entries = Vec::new();
    if held.model {
        entries.push(entry("model", DIST, "model/dist_ckpt").by("dist_checkpointing"));
    } else if exported {
        entries.push(entry("model", "huggingface", EXPORT).by("mbridge"));
    }
    if held.model && exported {
        entries.push(entry("hf_model", "huggingface", EXPORT));
    }
    if held.optimizer {
        entries.push(entry("optimizer", DIST, "optimizer/dist_ckpt"));
    }
    if held.optimizer && held.schedule {
        entries.push(entry("lr_scheduler", DIST, "optimizer/dist_ckpt").under("lr_scheduler"));
    }
    if held.rng {
        entries.push(entry("rng_state", DIST, "extra/dist_ckpt").under("rng_state"));
    }
    if files.megatron.config.is_some() {
        entries.push(entry("transformer_config", "json", "transformer_config.json"));
    }
    if files.hf_config.is_some() {
        entries.push(entry("hf_config", "huggingface", EXPORT));
    }
    let named = |start: &str| {
        seen.facts
            .iter()
            .any(|f| f.path.file_name().is_some_and(|n| n.starts_with(start)))
    };
    if files.hf_config.is_some() && (named("tokenizer") || named("vocab")) {
        entries.push(entry("tokenizer", "huggingface", EXPORT));
    }
    let mut directories: Vec<String> = entries.iter().map(|e| e.path.clone()).collect();
    directories.retain(|dir| dir.contains('/'));
    directories.sort();
    directories.dedup();
    let role = if seen.role.name.is_empty() {
        "actor"
    } else {
        &seen.role.name
    };
    let manifest = DistManifest {
        schema_version: 2,
        framework: "megatron".to_owned(),
        role: Some(role.to_owned()),
        arch: seen.config.and_then(architecture),
        global_step: Some(seen.role.step.0),
        world_size: Some(world(files, listing)),
        save_contents: save_contents(held, exported),
        backend: ManifestBackend {
            has_bridge: exported,
            use_dist_checkpointing: held.model,
            peft: false,
        },
        entries,
        directories,
        saved_any_dist_ckpt: Some(!files.megatron.archive.is_empty()),
    };
    (held, manifest)
}

fn save_contents(held: ArchiveContents, exported: bool) -> Vec<String> {
    [
        ("model", held.model || exported),
        ("hf_model", held.model && exported),
        ("optimizer", held.optimizer),
        ("extra", held.rng),
    ]
    .into_iter()
    .filter(|(_, there)| *there)
    .map(|(name, _)| name.to_owned())
    .collect()
}

/// Ranks that wrote it. A rank with nothing to write leaves no file, so the highest number is a lower bound; all
/// ranks together hold a whole number of copies of the model.
fn world(files: &RoleFiles<'_>, listing: &Listing<'_>) -> u64 {
    let rank = |path: &&str| {
        let name = listing
            .inside(path)
            .strip_prefix("dist_ckpt/__")?
            .strip_suffix(".distcp")?;
        name.split('_').next()?.parse::<u64>().ok()
    };
    let highest = files.megatron.archive.keys().filter_map(rank).max();
    let parallel = files.megatron.config.and_then(|f| f.report?.facts.parallel);
    let copy = parallel.and_then(ParallelSizes::ranks).map_or(1, u64::from).max(1);
    highest.map_or(1, |n| n.saturating_add(1)).next_multiple_of(copy)
}

fn entry(name: &str, format: &str, path: &str) -> ManifestEntry {
    ManifestEntry {
        name: name.to_owned(),
        format: format.to_owned(),
        path: path.to_owned(),
        ..ManifestEntry::default()
    }
}

trait More {
    fn by(self, backend: &str) -> Self;
    fn under(self, key: &str) -> Self;
}

impl More for ManifestEntry {
    fn by(mut self, backend: &str) -> Self {
        self.backend = Some(backend.to_owned());
        self
    }

    fn under(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }
}
