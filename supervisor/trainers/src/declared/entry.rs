//! One step as it is on disk, and which of its files belong to which part.

use super::Declaration;
use super::pattern::{KnownValues, NameNumbers, NamePattern};
use super::schema::{DeclaredFiles, DeclaredPart, PartFormat, PartNeed};
use camino::Utf8Path;
use std::collections::{BTreeMap, BTreeSet};
use supervise_checkpoint::{FileKind, RequiredFile, SetKind, set};
use supervise_core::checkpoint::{EntryKind, FileFact, PinsHash};

/// A step's own entry and the files below it. A step that is a file has that file only, by an empty path.
#[derive(Debug, Clone, Default)]
pub(super) struct DeclaredStepDir {
    pub(super) step: u64,
    pub(super) own: Option<FileFact>,
    pub(super) below: BTreeMap<String, FileFact>,
    /// Names that its content began with when it was judged, by part and role.
    pub(super) heads: BTreeMap<(usize, String), BTreeSet<String>>,
}

impl DeclaredStepDir {
    pub(super) fn kind(&self) -> EntryKind {
        self.own.as_ref().map_or(EntryKind::Dir, |own| own.kind)
    }

    pub(super) fn regular(&self) -> impl Iterator<Item = (&str, &FileFact)> {
        let files = self.below.iter().filter(|(_, f)| f.kind == EntryKind::File);
        files.map(|(path, fact)| (path.as_str(), fact))
    }

    /// Links and special files, which are no files of a part.
    pub(super) fn odd(&self) -> impl Iterator<Item = &str> {
        let is_odd = |f: &FileFact| matches!(f.kind, EntryKind::Symlink | EntryKind::Other);
        let inside = self.below.iter().filter(move |(path, f)| !path.is_empty() && is_odd(f));
        inside.map(|(path, _)| path.as_str())
    }

    pub(super) fn remove(&mut self, path: &str) {
        let inside = format!("{path}/");
        self.below.retain(|p, _| p != path && !p.starts_with(&inside));
    }

    pub(super) fn pins(&self) -> PinsHash {
        crate::kit::pins(self.below.iter().map(|(path, fact)| (path.as_str(), fact)))
    }
}

/// A file that a part takes, with the numbers in its name.
#[derive(Debug, Clone)]
pub(super) struct PartFile<'a> {
    pub(super) path: &'a str,
    pub(super) numbers: NameNumbers,
}

/// A directory whose files are a set.
#[derive(Debug, Clone)]
pub(super) struct PartSet {
    /// Relative to the step; empty for the step itself.
    pub(super) dir: String,
    pub(super) kind: SetKind,
    /// Names and sizes of the files directly in it.
    pub(super) files: BTreeMap<String, u64>,
}

/// One part of one role, as it was found.
#[derive(Debug)]
pub(super) struct FoundPart<'a> {
    pub(super) part: &'a DeclaredPart,
    pub(super) index: usize,
    pub(super) role: &'a str,
    /// Only asked for if another step has it.
    pub(super) optional: bool,
    pub(super) files: Vec<PartFile<'a>>,
    pub(super) sets: Vec<PartSet>,
    /// Whether a link or special file has the name of one of its files.
    pub(super) is_linked: bool,
}

