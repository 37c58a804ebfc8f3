//! One metrics experiment for all attempts: otherwise each relaunch would start a new one.

use crate::adapter::{HostFacts, InjectedSetting, LaunchPlan};
use supervise_core::journal::record::{LaunchOrder, StartPoint};
use supervise_core::spec::RunSpec;

/// A tool that records a run's metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsTool {
    Wandb,
    Swanlab,
    /// MLflow, which assigns ids itself and refuses others.
    Mlflow,
}

impl MetricsTool {
    pub(crate) fn of(name: &str) -> Option<Self> {
        match name {
            "wandb" => Some(Self::Wandb),
            "swanlab" => Some(Self::Swanlab),
            "mlflow" => Some(Self::Mlflow),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Wandb => "Weights & Biases",
            Self::Swanlab => "SwanLab",
            Self::Mlflow => "MLflow",
        }
    }

    /// Variables by which the user takes control. One is enough: an id and a mode that disagree would stop the
    /// trainer.
    fn variables(self) -> &'static [&'static str] {
        match self {
            Self::Wandb => &["WANDB_RUN_ID", "WANDB_RESUME"],
            Self::Swanlab => &["SWANLAB_RUN_ID", "SWANLAB_RESUME"],
            Self::Mlflow => &["MLFLOW_RUN_ID"],
        }
    }
}

/// Lets all attempts since the run was adopted continue one experiment of each tool. A fresh start gets a new one
/// because it counts its steps from the beginning.
pub(crate) fn go_on(
    plan: &mut LaunchPlan,
    trackers: &[MetricsTool],
    spec: &RunSpec,
    order: &LaunchOrder,
    host: &HostFacts,
) {
    if !spec.policy.assist.wandb || order.from == StartPoint::AsIs {
        return;
    }
    for tracker in trackers.iter().copied() {
        let is_set = tracker.variables().iter().any(|name| host.is_set(spec, name));
        match tracker {
            MetricsTool::Mlflow if order.attempt.0 <= 1 => plan.notes.push(of_mlflow(is_set).to_owned()),
            MetricsTool::Wandb | MetricsTool::Swanlab if !is_set => {
                plan.help(vec![one(tracker, spec, host)], spec, host);
                // Noted only at the first attempt.
                if order.attempt.0 <= 1 {
                    plan.notes.push(format!(
                        "{}: all attempts go on in one run there; of steps that are trained twice it keeps the first numbers",
                        tracker.name()
                    ));
                }
            }
            _ => {}
        }
    }
}

/// We leave its runs to the user.
fn of_mlflow(is_set: bool) -> &'static str {
    if is_set {
        "MLFLOW_RUN_ID stays as you set it: MLflow refuses an id that it does not know, and a parameter whose value is another than in the attempt before"
    } else {
        "MLflow: each attempt is a run of its own there, for MLflow gives the ids and refuses one that it does not know"
    }
}

fn one(tracker: MetricsTool, spec: &RunSpec, host: &HostFacts) -> InjectedSetting {
    let mut help = InjectedSetting::new(
        "assist.wandb",
        format!(
            "all attempts go on in one run of {}, not in a new one each",
            tracker.name()
        ),
    );
    let id = match tracker {
        // SwanLab takes 21 lowercase letters and digits.
        MetricsTool::Swanlab => format!("{}{:05}", spec.run, host.began),
        MetricsTool::Wandb | MetricsTool::Mlflow => format!("{}-{}", spec.run, host.began),
    };
    let values = [id.as_str(), "allow"];
    for (name, value) in tracker.variables().iter().zip(values) {
        help.set(name, value);
    }
    help
}
