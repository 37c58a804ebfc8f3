//! `supervise merge`: merges a proven step into a model for Hugging Face's libraries.

pub(super) mod files;
mod fold;
mod index;
mod link;
mod originals;
mod output;
mod upload;

use super::compare;
use super::model;
use super::new_dir;
use index::ModelIndex;
use originals::Originals;

use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::printer::{self, ByteMeter};
use crate::render::merge::MergeView;
use camino::{Utf8Path, Utf8PathBuf};
use supervise_checkpoint::Dtype;
use supervise_core::checkpoint::Verdict;
use supervise_weights::compare::Tolerance;
use supervise_weights::{OutTensor, hf};

pub(super) const EXAMPLES: &str =
    "  supervise merge ppo.yaml --target model                      the newest proven step of a run
  supervise merge /ckpt/my-run --step 120 --target model --dtype keep
  supervise merge /ckpt/my-run/global_step_120/critic --target critic
  supervise merge /ckpt/my-run --target model --upload my-org/my-model --private
";

pub(super) const EXITS: [SuperviseExitCode; 12] = [
    SuperviseExitCode::Finished,
    SuperviseExitCode::Different,
    SuperviseExitCode::NoProof,
    SuperviseExitCode::Incomplete,
    SuperviseExitCode::Damaged,
    SuperviseExitCode::Unsafe,
    SuperviseExitCode::Unknown,
    SuperviseExitCode::Unreadable,
    SuperviseExitCode::Usage,
    SuperviseExitCode::Environment,
    SuperviseExitCode::Internal,
    SuperviseExitCode::Config,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum DtypeArg {
    Bfloat16,
    Float16,
    Float32,
    /// As they are in the checkpoint.
    Keep,
}

impl DtypeArg {
    pub(super) fn dtype(self) -> Option<Dtype> {
        match self {
            Self::Bfloat16 => Some(Dtype::Bf16),
            Self::Float16 => Some(Dtype::F16),
            Self::Float32 => Some(Dtype::F32),
            Self::Keep => None,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run, a checkpoint root, a step, or one role of it
    #[arg(value_name = "RUN|DIR")]
    source: String,
    /// Directory to create; must not exist, or be empty
    #[arg(long, value_name = "DIR", required_unless_present = "test")]
    target: Option<Utf8PathBuf>,
    /// Compare with this model instead of writing
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["target", "like", "upload", "prefix", "keep_names"])]
    test: Option<String>,
    /// Step of the run or root [default: the newest proven]
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    /// Role of the step [default: actor, or the only one]
    #[arg(long)]
    role: Option<String>,
    /// Type of the written numbers
    #[arg(long, value_enum, default_value = "bfloat16")]
    dtype: DtypeArg,
    /// Maximum size of a weight file
    #[arg(long, value_name = "SIZE", default_value = "50GB", value_parser = supervise_config::settings::parse_bytes)]
    max_shard_size: u64,
    /// Directory of the model that was trained from
    ///
    /// Its tensors are compared by name and shape, and files that the step lacks are copied from it.
    #[arg(long, value_name = "DIR")]
    like: Option<Utf8PathBuf>,
    /// Keep the tensor names of the checkpoint
    #[arg(long)]
    keep_names: bool,
    /// Prefix of the model's names in a DCP checkpoint [default: detected]
    ///
    /// DCP: torch.distributed.checkpoint.
    #[arg(long, value_name = "NAME")]
    prefix: Option<String>,
    /// Check that FSDP replicas are equal (hybrid mesh)
    #[arg(long)]
    check_replicas: bool,
    /// Add the LoRA adapter to the model
    ///
    /// BASE is the directory of the model, needed if the checkpoint holds an adapter alone.
    #[arg(long, value_name = "BASE", num_args = 0..=1, conflicts_with_all = ["keep_names", "test"])]
    fold_lora: Option<Option<Utf8PathBuf>>,
    /// The adapter's alpha, instead of the checkpoint's
    #[arg(long, value_name = "NUMBER", value_parser = positive)]
    lora_alpha: Option<f64>,
    /// Upload the model to this repository with `hf`
    #[arg(long, value_name = "ORG/NAME")]
    upload: Option<String>,
    /// Create the repository as private
    #[arg(long, requires = "upload")]
    private: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if n.is_finite() && n > 0.0 => Ok(n),
        _ => Err("expected a number above 0".to_owned()),
    }
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    supervise_host::system::raise_open_files();
    match (&args.test, &args.target) {
        (Some(model), _) => test(args, model),
        (None, Some(target)) => merge(args, target),
        (None, None) => Err(CliError::usage("name a directory with --target")),
    }
}

