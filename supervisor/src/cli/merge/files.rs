//! Small files of a model: configuration, tokenizer, metadata of an adapter.

use crate::cli::model::{self, FoundModel};
use crate::cli::new_dir;
use crate::error::CliError;
use crate::render::bytes;
use crate::render::merge::LinkedFile;
use crate::render::terminal::shown;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::rc::Rc;
use supervise_checkpoint::{FileKind, inspect};
use supervise_core::checkpoint::Verdict;
use supervise_host::io_worker::FileSource;
use supervise_host::model_folder::{ModelFolder, NotOpened};
use supervise_host::output_dir::OutputDir;
use supervise_weights::OutTensor;
use supervise_weights::hf::{self, AdapterFacts, LoraAdapter, ModelConfig};

/// Maximum size of such a file, in bytes; a large vocabulary takes tens of megabytes.
const SMALL: u64 = 256 << 20;
const CONFIG: &str = "config.json";
/// Files of a Trainer checkpoint that do not belong to the model.
const OF_TRAINING: [&str; 4] = ["trainer_state.json", "latest", "zero_to_fp32.py", "zero_to_torch.py"];
/// Metadata that verl writes for an adapter.
const LORA: &str = "lora_train_meta.json";
/// An adapter's settings, as peft writes them.
const ADAPTER: &str = "adapter_config.json";
/// Directory of a tokenizer's further templates, as transformers names it.
const TEMPLATES: &str = "additional_chat_templates";

pub(in crate::cli) struct SideFiles {
    pub(in crate::cli) config: ModelConfig,
    pub(in crate::cli) config_mode: u32,
    others: BTreeMap<String, SmallFile>,
    /// Files behind a link, including the configuration.
    pub(in crate::cli) links: Vec<LinkedFile>,
    pub(in crate::cli) notes: Vec<String>,
    pub(super) facts: Option<AdapterFacts>,
}

struct SmallFile {
    folder: Rc<ModelFolder>,
    /// Its path in the folder.
    path: Utf8PathBuf,
    /// Set if it is behind a link.
    link: Option<LinkedFile>,
}

/// Files found in one or two directories, and notes about those left out.
#[derive(Default)]
struct SmallFiles {
    taken: BTreeMap<String, SmallFile>,
    left_out: BTreeMap<String, String>,
}

/// The model that was trained, as named by an option.
#[derive(Clone, Copy)]
pub(in crate::cli) struct TrainedModel<'a> {
    pub(in crate::cli) option: &'static str,
    pub(in crate::cli) dir: &'a Utf8Path,
}

pub(super) struct AdapterOut {
    pub(super) tensors: Vec<OutTensor>,
    pub(super) config: String,
}

impl SideFiles {
    /// Collects them from the directory next to the shards; missing ones come from the model that was trained.
    pub(in crate::cli) fn of(found: &FoundModel, trained: Option<TrainedModel<'_>>) -> Result<Self, CliError> {
        let own = found.beside.clone();
        let mut small = SmallFiles::default();
        if let Some(TrainedModel { option, dir }) = trained.filter(|t| t.dir != own) {
            let refused = |e: NotOpened| CliError::usage(format!("{option} {dir}: {e}"));
            small.add(ModelFolder::named(dir).map_err(refused)?, dir)?;
        }
        match ModelFolder::inside(&found.root, &own) {
            Ok(folder) => small.add(folder, &own)?,
            Err(e) if e.is_missing() => {}
            Err(why @ NotOpened::LinkedDir) => drop(small.left_out.insert(own.to_string(), why.to_string())),
            Err(e) => return Err(CliError::environment(format!("{own}: {e}"))),
        }
        let SmallFiles {
            taken: mut others,
            left_out,
        } = small;
        let Some(file) = others.remove(CONFIG) else {
            return Err(no_config(&own, trained, &left_out));
        };
        let text = model::text(&file.folder, file.path.as_str())?;
        let (text, config_mode) = text.ok_or_else(|| no_config(&own, trained, &left_out))?;
        let path = file.folder.path(&file.path);
        let config = ModelConfig::parse(&text).map_err(|e| CliError::checkpoint(e.verdict, format!("{path}: {e}")))?;
        let links = file
            .link
            .into_iter()
            .chain(others.values().filter_map(|f| f.link.clone()));
        let links = links.collect();
        let said = |(name, why): (&String, &String)| format!("{} is left out: {why}", shown(name));
        let mut notes: Vec<String> = left_out.iter().map(said).collect();
        if !others
            .keys()
            .any(|name| name.starts_with("tokenizer") || name == "vocab.json")
        {
            notes.push(format!(
                "there is no tokenizer in {own}: --like DIR takes it from the model that was trained"
            ));
        }
        let facts = match model::text(&model::folder(found)?, LORA)? {
            Some((text, _)) => Some(AdapterFacts::parse(&text).map_err(|e| CliError::checkpoint(e.verdict, e.text))?),
            None => None,
        };
        Ok(Self {
            config,
            config_mode,
            others,
            links,
            notes,
            facts,
        })
    }

    /// Copies the other files into a directory of the target, with their permissions. Returns their names there.
    pub(in crate::cli) fn copy(&self, dir: &OutputDir, below: &str) -> Result<Vec<String>, CliError> {
        let mut names = Vec::new();
        for (name, file) in &self.others {
            let opened = file.folder.open(&file.path);
            let mut opened = opened.map_err(|e| model::not_opened(&file.folder.path(&file.path), e))?;
            let name = format!("{below}{name}");
            let copied = dir.copy(&name, &mut opened, &mut |_| Ok(()));
            copied.map_err(|e| new_dir::failed(dir, &e))?;
            names.push(name);
        }
        Ok(names)
    }

