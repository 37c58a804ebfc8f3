//! Converting a role from Megatron's first layout to the second: plans the disk operations.
//!
//! verl's loader asks each of three directories for the keys it wants and ignores the rest, so each gets the whole
//! archive: as hard links, copies or reflinks. The plan is made from a listing and from proofs, never from an earlier
//! plan: a killed conversion is planned again from what it left. At any moment either the archive is whole in its old
//! place or the new layout is whole and proven; the manifest, which alone makes the new layout count, is written
//! last.

mod listing;
mod manifest;
mod parts;

use super::megatron::{self, layout_v1::ARCHIVE};
use super::names;
use super::required_files::VerlRequiredFile;
use super::step_files::{BUILDING, HARD_LINKS, RETIRED, RoleFiles};
use camino::Utf8PathBuf;
use listing::Listing;
use parts::{ArchiveParts, PARTS, PartAction};
use std::collections::BTreeMap;
use supervise_checkpoint::{FileReport, RequiredFile};
use supervise_core::checkpoint::{EntryKind, FileFact, Finding, Verdict};
use supervise_core::id::Step;

/// How the archive gets into the new directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkMode {
    /// One file under several names: no space, but one write changes all.
    Hard,
    Copy,
    /// Separate files that share blocks until one is written.
    Reflink,
}

/// A role and its step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrateRole {
    /// `actor` or `critic`; empty if the step is the role.
    pub name: String,
    pub step: Step,
}

/// Facts about a role's directory; all paths are relative to it.
#[derive(Debug, Clone, Copy)]
pub struct RoleSnapshot<'a> {
    pub role: &'a MigrateRole,
    pub facts: &'a [FileFact],
    pub reports: &'a BTreeMap<Utf8PathBuf, FileReport>,
    /// Text of the model's `config.json`.
    pub config: Option<&'a [u8]>,
}

/// One change on disk, or a proof that must succeed before the next. Paths are relative to the role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigrateOp {
    /// Deletes a file, or a directory with its content.
    RemoveTree(String),
    /// Deletes a directory that contains only empty directories.
    RemoveEmpty(String),
    /// Creates a directory and its parents.
    MakeDir(String),
    /// Puts a file under a second name.
    Clone {
        from: String,
        to: String,
        /// How the content is shared.
        link: LinkMode,
    },
    /// Fsyncs a directory.
    SyncDir(String),
    /// Proves every byte of the archive in a directory.
    Prove(String),
    /// Renames durably.
    Rename {
        /// Current path.
        from: String,
        to: String,
    },
    /// Writes a file atomically.
    Write {
        path: String,
        /// The whole content.
        text: String,
    },
    /// Judges the role at this point: it must be whole.
    Judge,
}

/// The work to do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MigratePlan {
    /// In order; empty if the role is already in the second layout.
    pub ops: Vec<MigrateOp>,
    /// Free space it needs, in bytes.
    pub bytes: u64,
}

/// Why a role is not converted.
#[derive(Debug, Clone, PartialEq)]
pub enum MigrateRefusal {
    Fsdp,
    Nothing,
    Cannot(String),
    NotWhole(Verdict, Vec<Finding>),
}

/// Lists the files to inspect before planning, in either layout.
#[must_use]
pub fn needs(role: &MigrateRole, facts: &[FileFact]) -> Vec<RequiredFile> {
    let none = BTreeMap::new();
    let listing = Listing::of(role, facts, &none);
    listing.with(|files| {
        let mut out = Vec::new();
        let mut visit = |wanted: VerlRequiredFile<'_>| {
            let need = RequiredFile::new(listing.inside(wanted.file.path), wanted.kind);
            out.push(match wanted.described_by {
                Some(other) => need.described_by(listing.inside(other)),
                None => need,
            });
            Some(())
        };
        let _ = megatron::layout_v1::each(files, &mut visit);
        let _ = megatron::each(&files.megatron, &mut visit);
        out
    })
}

/// Judges the role as it is.
#[must_use]
pub fn judge(seen: &RoleSnapshot<'_>) -> (Verdict, Vec<Finding>) {
    let listing = Listing::of(seen.role, seen.facts, seen.reports);
    listing.with(|files| worth(seen.role, files))
}

fn worth(role: &MigrateRole, files: &RoleFiles<'_>) -> (Verdict, Vec<Finding>) {
    let state = match files.is_megatron() {
        true => megatron::judge_role(&role.name, role.step, &files.megatron),
        false => megatron::layout_v1::judge_role(&role.name, role.step, files),
    };
    let verdict = state
        .findings
        .iter()
        .map(Finding::effect)
        .fold(Verdict::Whole, Verdict::worst);
    (verdict, state.findings)
}

