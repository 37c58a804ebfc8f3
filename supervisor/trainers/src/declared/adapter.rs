//! A declaration as the adapter of its trainer.

use super::schema::StepNames;
use super::{Declaration, launch, read};
use crate::adapter::{
    ExpectedLayout, HostFacts, InPlaceLayout, LaunchPlan, StepTracker, TrainerAdapter, TrainerFacts, TrainerNames,
};
use crate::read::{ReadInput, ReadOutput};
use camino::{Utf8Path, Utf8PathBuf};
use std::sync::Arc;
use supervise_config::ConfigError;
use supervise_config::compose::ComposedConfig;
use supervise_core::checkpoint::{CheckpointSummary, CkptId, Finding, Resumability};
use supervise_core::event::scan::ScanRule;
use supervise_core::id::Step;
use supervise_core::journal::reason::Reason;
use supervise_core::journal::record::LaunchOrder;
use supervise_core::spec::{RunSpec, TrainerKind};

/// The adapter of a declared trainer. It is made once for each text and kept for the life of the process.
#[derive(Debug)]
pub(crate) struct DeclaredAdapter {
    of: Arc<Declaration>,
    framework: &'static str,
    names: &'static TrainerNames,
    in_place: Option<&'static DeclaredFileLayout>,
}

impl DeclaredAdapter {
    pub(crate) fn new(of: Arc<Declaration>) -> &'static Self {
        let text = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
        let root: Vec<&'static str> = of.settings.root.iter().flat_map(|s| &s.keys).map(|k| text(k)).collect();
        let every = of.settings.every.iter().find_map(|s| s.keys.first());
        let names = TrainerNames {
            name: text(&of.title),
            root: match root.is_empty() {
                true => &["supervisor.root"],
                false => Vec::leak(root),
            },
            every: every.map(|key| text(key)),
            ..TrainerNames::NONE
        };
        let in_place = match &of.steps.names {
            StepNames::InPlace(file) => Some(DeclaredFileLayout {
                file: text(file),
                layout: text(&of.name),
            }),
            StepNames::Dirs(_) => None,
        };
        let adapter = Self {
            framework: text(&of.name),
            of,
            names: Box::leak(Box::new(names)),
            in_place: in_place.map(|layout| &*Box::leak(Box::new(layout))),
        };
        Box::leak(Box::new(adapter))
    }
}

impl TrainerAdapter for DeclaredAdapter {
    fn kind(&self) -> TrainerKind {
        self.of.kind
    }

    fn framework(&self) -> &'static str {
        self.framework
    }

    fn words(&self) -> &'static TrainerNames {
        self.names
    }

    fn is_declared(&self) -> bool {
        true
    }

    fn store_of(&self, root: &Utf8Path) -> Option<Utf8PathBuf> {
        self.of.settings.store_outside.then(|| super::outside_store(root))
    }

    fn is_called(&self, command: &[String]) -> bool {
        self.of.is_called(command)
    }

    fn is_meant(&self, _composed: &ComposedConfig) -> bool {
        false
    }

    fn read(&self, input: &ReadInput<'_>) -> Result<ReadOutput, Vec<ConfigError>> {
        read::read(&self.of, input)
    }

    fn rules(&self) -> Vec<ScanRule> {
        self.of.scan_rules()
    }

    fn in_place(&self) -> Option<&'static dyn InPlaceLayout> {
        Some(self.in_place?)
    }

    fn tracker(&self, expect: &ExpectedLayout) -> Box<dyn StepTracker> {
        Box::new(self.of.run_tracker(expect))
    }

    fn arrange(&self, spec: &RunSpec, order: &LaunchOrder, host: &HostFacts) -> Result<LaunchPlan, Reason> {
        launch::arrange(&self.of, spec, order, host)
    }

    fn preflight(&self, spec: &RunSpec, _facts: &TrainerFacts) -> Vec<Finding> {
        let told = spec.cadence.every.filter(|_| spec.policy.start.recovery);
        let told = told.map(|n| {
            Finding::note(
                "cadence",
                format!("every {n} steps are saved: a crash costs up to {n} steps"),
            )
        });
        told.into_iter().collect()
    }
}

/// A checkpoint that is one file in the root.
#[derive(Debug)]
struct DeclaredFileLayout {
    file: &'static str,
    layout: &'static str,
}

impl InPlaceLayout for DeclaredFileLayout {
    fn file(&self) -> Option<&'static str> {
        Some(self.file)
    }

    fn info(&self) -> &'static str {
        self.file
    }

    fn state(&self) -> &'static str {
        self.file
    }

    fn payloads(&self) -> &'static str {
        ""
    }

    fn as_own(&self, path: &str) -> String {
        path.to_owned()
    }

    fn no_set(&self, step: Step, finding: Finding) -> CheckpointSummary {
        let mut out = crate::kit::blank(CkptId(self.file.into()), step);
        out.layout = std::borrow::Cow::Borrowed(self.layout);
        out.verdict = finding.effect();
        out.resume = Resumability::Not {
            why: finding.detail.clone(),
        };
        out.findings.push(finding);
        out
    }

    fn stored(&self, _expect: &ExpectedLayout) -> Vec<String> {
        Vec::new()
    }

    fn corrected(&self, _expect: &ExpectedLayout, _name: &str, _bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
        Ok(None)
    }
}
