//! Content of a step: shards to reshard, states of ranks, files to copy.

use super::NotCut;
use crate::io_worker::files::{FileSource, walk};
use camino::{Utf8Path, Utf8PathBuf};
use serde_json::Value;
use std::collections::BTreeMap;
use supervise_checkpoint::json::FsdpConfig;
use supervise_checkpoint::small_files::{read_fsdp_config, read_text};
use supervise_checkpoint::{FileKind, InspectLimits};
use supervise_core::checkpoint::{EntryKind, FileFact, Finding, Verdict};

/// The file that holds the number of ranks that saved a role.
const CONFIG: &str = "fsdp_config.json";

/// A step's files, each by its path in the step.
#[derive(Debug, Default)]
pub struct StepContent {
    pub world: u64,
    /// Groups of files to reshard: their common prefix, up to the number of ranks.
    pub cut: Vec<String>,
    /// Groups of files with per-rank state that is not part of a tensor.
    pub states: Vec<String>,
    /// There is a dataloader position for each rank (`data_R.pt`).
    pub data: bool,
    pub first: Vec<Utf8PathBuf>,
    pub configs: Vec<Utf8PathBuf>,
    pub others: Vec<(Utf8PathBuf, u64)>,
}

/// Reads which files a step has.
///
/// # Errors
/// Files that are missing, or that cannot be resharded.
pub fn of(dir: &Utf8Path) -> Result<StepContent, NotCut> {
    let mut facts: Vec<FileFact> = Vec::new();
    walk(dir, Utf8Path::new(""), &mut facts).map_err(|e| NotCut::machine(format!("{dir}: {e}")))?;
    let mut out = StepContent::default();
    let mut groups: BTreeMap<(String, u64), Vec<u64>> = BTreeMap::new();
    let mut ranks_of_data = Vec::new();
    for fact in facts {
        match fact.kind {
            EntryKind::File => {}
            EntryKind::Dir => continue,
            _ => return Err(refused(format!("{dir}/{}: it is no file and no directory", fact.path))),
        }
        let name = fact.path.file_name().unwrap_or_default();
        if let Some((group, world, rank)) = shard(fact.path.as_str()) {
            groups.entry((group.to_owned(), world)).or_default().push(rank);
        } else if let Some(rank) = fact
            .path
            .as_str()
            .strip_prefix("data_")
            .and_then(|n| n.strip_suffix(".pt")?.parse::<u64>().ok())
        {
            ranks_of_data.push(rank);
        } else if name == CONFIG {
            out.configs.push(fact.path);
        } else {
            out.others.push((fact.path, fact.size));
        }
    }
    for ((group, world), mut ranks) in groups {
        if out.world != 0 && world != out.world {
            return Err(refused(format!(
                "{dir}: it holds files of {} and of {world} ranks",
                out.world
            )));
        }
        out.world = world;
        ranks.sort_unstable();
        if let Some(gone) = (0..world).find(|r| ranks.binary_search(r).is_err()) {
            let text = format!("{dir}: {group}_world_size_{world}_rank_{gone}.pt is missing");
            return Err(NotCut::step(Verdict::Incomplete, text));
        }
        match group.rsplit('/').next() {
            Some("model" | "optim") => out.cut.push(group),
            _ => out.states.push(group),
        }
    }
    if out.cut.is_empty() {
        return Err(refused(format!("{dir}: there are no shards of FSDP in it"))
            .hint("only steps of FSDP trainers are cut anew; Megatron's are read by any number of ranks"));
    }
    out.first_fsdp(dir)?;
    ranks_of_data.sort_unstable();
    out.data = !ranks_of_data.is_empty();
    if out.data && ranks_of_data != (0..out.world).collect::<Vec<_>>() {
        let text = format!(
            "{dir}: the place in the data is there for the ranks {ranks_of_data:?}, and not for all {}",
            out.world
        );
        return Err(NotCut::step(Verdict::Incomplete, text));
    }
    Ok(out)
}

fn refused(text: String) -> NotCut {
    NotCut::step(Verdict::Unknown, text)
}

/// `actor/model`, world size and rank of `actor/model_world_size_4_rank_0.pt`.
fn shard(path: &str) -> Option<(&str, u64, u64)> {
    let (group, rest) = path.strip_suffix(".pt")?.split_once("_world_size_")?;
    let (world, rank) = rest.split_once("_rank_")?;
    Some((group, world.parse().ok()?, rank.parse().ok()?))
}

