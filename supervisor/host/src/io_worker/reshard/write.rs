//! Writes the resharded step: to a staging path, checked as any reader would, then renamed.

use super::content::StepContent;
use super::{NotCut, begun};
use crate::io_worker::files::FileSource;
use crate::output_dir::{OutputDir, OutputFile};
use camino::{Utf8Path, Utf8PathBuf};
use std::io;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use supervise_checkpoint::{ByteSource as _, FileKind, InspectLimits, inspect};
use supervise_core::checkpoint::Verdict;
use supervise_weights::fsdp::{self, FlatParams, FsdpShard};
use supervise_weights::reshard::{self, ReshardPlan, ReshardSource};
use supervise_weights::write::WriteError;
use supervise_weights::{ModelError, OutputSink, SharedSource};

const PIECE: usize = 1 << 20;

/// More threads do not help: the disk is the limit.
const THREADS: usize = 8;

/// Result of a reshard.
#[derive(Debug, Clone, Copy)]
pub struct ReshardStats {
    pub files: u64,
    pub bytes: u64,
    /// Bytes of the source that were compared with their checksums.
    pub checked: u64,
    /// Duration, from the first byte to the last.
    pub took: Duration,
}

/// Receives the bytes written and the total; cancels with `Break`.
pub type WriteProgressFn<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + Send + 'a;

/// Open `torch.save` files of all ranks, with their contents parsed.
struct SourceShards {
    shards: Vec<FsdpShard>,
    sources: Vec<Box<SharedSource>>,
    limits: InspectLimits,
}

impl SourceShards {
    fn open(dir: &Utf8Path, names: &[String], limits: &InspectLimits) -> Result<Self, NotCut> {
        let mut out = Self {
            shards: Vec::with_capacity(names.len()),
            sources: Vec::with_capacity(names.len()),
            limits: limits.clone(),
        };
        for name in names {
            let source = opened(&dir.join(name))?;
            out.shards.push(FsdpShard {
                path: name.into(),
                found: inspect(FileKind::TorchZip, &source, limits),
            });
            out.sources.push(Box::new(source));
        }
        Ok(out)
    }
}

fn opened(path: &Utf8Path) -> Result<FileSource, NotCut> {
    FileSource::open(path).map_err(|e| {
        if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
            return NotCut::machine(format!("{path}: {e}"))
                .hint("it takes one open file for each file of the checkpoint: raise the hard limit (`ulimit -Hn`)");
        }
        let verdict = match e.kind() {
            io::ErrorKind::NotFound => Verdict::Incomplete,
            _ => Verdict::Unreadable,
        };
        NotCut::step(verdict, format!("{path}: {e}"))
    })
}

struct OpenOutputs(Vec<OutputFile>);

impl OutputSink for OpenOutputs {
    fn write_at(&self, file: usize, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0[file].write_at(at, bytes)
    }
}

/// Files of one kind, with their sources.
struct ShardGroup {
    from: SourceShards,
    plan: ReshardPlan,
}

impl ShardGroup {
    fn bytes(&self) -> u64 {
        self.plan.files().map(|(_, n)| n).sum()
    }
}

