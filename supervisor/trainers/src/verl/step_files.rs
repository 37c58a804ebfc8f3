//! One step's files, sorted by kind. This says what exists, not whether it is usable.
//!
//! Built from the step's listing in one pass; all other work on a step looks things up here. A step of 16,000 ranks
//! has 100,000 files, so nothing below is quadratic in them.

use super::evidence::{StepFile, StepReports};
use super::names::{self, ShardContent};
use std::collections::BTreeMap;
use supervise_checkpoint::set::read_with_weights;
use supervise_core::checkpoint::{EntryKind, FileFact};
use supervise_core::id::WallMs;

/// The files of one step by kind. Paths are relative to the step.
#[derive(Debug, Default)]
pub(crate) struct StepFiles<'a> {
    /// Content of `actor/` and `critic/`, and of the step itself (empty name, the SFT layout).
    pub(crate) roles: BTreeMap<&'a str, RoleFiles<'a>>,
    pub(crate) proofs: bool,
    /// `data.pt`.
    pub(crate) data: Option<StepFile<'a>>,
    /// `data_R.pt` by R, sorted.
    pub(crate) data_parts: Vec<(u32, StepFile<'a>)>,
    /// Content of `transfer_queue/`, by path below it.
    pub(crate) queue: BTreeMap<&'a str, StepFile<'a>>,
    /// `actor/` or `critic/` exists, even if empty.
    pub(crate) role_dirs: bool,
    dirs: Vec<&'a str>,
    /// `transfer_queue.tmp/` or `transfer_queue.old/` exists: its writer was killed.
    pub(crate) queue_unfinished: bool,
    /// Symbolic links and entries that are neither files nor directories.
    pub(crate) odd: Vec<&'a str>,
    /// Directories, FIFOs and the like under names that a load reads as files.
    pub(crate) misplaced: Vec<&'a str>,
    /// Temporary files of killed writers.
    pub(crate) leftovers: Vec<&'a str>,
    /// Files and directories of a layout that we know only by name.
    pub(crate) foreign: Vec<(&'a str, ForeignLayout)>,
    /// Number of files we do not recognize.
    pub(crate) other: u32,
    /// The first state file that verl does not write: a torch file, or any file in a directory of another name.
    pub(crate) strange: Option<&'a str>,
    pub(crate) files: u32,
    pub(crate) bytes: u64,
    pub(crate) newest: WallMs,
}

/// The shards of one content and one world size, sorted by rank.
pub(crate) type Shards<'a> = Vec<(u32, StepFile<'a>)>;

#[derive(Debug, Default)]
pub(crate) struct RoleFiles<'a> {
    pub(crate) shards: BTreeMap<(u32, ShardContent), Shards<'a>>,
    /// `fsdp_config.json`.
    pub(crate) fsdp_config: Option<StepFile<'a>>,
    /// `config.json` in the role itself, as verl 0.4 and older wrote it.
    pub(crate) root_config: Option<StepFile<'a>>,
    pub(crate) hf_config: Option<StepFile<'a>>,
    /// Files that are read together with it: the tokenizer and the generation settings.
    pub(crate) beside: Vec<StepFile<'a>>,
    pub(crate) weights: BTreeMap<&'a str, StepFile<'a>>,
    pub(crate) weights_index: Option<(&'a str, StepFile<'a>)>,
    pub(crate) megatron: MegatronFiles<'a>,
}

pub(crate) type FilesByPath<'a> = BTreeMap<&'a str, StepFile<'a>>;

/// The files of one role that Megatron's manager writes, in its first and second layouts.
#[derive(Debug, Default)]
pub(crate) struct MegatronFiles<'a> {
    /// `ckpt_contents.json`, which is written last.
    pub(crate) manifest: Option<StepFile<'a>>,
    pub(crate) config: Option<StepFile<'a>>,
    /// Everything below `model/`, `optimizer/`, `extra/`.
    pub(crate) parts: FilesByPath<'a>,
    /// Everything below `dist_ckpt/`, which the first layout keeps directly in the role.
    pub(crate) archive: FilesByPath<'a>,
    /// `dist_ckpt/` itself exists.
    pub(crate) archive_dir: bool,
    /// Adapter files of the first layout, in their own format.
    pub(crate) adapters: Vec<StepFile<'a>>,
    pub(crate) converting: bool,
    pub(crate) hard_links: bool,
}

