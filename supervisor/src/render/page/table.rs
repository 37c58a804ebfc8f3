//! Tables: on a narrow screen the cells of a line stand below each other, and roles keep them tables for whoever hears them.

use maud::{Markup, html};

/// A cell: the class by which it is styled, or none, and its content.
pub(super) type Cell = (Option<&'static str>, Markup);

/// A table whose cells tell on a narrow screen which column they are of; it can be scrolled where it is too wide, by keyboard too.
pub(super) fn wide(name: &str, heads: &[&str], rows: impl Iterator<Item = Vec<Cell>>) -> Markup {
    html! { div.wide tabindex="0" role="region" aria-label=(name) { (table(heads, rows, true)) } }
}

/// A table whose cells need no word about their column.
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
