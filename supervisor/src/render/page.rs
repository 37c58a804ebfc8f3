//! Pages of `supervise serve`: values in, HTML out. Text from a run is escaped and never becomes markup, style or
//! script. The pages load nothing from other sites and have no inline scripts.

mod acts;
mod attempts;
mod compare;
mod config;
mod curves;
mod list;
mod log;
mod machine;
mod picture;
mod progress;
mod run;
mod table;
mod thinned;

pub use acts::{ResumePage, RollbackPreview, SentBack, StopKind, resume, rollback, stop};
pub use compare::compare;
pub use config::{ConfigPage, config, plan};
pub use list::{ListQuery, RunColumn, StateFilter, list};
pub use log::{ExtractLine, LogExtract, LogView, log};
pub use machine::{DoctorCheck, MachinePage, machine};
pub use picture::{ChartData, RunChart};
pub use run::{RunView, run};

use super::sign::sign;
use super::status::StatusView;
use super::terminal::shown;
use super::time::stamp;
use maud::{DOCTYPE, Markup, html};
use supervise_core::id::WallMs;

/// The style of all pages.
pub const STYLE: &str = concat!(include_str!("page/uplot/uPlot.min.css"), include_str!("page/style.css"));
/// The script that updates a page as its run progresses.
pub const SCRIPT: &str = include_str!("page/live.js");
/// uPlot, which draws curves, with its license.
pub const UPLOT: &str = concat!(
    "/*!\n",
    include_str!("page/uplot/LICENSE"),
    "*/\n",
    include_str!("page/uplot/uPlot.iife.min.js")
);
/// The script that draws the curves of runs.
pub const CHART_SCRIPT: &str = include_str!("page/charts.js");

/// The content security policy: our own files only, no inline scripts, no framing.
pub const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; \
                          frame-ancestors 'none'";

/// The scripts of a page with curves.
const CHARTS: [&str; 2] = ["/uplot.js", "/charts.js"];

/// A whole page; `live`: URL of its updates.
fn whole(title: &str, live: Option<&str>, main: &Markup) -> String {
    page_with(&[], title, live, main)
}

/// A page with more scripts.
fn page_with(scripts: &[&str], title: &str, live: Option<&str>, main: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { @if title != "supervise" { (shown(title)) " · " } "supervise" }
                link rel="stylesheet" href="/style.css";
                script src="/live.js" defer {}
                @for script in scripts { script src=(script) defer {} }
            }
            body {
                header { nav aria-label="Pages" { a.home href="/" { "supervise" } a href="/" { "Runs" } a href="/machine" { "Machine" } } p #live role="status" {} }
                main data-live=[live] { (main) }
            }
        }
    };
    page.into_string()
}

/// A short page in place of the requested one.
#[must_use]
pub fn message(title: &str, text: &str) -> String {
    whole(title, None, &html! { h1 { (shown(title)) } p { (shown(text)) } })
}

/// A short page about a run.
#[must_use]
pub fn answer(run: &str, title: &str, text: &str) -> String {
    let main = html! { h1 { (shown(title)) } p { (shown(text)) } p { a href={ "/run/" (run) } { "The run" } } };
    whole(title, None, &main)
}

/// The page that asks for the token.
#[must_use]
pub fn door(place: &str) -> String {
    let form = html! {
        h1 { "Who is there?" }
        p { "Open the link that " code { "supervise serve" } " printed, or give the token in " code { (shown(place)) } "." }
        form method="post" action="/enter" {
            label { "Token " input name="token" type="password" autocomplete="off" required; }
            " " button { "Open" }
        }
    };
    whole("supervise", None, &form)
}

/// Shown once to a browser that followed the link: it has the cookie now.
#[must_use]
pub fn entered() -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content="0; url=/";
                title { "supervise" }
            }
            body { p { a href="/" { "Go on" } } }
        }
    };
    page.into_string()
}

/// A moment: in UTC without scripts, else in the zone of the browser.
fn when(at: WallMs) -> Markup {
    let utc = stamp(at);
    html! { time datetime=(utc) { (utc) } }
}

/// Says in which zone times are shown.
fn zone() -> Markup {
    html! { span #zone { "Times with a Z are UTC." } }
}

/// The name of a run and its place.
pub(crate) fn named(v: &StatusView) -> (&str, &str) {
    let place = v.root.as_deref().or(v.run_dir.as_deref()).unwrap_or(&v.run);
    (v.progress.as_ref().map_or(&v.run, |p| &p.name), place)
}

fn px(n: f64) -> String {
    format!("{n:.1}")
}

/// The state with a sign in front: color alone is not accessible.
fn state(view: &StatusView) -> Markup {
    let (tone, sign) = sign(view);
    html! { span class={ "state " (tone.word()) } { span aria-hidden="true" { (sign) } " " (shown(&view.headline())) } }
}

#[cfg(test)]
mod tests;