/// As `verl.model_merger test`: compares what would be written with the other model, with a tolerance of one millionth.
fn test(args: &Args, model: &str) -> Result<u8, CliError> {
    let wanted = compare::ModelSelector {
        step: args.step,
        role: args.role.as_deref(),
        replicas: args.check_replicas,
        ..compare::ModelSelector::default()
    };
    let tolerance = Tolerance {
        as_type: args.dtype.dtype(),
        absolute: 1e-6,
    };
    let view = compare::two(&args.source, model, &wanted, tolerance)?;
    if args.json {
        super::print_json(&view)?;
    } else {
        super::print(&view.text())?;
    }
    Ok(view.exit_code())
}

fn merge(args: &Args, target: &Utf8Path) -> Result<u8, CliError> {
    if let Some(name) = &args.upload {
        upload::possible(name)?;
    }
    new_dir::may_be_made(target)?;
    let mut meter = ByteMeter::new();
    let found = source(args, &mut meter)?;
    let mut notes = Vec::new();
    let folder = model::folder(&found)?;
    let originals = Originals::of(&args.source, &found, &folder, &mut notes)?;
    let how = model::ModelOpenOptions {
        prefix: args.prefix.as_deref(),
        replicas: args.check_replicas,
        folder: Some(&folder),
    };
    let mut model = model::open(&found, how)?;
    originals.mark(&mut model.weights);
    if args.check_replicas {
        model.notes.extend(model::replicas(&found, &model)?);
    }
    let base = args.fold_lora.as_ref().and_then(Option::as_deref);
    if let Some(base) = base {
        model = fold::with_base(model, base)?;
    }
    if args.fold_lora.is_some() {
        fold::is_possible(&model, &found)?;
    }
    meter.end();
    // A Trainer checkpoint whose weights have their own directory is left untouched, too.
    let around = Some(found.beside.as_path()).filter(|dir| model::trainers_step(dir).is_some());
    for read in [Some(found.dir.as_path()), around, base].into_iter().flatten() {
        new_dir::is_outside(target, read)?;
    }
    let trained = match (args.like.as_deref(), base) {
        (Some(dir), _) => Some(files::TrainedModel { option: "--like", dir }),
        (None, base) => base.map(|dir| files::TrainedModel {
            option: "--fold-lora",
            dir,
        }),
    };
    let files = files::SideFiles::of(&found, trained)?;
    let folded = match args.fold_lora {
        Some(_) => fold::fold(&mut model, &found, &files, args.lora_alpha, base)?,
        None => Vec::new(),
    };
    let options = hf::Options {
        dtype: args.dtype.dtype(),
        keep_names: args.keep_names,
    };
    if files.config.is_quantised() && options.dtype.is_some() {
        let text = format!(
            "{}: its numbers are quantised (quantization_config), and no other type fits their tables",
            found.dir
        );
        return Err(CliError::checkpoint(Verdict::Unknown, text).hint("--dtype keep writes them as they are"));
    }
    let mut plan = model::plan(&model, &files.config, options).map_err(|e| refused(e, args))?;
    if let Some(tied) = &plan.tied {
        same_numbers(&model, tied)?;
    }
    for [first, second] in &plan.same {
        let is_same = model::is_same(&model, [first, second])?;
        if !is_same {
            let text = format!(
                "{}: the checkpoint has it under two names, and their numbers differ",
                first.name
            );
            return Err(CliError::checkpoint(Verdict::Damaged, text));
        }
    }
    plan.notes
        .extend(model.notes.iter().cloned().chain(folded).chain(notes));
    if let Some(base) = &args.like {
        let of_values = files
            .config
            .architecture()
            .is_some_and(|a| a.ends_with("ForTokenClassification"));
        let other_head = plan.critic || of_values || files.config.is_tied();
        files::compare_names(base, &plan.model, other_head)?;
    }
    let adapter = match plan.adapter.take() {
        Some(adapter) => Some(files.adapter(adapter, args.lora_alpha)?),
        None => None,
    };
    // Files of a Trainer checkpoint are not linked: only Trainer may overwrite them.
    let may_be_linked = !originals.files.is_empty() && args.fold_lora.is_none() && !model::is_of_trainer(&found);
    let index = match may_be_linked {
        true => ModelIndex::read(&folder)?,
        false => None,
    };
    let differ = || originals.differ(&model, &plan, args.max_shard_size, index.as_ref());
    let written = match may_be_linked.then(differ) {
        Some(None) => link::link(target, index, &folder, &originals, &plan, &files)?,
        why => {
            plan.notes
                .extend(why.flatten().map(|why| format!("its files are written anew: {why}")));
            output::write(target, args.max_shard_size, &model, &plan, adapter, &files, || {
                originals.unchanged(&folder)
            })?
        }
    };
    if written.is_same_file {
        let note = "its files of weights are those of the checkpoint, under a second name: what writes into the one changes the other";
        plan.notes.push(note.to_owned());
    }
    for note in plan.notes.iter().chain(&files.notes) {
        printer::last_note(note);
    }
    let view = MergeView {
        source: found.dir.clone(),
        step: found.step.map(|s| s.0),
        role: found.role.clone(),
        target: target.to_owned(),
        files: written.files,
        tensors: plan.model.len() as u64,
        linked: written.linked,
        bytes_written: written.bytes,
        bytes_checked: written.checked,
        milliseconds: written.took.as_millis() as u64,
        through_links: model.links.iter().chain(&files.links).cloned().collect(),
        notes: plan.notes.into_iter().chain(files.notes).collect(),
    };
    if args.json {
        super::print_json(&view)?;
    } else {
        super::print(&view.text())?;
    }
    if let Some(name) = &args.upload {
        upload::perform(target, name, args.private)?;
    }
    Ok(SuperviseExitCode::Finished.code())
}

