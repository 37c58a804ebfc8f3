//! `supervise compare`: whether two models are the same.

use super::model::{self, FoundModel, OpenModel, WeightFiles};
use super::new_dir;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::printer::ByteMeter;
use crate::render::compare::CompareView;
use camino::{Utf8Path, Utf8PathBuf};
use std::ops::ControlFlow;
use supervise_checkpoint::{Dtype, FileKind, small_files};
use supervise_core::checkpoint::Verdict;
use supervise_host::io_worker::FileSource;
use supervise_weights::compare::{ComparedModel, Tolerance, compare};
use supervise_weights::hf::{self, ModelConfig};
use supervise_weights::{ModelError, ModelReader, OutTensor};

pub(super) const EXAMPLES: &str = "  supervise compare /ckpt/my-run/global_step_120 /ckpt/other/global_step_120
  supervise compare /ckpt/my-run model --as bfloat16
  supervise compare old/model.safetensors new/model.safetensors --tolerance 1e-6
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
pub(super) enum AsArg {
    Bfloat16,
    Float16,
    Float32,
    Float64,
}

impl AsArg {
    fn dtype(self) -> Dtype {
        match self {
            Self::Bfloat16 => Dtype::Bf16,
            Self::Float16 => Dtype::F16,
            Self::Float32 => Dtype::F32,
            Self::Float64 => Dtype::F64,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run, checkpoint root, step, role, model or safetensors file
    ///
    /// Of a run or checkpoint root, its newest proven step is compared.
    #[arg(value_name = "A")]
    first: String,
    /// The other one
    #[arg(value_name = "B")]
    second: String,
    /// Step of the run or root [default: the newest proven]
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    /// Role of the step [default: actor, or the only one]
    #[arg(long)]
    role: Option<String>,
    /// Prefix of the model's names in a DCP checkpoint [default: detected]
    ///
    /// DCP: torch.distributed.checkpoint.
    #[arg(long, value_name = "NAME")]
    prefix: Option<String>,
    /// Directory of the model that was trained from
    ///
    /// Its config.json gives the tensor names of a step that has none.
    #[arg(long, value_name = "DIR")]
    like: Option<Utf8PathBuf>,
    /// Also check that FSDP replicas are equal (hybrid mesh)
    #[arg(long)]
    check_replicas: bool,
    /// Cast both to this type first [default: types must match]
    #[arg(long = "as", value_enum, value_name = "TYPE")]
    as_type: Option<AsArg>,
    /// Largest difference of two numbers that counts as equal
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = tolerance)]
    tolerance: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if n.is_finite() && n >= 0.0 => Ok(n),
        _ => Err("expected a number, 0 or above".to_owned()),
    }
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    supervise_host::system::raise_open_files();
    let wanted = ModelSelector {
        step: args.step,
        role: args.role.as_deref(),
        prefix: args.prefix.as_deref(),
        like: args.like.as_deref(),
        replicas: args.check_replicas,
    };
    let tolerance = Tolerance {
        as_type: args.as_type.map(AsArg::dtype),
        absolute: args.tolerance,
    };
    let view = two(&args.first, &args.second, &wanted, tolerance)?;
    if args.json {
        super::print_json(&view)?;
    } else {
        super::print(&view.text())?;
    }
    Ok(view.exit_code())
}

/// Options that complete an ambiguous name.
#[derive(Default)]
pub(super) struct ModelSelector<'a> {
    pub(super) step: Option<u64>,
    pub(super) role: Option<&'a str>,
    pub(super) prefix: Option<&'a str>,
    /// Directory of the model that was trained.
    pub(super) like: Option<&'a Utf8Path>,
    /// Compare replicas that several ranks hold.
    pub(super) replicas: bool,
}