impl MegatronFiles<'_> {
    /// Returns true if anything was saved in the second layout. Directories alone prove nothing: path helpers create
    /// them. The configuration alone may belong to the first layout.
    pub(crate) fn has_marks(&self) -> bool {
        self.manifest.is_some() || !self.parts.is_empty()
    }

    /// Returns true if anything exists that only the first layout has.
    pub(crate) fn has_first_marks(&self) -> bool {
        self.archive_dir || !self.archive.is_empty()
    }

    /// Returns true if anything exists that FSDP's manager does not write.
    fn has_own_marks(&self) -> bool {
        self.manifest.is_some() || !self.archive.is_empty() || self.parts.keys().any(|p| p.contains("/dist_ckpt/"))
    }
}

impl<'a> RoleFiles<'a> {
    pub(crate) fn of(&self, world: u32, content: ShardContent) -> Option<&Shards<'a>> {
        self.shards.get(&(world, content))
    }

    pub(crate) fn has_fsdp_marks(&self) -> bool {
        !self.shards.is_empty() || self.fsdp_config.is_some() || !self.weights.is_empty()
    }

    pub(crate) fn has_marks(&self) -> bool {
        self.has_fsdp_marks() || self.megatron.has_marks() || self.megatron.has_first_marks()
    }

    pub(crate) fn is_of_fsdp(&self) -> bool {
        !self.shards.is_empty() || self.fsdp_config.is_some()
    }

    pub(crate) fn is_megatron(&self) -> bool {
        self.megatron.has_marks() && !self.is_of_fsdp()
    }

    /// Returns true if Megatron's manager wrote it in its first layout. Exported weights do not tell, because FSDP
    /// uses the same name; but only Megatron's manager writes its own configuration.
    pub(crate) fn is_first_megatron(&self) -> bool {
        let exported = self.megatron.config.is_some() && (!self.weights.is_empty() || self.hf_config.is_some());
        !self.megatron.has_marks() && !self.is_of_fsdp() && (self.megatron.has_first_marks() || exported)
    }

    pub(crate) fn is_mixed(&self) -> bool {
        self.megatron.has_own_marks() && self.is_of_fsdp()
    }

    /// The world size that most shards name; the larger one on a tie.
    pub(crate) fn likely_world(&self) -> Option<u32> {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for ((world, _), ranks) in &self.shards {
            *counts.entry(*world).or_default() += ranks.len();
        }
        counts
            .into_iter()
            .max_by_key(|(world, n)| (*n, *world))
            .map(|(world, _)| world)
    }

    /// Counts the shards of other world sizes.
    pub(crate) fn of_other_worlds(&self, world: u32) -> usize {
        self.shards
            .iter()
            .filter(|((w, _), _)| *w != world)
            .map(|(_, ranks)| ranks.len())
            .sum()
    }
}

impl<'a> StepFiles<'a> {
    /// Sorts the entries of a step together with their reports; keys are paths relative to the step, in order.
    pub(crate) fn of(entries: impl Iterator<Item = (&'a str, &'a FileFact)>, mut reports: StepReports<'a>) -> Self {
        let mut survey = Self {
            proofs: !reports.is_empty(),
            ..Self::default()
        };
        for (place, (path, fact)) in (0..).zip(entries) {
            let report = reports.next(path);
            survey.add(StepFile {
                path,
                place,
                fact,
                report,
            });
        }
        // The listing is sorted by name: rank 10 comes before rank 2.
        survey.data_parts.sort_unstable_by_key(|(part, _)| *part);
        for ranks in survey.roles.values_mut().flat_map(|r| r.shards.values_mut()) {
            ranks.sort_unstable_by_key(|(rank, _)| *rank);
        }
        survey
    }

    pub(crate) fn has_role_dir(&self, role: &str) -> bool {
        self.dirs.contains(&role) || self.roles.contains_key(role) || self.odd.contains(&role)
    }