/// The named weights, unless they are a merged model already.
fn source(args: &Args, meter: &mut ByteMeter) -> Result<model::FoundModel, CliError> {
    let is_folded = args.fold_lora.is_some();
    let adapter = fold::adapter_dir(&args.source).filter(|_| is_folded);
    let found = match adapter.map_or_else(|| model::exported(&args.source), |found| Ok(Some(found)))? {
        Some(found) if args.step.is_some_and(|n| found.step.is_none_or(|own| own.0 != n)) => {
            let text = format!(
                "{}: it is one model, and not step {}",
                args.source,
                args.step.unwrap_or_default()
            );
            return Err(CliError::usage(text).hint("name the checkpoint root or the run with --step"));
        }
        Some(found) if is_folded || model::is_of_trainer(&found) => found,
        Some(found) => {
            return Err(CliError::usage(format!("{}: it is a merged model already", found.dir))
                .hint("name a run, a checkpoint root, a step or a role; `supervise compare` compares models"));
        }
        None => model::find(&args.source, args.step, args.role.as_deref(), meter)?,
    };
    if !is_folded && fold::adapter_dir(found.dir.as_str()).is_some() {
        return Err(CliError::usage(format!("{}: it holds an adapter alone", found.dir))
            .hint("--fold-lora DIR adds it to the model that it was trained for"));
    }
    Ok(found)
}

/// A tied head is not written, so it must equal the embeddings.
fn same_numbers(model: &model::OpenModel, [head, embeddings]: &[OutTensor; 2]) -> Result<(), CliError> {
    match model::is_same(model, [head, embeddings])? {
        true => Ok(()),
        false => Err(CliError::checkpoint(
            Verdict::Damaged,
            format!(
                "config.json ties {} to the embeddings, and their numbers differ",
                head.name
            ),
        )
        .hint("--keep-names writes both; a model with a head of its own has tie_word_embeddings: false")),
    }
}

/// Adds a hint for unknown names.
fn refused(problem: supervise_weights::ModelError, args: &Args) -> CliError {
    let e = CliError::checkpoint(problem.verdict, problem.text);
    match problem.verdict {
        supervise_core::checkpoint::Verdict::Unknown if !args.keep_names => {
            e.hint("--keep-names writes the tensors under the names that the checkpoint has")
        }
        _ => e,
    }
}