/// Plans the conversion of a role.
///
/// # Errors
/// Why it is not converted.
pub fn plan(seen: &RoleSnapshot<'_>, link: LinkMode) -> Result<MigratePlan, MigrateRefusal> {
    let real = Listing::of(seen.role, seen.facts, seen.reports);
    let has = real.with(|files| {
        if files.is_of_fsdp() {
            return Err(MigrateRefusal::Fsdp);
        }
        if !files.megatron.adapters.is_empty() {
            return Err(MigrateRefusal::Cannot(ADAPTERS.to_owned()));
        }
        Ok(files.megatron.manifest.is_some())
    })?;
    refuse_strangers(seen)?;
    if has {
        return finish(seen, &real);
    }
    if exists(seen, RETIRED) {
        let why = format!(
            "{RETIRED} holds the archive of a conversion that was finished, and the manifest that was written then is gone: move it back to {ARCHIVE}, and run this again"
        );
        return Err(MigrateRefusal::Cannot(why));
    }
    begin(seen, link)
}

const ADAPTERS: &str = "adapters were trained: they are in adapter_checkpoint, in a form that verl 0.9 does not read and nothing converts; go on with the verl that wrote them, or give the exported adapters to lora.adapter_path";

fn exists(seen: &RoleSnapshot<'_>, name: &str) -> bool {
    seen.facts.iter().any(|f| f.path == name)
}

fn count(seen: &RoleSnapshot<'_>, dir: &str) -> usize {
    seen.facts
        .iter()
        .filter(|f| f.kind != EntryKind::Dir && f.path != dir && f.path.starts_with(dir))
        .count()
}

/// Refuses links and special files, which we do not follow; but verl's script leaves links to the archive, and these
/// are replaced.
fn refuse_strangers(seen: &RoleSnapshot<'_>) -> Result<(), MigrateRefusal> {
    let replaced = |path: &str| PARTS.iter().any(|part| path == format!("{part}/{ARCHIVE}"));
    for fact in seen.facts {
        let odd = matches!(fact.kind, EntryKind::Symlink | EntryKind::Other);
        if odd && !replaced(fact.path.as_str()) {
            let why = format!(
                "{} is a symbolic link or a special file: put the file itself there, and run this again",
                fact.path
            );
            return Err(MigrateRefusal::Cannot(why));
        }
        let name = fact.path.file_name().unwrap_or_default();
        if fact.kind == EntryKind::Dir && (name.starts_with("mp_rank_") || matches!(name, "optim" | "rng_states")) {
            let why = format!(
                "{} belongs to the Megatron layout of verl 0.4.0 and before: nothing converts it, only that release reads it",
                fact.path
            );
            return Err(MigrateRefusal::Cannot(why));
        }
    }
    Ok(())
}

/// The manifest exists: removes what the conversion left, if the role is whole.
fn finish(seen: &RoleSnapshot<'_>, real: &Listing<'_>) -> Result<MigratePlan, MigrateRefusal> {
    let (verdict, findings) = real.with(|files| worth(seen.role, files));
    if verdict != Verdict::Whole {
        return Err(MigrateRefusal::NotWhole(verdict, findings));
    }
    let mut ops = Vec::new();
    let parts = ArchiveParts::of(seen);
    // An archive with a different table belongs to another save: the parts were not made from it.
    let ours = parts.archive.is_empty() || PARTS.iter().any(|part| parts.table(part) == parts.table(""));
    if ours {
        ops.extend(retire(seen));
    }
    ops.extend(exists(seen, RETIRED).then(|| MigrateOp::RemoveTree(RETIRED.to_owned())));
    ops.extend(exists(seen, BUILDING).then(|| MigrateOp::RemoveTree(BUILDING.to_owned())));
    ops.dedup();
    Ok(MigratePlan { ops, bytes: 0 })
}

/// Renamed first, then deleted, so that a half-deleted archive is never in its old place.
fn retire(seen: &RoleSnapshot<'_>) -> Vec<MigrateOp> {
    if !exists(seen, ARCHIVE) {
        return Vec::new();
    }
    if count(seen, ARCHIVE) == 0 {
        return vec![MigrateOp::RemoveEmpty(ARCHIVE.to_owned())];
    }
    let mut ops = Vec::new();
    ops.extend(exists(seen, RETIRED).then(|| MigrateOp::RemoveTree(RETIRED.to_owned())));
    ops.push(rename(ARCHIVE, RETIRED));
    ops.push(MigrateOp::RemoveTree(RETIRED.to_owned()));
    ops
}

fn rename(from: &str, to: &str) -> MigrateOp {
    MigrateOp::Rename {
        from: from.to_owned(),
        to: to.to_owned(),
    }
}

