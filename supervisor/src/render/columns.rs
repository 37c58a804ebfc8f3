//! Text that fits into a number of columns, and tables.

use super::terminal;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub(crate) fn width(text: &str) -> usize {
    text.width()
}

pub(crate) fn start_of(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += c.width().unwrap_or_default();
        if used > columns {
            return &text[..at];
        }
    }
    text
}

/// Truncates the end, with a mark.
pub(crate) fn begin_of(text: &str, columns: usize) -> String {
    match width(text) <= columns {
        true => text.to_owned(),
        false => format!("{}…", start_of(text, columns.saturating_sub(1))),
    }
}

/// Truncates the beginning, with a mark: paths differ at the end.
pub(crate) fn end_of(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut used = 1;
    let fits = |(at, c): (usize, char)| {
        used += c.width().unwrap_or_default();
        (used <= columns).then_some(at)
    };
    let from = text.char_indices().rev().map_while(fits).last().unwrap_or(text.len());
    format!("…{}", &text[from..])
}

/// Pads on the right.
pub(crate) fn padded(text: &str, columns: usize) -> String {
    let text = begin_of(text, columns);
    let gap = columns.saturating_sub(width(&text));
    text + &" ".repeat(gap)
}

/// Pads on the left.
pub(crate) fn aligned(text: &str, columns: usize) -> String {
    let text = begin_of(text, columns);
    " ".repeat(columns.saturating_sub(width(&text))) + &text
}

/// A table with aligned columns; the last one is not padded.
#[derive(Debug, Clone, Default)]
pub struct TextTable<'a> {
    pub head: &'a [&'a str],
    pub rows: &'a [Vec<String>],
    /// Columns that are aligned to the right.
    pub numbers: &'a [usize],
    /// Columns that a narrow terminal does without, the first one first.
    pub spare: &'a [usize],
    /// The last column holds paths: the beginning is cut.
    pub ends_in_path: bool,
}

impl TextTable<'_> {
    /// Columns of the terminal below which the last column is not cut.
    const LEAST: usize = 16;
    const GAP: usize = 2;

    /// `columns`: width of the terminal; `None`: nothing is cut.
    #[must_use]
    pub fn text(&self, columns: Option<usize>) -> String {
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| row.iter().map(|c| terminal::shown(c)).collect())
            .collect();
        let widths: Vec<usize> = (0..self.head.len())
            .map(|c| {
                let cells = rows.iter().filter_map(|row| row.get(c)).map(|cell| width(cell));
                cells.chain([width(self.head[c])]).max().unwrap_or_default()
            })
            .collect();
        let Some(last) = self.head.len().checked_sub(1) else {
            return String::new();
        };
        let mut shown: Vec<usize> = (0..last).collect();
        let used = |shown: &[usize]| shown.iter().map(|c| widths[*c] + Self::GAP).sum::<usize>();
        let needs = widths[last].min(Self::LEAST);
        for c in self.spare {
            if columns.is_some_and(|columns| used(&shown) + needs > columns) {
                shown.retain(|kept| kept != c);
            }
        }
        let room = columns.map_or(usize::MAX, |columns| columns.saturating_sub(used(&shown)).max(needs));
        let line = |cell: &dyn Fn(usize) -> String| {
            let mut out = String::new();
            for c in &shown {
                let text = cell(*c);
                let gap = " ".repeat(widths[*c].saturating_sub(width(&text)));
                out += &if self.numbers.contains(c) {
                    gap + &text
                } else {
                    text + &gap
                };
                out += &" ".repeat(Self::GAP);
            }
            let text = cell(last);
            out += &if self.ends_in_path {
                end_of(&text, room)
            } else {
                begin_of(&text, room)
            };
            out.trim_end().to_owned() + "\n"
        };
        let head = line(&|c| self.head[c].to_owned());
        let body = rows
            .iter()
            .map(|row| line(&|c| row.get(c).cloned().unwrap_or_default()));
        head + &body.collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: [&str; 4] = ["NAME", "STEP", "AGE", "WHERE"];

    fn table(columns: Option<usize>) -> String {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let rows = [
            row(["gr\u{fc}n\u{7dd1}", "7", "1m", "/data/ckpt/first-run"]),
            row(["b", "120", "10m", "/b"]),
        ];
        TextTable {
            head: &HEAD,
            rows: &rows,
            numbers: &[1, 2],
            spare: &[2],
            ends_in_path: true,
        }
        .text(columns)
    }

    #[test]
    fn texts_are_cut_where_the_screen_ends() {
        assert_eq!(begin_of("abcdef", 4), "abc…");
        assert_eq!(end_of("/a/long/path", 6), "…/path");
        assert_eq!(end_of("漢字漢字", 5), "…漢字");
        assert_eq!(padded("漢", 4), "漢  ");
        assert_eq!(aligned("7", 3), "  7");
    }

    #[test]
    fn columns_line_up_by_what_a_terminal_shows() {
        let wanted = "NAME    STEP  AGE  WHERE\n\
                      gr\u{fc}n\u{7dd1}     7   1m  /data/ckpt/first-run\n\
                      b        120  10m  /b\n";
        assert_eq!(table(None), wanted);
        assert_eq!(table(Some(80)), wanted);
    }

    #[test]
    fn a_narrow_terminal_shows_fewer_columns_and_the_end_of_a_path() {
        assert_eq!(
            table(Some(32)),
            "NAME    STEP  WHERE\n\
             gr\u{fc}n\u{7dd1}     7  \u{2026}ta/ckpt/first-run\n\
             b        120  /b\n"
        );
        for columns in 0..80 {
            let widest = table(Some(columns)).lines().map(width).max().unwrap();
            assert!(widest <= columns.max(30), "{widest} of {columns}");
        }
    }
}
