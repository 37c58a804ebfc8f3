//! `supervise top`: the screen and its keys. State in, lines out: no terminal code here.
//!
//! Three nested pages: all runs, one run, the output of one of its workers. Text from a run is escaped, and no line
//! is wider than the screen.

mod fold;
mod log;
mod run;
mod runs;

use super::columns::{self, end_of};
use super::count;
use super::explain::ExplainView;
use super::status::StatusView;
use super::table::place_in_list;
use super::terminal::shown;
use super::time::local_clock;
use fold::{clip, faint, plain, strong};
use ratatui::text::{Line, Span};
use supervise_core::id::WallMs;

/// A key, by its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPress {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Open,
    Back,
    Erase,
    Letter(char),
    /// `^C`.
    Interrupt,
}

/// What the current page needs read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TopQuery {
    #[default]
    Runs,
    Run(String),
    Log {
        run: String,
        attempt: u32,
        worker: u32,
        /// Only lines that contain this.
        query: String,
    },
}

/// Lines of an output and the file they come from, or why they could not be read.
pub type LogTail = Result<(Vec<String>, String), String>;

/// Answers to a [`TopQuery`].
#[derive(Debug)]
pub enum TopAnswer {
    /// All runs, and how many have disappeared.
    Runs(Vec<StatusView>, usize),
    Run(Box<StatusView>),
    /// The timeline of a run, or why it cannot be read.
    Story(String, Result<Box<ExplainView>, String>),
    Log(TopQuery, LogTail),
    Lost(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum TopPage {
    #[default]
    Runs,
    Run,
    Log,
}

/// State of the screen.
#[derive(Debug, Default)]
pub struct TopState {
    place: TopPage,
    /// Only this run is shown; there is no list behind it.
    alone: bool,
    views: Vec<StatusView>,
    known: bool,
    gone: usize,
    chosen: Option<String>,
    story: Option<(String, Result<Box<ExplainView>, String>)>,
    output: Option<(TopQuery, LogTail)>,
    /// Attempt and worker whose output is shown; `None`: the newest attempt.
    attempt: Option<u32>,
    worker: u32,
    query: String,
    typed: Option<String>,
    /// Lines scrolled past above the screen; in an output, below it.
    scroll: usize,
    help: bool,
    /// Whether the terminal shows the blocks of a curve.
    pub(crate) curves: bool,
    /// Lines of the last screen between header and footer.
    page: usize,
}

impl TopState {
    /// Starts with the list of runs, or with one run if it was named.
    #[must_use]
    pub fn new(alone: Option<&str>) -> Self {
        Self {
            place: if alone.is_some() { TopPage::Run } else { TopPage::Runs },
            alone: alone.is_some(),
            chosen: alone.map(str::to_owned),
            ..Self::default()
        }
    }

    /// What the current page needs.
    #[must_use]
    pub fn wants(&self) -> TopQuery {
        match (self.place, &self.chosen) {
            (TopPage::Runs, _) | (_, None) => TopQuery::Runs,
            (TopPage::Run, Some(run)) => TopQuery::Run(run.clone()),
            (TopPage::Log, Some(run)) => TopQuery::Log {
                run: run.clone(),
                attempt: self.attempt.unwrap_or_else(|| self.newest()),
                worker: self.worker,
                query: self.query.clone(),
            },
        }
    }

    fn view(&self) -> Option<&StatusView> {
        let chosen = self.chosen.as_ref()?;
        self.views.iter().find(|v| v.run == *chosen)
    }

    fn newest(&self) -> u32 {
        self.view().map_or(0, |v| v.attempts)
    }

    /// Takes an answer. Data for another page is only stored.
    pub fn take(&mut self, data: TopAnswer) {
        match data {
            TopAnswer::Runs(mut views, gone) => {
                views.sort_by_key(place_in_list);
                (self.views, self.gone, self.known) = (views, gone, true);
                if self.view().is_none() {
                    self.chosen = self.views.first().map(|v| v.run.clone());
                }
            }
            TopAnswer::Run(view) => match self.views.iter_mut().find(|v| v.run == view.run) {
                Some(known) => *known = *view,
                None => self.views.push(*view),
            },
            // Keep the old timeline if the new one cannot be read.
            TopAnswer::Story(run, story) => {
                if story.is_ok() || self.story.as_ref().is_none_or(|(of, _)| *of != run) {
                    self.story = Some((run, story));
                }
            }
            TopAnswer::Log(of, output) => self.output = Some((of, output)),
            TopAnswer::Lost(run) => self.views.retain(|v| v.run != run),
        }
    }

    /// Handles a key; `false` means quit.
    pub fn key(&mut self, key: KeyPress) -> bool {
        if key == KeyPress::Interrupt {
            return false;
        }
        if self.typed.is_some() {
            self.type_on(key);
            return true;
        }
        if std::mem::take(&mut self.help) {
            return true;
        }
        match key {
            KeyPress::Letter('q') => return false,
            KeyPress::Letter('?' | 'h') => self.help = true,
            KeyPress::Up | KeyPress::Letter('k') => self.go(-1),
            KeyPress::Down | KeyPress::Letter('j') => self.go(1),
            KeyPress::PageUp | KeyPress::Letter('b') => self.go(-self.pages()),
            KeyPress::PageDown | KeyPress::Letter(' ') => self.go(self.pages()),
            KeyPress::First | KeyPress::Letter('g') => self.go(-isize::MAX),
            KeyPress::Last | KeyPress::Letter('G') => self.go(isize::MAX),
            KeyPress::Open => self.open(),
            KeyPress::Letter('l') if self.chosen.is_some() => self.enter(TopPage::Log),
            KeyPress::Back | KeyPress::Erase => return self.back(),
            KeyPress::Letter(c) if self.place == TopPage::Log => self.other_output(c),
            KeyPress::Letter(_) | KeyPress::Interrupt => {}
        }
        true
    }

    fn type_on(&mut self, key: KeyPress) {
        let Some(mut typed) = self.typed.take() else { return };
        match key {
            KeyPress::Open => {
                self.query = typed;
                self.scroll = 0;
                return;
            }
            KeyPress::Back => return,
            KeyPress::Erase => drop(typed.pop()),
            KeyPress::Letter(c) => typed.push(c),
            _ => {}
        }
        self.typed = Some(typed);
    }

    fn pages(&self) -> isize {
        isize::try_from(self.page.saturating_sub(1).max(1)).unwrap_or(1)
    }

    fn go(&mut self, by: isize) {
        if self.place == TopPage::Runs {
            let at = self.views.iter().position(|v| Some(&v.run) == self.chosen.as_ref());
            let to = at.unwrap_or_default().saturating_add_signed(by);
            let last = self.views.len().saturating_sub(1);
            self.chosen = self.views.get(to.min(last)).map(|v| v.run.clone());
        } else if self.place == TopPage::Log {
            // An output is shown from its end: lines are counted from there.
            self.scroll = self.scroll.saturating_add_signed(by.saturating_neg());
        } else {
            self.scroll = self.scroll.saturating_add_signed(by);
        }
    }

    fn open(&mut self) {
        match self.place {
            TopPage::Runs if self.chosen.is_some() => self.enter(TopPage::Run),
            TopPage::Run => self.enter(TopPage::Log),
            TopPage::Runs | TopPage::Log => {}
        }
    }

    fn enter(&mut self, place: TopPage) {
        (self.place, self.scroll) = (place, 0);
        if place == TopPage::Log {
            (self.attempt, self.worker) = (None, 0);
            self.query.clear();
        }
    }

    fn back(&mut self) -> bool {
        match self.place {
            TopPage::Log if !self.query.is_empty() => self.query.clear(),
            TopPage::Log => self.enter(TopPage::Run),
            TopPage::Run if !self.alone => self.enter(TopPage::Runs),
            TopPage::Run | TopPage::Runs => return false,
        }
        self.scroll = 0;
        true
    }

    fn other_output(&mut self, c: char) {
        let newest = self.newest();
        let attempt = self.attempt.unwrap_or(newest);
        match c {
            '/' => self.typed = Some(String::new()),
            'w' => self.worker = self.worker.saturating_add(1),
            'W' => self.worker = self.worker.saturating_sub(1),
            'a' => self.attempt = Some(attempt.saturating_sub(1).max(1)),
            'A' => self.attempt = Some(attempt + 1).filter(|n| *n < newest),
            _ => return,
        }
        if c != '/' {
            self.scroll = 0;
        }
    }

    /// Draws the screen: exactly `height` lines, none wider than `width`.
    pub fn draw(&mut self, width: usize, height: usize, now: WallMs) -> Vec<Line<'static>> {
        let page = height.saturating_sub(2);
        self.page = page;
        let mut body = match (self.help, self.place) {
            (true, _) => help(),
            (false, TopPage::Runs) => runs::draw(self, width, page),
            (false, TopPage::Run) => {
                let all = run::draw(self, width);
                self.scroll = self.scroll.min(all.len().saturating_sub(page));
                all.into_iter().skip(self.scroll).collect()
            }
            (false, TopPage::Log) => {
                let all = log::draw(self, width);
                let above = all.len().saturating_sub(page);
                self.scroll = self.scroll.min(above);
                all.into_iter().skip(above - self.scroll).collect()
            }
        };
        body.resize(page, Line::default());
        let mut out = vec![self.head(width, now)];
        out.append(&mut body);
        out.push(self.foot());
        out.truncate(height);
        out.into_iter().map(|l| clip(l, width)).collect()
    }

    fn head(&self, width: usize, now: WallMs) -> Line<'static> {
        let name = |v: &StatusView| format!("{}  {}", shown(v.name()), v.place());
        let what = match (self.place, self.view()) {
            (TopPage::Runs, _) => format!("{}{}", count(self.views.len() as u64, "run"), self.missing()),
            (_, Some(v)) => name(v),
            (_, None) => self.chosen.clone().unwrap_or_default(),
        };
        let time = local_clock(now);
        let left = "supervise  ".len() + time.len() + 2;
        let what = end_of(&what, width.saturating_sub(left));
        let gap = width.saturating_sub(left + columns::width(&what)) + 2;
        Line::from(vec![
            strong("supervise  "),
            plain(what),
            Span::raw(" ".repeat(gap)),
            faint(time),
        ])
    }

