//! The bar below the lines of a run on a terminal: step, pace, phase.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use supervise_core::id::Step;

/// Position of the training.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) step: Option<Step>,
    pub(super) last: Option<Step>,
    pub(super) doing: &'static str,
    pub(super) pace: String,
}

/// A bar that stands on the terminal once there is something to show.
#[derive(Debug, Default)]
pub(super) struct Bar(Option<ProgressBar>);

impl Bar {
    /// Shows where the training is now.
    pub(super) fn show(&mut self, shown: &Shown) {
        draw(self.0.get_or_insert_with(new_bar), shown);
    }

    /// Does something with the bar out of the way.
    pub(super) fn suspend(&self, what: impl FnOnce()) {
        match &self.0 {
            Some(bar) => bar.suspend(what),
            None => what(),
        }
    }

    /// Takes it off the terminal.
    pub(super) fn end(&mut self) {
        if let Some(bar) = self.0.take() {
            bar.finish_and_clear();
        }
    }
}

pub(super) fn new_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4));
    bar.set_style(style(false));
    bar
}

fn style(counted: bool) -> ProgressStyle {
    let template = if counted {
        "{bar:32} step {pos} of {len}{msg}"
    } else {
        "{spinner} {msg}"
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn draw(bar: &ProgressBar, shown: &Shown) {
    let Shown { doing, pace, .. } = shown;
    match (shown.step, shown.last) {
        (Some(step), Some(last)) => {
            if bar.length() != Some(last.0) {
                bar.set_length(last.0);
                bar.set_style(style(true));
            }
            bar.set_position(step.0);
            bar.set_message(format!("{pace}, {doing}"));
        }
        (Some(step), None) => bar.set_message(format!("step {step}{pace}, {doing}")),
        (None, _) => bar.set_message(*doing),
    }
    bar.tick();
}