    fn add(&mut self, file: StepFile<'a>) {
        let StepFile { path, fact, .. } = file;
        match fact.kind {
            EntryKind::Gone => return,
            EntryKind::Dir => return self.add_dir(path),
            EntryKind::Other if names_a_file(path) => {
                self.misplaced.push(path);
                return;
            }
            EntryKind::Symlink | EntryKind::Other => {
                self.odd.push(path);
                return;
            }
            EntryKind::File => {}
        }
        self.files = self.files.saturating_add(1);
        self.bytes = self.bytes.saturating_add(fact.size);
        self.newest = self.newest.max(WallMs(fact.mtime / 1_000_000));
        let (head, rest) = path.split_once('/').unwrap_or(("", path));
        match head {
            "actor" | "critic" => self.add_role_file(head, rest, file),
            "transfer_queue" => {
                self.queue.insert(rest, file);
            }
            "transfer_queue.tmp" | "transfer_queue.old" => self.leftovers.push(path),
            "huggingface" | "lora_adapter" | "model" | "optimizer" | "extra" | "dist_ckpt" | "adapter_checkpoint"
            | BUILDING | RETIRED => self.add_role_file("", path, file),
            "" if rest == "data.pt" => self.data = Some(file),
            "" => match names::data_part(rest) {
                Some(part) => self.data_parts.push((part, file)),
                None => self.add_role_file("", rest, file),
            },
            _ => self.add_other(path),
        }
    }

    fn add_dir(&mut self, path: &'a str) {
        if matches!(path, "actor" | "critic") {
            self.role_dirs = true;
            self.dirs.push(path);
        }
        self.queue_unfinished |= matches!(path, "transfer_queue.tmp" | "transfer_queue.old");
        if names_a_file(path) {
            self.misplaced.push(path);
        }
        let (role, name) = path.split_once('/').unwrap_or(("", path));
        if matches!(role, "" | "actor" | "critic") {
            match name {
                "dist_ckpt" => self.roles.entry(role).or_default().megatron.archive_dir = true,
                BUILDING | RETIRED => self.roles.entry(role).or_default().megatron.converting = true,
                _ => {}
            }
        }
        self.foreign.extend(foreign(path).map(|layout| (path, layout)));
    }

    fn add_role_file(&mut self, role: &'a str, rest: &'a str, file: StepFile<'a>) {
        if let Some(shard) = names::shard(rest) {
            let shards = &mut self.roles.entry(role).or_default().shards;
            let ranks = shards.entry((shard.world, shard.content)).or_default();
            ranks.push((shard.rank, file));
            return;
        }
        match rest {
            "fsdp_config.json" => self.roles.entry(role).or_default().fsdp_config = Some(file),
            "config.json" => self.roles.entry(role).or_default().root_config = Some(file),
            "huggingface/config.json" => self.roles.entry(role).or_default().hf_config = Some(file),
            "ckpt_contents.json" => self.roles.entry(role).or_default().megatron.manifest = Some(file),
            "transformer_config.json" => self.roles.entry(role).or_default().megatron.config = Some(file),
            HARD_LINKS => self.roles.entry(role).or_default().megatron.hard_links = true,
            _ => match rest.split_once('/') {
                Some(("model" | "optimizer" | "extra", below)) if is_part(below) => {
                    self.roles.entry(role).or_default().megatron.parts.insert(rest, file);
                }
                Some(("dist_ckpt", _)) => {
                    self.roles.entry(role).or_default().megatron.archive.insert(rest, file);
                }
                Some(("adapter_checkpoint", _)) => self.roles.entry(role).or_default().megatron.adapters.push(file),
                // Working directories of a conversion: not part of the role.
                Some((BUILDING | RETIRED, _)) => {}
                Some(("huggingface", name)) if read_with_weights(name) => {
                    self.roles.entry(role).or_default().beside.push(file);
                }
                Some(("huggingface", name)) if is_weights(name) => {
                    self.roles.entry(role).or_default().weights.insert(name, file);
                }
                Some(("huggingface", name)) if is_weights_index(name) => {
                    self.roles.entry(role).or_default().weights_index = Some((name, file));
                }
                _ => self.add_other(file.path),
            },
        }
    }

