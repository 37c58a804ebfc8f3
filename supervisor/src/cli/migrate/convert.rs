//! Converts one role: reads, plans, proves and converts it.

use super::target::MigrateTarget;
use crate::printer::ByteMeter;
use crate::render::migrate::{MigrateStatus, RoleView, words};
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use supervise_checkpoint::set::{self, SetKind};
use supervise_checkpoint::{FileReport, RequiredFile, SweepOptions};
use supervise_core::checkpoint::{Depth, FileFact, Finding, Verdict};
use supervise_host::io_worker::{FileProver, read_plain, walk};
use supervise_host::migrate::perform;
use supervise_host::system::{FsSpace, space};
use supervise_trainers::verl::migrate::{self, LinkMode, MigrateOp, MigratePlan, MigrateRefusal, RoleSnapshot};

/// Maximum size of the model's configuration, in bytes.
const CONFIG: u64 = 1 << 20;

/// Converts a role and reports the result. `memory`: bytes that a proof may use.
pub(super) fn role(target: &MigrateTarget, link: LinkMode, dry: bool, memory: u64, meter: &mut ByteMeter) -> RoleView {
    let status = attempt(target, link, dry, &mut Proofs { memory, meter }).unwrap_or_else(|status| status);
    RoleView::new(target.dir.clone(), status)
}

fn attempt(
    target: &MigrateTarget,
    link: LinkMode,
    dry: bool,
    proofs: &mut Proofs<'_>,
) -> Result<MigrateStatus, MigrateStatus> {
    let look = StepContents::at(target, Depth::Full, proofs)?;
    let plan = migrate::plan(&look.seen(target), link).map_err(refused)?;
    if plan.ops.is_empty() {
        return Ok(MigrateStatus::Nothing);
    }
    if dry {
        return Ok(MigrateStatus::Planned(plan.ops));
    }
    enough_space(&target.dir, &plan)?;
    for op in &plan.ops {
        match op {
            MigrateOp::Prove(dir) => archive(&target.dir.join(dir), proofs)?,
            MigrateOp::Judge => whole(target, proofs)?,
            op => perform(&target.dir, op).map_err(|e| failed(op, &e, link))?,
        }
    }
    Ok(MigrateStatus::Done {
        changes: plan.ops.len(),
    })
}

fn refused(why: MigrateRefusal) -> MigrateStatus {
    match why {
        MigrateRefusal::Fsdp => MigrateStatus::Fsdp,
        MigrateRefusal::Nothing => MigrateStatus::NotMegatron,
        MigrateRefusal::Cannot(why) => MigrateStatus::Refused(why),
        MigrateRefusal::NotWhole(verdict, findings) => MigrateStatus::NotWhole(verdict, findings),
    }
}

fn failed(op: &MigrateOp, e: &io::Error, link: LinkMode) -> MigrateStatus {
    let mut why = format!("{}: {e}", words(op));
    why.push_str(match e.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::EINVAL | libc::EXDEV) if link == LinkMode::Reflink => {
            "; this file system shares no blocks between files: use --link copy or --link hard"
        }
        Some(libc::ENOSPC | libc::EDQUOT) => "; free some space and run this again: it goes on",
        _ => "; nothing is lost: run this again when that is mended",
    });
    MigrateStatus::Failed(why)
}

fn enough_space(dir: &Utf8Path, plan: &MigratePlan) -> Result<(), MigrateStatus> {
    let Ok(FsSpace { size, free, .. }) = space(dir) else {
        return Ok(());
    };
    if size == 0 || free >= plan.bytes {
        return Ok(());
    }
    let why = format!(
        "the copies take {} bytes and {free} are free: free some space, or use --link hard",
        plan.bytes
    );
    Err(MigrateStatus::Failed(why))
}

/// Existing entries and what proofs say about them.
struct StepContents {
    facts: Vec<FileFact>,
    reports: BTreeMap<Utf8PathBuf, FileReport>,
    config: Option<Vec<u8>>,
}

impl StepContents {
    fn at(target: &MigrateTarget, depth: Depth, proofs: &mut Proofs<'_>) -> Result<Self, MigrateStatus> {
        let mut facts = Vec::new();
        walk(&target.dir, Utf8Path::new(""), &mut facts)
            .map_err(|e| MigrateStatus::Failed(format!("it cannot be read: {e}")))?;
        let needs = migrate::needs(&target.role, &facts);
        let config = ["huggingface", "model/huggingface"]
            .iter()
            .map(|dir| target.dir.join(dir).join("config.json"))
            .filter(|path| fs::symlink_metadata(path).is_ok_and(|m| m.is_file() && m.len() <= CONFIG))
            .find_map(|path| read_plain(&path, CONFIG).ok());
        Ok(Self {
            reports: proofs.of(&target.dir, &needs, depth),
            facts,
            config,
        })
    }

    fn seen<'a>(&'a self, target: &'a MigrateTarget) -> RoleSnapshot<'a> {
        RoleSnapshot {
            role: &target.role,
            facts: &self.facts,
            reports: &self.reports,
            config: self.config.as_deref(),
        }
    }
}

/// Settings of proofs: memory in bytes, and the progress meter.
struct Proofs<'a> {
    memory: u64,
    meter: &'a mut ByteMeter,
}

impl Proofs<'_> {
    fn of(&mut self, dir: &Utf8Path, needs: &[RequiredFile], depth: Depth) -> BTreeMap<Utf8PathBuf, FileReport> {
        let options = SweepOptions {
            zero: true,
            finite: false,
        };
        FileProver::new(dir)
            .with_memory(self.memory)
            .prove(needs, depth, options, &mut |p| {
                self.meter.tell(p.done, Some(p.of));
                ControlFlow::Continue(())
            })
    }
}

/// Proves every byte of a copy that was just made.
fn archive(dir: &Utf8Path, proofs: &mut Proofs<'_>) -> Result<(), MigrateStatus> {
    let mut facts = Vec::new();
    walk(dir, Utf8Path::new(""), &mut facts)
        .map_err(|e| MigrateStatus::Failed(format!("{dir} cannot be read: {e}")))?;
    let sizes: BTreeMap<String, u64> = facts.iter().map(|f| (f.path.to_string(), f.size)).collect();
    let needs = set::needs(SetKind::MegatronDist, sizes.keys().map(String::as_str));
    let reports = proofs
        .of(dir, &needs, Depth::Full)
        .into_iter()
        .map(|(path, report)| (path.into_string(), report))
        .collect();
    let judged = set::judge(SetKind::MegatronDist, &sizes, &reports);
    whole_or(judged.verdict, judged.findings)
}

/// Proves the new layout before its source is removed. Its archives were proven before, or when they were copied.
fn whole(target: &MigrateTarget, proofs: &mut Proofs<'_>) -> Result<(), MigrateStatus> {
    let look = StepContents::at(target, Depth::Structure, proofs)?;
    let (verdict, findings) = migrate::judge(&look.seen(target));
    whole_or(verdict, findings)
}

fn whole_or(verdict: Verdict, findings: Vec<Finding>) -> Result<(), MigrateStatus> {
    match verdict {
        Verdict::Whole => Ok(()),
        verdict => Err(MigrateStatus::NotWhole(verdict, findings)),
    }
}
