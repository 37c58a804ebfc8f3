//! JSON files of Megatron checkpoints: verl's manifest, and Megatron's description of its format.
//!
//! A manifest names directories. Each is checked to stay below the manifest's directory before it is opened. As in Python, the last of
//! repeated keys counts.

mod write;

pub use write::architecture;

use crate::json;
use crate::limits::InspectLimits;
use crate::raw::shown;
use crate::source::FileReader;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use supervise_core::checkpoint::{Finding, Verdict};
use supervise_core::spec::ParallelSizes;

const SCHEMA: u64 = 2;
/// The most entries and directories of a manifest to keep.
const ENTRIES: usize = 256;
/// Longest word of a manifest, in bytes.
const WORD: usize = 4096;

/// verl's manifest, `ckpt_contents.json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DistManifest {
    pub schema_version: u64,
    /// The writer: `megatron`.
    pub framework: String,
    /// `actor` or `critic`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_step: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u64>,
    /// What was to be saved: `model`, `hf_model`, `optimizer`, `extra`.
    pub save_contents: Vec<String>,
    pub backend: ManifestBackend,
    pub entries: Vec<ManifestEntry>,
    pub directories: Vec<String>,
    /// Whether Megatron's own writer wrote anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_any_dist_ckpt: Option<bool>,
}

impl DistManifest {
    /// Returns the entry with this name.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<&ManifestEntry> {
        self.entries.iter().find(|e| e.name == name)
    }
}

/// How weights were saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ManifestBackend {
    /// Through a bridge to the Hugging Face format.
    pub has_bridge: bool,
    pub use_dist_checkpointing: bool,
    pub peft: bool,
}

/// An entry of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ManifestEntry {
    /// `model`, `hf_model`, `peft_adapters`, `optimizer`, `lr_scheduler`, `rng_state`, `transformer_config`, `hf_config` or `tokenizer`.
    pub name: String,
    /// How it is stored: `megatron_dist_checkpoint`, `huggingface` or `json`.
    pub format: String,
    /// Its file or directory, relative to the manifest's directory.
    pub path: String,
    /// The writer: `dist_checkpointing` or `mbridge`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Its key there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
}

impl ManifestEntry {
    /// Whether it is a directory of Megatron's own writer.
    #[must_use]
    pub fn is_dist(&self) -> bool {
        self.format == "megatron_dist_checkpoint"
    }
}

/// `metadata.json`: the writers of the parts and of the common file. Megatron accepts no other keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DistBackend {
    /// Writer of the parts: `torch_dist`.
    pub sharded_backend: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharded_backend_version: Option<u64>,
    /// Writer of the common file: `torch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_backend: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_backend_version: Option<u64>,
}

#[derive(Deserialize)]
struct TransformerConfig {
    tensor_model_parallel_size: u32,
    pipeline_model_parallel_size: u32,
    context_parallel_size: u32,
    expert_model_parallel_size: u32,
}

/// Returns the parallel sizes if the text is a `transformer_config.json`. Other files have none of these keys.
pub(crate) fn parallel(text: &[u8], limits: &InspectLimits) -> Option<ParallelSizes> {
    let config: TransformerConfig = json::parse(text, limits).ok()?;
    Some(ParallelSizes {
        tensor: config.tensor_model_parallel_size,
        pipeline: config.pipeline_model_parallel_size,
        context: config.context_parallel_size,
        expert: config.expert_model_parallel_size,
    })
}

