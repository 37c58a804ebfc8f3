//! Small files that belong to a model: configuration, tokenizer, what is noted of an adapter.

use crate::cli::model::Found;
use crate::error::CliError;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::io;
use supervise_checkpoint::{FileKind, Limits, inspect};
use supervise_core::checkpoint::Verdict;
use supervise_host::io_worker::{FileSource, read_small};
use supervise_weights::OutTensor;
use supervise_weights::hf::{self, Adapter, AdapterFacts, ModelConfig};

/// Bytes that one of them may have: a large vocabulary takes some ten millions.
const SMALL: u64 = 256 << 20;
const CONFIG: &str = "config.json";
/// Files of a checkpoint of transformers' Trainer that say nothing of the model.
const OF_TRAINING: [&str; 4] = ["trainer_state.json", "latest", "zero_to_fp32.py", "zero_to_torch.py"];
/// Settings of an adapter, as peft writes them.
const ADAPTER: &str = "adapter_config.json";
/// Directory of a tokenizer's further templates, as transformers names it.
const TEMPLATES: &str = "additional_chat_templates";

/// The files beside the weights.
pub(in crate::cli) struct Beside {
    pub(in crate::cli) config: ModelConfig,
    /// Others by name, with the path that they are copied from.
    pub(in crate::cli) others: BTreeMap<String, Utf8PathBuf>,
    pub(in crate::cli) notes: Vec<String>,
    pub(super) facts: Option<AdapterFacts>,
}

/// The model that was trained, as it was named.
#[derive(Clone, Copy)]
pub(in crate::cli) struct Trained<'a> {
    /// The option that named it.
    pub(in crate::cli) option: &'static str,
    /// Its directory.
    pub(in crate::cli) dir: &'a Utf8Path,
}

/// An adapter and the file that describes it.
pub(super) struct AdapterOut {
    pub(super) tensors: Vec<OutTensor>,
    pub(super) config: String,
}

impl Beside {
    /// Collects them from beside the shards; what is not there comes from the model that was trained.
    pub(in crate::cli) fn of(found: &Found, trained: Option<Trained<'_>>) -> Result<Self, CliError> {
        let own = found.beside.clone();
        let mut others = BTreeMap::new();
        let mut notes = Vec::new();
        for dir in trained.map(|t| t.dir).into_iter().chain([own.as_path()]) {
            let must = trained.filter(|_| dir != own).map(|t| t.option);
            for (name, path) in small_files(dir, must)? {
                others.insert(name, path);
            }
        }
        if !others.contains_key(CONFIG) {
            return Err(no_config(&own, trained));
        }
        let path = others.remove(CONFIG).unwrap_or_default();
        let text = read_small(&path, SMALL).map_err(|e| CliError::environment(format!("{path}: {e}")))?;
        let config = ModelConfig::parse(&text).map_err(|e| CliError::checkpoint(e.verdict, format!("{path}: {e}")))?;
        if !others
            .keys()
            .any(|name| name.starts_with("tokenizer") || name == "vocab.json")
        {
            notes.push(format!(
                "there is no tokenizer in {own}: --like DIR takes it from the model that was trained"
            ));
        }
        let facts = match read_small(&found.dir.join("lora_train_meta.json"), SMALL) {
            Ok(text) => Some(AdapterFacts::parse(&text).map_err(|e| CliError::checkpoint(e.verdict, e.text))?),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => {
                return Err(CliError::environment(format!(
                    "{}/lora_train_meta.json: {e}",
                    found.dir
                )));
            }
        };
        Ok(Self {
            config,
            others,
            notes,
            facts,
        })
    }

    /// The adapter's alpha: as it is said, or as the trainer noted it.
    pub(super) fn alpha(&self, said: Option<f64>) -> Result<f64, CliError> {
        said.or(self.facts.as_ref().and_then(|f| f.alpha)).ok_or_else(|| {
            let text = "the checkpoint holds an adapter (LoRA) and nothing tells its alpha: without it the adapter would do nothing";
            CliError::checkpoint(Verdict::Unknown, text).hint(
                "--lora-alpha NUMBER says it: it is actor_rollout_ref.model.lora_alpha of the trainer's configuration",
            )
        })
    }

    /// The adapter with its configuration.
    pub(super) fn adapter(&self, adapter: Adapter, alpha: Option<f64>) -> Result<AdapterOut, CliError> {
        let alpha = self.alpha(alpha)?;
        let facts = self.facts.clone().unwrap_or_default();
        let config = adapter
            .config(&facts, alpha, None)
            .map_err(|e| CliError::checkpoint(e.verdict, e.text))?;
        Ok(AdapterOut {
            tensors: adapter.tensors,
            config,
        })
    }
}

