//! Folds an adapter into the model that it was trained for.

use super::files::SideFiles;
use crate::cli::model::{self, FoundModel, OpenModel, WeightFiles};
use crate::error::CliError;
use camino::{Utf8Path, Utf8PathBuf};
use supervise_weights::hf::{self, Scaling};

/// The file with an adapter's settings, as peft names it.
const CONFIG: &str = "adapter_config.json";

/// The directory of a separate adapter, as peft writes it.
pub(super) fn adapter_dir(name: &str) -> Option<FoundModel> {
    let dir = Utf8Path::new(name);
    let files = ["adapter_model.safetensors"];
    let is_there = dir.join(CONFIG).is_file() && dir.join(files[0]).is_file();
    let models = ["model.safetensors", "model.safetensors.index.json"];
    let alone = !models.iter().any(|name| dir.join(name).exists());
    (is_there && alone).then(|| FoundModel {
        root: dir.to_owned(),
        dir: dir.to_owned(),
        step: model::trainers_step(dir),
        role: None,
        beside: dir.to_owned(),
        files: WeightFiles::Safetensors(files.map(str::to_owned).to_vec()),
    })
}

/// Opens the base model for an adapter that was saved without one.
pub(super) fn with_base(adapter: OpenModel, base: &Utf8Path) -> Result<OpenModel, CliError> {
    if base.is_file() {
        let dir = base.parent().filter(|dir| !dir.as_str().is_empty());
        return Err(
            CliError::usage(format!("--fold-lora {base}: it is a file")).hint(format!(
                "name the directory of the model: {}",
                dir.unwrap_or(Utf8Path::new("."))
            )),
        );
    }
    let Some(found) = model::exported(base.as_str())? else {
        return Err(CliError::usage(format!("--fold-lora {base}: there is no model in it"))
            .hint("name a directory with config.json and *.safetensors"));
    };
    if let Some(other) = model::adapter(&found) {
        return Err(
            CliError::usage(format!("--fold-lora {base}: it has an adapter of its own ({other})")).hint(format!(
                "`supervise merge {base} --fold-lora` folds that one; for another one, move it away"
            )),
        );
    }
    if let Some(own) = adapter.weights.tensors.iter().find(|t| !hf::is_part(&t.name)) {
        return Err(CliError::usage(format!(
            "--fold-lora {base}: the checkpoint holds the model itself ({})",
            own.name
        ))
        .hint("--fold-lora without a directory folds the adapter into that"));
    }
    let folder = model::folder(&found)?;
    let how = model::ModelOpenOptions {
        folder: Some(&folder),
        ..model::ModelOpenOptions::default()
    };
    let model = model::open(&found, how)?;
    if model.weights.tensors.iter().all(|t| hf::is_part(&t.name)) {
        return Err(CliError::usage(format!(
            "--fold-lora {base}: it holds an adapter, and no model"
        )));
    }
    Ok(adapter.beside(model))
}

/// Refuses a checkpoint without an adapter, or with nothing else.
pub(super) fn is_possible(model: &OpenModel, found: &FoundModel) -> Result<(), CliError> {
    if !model.weights.tensors.iter().any(|t| hf::is_part(&t.name)) {
        return Err(CliError::usage(format!(
            "--fold-lora: there is no adapter in {}",
            found.dir
        )));
    }
    if model.weights.tensors.iter().all(|t| hf::is_part(&t.name)) {
        return Err(
            CliError::usage(format!("--fold-lora: {} holds an adapter alone", found.dir))
                .hint("--fold-lora DIR names the model that it was trained for"),
        );
    }
    Ok(())
}

/// Adds the adapter to the tensors that it belongs to. Returns notes.
pub(super) fn fold(
    model: &mut OpenModel,
    found: &FoundModel,
    files: &SideFiles,
    alpha: Option<f64>,
    base: Option<&Utf8Path>,
) -> Result<Vec<String>, CliError> {
    let failed = |e: supervise_weights::ModelError| CliError::checkpoint(e.verdict, format!("{}: {e}", found.dir));
    // The adapter's other settings apply even if alpha is given.
    let mut other = None;
    let (scaling, by) = match config(found)? {
        Some((path, text)) => {
            other = base.and_then(|base| of_another(&text, base));
            (Scaling::parse(&text, alpha).map_err(failed)?, path.to_string())
        }
        None => {
            let rank = files.facts.as_ref().and_then(|f| f.rank);
            let scaling = Scaling::plain(files.alpha(alpha)?).with_rank(rank);
            (scaling, "lora_train_meta.json".to_owned())
        }
    };
    let by = if alpha.is_some() { "--lora-alpha".to_owned() } else { by };
    let count = hf::fold(&mut model.weights, &scaling).map_err(failed)?;
    let added = format!("an adapter was added to {count} tensors, with the factor that {by} tells");
    Ok(std::iter::once(added).chain(other).collect())
}

/// Notes that the adapter names another base model. Only a note, because directories are moved and models renamed.
fn of_another(config: &[u8], base: &Utf8Path) -> Option<String> {
    let config: serde_json::Value = serde_json::from_slice(config).ok()?;
    let named = config
        .get("base_model_name_or_path")?
        .as_str()
        .filter(|n| !n.is_empty())?;
    let real = base.canonicalize_utf8().unwrap_or_else(|_| base.to_owned());
    let own = Utf8Path::new(named);
    let is_it = match own.canonicalize_utf8() {
        Ok(own) => own == real,
        // A hub name, which is part of the path in the hub's cache.
        Err(_) => {
            let last = |path: &Utf8Path| path.file_name().map(str::to_lowercase);
            let cached = format!("models--{}", named.replace('/', "--"));
            last(own) == last(&real) || real.components().any(|part| part.as_str() == cached)
        }
    };
    (!is_it).then(|| format!("the adapter says that it was trained for {named}, and was added to {base}"))
}

fn config(found: &FoundModel) -> Result<Option<(Utf8PathBuf, Vec<u8>)>, CliError> {
    let folder = model::folder(found)?;
    for name in [CONFIG, "lora_adapter/adapter_config.json"] {
        if let Some((text, _)) = model::text(&folder, name)? {
            return Ok(Some((found.dir.join(name), text)));
        }
    }
    Ok(None)
}
