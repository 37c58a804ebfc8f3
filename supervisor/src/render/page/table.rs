//! Tables: a narrow screen shows the cells of a row below each other, and ARIA roles keep them tables for screen
//! readers.

use maud::{Markup, html};

/// A cell: its CSS class, if any, and its content.
pub(super) type Cell = (Option<&'static str>, Markup);

/// A table with column labels in each cell for narrow screens; if too wide, it scrolls, also by keyboard.
pub(super) fn wide(name: &str, heads: &[&str], rows: impl Iterator<Item = Vec<Cell>>) -> Markup {
    html! { div.wide tabindex="0" role="region" aria-label=(name) { (table(heads, rows, true)) } }
}

/// A table whose cells need no column labels.
pub(super) fn plain(heads: &[&str], rows: impl Iterator<Item = Vec<Cell>>) -> Markup {
    table(heads, rows, false)
}

fn table(heads: &[&str], rows: impl Iterator<Item = Vec<Cell>>, named: bool) -> Markup {
    html! {
        table.stack role="table" {
            thead role="rowgroup" { tr role="row" { @for head in heads { th scope="col" role="columnheader" { (head) } } } }
            tbody role="rowgroup" { @for row in rows { tr role="row" {
                @for (head, (class, cell)) in heads.iter().zip(row) {
                    td role="cell" class=[class] data-head=[named.then_some(head)] { (cell) }
                }
            } } }
        }
    }
}
