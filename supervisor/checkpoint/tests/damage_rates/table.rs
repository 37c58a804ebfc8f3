//! The rates as a table for people.

use crate::mutate::Kind;
use crate::prove::{Caught, Region};
use std::collections::BTreeMap;
use std::fmt::Write;

/// How many were caught of how many.
#[derive(Default, Clone, Copy)]
struct Rate {
    of: u32,
    structure: u32,
    full: u32,
    doubted: u32,
    record: u32,
}

impl Rate {
    fn add(&mut self, caught: Caught) {
        self.of += 1;
        self.structure += u32::from(caught.structure);
        self.full += u32::from(caught.full);
        self.doubted += u32::from(caught.doubted);
        self.record += u32::from(caught.record);
    }

    fn row(&self) -> String {
        let percent = |n: u32| match n {
            n if n == self.of => "100 %".to_owned(),
            n => format!("{:.1} %", f64::from(n) * 100.0 / f64::from(self.of)),
        };
        let [s, f, d, r] = [self.structure, self.full, self.doubted, self.record].map(percent);
        format!("{} | {s} | {f} | {d} | {r} |", self.of)
    }
}

/// All rates.
#[derive(Default)]
pub(crate) struct Table(BTreeMap<(Kind, Region), Rate>);

impl Table {
    pub(crate) fn add(&mut self, kind: Kind, region: Region, caught: Caught) {
        self.0.entry((kind, region)).or_default().add(caught);
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.values().map(|r| r.of).sum()
    }

    /// As Markdown.
    pub(crate) fn text(&self) -> String {
        let mut out = String::from(
            "| change | where it begins | changes | structure | full | full, warnings too | full, with a record |\n",
        );
        out.push_str("| --- | --- | --: | --: | --: | --: | --: |\n");
        for ((kind, region), rate) in &self.0 {
            writeln!(out, "| {} | {} | {}", kind.words(), region.words(), rate.row()).unwrap();
        }
        out
    }
}
