//! One step's files, sorted by what they are. No judgement: what is there, not what it is worth.
//!
//! Built from the step's listing in one pass; the rest of the work on a step looks things up here. A step of sixteen
//! thousand ranks holds a hundred thousand files, so nothing below is quadratic in them.

use super::names::{self, Content};
use std::collections::BTreeMap;
use supervise_core::checkpoint::{EntryKind, FileFact, PinsHash};
use supervise_core::id::{WallMs, fnv64};

/// The files of one step, by meaning. Paths are relative to the step.
#[derive(Debug, Default)]
pub(crate) struct Survey<'a> {
    /// What stands in `actor/`, `critic/`, and directly in the step (empty name, the SFT layout).
    pub(crate) roles: BTreeMap<&'a str, RoleFiles<'a>>,
    /// `data.pt`.
    pub(crate) data: Option<&'a FileFact>,
    /// `data_R.pt` by R.
    pub(crate) data_parts: BTreeMap<u32, &'a FileFact>,
    /// What stands in `transfer_queue/`, by name.
    pub(crate) queue: BTreeMap<&'a str, &'a FileFact>,
    /// `actor/` or `critic/` is there, with or without files.
    pub(crate) role_dirs: bool,
    /// `transfer_queue.tmp/` is there: its writer was killed.
    pub(crate) queue_unfinished: bool,
    /// Symbolic links and entries that are neither files nor directories.
    pub(crate) odd: Vec<&'a str>,
    /// Temporary files of writers that were killed.
    pub(crate) leftovers: Vec<&'a str>,
    /// Files and directories that belong to another framework's layout.
    pub(crate) foreign: Vec<&'a str>,
    /// Files that mean nothing to us.
    pub(crate) other: u32,
    /// Number of files.
    pub(crate) files: u32,
    /// Bytes in all files.
    pub(crate) bytes: u64,
    /// Newest modification time.
    pub(crate) newest: WallMs,
}

/// The files of one role.
#[derive(Debug, Default)]
pub(crate) struct RoleFiles<'a> {
    /// Shards by world size and content, then by rank.
    pub(crate) shards: BTreeMap<(u32, Content), BTreeMap<u32, &'a FileFact>>,
    /// `fsdp_config.json`.
    pub(crate) fsdp_config: bool,
    /// `config.json` in the role itself, where verl 0.4 and older put it.
    pub(crate) root_config: bool,
    /// `huggingface/config.json`.
    pub(crate) hf_config: bool,
    /// Weights under `huggingface/`, by name.
    pub(crate) weights: BTreeMap<&'a str, &'a FileFact>,
    /// The index of those weights.
    pub(crate) weights_index: Option<&'a str>,
}

impl<'a> RoleFiles<'a> {
    /// Shards of one content for one world size.
    pub(crate) fn of(&self, world: u32, content: Content) -> Option<&BTreeMap<u32, &'a FileFact>> {
        self.shards.get(&(world, content))
    }

    /// Whether anything of a save is here.
    pub(crate) fn has_marks(&self) -> bool {
        !self.shards.is_empty() || self.fsdp_config || !self.weights.is_empty()
    }

    /// The world size that most shards name; the larger one where they tie.
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

    /// Files that belong to other world sizes.
    pub(crate) fn of_other_worlds(&self, world: u32) -> usize {
        self.shards
            .iter()
            .filter(|((w, _), _)| *w != world)
            .map(|(_, ranks)| ranks.len())
            .sum()
    }
}

impl<'a> Survey<'a> {
    /// Sorts the entries of a step; the keys are paths relative to the step.
    pub(crate) fn of(entries: impl Iterator<Item = (&'a str, &'a FileFact)>) -> Self {
        let mut survey = Self::default();
        for (path, fact) in entries {
            survey.add(path, fact);
        }
        survey
    }

    fn add(&mut self, path: &'a str, fact: &'a FileFact) {
        match fact.kind {
            EntryKind::Gone => return,
            EntryKind::Dir => return self.add_dir(path),
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
            "actor" | "critic" => self.add_role_file(head, rest, fact),
            "transfer_queue" => {
                self.queue.insert(rest, fact);
            }
            "transfer_queue.tmp" | "transfer_queue.old" => self.leftovers.push(path),
            "huggingface" | "lora_adapter" => self.add_role_file("", path, fact),
            "" if rest == "data.pt" => self.data = Some(fact),
            "" => match names::data_part(rest) {
                Some(part) => {
                    self.data_parts.insert(part, fact);
                }
                None => self.add_role_file("", rest, fact),
            },
            _ => self.add_other(path),
        }
    }

    fn add_dir(&mut self, path: &'a str) {
        self.role_dirs |= matches!(path, "actor" | "critic");
        self.queue_unfinished |= path == "transfer_queue.tmp";
        if is_foreign(path) {
            self.foreign.push(path);
        }
    }

    fn add_role_file(&mut self, role: &'a str, rest: &'a str, fact: &'a FileFact) {
        if let Some(shard) = names::shard(rest) {
            let files = self.roles.entry(role).or_default();
            files
                .shards
                .entry((shard.world, shard.content))
                .or_default()
                .insert(shard.rank, fact);
            return;
        }
        match rest {
            "fsdp_config.json" => self.roles.entry(role).or_default().fsdp_config = true,
            "config.json" => self.roles.entry(role).or_default().root_config = true,
            "huggingface/config.json" => self.roles.entry(role).or_default().hf_config = true,
            _ => match rest.strip_prefix("huggingface/") {
                Some(name) if is_weights(name) => {
                    self.roles.entry(role).or_default().weights.insert(name, fact);
                }
                Some(name) if is_weights_index(name) => {
                    self.roles.entry(role).or_default().weights_index = Some(name);
                }
                _ => self.add_other(rest),
            },
        }
    }

    fn add_other(&mut self, path: &'a str) {
        if path.ends_with(".tmp") {
            self.leftovers.push(path);
        } else if is_foreign(path) {
            self.foreign.push(path);
        } else {
            self.other = self.other.saturating_add(1);
        }
    }
}

fn is_weights(name: &str) -> bool {
    !name.contains('/')
        && (name.ends_with(".safetensors") || (name.starts_with("pytorch_model") && name.ends_with(".bin")))
}

fn is_weights_index(name: &str) -> bool {
    name == "model.safetensors.index.json" || name == "pytorch_model.bin.index.json"
}

/// Names that Megatron, TorchTitan and DCP checkpoints are known by.
fn is_foreign(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    matches!(
        name,
        "ckpt_contents.json" | "transformer_config.json" | "dist_ckpt" | ".metadata" | "common.pt"
    ) || name.ends_with(".distcp")
        || name
            .strip_prefix("step-")
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        || name.starts_with("mp_rank_")
}

/// A hash over what a file system says of every file of a step: equal means that nobody touched one.
///
/// The order of the facts does not matter; paths count relative to the step, so that a moved step keeps its hash.
pub fn pins<'a>(files: impl Iterator<Item = (&'a str, &'a FileFact)>) -> PinsHash {
    let mut sum = 0_u64;
    let mut bytes = Vec::with_capacity(256);
    for (path, fact) in files {
        if matches!(fact.kind, EntryKind::Gone | EntryKind::Dir) {
            continue;
        }
        bytes.clear();
        for number in [fact.dev, fact.ino, fact.size, fact.mtime as u64, fact.ctime as u64] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(path.as_bytes());
        sum = sum.wrapping_add(mix(fnv64(&bytes)));
    }
    PinsHash(sum)
}

/// Spreads the bits of one file's hash, so that sums of similar hashes do not meet.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