pub(super) fn two(a: &str, b: &str, wanted: &ModelSelector<'_>, tolerance: Tolerance) -> Result<CompareView, CliError> {
    if let Some(like) = wanted.like.filter(|like| config(&like.join("config.json")).is_none()) {
        let text = format!("--like {like}: there is no config.json of a model in it");
        return Err(CliError::usage(text).hint("name the directory of the model that was trained"));
    }
    let mut meter = ByteMeter::new();
    let mut first = CompareSide::find(a, wanted, &mut meter)?;
    let mut second = CompareSide::find(b, wanted, &mut meter)?;
    let sharded = |side: &CompareSide| matches!(side.found.files, WeightFiles::Fsdp(_));
    if wanted.replicas && !sharded(&first) && !sharded(&second) {
        return Err(CliError::usage(
            "--check-replicas: neither of the two is made of shards of FSDP",
        ));
    }
    let distributed = |side: &CompareSide| matches!(side.found.files, WeightFiles::Distributed(_));
    if wanted.prefix.is_some() && !distributed(&first) && !distributed(&second) {
        return Err(CliError::usage(
            "--prefix: neither of the two is a checkpoint of torch.distributed.checkpoint",
        ));
    }
    if let Some(like) = wanted.like {
        let merged = |side: &CompareSide| matches!(side.found.files, WeightFiles::Safetensors(_));
        if merged(&first) && merged(&second) {
            return Err(
                CliError::usage(format!("--like {like}: both have the names of a merged model already"))
                    .hint("leave it out"),
            );
        }
    }
    let both = first.has(hf::HEAD) && second.has(hf::HEAD);
    first.with_head_if(both);
    second.with_head_if(both);
    let threads = new_dir::threads();
    let compared = compare(first.side(), second.side(), tolerance, threads, &mut |done, of| {
        // In 4-byte numbers: the source may be narrower.
        meter.tell(done * 4, Some(of * 4));
        ControlFlow::Continue(())
    });
    meter.end();
    let compared = compared.map_err(|e| CliError::checkpoint(e.verdict, e.text))?;
    let Some(compared) = compared else {
        return Err(CliError::internal("the comparison was interrupted"));
    };
    Ok(CompareView::of(first.path, second.path, compared))
}

struct CompareSide {
    found: FoundModel,
    /// The named file, or the directory that was found.
    path: Utf8PathBuf,
    model: OpenModel,
    tensors: Vec<OutTensor>,
    /// A tied head, which would not be written.
    head: Option<OutTensor>,
}

impl CompareSide {
    /// The step option applies only to a run or root; a model has no steps and no roles.
    fn find(name: &str, wanted: &ModelSelector<'_>, meter: &mut ByteMeter) -> Result<Self, CliError> {
        let found = match model::exported(name)? {
            Some(found) => found,
            None => model::find(name, wanted.step, wanted.role, meter)?,
        };
        let prefix = wanted
            .prefix
            .filter(|_| matches!(found.files, WeightFiles::Distributed(_)));
        let replicas = wanted.replicas;
        let model = model::open(
            &found,
            model::ModelOpenOptions {
                prefix,
                replicas,
                folder: None,
            },
        )?;
        let (tensors, head) = on_disk(&found, &model, wanted.like)
            .map_err(|e| CliError::checkpoint(e.verdict, format!("{}: {e}", found.dir)))?;
        let path = match Utf8Path::new(name).is_file() {
            true => Utf8PathBuf::from(name),
            false => found.dir.clone(),
        };
        Ok(Self {
            path,
            found,
            model,
            tensors,
            head,
        })
    }

    /// Includes a tied head if the other model has one too.
    fn with_head_if(&mut self, other_has: bool) {
        self.tensors.extend(self.head.take().filter(|_| other_has));
    }

    fn has(&self, name: &str) -> bool {
        self.head.iter().chain(&self.tensors).any(|t| t.name == name)
    }

    fn side(&self) -> ComparedModel<'_> {
        ComparedModel {
            reading: ModelReader::new(&self.model.weights, &self.model.sources),
            tensors: &self.tensors,
        }
    }
}

/// A model's tensors with their written names, including the adapter's; with their own names if the kind of model is unknown.
fn on_disk(
    found: &FoundModel,
    model: &OpenModel,
    like: Option<&Utf8Path>,
) -> Result<(Vec<OutTensor>, Option<OutTensor>), ModelError> {
    let config = match found.files {
        WeightFiles::Safetensors(_) => None,
        WeightFiles::Fsdp(_) | WeightFiles::Distributed(_) | WeightFiles::Zero { .. } => {
            let dirs = std::iter::once(found.beside.as_path()).chain(like);
            dirs.map(|dir| dir.join("config.json")).find_map(|path| config(&path))
        }
    };
    let as_written = config.map(|config| model::plan(model, &config, hf::Options::default()));
    match as_written {
        Some(Ok(plan)) => {
            let adapter = plan.adapter.into_iter().flat_map(|a| a.tensors);
            let head = plan.tied.map(|[head, _]| head);
            Ok((plan.model.into_iter().chain(adapter).collect(), head))
        }
        Some(Err(e)) if e.verdict != Verdict::Unknown => Err(e),
        _ => Ok((hf::plan_as_is(&model.weights, None)?.model, None)),
    }
}

fn config(path: &Utf8Path) -> Option<ModelConfig> {
    let source = FileSource::open(&path.canonicalize_utf8().ok()?).ok()?;
    let text = small_files::read_text(FileKind::ModelConfig, &source, &model::limits().ok()?).ok()?;
    ModelConfig::parse(&text).ok()
}
