//! The new step: written beside, looked at as any reader would, renamed.

use super::content::Content;
use crate::cli::model::{Shards, shards};
use crate::cli::new_dir::{self, Opened};
use crate::error::CliError;
use crate::printer::Meter;
use camino::{Utf8Path, Utf8PathBuf};
use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use supervise_checkpoint::{FileKind, Source as _, inspect};
use supervise_core::checkpoint::Verdict;
use supervise_host::io_worker::FileSource;
use supervise_host::output_dir::OutputDir;
use supervise_weights::Problem;
use supervise_weights::reshard::{self, Plan, Source};

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// The result.
pub(super) struct Written {
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Bytes of the source that were compared with their checksums.
    pub(super) checked: u64,
    pub(super) took: Duration,
}

/// Files of one kind, with what they are made of.
struct Group {
    from: Shards,
    plan: Plan,
}

impl Group {
    fn bytes(&self) -> u64 {
        self.plan.files().map(|(_, n)| n).sum()
    }
}

/// Cuts everything anew and gives it its name.
pub(super) fn all(dir: &Utf8Path, target: &Utf8Path, content: &Content, world: u64) -> Result<Written, CliError> {
    let began = Instant::now();
    let mut groups = Vec::new();
    for group in &content.cut {
        let names = (0..content.world).map(|r| format!("{}.pt", Content::name(group, content.world, r)));
        let from = shards(dir, &names.collect::<Vec<_>>())?;
        let plan = planned(dir, &from, None, world, &|rank| Content::name(group, world, rank))?;
        groups.push(Group { from, plan });
    }
    if content.data {
        groups.push(data(dir, content, world)?);
    }
    let copies: u64 = content.others.iter().map(|(_, n)| n).sum();
    let new: u64 = groups.iter().map(Group::bytes).sum();
    let out = new_dir::begin(target, new + copies)?;
    let step = New { dir, out: &out };
    match step.fill(&groups, content, world) {
        Ok((files, checked, states)) => {
            out.finish()
                .map_err(|e| CliError::environment(format!("{target}: {e}")))?;
            Ok(Written {
                files,
                bytes: new + copies + states,
                checked,
                took: began.elapsed(),
            })
        }
        Err(e) => {
            out.abandon();
            Err(e)
        }
    }
}

fn source<'a>(from: &'a Shards, ranks: std::ops::Range<usize>, samples_of: Option<u64>) -> Source<'a> {
    Source {
        shards: &from.shards[ranks.clone()],
        sources: &from.sources[ranks],
        limits: &from.limits,
        samples_of,
    }
}

fn planned(
    dir: &Utf8Path,
    from: &Shards,
    samples_of: Option<u64>,
    world: u64,
    name: &dyn Fn(u64) -> String,
) -> Result<Plan, CliError> {
    let all = 0..from.shards.len();
    reshard::plan(source(from, all, samples_of), world, name).map_err(|e| at(dir, &e))
}

/// The place in the data: one for all, because all ranks are at the same.
fn data(dir: &Utf8Path, content: &Content, world: u64) -> Result<Group, CliError> {
    let names: Vec<String> = (0..content.world).map(|r| format!("data_{r}.pt")).collect();
    let mut from = shards(dir, &names)?;
    for rank in 1..from.shards.len() {
        let same = reshard::same_values(source(&from, 0..1, None), source(&from, rank..rank + 1, None))
            .map_err(|e| at(dir, &e))?;
        if !same {
            let text = format!("{dir}: data_0.pt and data_{rank}.pt are at different places in the data");
            return Err(CliError::checkpoint(Verdict::Unknown, text));
        }
    }
    from.shards.truncate(1);
    from.sources.truncate(1);
    let plan = planned(dir, &from, Some(content.world), world, &|rank| format!("data_{rank}"))?;
    Ok(Group { from, plan })
}

