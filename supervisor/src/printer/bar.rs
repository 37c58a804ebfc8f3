//! The progress line at the bottom of the terminal, with a bar if the last step is known.

use crate::render::live::LiveProgress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Drawn once there is something to show.
#[derive(Debug, Default)]
pub(super) struct Bar(Option<ProgressBar>);

impl Bar {
    pub(super) fn show(&mut self, live: &LiveProgress) {
        draw(self.0.get_or_insert_with(new_bar), live);
    }

    /// Runs `what` while the line is hidden.
    pub(super) fn suspend(&self, what: impl FnOnce()) {
        match &self.0 {
            Some(bar) => bar.suspend(what),
            None => what(),
        }
    }

    pub(super) fn end(&mut self) {
        if let Some(bar) = self.0.take() {
            bar.finish_and_clear();
        }
    }
}

pub(super) fn new_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4));
    bar.set_style(style("{spinner} {wide_msg}"));
    bar
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn draw(bar: &ProgressBar, live: &LiveProgress) {
    if let Some((now, last)) = live.share {
        if bar.length() != Some(last) {
            bar.set_length(last);
            bar.set_style(style("{bar:12} {wide_msg}"));
        }
        bar.set_position(now);
    }
    bar.set_message(live.words.clone());
    bar.tick();
}