impl StepContent {
    /// Notes which roles FSDP1 saved: its optimizer state is split as flat parameters.
    fn first_fsdp(&mut self, dir: &Utf8Path) -> Result<(), NotCut> {
        for config in &self.configs {
            let file = dir.join(config);
            let (source, said) = judged(&file)?;
            drop(source);
            if u64::from(said.world_size) != self.world {
                let text = format!(
                    "{file}: it says that {} ranks saved the role, and the shards are those of {}",
                    said.world_size, self.world
                );
                return Err(NotCut::step(Verdict::Incomplete, text));
            }
            if said.version == 1 {
                let role = config.parent().unwrap_or(Utf8Path::new(""));
                self.first.push(role.to_owned());
            }
        }
        Ok(())
    }

    /// Refuses numbers of ranks that cannot be converted.
    ///
    /// # Errors
    /// FSDP1 with a single rank before or after.
    pub(super) fn is_possible(&self, dir: &Utf8Path, world: u64) -> Result<(), NotCut> {
        match self.first.first() {
            Some(role) if self.world == 1 || world == 1 => Err(refused(format!(
                "{}: FSDP1 saved it, which keeps a model in another form where there is one rank alone",
                dir.join(role)
            ))
            .hint("steps of FSDP1 are cut for two ranks or more; `supervise merge` makes a model of any")),
            _ => Ok(()),
        }
    }

    /// The model's group that belongs to an FSDP1 optimizer's group; `None`: it is not one.
    pub(super) fn model_of_flat(&self, group: &str) -> Option<String> {
        let group = Utf8Path::new(group);
        let role = group.parent().unwrap_or(Utf8Path::new(""));
        let is_it = group.file_name() == Some("optim") && self.first.iter().any(|first| first == role);
        is_it.then(|| role.join("model").into_string())
    }

    pub(super) fn name(group: &str, world: u64, rank: u64) -> String {
        format!("{group}_world_size_{world}_rank_{rank}")
    }

    /// Notes on everything that is not carried over exactly.
    #[must_use]
    pub fn notes(&self, world: u64) -> Vec<String> {
        let mut out = Vec::new();
        if !self.states.is_empty() && world != self.world {
            let n = world.abs_diff(self.world);
            out.push(match world < self.world {
                true => format!(
                    "the random states of the last {n} of {} ranks are not carried over",
                    self.world
                ),
                false => format!("the last {n} of {world} ranks begin with random states that other ranks have too"),
            });
        }
        if self.data && world != self.world {
            let text = "the place in the data is kept for as many batches: it is exact where train_batch_size stays as it was and the data is not longer than a whole number of batches";
            out.push(text.to_owned());
        }
        out
    }

    /// The contents of a file with the number of ranks, changed to the new one, and its permissions.
    pub(super) fn config(dir: &Utf8Path, path: &Utf8Path, world: u64) -> Result<(Vec<u8>, u32), NotCut> {
        let file = dir.join(path);
        let (source, _) = judged(&file)?;
        let unreadable = |e: std::io::Error| NotCut::machine(format!("{file}: {e}"));
        let text =
            read_text(FileKind::FsdpConfig, &source, &InspectLimits::default()).map_err(|f| damaged(&file, &f))?;
        let mut value: Value = serde_json::from_slice(&text)
            .map_err(|e| refused(format!("{file}: it cannot be written anew for other ranks: {e}")))?;
        match value.as_object_mut() {
            Some(map) => drop(map.insert("world_size".to_owned(), world.into())),
            None => {
                return Err(NotCut::step(Verdict::Damaged, format!("{file}: it is no JSON object")));
            }
        }
        let text = serde_json::to_vec_pretty(&value).map_err(|e| NotCut::Internal(e.to_string()))?;
        Ok((text, source.mode().map_err(unreadable)?))
    }
}

fn judged(file: &Utf8Path) -> Result<(FileSource, FsdpConfig), NotCut> {
    let source = FileSource::open(file).map_err(|e| NotCut::machine(format!("{file}: {e}")))?;
    let said = read_fsdp_config(&source, &InspectLimits::default()).map_err(|f| damaged(file, &f))?;
    Ok((source, said))
}

fn damaged(file: &Utf8Path, finding: &Finding) -> NotCut {
    NotCut::step(finding.effect(), format!("{file}: {finding}"))
}