fn at(dir: &Utf8Path, problem: &Problem) -> CliError {
    CliError::checkpoint(problem.verdict, format!("{dir}: {problem}")).hint(format!(
        "`supervise verify {dir} --depth full` looks at every byte of it"
    ))
}

/// A step that is being written.
struct New<'a> {
    dir: &'a Utf8Path,
    out: &'a OutputDir,
}

impl New<'_> {
    /// Gives the number of files, how many bytes of the source were compared, and how many the states of the ranks take.
    fn fill(&self, groups: &[Group], content: &Content, world: u64) -> Result<(u64, u64, u64), CliError> {
        let (mut files, mut checked, mut states) = (0, 0, 0);
        for group in groups {
            checked += self.cut(group)?;
            files += group.plan.files().count() as u64;
        }
        for group in &content.states {
            for rank in 0..world {
                // An archive bears the name of its file: a copy would say that it belongs elsewhere. One at a time: there may be thousands.
                let name = format!("{}.pt", Content::name(group, content.world, rank % content.world));
                let from = shards(self.dir, &[name])?;
                let plan = planned(self.dir, &from, None, 1, &|_| Content::name(group, world, rank))?;
                let group = Group { from, plan };
                checked += self.cut(&group)?;
                states += group.bytes();
                files += 1;
            }
        }
        for path in &content.configs {
            let text = Content::config(self.dir, path, world)?;
            self.out.write(path.as_str(), &text).map_err(|e| self.failed(&e))?;
        }
        for (path, _) in &content.others {
            self.copy(path.as_str())?;
        }
        files += (content.configs.len() + content.others.len()) as u64;
        Ok((files, checked, states))
    }

    fn cut(&self, group: &Group) -> Result<u64, CliError> {
        let opened = Opened::create(self.out, group.plan.files())?;
        let total = group.bytes();
        let threads = new_dir::threads();
        let mut meter = Meter::of_writing();
        let written = group.plan.write(&group.from.sources, &opened, threads, &mut |done| {
            meter.tell(done, Some(total));
            ControlFlow::Continue(())
        });
        meter.end();
        let checked = written.map_err(|e| new_dir::ended(self.out, e, |problem| at(self.dir, &problem)))?;
        opened.finish(self.out)?;
        for (name, _) in group.plan.files() {
            self.judge(name, group)?;
        }
        Ok(checked)
    }

    /// Looks at a file as any reader would.
    fn judge(&self, name: &str, group: &Group) -> Result<(), CliError> {
        let file = FileSource::open(&self.out.path().join(name)).map_err(|e| self.failed(&e))?;
        let found = inspect(FileKind::TorchZip, &file, &group.from.limits);
        match found.findings.iter().find(|f| f.effect() != Verdict::Whole) {
            None => Ok(()),
            Some(bad) => Err(CliError::internal(format!(
                "{name}, as it was written, is {}: {bad}",
                bad.effect()
            ))),
        }
    }

    fn copy(&self, name: &str) -> Result<(), CliError> {
        let path: Utf8PathBuf = self.dir.join(name);
        let unreadable = |e: &io::Error| CliError::checkpoint(Verdict::Unreadable, format!("{path}: {e}"));
        let file = FileSource::open(&path).map_err(|e| unreadable(&e))?;
        let len = file.len().map_err(|e| unreadable(&e))?;
        let new = self.out.create(name, len).map_err(|e| self.failed(&e))?;
        let mut piece = vec![0; PIECE];
        let mut at = 0;
        while at < len {
            let n = file.read_at(at, &mut piece).map_err(|e| unreadable(&e))?;
            if n == 0 {
                return Err(unreadable(&io::Error::other("it became shorter while it was read")));
            }
            new.write_at(at, &piece[..n]).map_err(|e| self.failed(&e))?;
            at += n as u64;
        }
        new.finish().map_err(|e| self.failed(&e))
    }

    fn failed(&self, e: &io::Error) -> CliError {
        new_dir::failed(self.out, e)
    }
}