    fn missing(&self) -> String {
        match self.gone {
            0 => String::new(),
            n => format!(", {n} not shown: the directories are gone"),
        }
    }

    fn foot(&self) -> Line<'static> {
        if let Some(typed) = &self.typed {
            return Line::from(vec![
                strong(format!("/{}", shown(typed))),
                faint("  Enter: search  Esc: not"),
            ]);
        }
        let back = if self.alone { "Esc leave" } else { "Esc runs" };
        let words = match (self.help, self.place) {
            (true, _) => "any key: back".to_owned(),
            (false, TopPage::Runs) => "↑↓ choose  Enter open  l output  ? keys  q leave".to_owned(),
            (false, TopPage::Run) => format!("↑↓ scroll  Enter output  {back}  ? keys  q leave"),
            (false, TopPage::Log) => {
                "↑↓ scroll  w W worker  a A attempt  / search  Esc run  ? keys  q leave".to_owned()
            }
        };
        Line::from(faint(words))
    }
}

fn help() -> Vec<Line<'static>> {
    const KEYS: [(&str, &str); 13] = [
        ("↑ ↓  k j", "one line, or one run"),
        ("PgUp PgDn  b Space", "one screen"),
        ("Home End  g G", "first, last"),
        ("Enter", "open: the run, its output"),
        ("Esc  Backspace", "back"),
        ("l", "output of the newest attempt"),
        ("w W", "in an output: next worker, the one before"),
        ("a A", "in an output: the attempt before, next attempt"),
        ("/", "in an output: only lines with a text"),
        ("?  h", "these keys"),
        ("^Z", "back to the shell until `fg`"),
        ("q  ^C", "leave; nothing that runs is touched"),
        ("", ""),
    ];
    let mut out = vec![Line::default(), Line::from(strong("  Keys")), Line::default()];
    for (key, words) in KEYS {
        let gap = " ".repeat(22_usize.saturating_sub(columns::width(key)));
        out.push(Line::from(vec![
            Span::raw("  "),
            strong(key),
            Span::raw(gap),
            plain(words),
        ]));
    }
    let signs = "▶ trains  … on its way  ! look at it  ✓ finished  ■ stopped  ✗ failed";
    out.push(Line::from(faint(format!("  {signs}"))));
    out
}

#[cfg(test)]
mod tests;