fn begin(seen: &RoleSnapshot<'_>, link: LinkMode) -> Result<MigratePlan, MigrateRefusal> {
    let parts = ArchiveParts::of(seen);
    let source = parts.source()?;
    let as_first = Listing::as_first(seen, source);
    let (verdict, findings) = as_first.with(|files| worth(seen.role, files));
    let (held, manifest) = as_first.with(|files| manifest::compose(seen, files, &as_first));
    if source.is_none() && count(seen, "huggingface/") == 0 {
        return Err(match exists(seen, "model") || exists(seen, ARCHIVE) {
            true => MigrateRefusal::NotWhole(Verdict::Incomplete, findings),
            false => MigrateRefusal::Nothing,
        });
    }
    // Exported weights alone could come from any manager.
    if !as_first.with(|files| files.is_first_megatron()) {
        return Err(MigrateRefusal::Nothing);
    }
    if verdict != Verdict::Whole {
        return Err(MigrateRefusal::NotWhole(verdict, findings));
    }
    let mut plan = MigratePlan::default();
    let ops = &mut plan.ops;
    ops.extend(exists(seen, BUILDING).then(|| MigrateOp::RemoveTree(BUILDING.to_owned())));
    let mut building = Vec::new();
    for (part, wanted) in [
        ("optimizer", held.optimizer),
        ("extra", held.rng),
        ("model", held.model),
    ] {
        let state = parts.state(part, source, wanted, link)?;
        building.extend(put_in(seen, part, &state, &parts, link));
        if state.is_built() && link == LinkMode::Copy {
            plan.bytes = plan.bytes.saturating_add(parts.bytes());
        }
    }
    if parts.shares(link, source.is_some()) && !exists(seen, HARD_LINKS) {
        ops.push(MigrateOp::Write {
            path: HARD_LINKS.to_owned(),
            text: MARK.to_owned(),
        });
    }
    ops.append(&mut building);
    ops.extend(move_export(seen)?);
    if ops.iter().any(|op| matches!(op, MigrateOp::MakeDir(_))) {
        ops.push(MigrateOp::RemoveTree(BUILDING.to_owned()));
    }
    ops.push(MigrateOp::Write {
        path: "ckpt_contents.json".to_owned(),
        text: manifest.text(),
    });
    ops.push(MigrateOp::Judge);
    ops.extend(retire(seen));
    Ok(plan)
}

const MARK: &str = "model/dist_ckpt, optimizer/dist_ckpt and extra/dist_ckpt are hard links to the same files.\n\
Reading and deleting is safe. A trainer that saves into this directory again would write into all three at once:\n\
move the step away before that. supervise run does so by itself.\n";

/// Builds one part under a temporary name and renames it into place.
fn put_in(
    seen: &RoleSnapshot<'_>,
    part: &str,
    state: &PartAction,
    parts: &ArchiveParts<'_>,
    link: LinkMode,
) -> Vec<MigrateOp> {
    let mut ops = Vec::new();
    let place = format!("{part}/{ARCHIVE}");
    let mut there = exists(seen, part);
    if there && count(seen, &format!("{part}/")) == 0 {
        // A failed load leaves empty directories behind.
        ops.push(MigrateOp::RemoveEmpty(part.to_owned()));
        there = false;
    }
    match state {
        PartAction::Ready => return Vec::new(),
        PartAction::NotWanted if there || part != "model" => return ops,
        PartAction::NotWanted => {
            ops.push(MigrateOp::MakeDir(format!("{BUILDING}/{part}")));
            ops.push(rename(&format!("{BUILDING}/{part}"), part));
            return ops;
        }
        PartAction::Build => {}
    }
    if there && exists(seen, &place) {
        ops.push(MigrateOp::RemoveTree(place.clone()));
    }
    let built = format!("{BUILDING}/{place}");
    ops.push(MigrateOp::MakeDir(built.clone()));
    ops.extend(parts.archive.keys().map(|name| MigrateOp::Clone {
        from: format!("{ARCHIVE}/{name}"),
        to: format!("{built}/{name}"),
        link,
    }));
    ops.push(MigrateOp::SyncDir(built.clone()));
    if link != LinkMode::Hard {
        ops.push(MigrateOp::Prove(built.clone()));
    }
    ops.push(match there {
        true => rename(&built, &place),
        false => rename(&format!("{BUILDING}/{part}"), part),
    });
    ops
}

/// Moves weights, configuration and tokenizer last: until then the first layout stays complete in its old place.
fn move_export(seen: &RoleSnapshot<'_>) -> Result<Vec<MigrateOp>, MigrateRefusal> {
    let (from, to) = ("huggingface", "model/huggingface");
    if !exists(seen, from) {
        return Ok(Vec::new());
    }
    if count(seen, "huggingface/") == 0 {
        return Ok(vec![MigrateOp::RemoveEmpty(from.to_owned())]);
    }
    let mut ops = Vec::new();
    if exists(seen, to) {
        if count(seen, "model/huggingface/") > 0 {
            let why =
                format!("both {from} and {to} hold files: which of them belongs here is not known; move one away");
            return Err(MigrateRefusal::Cannot(why));
        }
        let gone_with_model = count(seen, "model/") == 0;
        ops.extend((!gone_with_model).then(|| MigrateOp::RemoveEmpty(to.to_owned())));
    }
    ops.push(rename(from, to));
    Ok(ops)
}

/// Derives step and role from a directory's name and its parent's.
#[must_use]
pub fn role_of(dir: &str, above: Option<&str>) -> Option<MigrateRole> {
    let step = |name: &str| match names::root_name(name) {
        names::VerlRootName::Step(step) => Some(step),
        _ => None,
    };
    match dir {
        "actor" | "critic" => Some(MigrateRole {
            name: dir.to_owned(),
            step: step(above?)?,
        }),
        _ => Some(MigrateRole {
            name: String::new(),
            step: step(dir)?,
        }),
    }
}