/// Whether a relative path stays below its base directory.
#[must_use]
pub fn stays_below(path: &str) -> bool {
    !path.is_empty()
        && path.len() <= WORD
        && !path.contains(['\\', '\0'])
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[derive(Deserialize)]
struct ManifestFile {
    schema_version: u64,
    #[serde(default)]
    framework: String,
    role: Option<String>,
    arch: Option<String>,
    global_step: Option<u64>,
    world_size: Option<u64>,
    #[serde(default)]
    save_contents: Vec<String>,
    #[serde(default)]
    backend: ManifestBackend,
    contents: BTreeMap<String, RawManifestEntry>,
    #[serde(default)]
    directories: BTreeMap<String, IgnoredAny>,
    saved_any_dist_ckpt: Option<bool>,
}

/// `note` is a string or a list of strings; it is not used.
#[derive(Deserialize)]
struct RawManifestEntry {
    format: String,
    path: String,
    backend: Option<String>,
    key: Option<String>,
    peft_adapter_path: Option<String>,
}

#[derive(Deserialize)]
struct SchemaVersion {
    schema_version: u64,
}

/// Parses `ckpt_contents.json`; paths that leave its directory are findings.
pub(crate) fn manifest(
    file: &FileReader<'_>,
    limits: &InspectLimits,
    findings: &mut Vec<Finding>,
) -> Result<DistManifest, Box<Finding>> {
    let bytes = json::bytes(file, limits)?;
    let version: SchemaVersion = json::parse(&bytes, limits)?;
    if version.schema_version != SCHEMA {
        let detail = format!(
            "the manifest has version {}, which is not known here",
            version.schema_version
        );
        return Err(Box::new(Finding::error("manifest_version", Verdict::Unknown, detail)));
    }
    json::manifest_keys(&bytes, limits)?;
    let file: ManifestFile = json::parse(&bytes, limits)?;
    if file.contents.len() > ENTRIES || file.directories.len() > ENTRIES || file.save_contents.len() > ENTRIES {
        let detail = format!("the manifest names more than {ENTRIES} things");
        return Err(Box::new(Finding::error("limit_reached", Verdict::Unknown, detail)));
    }
    let out = DistManifest {
        schema_version: file.schema_version,
        framework: file.framework,
        role: file.role,
        arch: file.arch,
        global_step: file.global_step,
        world_size: file.world_size,
        save_contents: file.save_contents,
        backend: file.backend,
        entries: file.contents.into_iter().map(|(name, e)| entry(name, e)).collect(),
        directories: file.directories.into_keys().collect(),
        saved_any_dist_ckpt: file.saved_any_dist_ckpt,
    };
    check(&out, findings);
    Ok(out)
}

fn entry(name: String, e: RawManifestEntry) -> ManifestEntry {
    ManifestEntry {
        name,
        format: e.format,
        path: e.path,
        backend: e.backend,
        key: e.key,
        adapter: e.peft_adapter_path,
    }
}

fn check(manifest: &DistManifest, findings: &mut Vec<Finding>) {
    let of_entry = |e: &ManifestEntry| [Some(e.path.clone()), e.adapter.clone()];
    let paths = manifest.entries.iter().flat_map(of_entry).flatten();
    let outside: Vec<String> = paths
        .chain(manifest.directories.iter().cloned())
        .filter(|p| !stays_below(p))
        .collect();
    if let Some(first) = outside.first() {
        let detail = format!(
            "{} paths of the manifest leave its directory, the first is {}",
            outside.len(),
            shown(first)
        );
        findings.push(Finding::error("manifest_path", Verdict::Damaged, detail));
    }
    let near = |e: &&ManifestEntry| {
        let there = manifest.directories.contains(&e.path);
        e.is_dist() && !there && manifest.directories.iter().any(|d| json::alike(&e.path, d))
    };
    if let Some(e) = manifest.entries.iter().find(near) {
        let detail = format!(
            "{} is in {}, which differs by one byte from a directory of the manifest",
            shown(&e.name),
            shown(&e.path)
        );
        findings.push(Finding::error("manifest_path", Verdict::Damaged, detail));
    }
    let formats = ["megatron_dist_checkpoint", "huggingface", "json"];
    if let Some(e) = manifest.entries.iter().find(|e| !formats.contains(&e.format.as_str())) {
        let detail = format!("{} has the unknown format {}", shown(&e.name), shown(&e.format));
        findings.push(Finding::error("manifest_format", Verdict::Unknown, detail));
    }
}

/// Parses `metadata.json` in a directory that Megatron wrote.
pub(crate) fn dist_backend(
    file: &FileReader<'_>,
    limits: &InspectLimits,
    findings: &mut Vec<Finding>,
) -> Result<DistBackend, Box<Finding>> {
    let out: DistBackend = json::parse(&json::bytes(file, limits)?, limits)?;
    let common = out.common_backend.as_deref().unwrap_or("torch");
    let versions = [out.sharded_backend_version, out.common_backend_version];
    let known = versions.iter().all(|v| v.unwrap_or(1) == 1);
    if out.sharded_backend != "torch_dist" || common != "torch" || !known {
        let detail = format!(
            "it was written by {} and {}, whose files are not known here",
            shown(&out.sharded_backend),
            shown(common)
        );
        findings.push(Finding::error("dist_backend", Verdict::Unknown, detail));
    }
    Ok(out)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Integrity {
    algorithm: String,
    files: BTreeMap<String, String>,
}

/// Parses `integrity.json`, the SHA-256 of each file.
pub(crate) fn integrity(
    file: &FileReader<'_>,
    limits: &InspectLimits,
) -> Result<BTreeMap<String, String>, Box<Finding>> {
    let out: Integrity = json::parse(&json::bytes(file, limits)?, limits)?;
    if out.algorithm != "sha256" {
        let detail = format!("its digests are {}, and sha256 is known here", shown(&out.algorithm));
        return Err(Box::new(Finding::error("integrity", Verdict::Unknown, detail)));
    }
    let digest = |hex: &str| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    match out
        .files
        .iter()
        .find(|(name, hex)| name.contains('/') || !stays_below(name) || !digest(hex))
    {
        Some((name, _)) => Err(json::content(format!(
            "what it says of {} is no digest of a file beside it",
            shown(name)
        ))),
        None => Ok(out.files),
    }
}