/// Reshards everything and renames it to its final name.
///
/// # Errors
/// A source with wrong bytes, or one that cannot be resharded; a target that cannot be created.
pub fn all(
    dir: &Utf8Path,
    target: &Utf8Path,
    content: &StepContent,
    world: u64,
    limits: &InspectLimits,
    progress: &mut WriteProgressFn<'_>,
) -> Result<ReshardStats, NotCut> {
    let began = Instant::now();
    content.is_possible(dir, world)?;
    let mut groups = Vec::new();
    for group in &content.cut {
        let names = (0..content.world).map(|r| format!("{}.pt", StepContent::name(group, content.world, r)));
        let from = SourceShards::open(dir, &names.collect::<Vec<_>>(), limits)?;
        let flat = match content.model_of_flat(group) {
            Some(model) => {
                let first = format!("{}.pt", StepContent::name(&model, content.world, 0));
                let model = SourceShards::open(dir, &[first], limits)?;
                let model = model.shards.first().map(|model| {
                    let flat = fsdp::flat(model, &from.shards)?;
                    fsdp::filled_with_zeros(&from.shards, &from.sources, &flat).map(|()| flat)
                });
                model.transpose().map_err(|e| at(dir, &e))?
            }
            None => None,
        };
        let as_it_is = Others {
            flat: flat.as_ref(),
            samples_of: None,
        };
        let plan = planned(dir, &from, as_it_is, world, &|rank| {
            StepContent::name(group, world, rank)
        })?;
        groups.push(ShardGroup { from, plan });
    }
    if content.data {
        groups.push(data(dir, content, world, limits)?);
    }
    let copies: u64 = content.others.iter().map(|(_, n)| n).sum();
    let new: u64 = groups.iter().map(ShardGroup::bytes).sum();
    let out = OutputDir::begin(target).map_err(|e| begun(e, target))?;
    if let Err(short) = room(out.path(), new + copies) {
        out.abandon();
        return Err(short);
    }
    let mut step = New {
        dir,
        out: &out,
        limits,
        done: 0,
        total: new,
        progress,
    };
    match step.fill(&groups, content, world) {
        Ok((files, checked, states)) => {
            out.finish().map_err(|e| NotCut::machine(format!("{target}: {e}")))?;
            Ok(ReshardStats {
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

#[derive(Clone, Copy, Default)]
struct Others<'a> {
    flat: Option<&'a FlatParams>,
    samples_of: Option<u64>,
}

fn source<'a>(from: &'a SourceShards, ranks: std::ops::Range<usize>, others: Others<'a>) -> ReshardSource<'a> {
    ReshardSource {
        shards: &from.shards[ranks.clone()],
        sources: &from.sources[ranks],
        limits: &from.limits,
        flat: others.flat,
        samples_of: others.samples_of,
    }
}

fn planned(
    dir: &Utf8Path,
    from: &SourceShards,
    others: Others<'_>,
    world: u64,
    name: &dyn Fn(u64) -> String,
) -> Result<ReshardPlan, NotCut> {
    let all = 0..from.shards.len();
    reshard::plan(source(from, all, others), world, name).map_err(|e| at(dir, &e))
}

/// The dataloader position: one for all, because all ranks are at the same position.
fn data(dir: &Utf8Path, content: &StepContent, world: u64, limits: &InspectLimits) -> Result<ShardGroup, NotCut> {
    let names: Vec<String> = (0..content.world).map(|r| format!("data_{r}.pt")).collect();
    let mut from = SourceShards::open(dir, &names, limits)?;
    for rank in 1..from.shards.len() {
        let same = reshard::same_values(
            source(&from, 0..1, Others::default()),
            source(&from, rank..rank + 1, Others::default()),
        )
        .map_err(|e| at(dir, &e))?;
        if !same {
            let text = format!("{dir}: data_0.pt and data_{rank}.pt are at different places in the data");
            return Err(NotCut::step(Verdict::Unknown, text));
        }
    }
    from.shards.truncate(1);
    from.sources.truncate(1);
    let others = Others {
        samples_of: Some(content.world),
        flat: None,
    };
    let plan = planned(dir, &from, others, world, &|rank| format!("data_{rank}"))?;
    Ok(ShardGroup { from, plan })
}

fn at(dir: &Utf8Path, problem: &ModelError) -> NotCut {
    NotCut::step(problem.verdict, format!("{dir}: {problem}")).hint(format!(
        "`supervise verify {dir} --depth full` looks at every byte of it"
    ))
}

struct New<'a> {
    dir: &'a Utf8Path,
    out: &'a OutputDir,
    limits: &'a InspectLimits,
    done: u64,
    total: u64,
    progress: &'a mut WriteProgressFn<'a>,
}

impl New<'_> {
    /// Returns the number of files, the source bytes compared, and the size of the per-rank states.
    fn fill(&mut self, groups: &[ShardGroup], content: &StepContent, world: u64) -> Result<(u64, u64, u64), NotCut> {
        let (mut files, mut checked, mut states) = (0, 0, 0);
        for group in groups {
            checked += self.cut(group)?;
            files += group.plan.files().count() as u64;
        }
        for group in &content.states {
            for rank in 0..world {
                // An archive contains the name of its file, so a plain copy would have the wrong one. One at a time:
                // there may be thousands.
                let name = format!("{}.pt", StepContent::name(group, content.world, rank % content.world));
                let from = SourceShards::open(self.dir, &[name], self.limits)?;
                let plan = planned(self.dir, &from, Others::default(), 1, &|_| {
                    StepContent::name(group, world, rank)
                })?;
                let group = ShardGroup { from, plan };
                checked += self.cut(&group)?;
                states += group.bytes();
                files += 1;
            }
        }
        for path in &content.configs {
            let (text, mode) = StepContent::config(self.dir, path, world)?;
            self.out
                .write_as(path.as_str(), &text, mode)
                .map_err(|e| self.failed(&e))?;
        }
        for (path, _) in &content.others {
            self.copy(path.as_str())?;
        }
        files += (content.configs.len() + content.others.len()) as u64;
        Ok((files, checked, states))
    }

    fn cut(&mut self, group: &ShardGroup) -> Result<u64, NotCut> {
        let made: io::Result<Vec<OutputFile>> = group.plan.files().map(|(name, n)| self.out.create(name, n)).collect();
        let files = OpenOutputs(made.map_err(|e| self.failed(&e))?);
        let (before, total) = (self.done, self.total);
        let progress = &mut *self.progress;
        let mut tell = |done: u64| progress((before + done).min(total), total);
        let written = group.plan.write(&group.from.sources, &files, threads(), &mut tell);
        let checked = written.map_err(|e| match e {
            WriteError::Source(problem) => at(self.dir, &problem),
            WriteError::Target { error, .. } => self.failed(&error),
            WriteError::Interrupted => NotCut::Interrupted,
        })?;
        files
            .0
            .iter()
            .try_for_each(OutputFile::finish)
            .map_err(|e| self.failed(&e))?;
        self.done += group.bytes();
        for (name, _) in group.plan.files() {
            self.judge(name, group)?;
        }
        Ok(checked)
    }

    /// Checks a file as any reader would.
    fn judge(&self, name: &str, group: &ShardGroup) -> Result<(), NotCut> {
        let file = FileSource::open(&self.out.path().join(name)).map_err(|e| self.failed(&e))?;
        let found = inspect(FileKind::TorchZip, &file, &group.from.limits);
        match found.findings.iter().find(|f| f.effect() != Verdict::Whole) {
            None => Ok(()),
            Some(bad) => Err(NotCut::Internal(format!(
                "{name}, as it was written, is {}: {bad}",
                bad.effect()
            ))),
        }
    }

    fn copy(&self, name: &str) -> Result<(), NotCut> {
        let path: Utf8PathBuf = self.dir.join(name);
        let unreadable = |e: &io::Error| NotCut::step(Verdict::Unreadable, format!("{path}: {e}"));
        let file = FileSource::open(&path).map_err(|e| unreadable(&e))?;
        let len = file.len().map_err(|e| unreadable(&e))?;
        let mode = file.mode().map_err(|e| unreadable(&e))?;
        let new = self.out.create_as(name, len, mode).map_err(|e| self.failed(&e))?;
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

    fn failed(&self, e: &io::Error) -> NotCut {
        NotCut::machine(format!("{} cannot be written: {e}", self.out.path()))
            .hint("nothing was written under the target's name; run this again when that is mended")
    }
}

fn threads() -> usize {
    std::thread::available_parallelism()
        .map_or(1, NonZero::get)
        .min(THREADS)
}

/// Reports a disk that is too full before anything is written.
fn room(dir: &Utf8Path, want: u64) -> Result<(), NotCut> {
    let Ok(room) = crate::system::space(dir) else {
        return Ok(());
    };
    if room.size == 0 || room.free >= want {
        return Ok(());
    }
    let parent = dir.parent().unwrap_or(dir).to_owned();
    let free = room.free;
    Err(NotCut::NoRoom { at: parent, want, free })
}
