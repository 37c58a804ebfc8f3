//! Writes the target directory: under a temporary name, checked as any reader would, then renamed.

use super::files::{AdapterOut, SideFiles};
use crate::cli::model::OpenModel;
use crate::cli::new_dir::{self, Opened};
use crate::error::CliError;
use crate::printer::ByteMeter;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use supervise_checkpoint::set::{self, SetKind};
use supervise_checkpoint::{FileReport, SweepOptions, SweepProgress};
use supervise_core::checkpoint::{Depth, Verdict};
use supervise_host::io_worker::FileProver;
use supervise_host::output_dir::OutputDir;
use supervise_weights::hf::HfPlan;
use supervise_weights::layout;
use supervise_weights::{ModelError, ModelReader, OutFile, OutTensor};

/// Directory of the adapter, as verl names it.
const ADAPTER: &str = "lora_adapter";
/// Permissions of new files, before the umask.
const NEW: u32 = 0o666;
pub(super) const INDEX: &str = "model.safetensors.index.json";

#[derive(Default)]
pub(super) struct MergeStats {
    pub(super) files: Vec<String>,
    pub(super) bytes: u64,
    /// Bytes of the source that were compared with their checksums.
    pub(super) checked: u64,
    /// Files that share the source's bytes.
    pub(super) linked: u64,
    /// Some of them are hard links to the source's files.
    pub(super) is_same_file: bool,
    pub(super) took: Duration,
}

/// Writes everything, then renames the directory.
pub(super) fn write(
    target: &Utf8Path,
    most: u64,
    model: &OpenModel,
    plan: &HfPlan,
    adapter: Option<AdapterOut>,
    files: &SideFiles,
    unchanged: impl Fn() -> Result<(), CliError>,
) -> Result<MergeStats, CliError> {
    let began = Instant::now();
    let mut all = plan.model.clone();
    let mut out = layout::files(&all, "model", most);
    let index = layout::index(&out, &all).map(|text| (text, NEW));
    if let Some(adapter) = &adapter {
        add_adapter(&mut all, &mut out, &adapter.tensors);
    }
    let bytes = out.iter().map(|f| f.bytes).sum();
    let dir = new_dir::begin(target, bytes)?;
    let made = MergeOutput {
        dir: &dir,
        tensors: &all,
        files: &out,
    };
    let small = small(plan, files, index, adapter.map(|a| a.config));
    let done = made.fill(model, &small, unchanged).map(|(files, checked)| MergeStats {
        files,
        bytes,
        checked,
        ..MergeStats::default()
    });
    finish(dir, done, target, began)
}

/// Renames the directory if all went well.
pub(super) fn finish(
    dir: OutputDir,
    done: Result<MergeStats, CliError>,
    target: &Utf8Path,
    began: Instant,
) -> Result<MergeStats, CliError> {
    match done {
        Ok(written) => {
            dir.finish()
                .map_err(|e| CliError::environment(format!("{}: {e}", target)))?;
            Ok(MergeStats {
                took: began.elapsed(),
                ..written
            })
        }
        Err(e) => {
            dir.abandon();
            Err(e)
        }
    }
}

/// Adapts the configuration to what was written.
pub(super) fn small<'a>(
    plan: &HfPlan,
    files: &'a SideFiles,
    index: Option<(String, u32)>,
    adapter: Option<String>,
) -> Small<'a> {
    let config = match plan.critic {
        true => files.config.of_critic(),
        false => files.config.clone(),
    };
    Small {
        config: config.with_dtype(plan.dtype()),
        files,
        index,
        adapter,
    }
}

/// Adds the adapter's tensors to the same pass, in their own directory.
fn add_adapter(all: &mut Vec<OutTensor>, out: &mut Vec<OutFile>, tensors: &[OutTensor]) {
    let first = all.len();
    for mut file in layout::files(tensors, "adapter_model", u64::MAX) {
        file.name = format!("{ADAPTER}/{}", file.name);
        for (n, _) in &mut file.tensors {
            *n += first;
        }
        out.push(file);
    }
    all.extend_from_slice(tensors);
}

pub(super) struct Small<'a> {
    config: String,
    files: &'a SideFiles,
    /// With its permissions.
    index: Option<(String, u32)>,
    adapter: Option<String>,
}

