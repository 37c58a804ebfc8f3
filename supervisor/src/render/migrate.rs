//! Results of converting roles, as text and as JSON.

use super::count;
use super::terminal::shown;
use crate::exit::SuperviseExitCode;
use camino::Utf8PathBuf;
use serde::Serialize;
use supervise_core::checkpoint::{Finding, FindingLevel, Verdict};
use supervise_trainers::verl::migrate::{LinkMode, MigrateOp};

/// Result of one role.
#[derive(Debug, Clone, PartialEq)]
pub enum MigrateStatus {
    Done {
        /// Changes and proofs.
        changes: usize,
    },
    Nothing,
    Planned(Vec<MigrateOp>),
    Fsdp,
    /// Not a Megatron checkpoint.
    NotMegatron,
    Refused(String),
    NotWhole(Verdict, Vec<Finding>),
    Failed(String),
}

/// The result of one role.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RoleView {
    pub path: Utf8PathBuf,
    pub status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plan: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// The exit code for this role alone.
    pub exit_code: u8,
    #[serde(skip)]
    left_alone: bool,
}

impl RoleView {
    /// The view of a role's result.
    #[must_use]
    pub fn new(path: Utf8PathBuf, status: MigrateStatus) -> Self {
        let left_alone = matches!(status, MigrateStatus::Fsdp | MigrateStatus::NotMegatron);
        let (word, why, exit) = match &status {
            MigrateStatus::Done { changes } => (
                "migrated",
                Some(count(*changes as u64, "change")),
                SuperviseExitCode::Finished.code(),
            ),
            MigrateStatus::Nothing => ("nothing_to_do", None, SuperviseExitCode::Finished.code()),
            MigrateStatus::Planned(_) => ("planned", None, SuperviseExitCode::Finished.code()),
            MigrateStatus::Fsdp => (
                "fsdp",
                Some("FSDP's manager wrote it: there is nothing to convert, and it is not touched".to_owned()),
                SuperviseExitCode::Usage.code(),
            ),
            MigrateStatus::NotMegatron => (
                "not_megatron",
                Some("nothing that Megatron's manager wrote is here".to_owned()),
                SuperviseExitCode::Usage.code(),
            ),
            MigrateStatus::Refused(why) => ("refused", Some(why.clone()), SuperviseExitCode::Unknown.code()),
            MigrateStatus::NotWhole(verdict, findings) => {
                let first = findings.iter().find(|f| f.level == FindingLevel::Error);
                let why = first.map_or_else(|| verdict.to_string(), |f| format!("it is {verdict}: {f}"));
                ("not_whole", Some(why), verdict.exit_code())
            }
            MigrateStatus::Failed(why) => ("failed", Some(why.clone()), SuperviseExitCode::Environment.code()),
        };
        let plan = match &status {
            MigrateStatus::Planned(ops) => ops.iter().map(words).collect(),
            _ => Vec::new(),
        };
        let findings = match status {
            MigrateStatus::NotWhole(_, findings) => findings,
            _ => Vec::new(),
        };
        Self {
            path,
            status: word,
            why,
            plan,
            findings,
            exit_code: exit,
            left_alone,
        }
    }
}

/// One change, as text.
#[must_use]
pub fn words(op: &MigrateOp) -> String {
    match op {
        MigrateOp::RemoveTree(path) => format!("delete {path}"),
        MigrateOp::RemoveEmpty(path) => format!("delete the empty directory {path}"),
        MigrateOp::MakeDir(path) => format!("make {path}"),
        MigrateOp::Clone { from, to, link } => {
            let how = match link {
                LinkMode::Hard => "link",
                LinkMode::Copy => "copy",
                LinkMode::Reflink => "reflink",
            };
            format!("{how} {from} to {to}")
        }
        MigrateOp::SyncDir(path) => format!("sync {path}"),
        MigrateOp::Prove(path) => format!("prove {path}"),
        MigrateOp::Rename { from, to } => format!("rename {from} to {to}"),
        MigrateOp::Write { path, .. } => format!("write {path}"),
        MigrateOp::Judge => "judge the new layout: it has to be whole".to_owned(),
    }
}

/// The results of all roles.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MigrateView {
    pub dry_run: bool,
    pub roles: Vec<RoleView>,
    pub exit_code: u8,
}

impl MigrateView {
    /// Below a root, roles that are not Megatron's are no error, unless there is nothing else.
    #[must_use]
    pub fn of(dry_run: bool, root: bool, roles: Vec<RoleView>) -> Self {
        let forgiven = root && roles.iter().any(|r| !r.left_alone);
        let counted = roles.iter().filter(|r| !(forgiven && r.left_alone));
        let exit_code = counted
            .map(|r| r.exit_code)
            .max()
            .unwrap_or(SuperviseExitCode::Usage.code());
        Self {
            dry_run,
            roles,
            exit_code,
        }
    }

    /// The results as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        for role in &self.roles {
            let word = role.status.replace('_', " ");
            let why = role.why.as_ref().map(|w| format!(": {w}")).unwrap_or_default();
            out.push_str(&shown(&format!("{}: {word}{why}", role.path)));
            out.push('\n');
            for line in &role.plan {
                out.push_str(&format!("  {}\n", shown(line)));
            }
        }
        out
    }
}
