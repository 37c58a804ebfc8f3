//! Results of converting roles, in words and as JSON.

use super::count;
use super::terminal::shown;
use crate::exit::Exit;
use camino::Utf8PathBuf;
use serde::Serialize;
use supervise_core::checkpoint::{Finding, Level, Verdict};
use supervise_trainers::verl::migrate::{Link, Op};

/// Result of one role.
#[derive(Debug, Clone, PartialEq)]
pub enum Status {
    /// It is in the second layout now.
    Done {
        /// Changes and proofs.
        changes: usize,
    },
    /// It was already.
    Nothing,
    /// The act that would follow.
    Planned(Vec<Op>),
    /// FSDP's manager wrote it.
    Fsdp,
    /// Nothing of Megatron's is there.
    NotMegatron,
    /// Nothing converts it.
    Refused(String),
    /// It is not whole.
    NotWhole(Verdict, Vec<Finding>),
    /// The file system refused.
    Failed(String),
}

/// One role.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RoleView {
    /// Its directory.
    pub path: Utf8PathBuf,
    /// Its result, in a word.
    pub status: &'static str,
    /// Why, where it was not converted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The act that would follow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plan: Vec<String>,
    /// Findings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// The exit code that it alone would end with.
    pub exit_code: u8,
    #[serde(skip)]
    left_alone: bool,
}

impl RoleView {
    /// The view of a role.
    #[must_use]
    pub fn new(path: Utf8PathBuf, status: Status) -> Self {
        let left_alone = matches!(status, Status::Fsdp | Status::NotMegatron);
        let (word, why, exit) = match &status {
            Status::Done { changes } => (
                "migrated",
                Some(count(*changes as u64, "change")),
                Exit::Finished.code(),
            ),
            Status::Nothing => ("nothing_to_do", None, Exit::Finished.code()),
            Status::Planned(_) => ("planned", None, Exit::Finished.code()),
            Status::Fsdp => (
                "fsdp",
                Some("FSDP's manager wrote it: there is nothing to convert, and it is not touched".to_owned()),
                Exit::Usage.code(),
            ),
            Status::NotMegatron => (
                "not_megatron",
                Some("nothing that Megatron's manager wrote is here".to_owned()),
                Exit::Usage.code(),
            ),
            Status::Refused(why) => ("refused", Some(why.clone()), Exit::Unknown.code()),
            Status::NotWhole(verdict, findings) => {
                let first = findings.iter().find(|f| f.level == Level::Error);
                let why = first.map_or_else(|| verdict.to_string(), |f| format!("it is {verdict}: {f}"));
                ("not_whole", Some(why), verdict.exit_code())
            }
            Status::Failed(why) => ("failed", Some(why.clone()), Exit::Environment.code()),
        };
        let plan = match &status {
            Status::Planned(ops) => ops.iter().map(words).collect(),
            _ => Vec::new(),
        };
        let findings = match status {
            Status::NotWhole(_, findings) => findings,
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

/// One change, in words.
#[must_use]
pub fn words(op: &Op) -> String {
    match op {
        Op::RemoveTree(path) => format!("delete {path}"),
        Op::RemoveEmpty(path) => format!("delete the empty directory {path}"),
        Op::MakeDir(path) => format!("make {path}"),
        Op::Clone { from, to, link } => {
            let how = match link {
                Link::Hard => "link",
                Link::Copy => "copy",
                Link::Reflink => "reflink",
            };
            format!("{how} {from} to {to}")
        }
        Op::SyncDir(path) => format!("sync {path}"),
        Op::Prove(path) => format!("prove {path}"),
        Op::Rename { from, to } => format!("rename {from} to {to}"),
        Op::Write { path, .. } => format!("write {path}"),
        Op::Judge => "judge the new layout: it has to be whole".to_owned(),
    }
}

/// All roles.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MigrateView {
    /// Nothing was changed.
    pub dry_run: bool,
    /// The roles.
    pub roles: Vec<RoleView>,
    /// The exit code.
    pub exit_code: u8,
}

impl MigrateView {
    /// Below a root, what is not Megatron's is left alone without a fault, unless there is nothing else.
    #[must_use]
    pub fn of(dry_run: bool, root: bool, roles: Vec<RoleView>) -> Self {
        let forgiven = root && roles.iter().any(|r| !r.left_alone);
        let counted = roles.iter().filter(|r| !(forgiven && r.left_alone));
        let exit_code = counted.map(|r| r.exit_code).max().unwrap_or(Exit::Usage.code());
        Self {
            dry_run,
            roles,
            exit_code,
        }
    }

    /// For a person.
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
