//! The configuration of a run, with the origin of each value, and the plan of its next start.

use super::super::config::{ConfigRow, ConfigView};
use super::super::policy::{self, PolicyView, RuleView};
use super::super::shown_command;
use super::super::terminal::{paragraph, shown};
use super::table::{plain, wide};
use super::whole;
use maud::{Markup, html};

/// Lines per table: a trainer's configuration has a thousand.
const LINES: usize = 5000;

/// Content of the page.
#[derive(Debug)]
pub struct ConfigPage<'a> {
    pub run: &'a str,
    /// The configuration with the term that started with it, or why there is none.
    pub config: Result<(u32, &'a ConfigView), &'a str>,
    pub policy: Option<&'a PolicyView>,
    /// The user may request a plan.
    pub plans: bool,
}

/// The page of a run's configuration.
#[must_use]
pub fn config(v: &ConfigPage<'_>) -> String {
    let main = html! {
        h1 { "Configuration" }
        p { a href={ "/run/" (v.run) } { "The run" } @if v.plans { " · " a href={ "/run/" (v.run) "/plan" } { "Plan the next start" } } }
        @match v.config {
            Err(why) => p.bad { (shown(why)) },
            Ok((term, config)) => (configuration(config, term)),
        }
        @if let Some(policy) = v.policy { section aria-labelledby="h-policy" { h2 #h-policy { "How failures are answered" } (answers(policy)) } }
    };
    whole("Configuration", None, &main)
}

fn configuration(c: &ConfigView, term: u32) -> Markup {
    let (defaults, said): (Vec<&ConfigRow>, Vec<&ConfigRow>) = c.settings.iter().partition(|l| l.is_default());
    let (standing, given): (Vec<&ConfigRow>, Vec<&ConfigRow>) = c.trainer.iter().partition(|l| l.is_default());
    html! {
        p.soft { "As term " (term) " began. Secrets are hidden." }
        @if let Some(s) = &c.started {
            section aria-labelledby="h-start" { h2 #h-start { "Started by" }
                pre { "supervise run " (shown(&shown_command(&s.arguments()))) }
                p.soft { "in " (shown(&s.cwd)) }
            }
        }
        section aria-labelledby="h-said" { h2 #h-said { "Settings that somebody gave" }
            @if said.is_empty() { p { "None: every setting has its default." } } @else { (table("Setting", &said)) }
        }
        @if !c.trainer.is_empty() {
            section aria-labelledby="h-trainer" { h2 #h-trainer { "The trainer's configuration" }
                (table("Key", &given))
                @if !standing.is_empty() {
                    details { summary { "Keys with the trainer's own defaults, as far as they are read here" } (table("Key", &standing)) }
                }
            }
        }
        section aria-labelledby="h-default" { h2 #h-default { "Settings with their defaults" } (table("Setting", &defaults)) }
    }
}

fn table(what: &str, lines: &[&ConfigRow]) -> Markup {
    let more = lines.len().saturating_sub(LINES);
    let cells = |l: &&ConfigRow| {
        let text = |text: &str| html! { (shown(text)) };
        vec![
            (Some("mono"), text(&l.key)),
            (Some("mono"), text(&l.value)),
            (Some("soft"), text(&l.origin)),
        ]
    };
    html! {
        (plain(&[what, "Value", "From"], lines.iter().take(LINES).map(cells)))
        @if more > 0 { p.soft { (more) " more: " code { "supervise config show" } } }
    }
}

const ANSWERS: [&str; 6] = [
    "Class",
    "Answer",
    "Ends after",
    "Suspects the checkpoint",
    "Costs a retry",
    "What to do",
];

fn answers(p: &PolicyView) -> Markup {
    let attempts = p.retries.saturating_add(1);
    let cells = |r: &RuleView| {
        let cells = policy::cells(r)
            .into_iter()
            .map(|cell| (None, html! { (shown(&cell)) }));
        cells.chain([(None, html! { (r.advice) })]).collect()
    };
    html! {
        p { (attempts) " attempts in a row without a newly proven step end the run. What was seen in the output decides the class, and the class the answer." }
        details { summary { "The answer to each class" }
            (wide("The answer to each class", &ANSWERS, p.rules.iter().map(cells)))
        }
    }
}

/// The output of `supervise plan` and its exit code.
#[must_use]
pub fn plan(run: &str, said: Result<(&str, Option<i32>), &str>) -> String {
    let main = html! {
        h1 { "Plan of the next start" }
        p { a href={ "/run/" (run) } { "The run" } " · " a href={ "/run/" (run) "/config" } { "Configuration" } }
        p.soft { code { "supervise plan" } " with the words by which the run was started, on this machine and with today's files. It changes nothing." }
        @match said {
            Err(why) => p.bad { (shown(why)) },
            Ok((text, code)) => {
                @match code {
                    Some(0) => {},
                    Some(n) => p.odd { "It ended with exit code " (n) "." },
                    None => p.bad { "It was ended." },
                }
                pre { @for line in text.lines() { (paragraph(line)) "\n" } }
            },
        }
    };
    whole("Plan", None, &main)
}
