//! Pages of `supervise serve`: values in, HTML out. Text from a run is escaped and never becomes markup, style or
//! script. The pages load nothing from other sites and have no inline scripts.

mod acts;
mod attempts;
mod config;
mod curves;
mod list;
mod log;
mod picture;
mod run;
mod table;
mod thinned;

pub use acts::{ResumePage, RollbackPreview, SentBack, resume, rollback};
pub use config::{ConfigPage, config, plan};
pub use list::{ListQuery, list};
pub use log::{LogView, log};
pub use picture::RunChart;
pub use run::{RunView, run};

use super::sign::sign;
use super::terminal::shown;
use maud::{DOCTYPE, Markup, html};

/// The style of all pages.
pub const STYLE: &str = include_str!("page/style.css");
/// The script that updates a page as its run progresses.
pub const SCRIPT: &str = include_str!("page/live.js");

/// The content security policy: our own files only, no inline scripts, no framing.
pub const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; \
                          frame-ancestors 'none'";

/// A whole page; `live`: URL of its updates.
fn whole(title: &str, live: Option<&str>, main: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (shown(title)) }
                link rel="stylesheet" href="/style.css";
                script src="/live.js" defer {}
            }
            body {
                header { nav aria-label="Pages" { a href="/" { "supervise" } } p #live role="status" {} }
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
        p { "Open the link that " code { "supervise serve" } " printed, or give the token that stands in " code { (shown(place)) } "." }
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

fn px(n: f64) -> String {
    format!("{n:.1}")
}

/// The state with a sign in front: color alone is not accessible.
fn state(view: &super::status::StatusView) -> Markup {
    let (tone, sign) = sign(view);
    html! { span class={ "state " (tone.word()) } { span aria-hidden="true" { (sign) } " " (shown(&view.headline())) } }
}

#[cfg(test)]
mod tests;