    /// The adapter's alpha: as given, or as the trainer recorded it.
    pub(super) fn alpha(&self, said: Option<f64>) -> Result<f64, CliError> {
        said.or(self.facts.as_ref().and_then(|f| f.alpha)).ok_or_else(|| {
            let text = "the checkpoint holds an adapter (LoRA) and nothing tells its alpha: without it the adapter would do nothing";
            CliError::checkpoint(Verdict::Unknown, text).hint(
                "--lora-alpha NUMBER says it: it is actor_rollout_ref.model.lora_alpha of the trainer's configuration",
            )
        })
    }

    pub(super) fn adapter(&self, adapter: LoraAdapter, alpha: Option<f64>) -> Result<AdapterOut, CliError> {
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

fn no_config(own: &Utf8Path, trained: Option<TrainedModel<'_>>, left_out: &BTreeMap<String, String>) -> CliError {
    let (place, hint) = match trained {
        Some(TrainedModel { option, dir }) => (
            format!("{option} {dir}: {CONFIG} is missing there"),
            "it is in the directory that the model was loaded from",
        ),
        None => (
            format!("{own}/{CONFIG} is missing"),
            "--like DIR takes it, with the tokenizer, from the model that was trained",
        ),
    };
    let why = left_out.get(CONFIG).map(|why| (CONFIG, why));
    match why.or_else(|| left_out.get(own.as_str()).map(|why| (own.as_str(), why))) {
        Some((what, why)) => {
            let text = format!("{own}/{CONFIG} is not read: {} is {why}", shown(what));
            CliError::checkpoint(Verdict::Unknown, text).hint(hint)
        }
        None => {
            let text = format!("{place}: nothing tells which model this is");
            CliError::checkpoint(Verdict::Incomplete, text).hint(hint)
        }
    }
}

impl SmallFiles {
    /// Adds the files in a directory that are not weights, replacing those with the same names.
    fn add(&mut self, folder: ModelFolder, dir: &Utf8Path) -> Result<(), CliError> {
        let folder = Rc::new(folder);
        let is_adapter = folder.open(Utf8Path::new(ADAPTER)).is_ok();
        self.add_in(&folder, dir, "", is_adapter)?;
        match folder.is_dir(Utf8Path::new(TEMPLATES)) {
            true => self.add_in(&folder, dir, TEMPLATES, is_adapter),
            false => Ok(()),
        }
    }

    fn add_in(
        &mut self,
        folder: &Rc<ModelFolder>,
        dir: &Utf8Path,
        below: &str,
        is_adapter: bool,
    ) -> Result<(), CliError> {
        let unreadable = |e: NotOpened| CliError::environment(format!("{dir}: {e}"));
        for name in folder.names(Utf8Path::new(below)).map_err(unreadable)? {
            let path = Utf8Path::new(below).join(&name);
            // Other directories do not belong to this model.
            if is_left_out(&name, is_adapter) || folder.is_dir(&path) {
                continue;
            }
            let full = path.to_string();
            match folder.open(&path) {
                Ok(opened) if opened.len > SMALL => {
                    let why = format!(
                        "it has {}, and files beside weights have at most {}",
                        bytes(opened.len),
                        bytes(SMALL)
                    );
                    self.left_out.insert(full, why);
                }
                Ok(opened) => {
                    let link = model::linked(&full, &opened);
                    self.left_out.remove(&full);
                    let folder = Rc::clone(folder);
                    self.taken.insert(full, SmallFile { folder, path, link });
                }
                // It was deleted meanwhile.
                Err(e) if e.is_missing() => {}
                Err(NotOpened::Io(e)) => return Err(CliError::environment(format!("{dir}/{path}: {e}"))),
                Err(why) => drop(self.left_out.insert(full, why.to_string())),
            }
        }
        Ok(())
    }
}

/// Returns true for files that are not part of a model.
fn is_left_out(name: &str, is_adapter: bool) -> bool {
    let adapters = is_adapter && is_of_adapter(name);
    adapters || is_weights(name) || OF_TRAINING.contains(&name) || name.starts_with('.')
}

/// A loader that finds an adapter's settings loads the adapter; the adapter's README does not describe the merged model.
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

/// Heads of a language model, and of a critic that was made from one.
const HEADS: [&str; 3] = [hf::HEAD, hf::SCORE, "score.bias"];

/// Checks that the trained model has the same tensors. `other_head`: a critic's head differs, and a tied one may be missing.
pub(super) fn compare_names(base: &Utf8Path, model: &[OutTensor], other_head: bool) -> Result<(), CliError> {
    let mut there = BTreeMap::new();
    let limits = model::limits()?;
    let entries = base
        .read_dir_utf8()
        .map_err(|e| CliError::usage(format!("--like {base}: {e}")))?;
    for entry in entries.flatten().filter(|e| e.file_name().ends_with(".safetensors")) {
        let path = entry
            .path()
            .canonicalize_utf8()
            .unwrap_or_else(|_| entry.path().to_owned());
        let source = FileSource::open(&path).map_err(|e| CliError::environment(format!("{path}: {e}")))?;
        let found = inspect(FileKind::Safetensors, &source, &limits);
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
