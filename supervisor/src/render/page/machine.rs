//! The machine of the server: what `supervise doctor` finds, and its GPUs.

use super::super::bytes;
use super::super::terminal::shown;
use super::table::wide;
use super::whole;
use maud::{Markup, html};
use serde::Deserialize;
use supervise_core::event::gpu::Device;

/// A line of `supervise doctor --json`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct DoctorCheck {
    pub name: String,
    pub health: String,
    pub text: String,
}

/// Content of the page of the machine.
#[derive(Debug)]
pub struct MachinePage<'a> {
    pub host: &'a str,
    pub checks: Result<&'a [DoctorCheck], &'a str>,
    pub gpus: Result<&'a [Device], &'a str>,
}

/// The page of the machine.
#[must_use]
pub fn machine(v: &MachinePage<'_>) -> String {
    let main = html! {
        h1 { (shown(v.host)) }
        p.soft { "The machine of this server, as it is now." }
        h2 { "Checks" }
        @match v.checks {
            Err(why) => p.bad { (shown(why)) },
            Ok(checks) => (wide("Checks", &["What", "Health", "Found"], checks.iter().map(|c| {
                let (tone, sign) = match c.health.as_str() {
                    "ok" => ("good", "✓ ok"),
                    "note" => ("soft", "note"),
                    _ => ("odd", "! warning"),
                };
                vec![
                    (None, html! { (shown(&c.name)) }),
                    (Some(tone), html! { (sign) }),
                    (None, html! { (shown(&c.text)) }),
                ]
            }))),
        }
        h2 { "GPUs" }
        @match v.gpus {
            Err(why) => p.bad { (shown(why)) },
            Ok([]) => p.soft { "No GPU: nvidia-smi is not installed, or lists none." },
            Ok(gpus) => (wide("GPUs", &["GPU", "Memory", "Health", "Identity"], gpus.iter().map(|g| vec![
                (None, html! { (g.index) }),
                (None, memory(g)),
                (None, health(g)),
                (Some("mono"), html! { (shown(&g.uuid)) }),
            ]))),
        }
    };
    whole(&format!("{}: machine", v.host), None, &main)
}

fn memory(g: &Device) -> Markup {
    let words = format!("{} of {}", bytes(g.used << 20), bytes(g.total << 20));
    html! { span.name { (words) } progress value=(g.used) max=(g.total.max(1)) aria-label=(words) {} }
}

fn health(g: &Device) -> Markup {
    let bad = [
        (g.worn_out, "a memory row could not be replaced: no spares are left"),
        (g.replacing, "a memory row waits for a reset to be replaced"),
        (g.retiring, "pages wait for a reset to be retired"),
    ];
    let errors = g.errors.filter(|n| *n > 0);
    html! {
        @if let Some(n) = errors { div.bad { (n) " uncorrected memory errors" } }
        @for (_, words) in bad.iter().filter(|b| b.0) { div.bad { (words) } }
        @if errors.is_none() && !bad.iter().any(|b| b.0) { span.good { "✓ no errors" } }
    }
}