impl FoundPart<'_> {
    pub(super) fn is_there(&self) -> bool {
        !self.files.is_empty() || !self.sets.is_empty()
    }

    /// Identifies the part among steps.
    pub(super) fn key(&self) -> (usize, String) {
        (self.index, self.role.to_owned())
    }

    pub(super) fn is_always(&self) -> bool {
        self.part.need == PartNeed::Always && !self.optional
    }

    /// `optimizer of policy`.
    pub(super) fn words(&self) -> String {
        match self.role {
            "" => self.part.name.clone(),
            role => format!("{} of {role}", self.part.name),
        }
    }

    /// The files to inspect, relative to the step.
    pub(super) fn needs(&self) -> Vec<RequiredFile> {
        let kind = |path: &str| match self.part.formats.as_slice() {
            [PartFormat::Torch] => FileKind::TorchZip,
            [PartFormat::Safetensors] => FileKind::Safetensors,
            [PartFormat::Json] => FileKind::AnyJson,
            [PartFormat::Pickle] => FileKind::Pickle,
            [PartFormat::Text] => FileKind::Text,
            _ => FileKind::of(path),
        };
        let files = self
            .files
            .iter()
            .map(|file| RequiredFile::new(file.path, kind(file.path)));
        let of_set = |set: &PartSet| {
            let needs = set::needs(set.kind, set.files.keys().map(String::as_str));
            let dir = camino::Utf8PathBuf::from(&set.dir);
            needs.into_iter().map(move |need| match dir.as_str() {
                "" => need,
                _ => need.under(&dir),
            })
        };
        files.chain(self.sets.iter().flat_map(of_set)).collect()
    }
}

/// All parts of a step, in the order of the declaration.
pub(super) fn find<'a>(of: &'a Declaration, entry: &'a DeclaredStepDir) -> Vec<FoundPart<'a>> {
    let mut out = Vec::new();
    for (index, part) in of.parts.iter().enumerate() {
        let alone = [("", false)];
        let roles: Vec<(&str, bool)> = part.roles.iter().map(|r| (r.name.as_str(), r.optional)).collect();
        for (role, optional) in if roles.is_empty() { alone.to_vec() } else { roles } {
            let mut found = FoundPart {
                part,
                index,
                role,
                optional,
                files: Vec::new(),
                sets: Vec::new(),
                is_linked: false,
            };
            fill(&mut found, entry);
            out.push(found);
        }
    }
    out
}

fn fill<'a>(found: &mut FoundPart<'a>, entry: &'a DeclaredStepDir) {
    let known = KnownValues {
        step: Some(entry.step),
        role: found.role,
    };
    match &found.part.files {
        DeclaredFiles::Itself => {
            let own = entry.regular().filter(|(path, _)| path.is_empty());
            found.files.extend(own.map(|(path, _)| PartFile {
                path,
                numbers: NameNumbers::new(),
            }));
        }
        DeclaredFiles::Names(names) => {
            for (path, _) in entry.regular() {
                let numbers = names.iter().find_map(|name| name.find(path, known));
                found.files.extend(numbers.map(|numbers| PartFile { path, numbers }));
            }
            let is_file = |path: &str| names.iter().any(|name| name.find(path, known).is_some());
            found.is_linked = entry.odd().any(is_file);
        }
        DeclaredFiles::Sets(dirs) => {
            let name = |dir: &Option<NamePattern>| match dir {
                Some(dir) => dir.fill(&NameNumbers::new(), found.role),
                None => String::new(),
            };
            let sets = dirs.iter().filter_map(|dir| part_set(name(dir), found.part, entry));
            found.sets.extend(sets);
            let is_inside = |path: &str| dirs.iter().any(|dir| Utf8Path::new(path).starts_with(name(dir)));
            found.is_linked = entry.odd().any(is_inside);
        }
    }
}

fn part_set(dir: String, part: &DeclaredPart, entry: &DeclaredStepDir) -> Option<PartSet> {
    let inside = |path: &str| -> Option<String> {
        let name = match dir.as_str() {
            "" => path,
            dir => path.strip_prefix(dir)?.strip_prefix('/')?,
        };
        (!name.is_empty() && !name.contains('/')).then(|| name.to_owned())
    };
    let files: BTreeMap<String, u64> = entry
        .regular()
        .filter_map(|(path, fact)| Some((inside(path)?, fact.size)))
        .collect();
    let kind = set::recognize(files.keys().map(String::as_str))?;
    let fits = part.formats.iter().any(|format| match format {
        PartFormat::Dcp => kind == SetKind::Dcp,
        PartFormat::MegatronDist => kind == SetKind::MegatronDist,
        PartFormat::Weights => kind == SetKind::Weights,
        _ => false,
    });
    fits.then_some(PartSet { dir, kind, files })
}