struct MergeOutput<'a> {
    dir: &'a OutputDir,
    tensors: &'a [OutTensor],
    files: &'a [OutFile],
}

impl MergeOutput<'_> {
    /// Writes all files. Returns their names and how many bytes of the source were compared.
    fn fill(
        &self,
        model: &OpenModel,
        small: &Small<'_>,
        unchanged: impl Fn() -> Result<(), CliError>,
    ) -> Result<(Vec<String>, u64), CliError> {
        let opened = Opened::create(self.dir, self.files.iter().map(|f| (f.name.as_str(), f.bytes)))?;
        let total: u64 = self.files.iter().map(|f| f.bytes).sum();
        let mut meter = ByteMeter::of_writing();
        let threads = new_dir::threads();
        let reading = ModelReader::new(&model.weights, &model.sources);
        let checked = supervise_weights::write(reading, self.tensors, self.files, &opened, threads, &mut |done| {
            meter.tell(done, Some(total));
            ControlFlow::Continue(())
        });
        meter.end();
        let source = |problem: ModelError| CliError::checkpoint(problem.verdict, problem.text);
        let checked = checked.map_err(|e| new_dir::ended(self.dir, e, source))?;
        let small = small.write(self.dir)?;
        opened.finish(self.dir)?;
        unchanged()?;
        self.judge()?;
        let names = self.files.iter().map(|f| f.name.clone());
        Ok((names.chain(small).collect(), checked))
    }

    /// Checks the weights as any reader would: headers, sizes, the index.
    fn judge(&self) -> Result<(), CliError> {
        let of = |file: &OutFile| {
            Utf8Path::new(&file.name)
                .parent()
                .map(|below| self.dir.path().join(below))
        };
        let dirs: BTreeSet<Utf8PathBuf> = self.files.iter().filter_map(of).collect();
        let look =
            |dir: &Utf8PathBuf| judged(self.dir, dir, Depth::Structure, &mut |_| ControlFlow::Continue(())).map(drop);
        dirs.iter().try_for_each(look)
    }
}

impl Small<'_> {
    /// Writes the files. Returns their names.
    pub(super) fn write(&self, dir: &OutputDir) -> Result<Vec<String>, CliError> {
        let mut names = Vec::new();
        let mut put = |name: &str, bytes: &[u8], mode| {
            names.push(name.to_owned());
            dir.write_as(name, bytes, mode).map_err(|e| new_dir::failed(dir, &e))
        };
        put("config.json", self.config.as_bytes(), self.files.config_mode)?;
        if let Some((index, mode)) = &self.index {
            put(INDEX, index.as_bytes(), *mode)?;
        }
        if let Some(config) = &self.adapter {
            put(&format!("{ADAPTER}/adapter_config.json"), config.as_bytes(), NEW)?;
        }
        names.extend(self.files.copy(dir, "")?);
        Ok(names)
    }
}

pub(super) type FileReports = BTreeMap<String, FileReport>;

/// Reports on the files of a new directory, all of which must be whole.
pub(super) fn judged(
    out: &OutputDir,
    dir: &Utf8Path,
    depth: Depth,
    tell: &mut dyn FnMut(SweepProgress) -> ControlFlow<()>,
) -> Result<FileReports, CliError> {
    let names: BTreeMap<String, u64> = dir
        .read_dir_utf8()
        .and_then(|entries| {
            let size = |e: io::Result<camino::Utf8DirEntry>| {
                let e = e?;
                Ok((e.file_name().to_owned(), e.metadata()?.len()))
            };
            entries.map(size).collect()
        })
        .map_err(|e| new_dir::failed(out, &e))?;
    let needs = set::needs(SetKind::Weights, names.keys().map(String::as_str));
    let options = SweepOptions {
        zero: depth == Depth::Full,
        finite: false,
    };
    let reports: FileReports = FileProver::new(dir)
        .prove(&needs, depth, options, tell)
        .into_iter()
        .map(|(path, report)| (path.into_string(), report))
        .collect();
    let judged = set::judge(SetKind::Weights, &names, &reports);
    match judged.verdict {
        Verdict::Whole => Ok(reports),
        verdict => {
            let why = judged.findings.first().map(ToString::to_string).unwrap_or_default();
            Err(CliError::checkpoint(
                verdict,
                format!("what would be written is {verdict}: {why}"),
            ))
        }
    }
}