/// Nothing tells which model it is.
fn no_config(own: &Utf8Path, trained: Option<Trained<'_>>) -> CliError {
    let (place, hint) = match trained {
        Some(Trained { option, dir }) => (
            format!("{option} {dir}: {CONFIG} is missing there"),
            "it stands in the directory that the model was loaded from",
        ),
        None => (
            format!("{own}/{CONFIG} is missing"),
            "--like DIR takes it, with the tokenizer, from the model that was trained",
        ),
    };
    let text = format!("{place}: nothing tells which model this is");
    CliError::checkpoint(Verdict::Incomplete, text).hint(hint)
}

/// Files in a directory that are no weights. `must`: the option that names it, which has to be there.
fn small_files(dir: &Utf8Path, must: Option<&str>) -> Result<Vec<(String, Utf8PathBuf)>, CliError> {
    let entries = match dir.read_dir_utf8() {
        Ok(entries) => entries,
        Err(e) => {
            return match must {
                Some(option) => Err(CliError::usage(format!("{option} {dir}: {e}"))),
                None if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
                None => Err(CliError::environment(format!("{dir}: {e}"))),
            };
        }
    };
    let is_adapter = dir.join(ADAPTER).is_file();
    let mut out = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| CliError::environment(format!("{dir}: {e}")))?;
        let name = entry.file_name();
        // A cache of models holds links to its files.
        let fact = entry.path().metadata();
        if name == TEMPLATES && fact.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
            let inside = small_files(entry.path(), must)?;
            out.extend(inside.into_iter().map(|(n, path)| (format!("{TEMPLATES}/{n}"), path)));
        } else if fact.is_ok_and(|m| m.is_file() && m.len() <= SMALL) && !is_left_out(name, is_adapter) {
            out.push((name.to_owned(), entry.path().to_owned()));
        }
    }
    Ok(out)
}

/// Files that are no part of a model beside its weights.
fn is_left_out(name: &str, is_adapter: bool) -> bool {
    let adapters = is_adapter && is_of_adapter(name);
    adapters || is_weights(name) || OF_TRAINING.contains(&name) || name.starts_with('.')
}

/// A reader that finds an adapter's settings looks for the adapter; what is written about it is not true of the model.
fn is_of_adapter(name: &str) -> bool {
    [ADAPTER, "README.md"].contains(&name)
}

fn is_weights(name: &str) -> bool {
    let ends = [
        ".safetensors",
        ".bin",
        ".pt",
        ".pth",
        ".gguf",
        ".h5",
        ".msgpack",
        ".index.json",
    ];
    ends.iter().any(|end| name.ends_with(end))
}

/// Heads of a model of words, and of a critic that began as one.
const HEADS: [&str; 3] = [hf::HEAD, hf::SCORE, "score.bias"];

/// The model that was trained has the same tensors. `other_head`: a critic's head is another one, a tied one need not be there.
pub(super) fn compare_names(base: &Utf8Path, model: &[OutTensor], other_head: bool) -> Result<(), CliError> {
    let mut there = BTreeMap::new();
    let entries = base
        .read_dir_utf8()
        .map_err(|e| CliError::usage(format!("--like {base}: {e}")))?;
    for entry in entries.flatten().filter(|e| e.file_name().ends_with(".safetensors")) {
        let path = entry
            .path()
            .canonicalize_utf8()
            .unwrap_or_else(|_| entry.path().to_owned());
        let source = FileSource::open(&path).map_err(|e| CliError::environment(format!("{path}: {e}")))?;
        let found = inspect(FileKind::Safetensors, &source, &Limits::default());
        if let Some(bad) = found.findings.iter().find(|f| f.effect() != Verdict::Whole) {
            return Err(CliError::checkpoint(bad.effect(), format!("--like {path}: {bad}")));
        }
        there.extend(found.inventory.into_iter().map(|t| (t.name, t.shape)));
    }
    if there.is_empty() {
        return Err(CliError::usage(format!(
            "--like {base}: there are no weights in it (*.safetensors)"
        )));
    }
    let ours: BTreeMap<&str, &[u64]> = model.iter().map(|t| (t.name.as_str(), t.shape.as_slice())).collect();
    let mut lines = Vec::new();
    let may_lack = |name: &str| other_head && HEADS.contains(&name);
    for (name, shape) in &there {
        match ours.get(name.as_str()) {
            None if may_lack(name) => {}
            None => lines.push(format!("{name} is missing")),
            Some(own) if *own != shape.as_slice() => {
                lines.push(format!("{name} has the shape {own:?} instead of {shape:?}"))
            }
            Some(_) => {}
        }
    }
    lines.extend(
        ours.keys()
            .filter(|n| !there.contains_key(**n) && !may_lack(n))
            .map(|n| format!("{n} is not in it")),
    );
    if lines.is_empty() {
        return Ok(());
    }
    let n = lines.len();
    lines.truncate(10);
    Err(CliError::checkpoint(
        Verdict::Damaged,
        format!("the tensors are not those of {base}: {n} differ"),
    )
    .with_lines(lines))
}