    fn add_other(&mut self, path: &'a str) {
        if path.ends_with(".tmp") {
            self.leftovers.push(path);
        } else if let Some(layout) = foreign(path) {
            self.foreign.push((path, layout));
        } else {
            self.other = self.other.saturating_add(1);
            if path.contains('/') || [".pt", ".pth", ".ckpt"].iter().any(|end| path.ends_with(end)) {
                self.strange.get_or_insert(path);
            }
        }
    }
}

pub(super) const QUEUE: [&str; 2] = ["metadata.json", "controller_state.pkl"];
/// Where a conversion builds new directories.
pub(crate) const BUILDING: &str = ".supervise-migrate";
/// Where a conversion moves what it no longer needs before deleting it.
pub(crate) const RETIRED: &str = ".supervise-migrated";
/// Marks that the parts of a role share their files: saving into one would write into all.
pub(crate) const HARD_LINKS: &str = ".supervise-hard-links";

/// Returns true if a path below `model/`, `optimizer/` or `extra/` belongs to Megatron's second layout.
fn is_part(below: &str) -> bool {
    // An unfinished table means that a save broke off; other temporary files mean nothing.
    let temporary = below.ends_with(".tmp") && !below.ends_with("/.metadata.tmp");
    (below.starts_with("dist_ckpt/") || below.starts_with("huggingface/")) && !temporary
}

/// Returns true if a load expects a file at this path, in a role or next to the roles.
fn names_a_file(path: &str) -> bool {
    let (role, name) = match path.split_once('/') {
        Some((role @ ("actor" | "critic"), name)) => (role, name),
        _ => ("", path),
    };
    let exported = || {
        let name = name.strip_prefix("huggingface/");
        name.is_some_and(|name| {
            name == "config.json" || read_with_weights(name) || is_weights(name) || is_weights_index(name)
        })
    };
    let beside = || {
        let queue = name.strip_prefix("transfer_queue/");
        name == "data.pt" || names::data_part(name).is_some() || queue.is_some_and(|n| names::queue_file(n).is_some())
    };
    let own = [
        "fsdp_config.json",
        "config.json",
        "ckpt_contents.json",
        "transformer_config.json",
    ];
    own.contains(&name) || names::shard(name).is_some() || exported() || role.is_empty() && beside()
}

fn is_weights(name: &str) -> bool {
    !name.contains('/')
        && (name.ends_with(".safetensors") || (name.starts_with("pytorch_model") && name.ends_with(".bin")))
}

fn is_weights_index(name: &str) -> bool {
    name == "model.safetensors.index.json" || name == "pytorch_model.bin.index.json"
}

/// A layout that we know only by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ForeignLayout {
    Megatron03,
    /// `optim/`, `rng_states/`, `hf_config_and_tokenizer/` in the role.
    Megatron04,
    /// `step-N/`.
    TorchTitan,
    DeepSpeed,
    /// Another distributed checkpoint of torch.
    Dcp,
}

impl ForeignLayout {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Megatron03 => "the Megatron layout of verl 0.3",
            Self::Megatron04 => "the Megatron layout of verl 0.4.0",
            Self::TorchTitan => "TorchTitan's layout",
            Self::DeepSpeed => "DeepSpeed's layout",
            Self::Dcp => "a distributed checkpoint (DCP) of another program",
        }
    }
}

/// Recognizes a foreign layout by a path. Empty directories of the second Megatron layout do not count.
fn foreign(path: &str) -> Option<ForeignLayout> {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    let role = |dir: &str| matches!(dir, "" | "actor" | "critic");
    match name {
        "optim" | "rng_states" | "hf_config_and_tokenizer" if role(dir) => return Some(ForeignLayout::Megatron04),
        ".metadata" | "common.pt" => return Some(ForeignLayout::Dcp),
        _ if name.contains("mp_rank_") && name.ends_with("_states.pt") => return Some(ForeignLayout::DeepSpeed),
        _ if name.starts_with("mp_rank_") => return Some(ForeignLayout::Megatron03),
        _ => {}
    }
    let number = name.strip_prefix("step-");
    if number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())) {
        return Some(ForeignLayout::TorchTitan);
    }
    name.ends_with(".distcp").then_some(ForeignLayout::Dcp)
}
