//! A directory of files in memory, proven as a prover does it.

use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use supervise_checkpoint::{
    FileDescription, FileReport, InspectLimits, RequiredFile, SetKind, SetReport, SweepOptions, inspect,
    inspect_described, judge_file, set, sweep,
};
use supervise_core::checkpoint::Depth;

/// Files by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree(pub(crate) BTreeMap<String, Vec<u8>>);

impl Tree {
    /// The files directly in a directory.
    #[expect(clippy::disallowed_methods, reason = "tests bring the files")]
    pub(crate) fn read(dir: &Utf8Path) -> Self {
        let mut out = BTreeMap::new();
        for entry in std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{dir}: {e}")) {
            let path = Utf8PathBuf::from_path_buf(entry.unwrap().path()).unwrap();
            if path.is_file() {
                let bytes = std::fs::read(&path).unwrap();
                out.insert(path.file_name().unwrap().to_owned(), bytes);
            }
        }
        Self(out)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(crate) fn kind(&self) -> Option<SetKind> {
        set::recognize(self.names())
    }

    /// The verdict about the directory.
    pub(crate) fn judge(&self, depth: Depth) -> SetReport {
        let kind = self.kind().expect("a set");
        let reports = self.prove(&set::needs(kind, self.names()), depth);
        let sizes = self.0.iter().map(|(n, b)| (n.clone(), b.len() as u64)).collect();
        set::judge(kind, &sizes, &reports)
    }

    /// Looks into the files that are needed.
    pub(crate) fn prove(&self, needs: &[RequiredFile], depth: Depth) -> BTreeMap<String, FileReport> {
        let limits = InspectLimits::default();
        let mut described: BTreeMap<String, Arc<FileDescription>> = BTreeMap::new();
        let mut out = BTreeMap::new();
        for need in needs {
            let name = need.path.as_str();
            let bytes = &self.0[name];
            let by = need.described_by.as_ref().and_then(|p| described.get(p.as_str()));
            let inspected = match by {
                Some(description) => inspect_described(need.kind, bytes, description, name, &limits),
                None => inspect(need.kind, bytes, &limits),
            };
            if let Some(description) = &inspected.description {
                described.insert(name.to_owned(), Arc::clone(description));
            }
            let results = if depth == Depth::Full && !inspected.read_all {
                let mut on = |_| ControlFlow::Continue(());
                sweep(bytes, &inspected.plan, SweepOptions::default(), &mut on).expect("the bytes are there")
            } else {
                Vec::new()
            };
            out.insert(name.to_owned(), judge_file(&inspected, &results));
        }
        out
    }
}

/// All directories of the fixtures that are sets, with their paths.
pub(crate) fn fixtures() -> Vec<(Utf8PathBuf, Tree)> {
    let root = Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let mut out = Vec::new();
    below(&root, &mut out);
    out.sort_by(|a, b| a.0.cmp(&b.0));
    out
}

#[expect(clippy::disallowed_methods, reason = "tests bring the files")]
fn below(dir: &Utf8Path, out: &mut Vec<(Utf8PathBuf, Tree)>) {
    for entry in std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{dir}: {e}")) {
        let path = Utf8PathBuf::from_path_buf(entry.unwrap().path()).unwrap();
        if path.is_dir() {
            let tree = Tree::read(&path);
            if tree.kind().is_some() {
                out.push((path.clone(), tree));
            }
            below(&path, out);
        }
    }
}
