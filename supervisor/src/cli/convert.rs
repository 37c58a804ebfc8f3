//! `supervise convert`: converts a model for another library.

mod write;

use super::merge::DtypeArg;
use super::merge::files::SideFiles;
use super::{model, new_dir};
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::printer;
use crate::render::convert::ConvertView;
use camino::Utf8PathBuf;
use supervise_core::checkpoint::Verdict;
use supervise_weights::ModelError;
use supervise_weights::megatron::{self, KeyStyle, MegatronForm};

pub(super) const EXAMPLES: &str = "  supervise convert hf-to-megatron model --target model-megatron
  supervise convert hf-to-megatron model --target model-megatron --dtype bfloat16 --keys layers
";

pub(super) const EXITS: [SuperviseExitCode; 9] = [
    SuperviseExitCode::Finished,
    SuperviseExitCode::Incomplete,
    SuperviseExitCode::Damaged,
    SuperviseExitCode::Unsafe,
    SuperviseExitCode::Unknown,
    SuperviseExitCode::Unreadable,
    SuperviseExitCode::Usage,
    SuperviseExitCode::Environment,
    SuperviseExitCode::Internal,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Conversion {
    /// From a Hugging Face model to a Megatron checkpoint for any parallel sizes (torch_dist).
    HfToMegatron,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum KeysArg {
    /// All layers in one tensor: decoder.layers.mlp.linear_fc1.weight.
    Stacked,
    /// One tensor for each layer: decoder.layers.3.mlp.linear_fc1.weight.
    Layers,
    /// One tensor for each layer, expert and half (singleton_local_shards).
    Single,
}

impl From<KeysArg> for KeyStyle {
    fn from(keys: KeysArg) -> Self {
        match keys {
            KeysArg::Stacked => Self::Stacked,
            KeysArg::Layers => Self::Layers,
            KeysArg::Single => Self::Single,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Conversion to do
    #[arg(value_enum, value_name = "WAY")]
    way: Conversion,
    /// Directory of a model: safetensors and config.json
    #[arg(value_name = "MODEL")]
    model: String,
    /// Directory to create; must not exist, or be empty
    #[arg(long, value_name = "DIR")]
    target: Utf8PathBuf,
    /// Type of the written numbers
    #[arg(long, value_enum, default_value = "keep")]
    dtype: DtypeArg,
    /// How Megatron names layer tensors [default: by the model]
    #[arg(long, value_enum)]
    keys: Option<KeysArg>,
    /// Size of the chunks in which tensors are stored
    ///
    /// A rank reads every chunk of which it needs a part.
    #[arg(long, value_name = "SIZE", default_value = "64MB", value_parser = supervise_config::settings::parse_bytes)]
    chunk_size: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    supervise_host::system::raise_open_files();
    let Conversion::HfToMegatron = args.way;
    new_dir::may_be_made(&args.target)?;
    let Some(found) = model::exported(&args.model)? else {
        return Err(CliError::usage(format!("{}: there is no model in it", args.model))
            .hint("name a directory with config.json and *.safetensors: `supervise merge` makes one of a checkpoint"));
    };
    if let Some(adapter) = model::adapter(&found) {
        return Err(CliError::usage(format!(
            "{}/{adapter}: the model has an adapter beside it, and Megatron has no name for that",
            found.dir
        ))
        .hint("`supervise merge MODEL --fold-lora --target DIR` adds it to the model; or take the model alone"));
    }
    let folder = model::folder(&found)?;
    let how = model::ModelOpenOptions {
        folder: Some(&folder),
        ..model::ModelOpenOptions::default()
    };
    let source = model::open(&found, how)?;
    new_dir::is_outside(&args.target, &found.dir)?;
    if !found.dir.join("config.json").is_file() {
        let text = format!(
            "{}/config.json is missing: nothing tells which model this is",
            found.dir
        );
        return Err(CliError::checkpoint(Verdict::Incomplete, text));
    }
    let beside = SideFiles::of(&found, None)?;
    let form = MegatronForm {
        dtype: args.dtype.dtype(),
        keys: args.keys.map(KeyStyle::from),
        chunk: args.chunk_size,
    };
    let at = |e: ModelError| CliError::checkpoint(e.verdict, format!("{}: {e}", found.dir));
    let made = megatron::backward(&source.weights, &beside.config, form).map_err(at)?;
    for [one, other] in &made.same {
        if !model::is_same(&source, [one, other])? {
            let text = format!(
                "{}: {} should be what the model has elsewhere, and its numbers differ",
                found.dir, one.name
            );
            return Err(CliError::checkpoint(Verdict::Damaged, text));
        }
    }
    let notes: Vec<String> = made.notes.iter().chain(&beside.notes).cloned().collect();
    let through_links = source.links.iter().chain(&beside.links).cloned().collect();
    let (keys, tensors) = (made.keys, made.tensors.len() as u64);
    let written = write::all(&args.target, &source, made, &beside, form.dtype)?;
    for note in &notes {
        printer::last_note(note);
    }
    let view = ConvertView {
        source: found.dir,
        target: args.target.clone(),
        keys: match keys {
            KeyStyle::Stacked => "stacked",
            KeyStyle::Layers => "layers",
            KeyStyle::Single => "single",
        },
        files: written.files,
        tensors,
        bytes_written: written.bytes,
        milliseconds: written.took.as_millis() as u64,
        through_links,
        notes,
    };
    if args.json {
        super::print_json(&view)?;
    } else {
        super::print(&view.text())?;
    }
    Ok(SuperviseExitCode::Finished.code())
}
