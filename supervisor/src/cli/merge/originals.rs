//! safetensors files that the trainer wrote: they have no checksums, and may already be the wanted model.

use super::index::ModelIndex;
use crate::cli::model::{self, FoundModel, OpenModel, WeightFiles};
use crate::cli::target;
use crate::error::CliError;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::{BTreeMap, HashMap};
use supervise_checkpoint::proof_record::compare;
use supervise_checkpoint::{ByteExtent, FilePin, ProvenFile};
use supervise_core::checkpoint::{CkptId, Verdict};
use supervise_host::io_worker::{RUN_DIR_NAME, fact_of, proven};
use supervise_host::model_folder::{ModelFile, ModelFolder};
use supervise_trainers::registry::of_step_name;
use supervise_weights::hf::HfPlan;
use supervise_weights::{ModelTensor, ModelWeights, OutTensor};

/// The file of a model in a single file.
const MODEL: &str = "model.safetensors";

#[derive(Debug, Default)]
pub(super) struct Originals {
    pub(super) files: Vec<Original>,
}

#[derive(Debug)]
pub(super) struct Original {
    /// Its name in the model's directory.
    pub(super) name: String,
    /// The real file, if the name is a link.
    path: Utf8PathBuf,
    pin: FilePin,
    /// As proven by a run.
    proven: Option<ProvenFile>,
}

impl Original {
    pub(super) fn bytes(&self) -> u64 {
        self.pin.size
    }

    /// Opens it again, and checks that it was not written or replaced since.
    pub(super) fn open(&self, folder: &ModelFolder) -> Result<ModelFile, CliError> {
        let opened = open(folder, &self.name)?;
        let now = pin(&opened)?;
        if (now.ino, now.size, now.mtime) == (self.pin.ino, self.pin.size, self.pin.mtime) {
            return Ok(opened);
        }
        let text = format!("{}: it was written to while it was read", self.path);
        Err(CliError::checkpoint(Verdict::Incomplete, text)
            .hint("run this again when the save has ended: nothing was written under the target's name"))
    }

    /// The checksum that a run recorded for its bytes.
    fn recorded(&self) -> Option<u32> {
        let known = self.proven.as_ref()?;
        let crc = known.report.crc.filter(|_| known.report.verdict == Verdict::Whole)?;
        // A newer file was rewritten since, for example when the step was trained again.
        (self.pin.mtime <= known.pin.mtime).then_some(crc)
    }

    /// Compares its bytes with what a run recorded. Returns the number of compared bytes.
    pub(super) fn compare(&self, crc: Option<u32>) -> Result<u64, CliError> {
        let (Some(known), Some(crc), Some(_)) = (&self.proven, crc, self.recorded()) else {
            return Ok(0);
        };
        match compare(known, &self.pin, crc).filter(|f| f.effect() != Verdict::Whole) {
            None => Ok(self.bytes()),
            Some(bad) => Err(CliError::checkpoint(
                bad.effect(),
                format!("{}: {}", self.path, bad.detail),
            )),
        }
    }
}

impl Originals {
    /// The files of a model in safetensors; empty for others, because torch stores checksums in its files.
    pub(super) fn of(
        source: &str,
        found: &FoundModel,
        folder: &ModelFolder,
        notes: &mut Vec<String>,
    ) -> Result<Self, CliError> {
        let WeightFiles::Safetensors(names) = &found.files else {
            return Ok(Self::default());
        };
        let (mut known, below) = match recorded(source, &found.dir) {
            Some((known, below)) => (
                known.unwrap_or_else(|why| {
                    notes.push(why);
                    BTreeMap::new()
                }),
                below,
            ),
            None => Default::default(),
        };
        let file = |name: &String| {
            let opened = open(folder, name)?;
            Ok(Original {
                name: name.clone(),
                pin: pin(&opened)?,
                proven: known.remove(&below.join(name)),
                path: opened.real,
            })
        };
        Ok(Self {
            files: names.iter().map(file).collect::<Result<_, CliError>>()?,
        })
    }

    /// Compares the bytes with a run's record while they are read.
    pub(super) fn mark(&self, weights: &mut ModelWeights) {
        for (file, own) in weights.files.iter_mut().zip(&self.files) {
            file.checked.extend(own.recorded().map(|crc| ByteExtent {
                off: 0,
                len: own.bytes(),
                crc: Some(crc),
                dtype: None,
                what: "the whole file".to_owned(),
            }));
        }
    }

    /// Checks that none was written since.
    pub(super) fn unchanged(&self, folder: &ModelFolder) -> Result<(), CliError> {
        self.files.iter().try_for_each(|file| file.open(folder).map(drop))
    }

    /// Why they are not the wanted model, byte for byte and with names that readers look for. `index`: theirs, if there is one.
    pub(super) fn differ(
        &self,
        model: &OpenModel,
        plan: &HfPlan,
        most: u64,
        index: Option<&ModelIndex>,
    ) -> Option<String> {
        let tensors = &model.weights.tensors;
        let is_same = |out: &OutTensor| match out.pieces.as_slice() {
            [piece] => tensors.get(piece.tensor).is_some_and(|t| {
                t.name == out.name && t.dtype == out.dtype && (piece.from, piece.to) == (0, t.elements())
            }),
            _ => false,
        };
        let cast = plan.model.iter().find_map(|out| {
            let piece = out.pieces.first()?;
            tensors.get(piece.tensor).filter(|t| t.dtype != out.dtype)
        });
        if let (Some(source), Some(dtype)) = (cast, plan.dtype()) {
            return Some(format!(
                "the trainer wrote them as {}, and {} is asked for (--dtype keep takes them as they are)",
                source.dtype.word(),
                dtype.word()
            ));
        }
        if plan.adapter.is_some() || plan.model.len() != tensors.len() || !plan.model.iter().all(is_same) {
            return Some("the model is written with other tensors than the trainer wrote".to_owned());
        }
        if !self.is_found(&model.weights, index) {
            return Some("their names are not those by which Hugging Face's libraries find them".to_owned());
        }
        let large = |n: usize| tensors.iter().filter(|t| t.chunks.iter().any(|c| c.file == n)).count() > 1;
        let mut files = self.files.iter().enumerate();
        let large = files.find(|(n, file)| file.bytes() > most && large(*n));
        large.map(|(_, file)| format!("{} is larger than --max-shard-size", file.name))
    }

    /// Returns true if readers find all of them: through a complete index, or because there is only one file.
    fn is_found(&self, weights: &ModelWeights, index: Option<&ModelIndex>) -> bool {
        let Some(ModelIndex { said, .. }) = index else {
            return matches!(self.files.as_slice(), [one] if one.name == MODEL);
        };
        let pairs = said.files.iter();
        let map: HashMap<&str, &str> = pairs
            .flat_map(|(file, tensors)| tensors.iter().map(move |tensor| (tensor.as_str(), file.as_str())))
            .collect();
        let says = |tensor: &ModelTensor| {
            let file = tensor.chunks.first().and_then(|c| self.files.get(c.file));
            file.is_some_and(|file| map.get(tensor.name.as_str()) == Some(&file.name.as_str()))
        };
        map.len() == weights.tensors.len()
            && self.files.iter().all(|file| !file.name.contains('/'))
            && weights.tensors.iter().all(says)
    }
}

/// Proven files of a step by path, or why they cannot be read; and the path of a directory in that step.
type Recorded = (Result<BTreeMap<Utf8PathBuf, ProvenFile>, String>, Utf8PathBuf);

/// The run's records of the step that contains a directory; `None` outside of steps.
fn recorded(source: &str, dir: &Utf8Path) -> Option<Recorded> {
    let dir = dir.canonicalize_utf8().ok()?;
    let is_step = |dir: &&Utf8Path| dir.file_name().is_some_and(|n| of_step_name(n).is_some());
    let step = dir.ancestors().find(is_step)?;
    let id = CkptId(step.file_name()?.into());
    let run_dir = target::find(source).ok().and_then(|seen| seen.run_dir);
    let run_dir = run_dir.unwrap_or(step.parent()?.join(RUN_DIR_NAME));
    Some((proven(&run_dir, &id), dir.strip_prefix(step).ok()?.to_owned()))
}

fn open(folder: &ModelFolder, name: &str) -> Result<ModelFile, CliError> {
    let name = Utf8Path::new(name);
    folder.open(name).map_err(|e| model::not_opened(&folder.path(name), e))
}

fn pin(opened: &ModelFile) -> Result<FilePin, CliError> {
    let meta = opened.file.metadata();
    let meta = meta.map_err(|e| CliError::checkpoint(Verdict::Unreadable, format!("{}: {e}", opened.real)))?;
    Ok(FilePin::of(&fact_of(opened.real.clone(), &meta)))
}
