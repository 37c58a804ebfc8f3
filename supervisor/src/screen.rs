//! The full-screen terminal of `supervise top`, restored however the program ends except by SIGKILL.

use crate::printer;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::style::Style;
use ratatui::text::{Line, Text};
use std::io::{self, IsTerminal, Stdout, stdin, stdout};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use supervise_host::process::job;

/// Whether this process uses the terminal.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The screen while it is in use.
#[derive(Debug)]
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Returns true if input and output are terminals that can be drawn on.
    #[must_use]
    pub fn is_there() -> bool {
        stdin().is_terminal() && stdout().is_terminal() && std::env::var_os("TERM").is_some_and(|t| t != "dumb")
    }

    /// Takes the screen. A panic of this thread restores it before it prints anything.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn take() -> io::Result<Self> {
        let before = panic::take_hook();
        let ours = thread::current().id();
        panic::set_hook(Box::new(move |info| {
            if thread::current().id() == ours {
                give_back();
            }
            before(info);
        }));
        let taken = hold().and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        taken.map(|terminal| Self { terminal }).inspect_err(|_| give_back())
    }

    /// Restores the terminal while this process is stopped, then takes it again.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn pause(&mut self) -> io::Result<()> {
        give_back();
        job::stand_still();
        hold()?;
        // A new one draws everything. Clearing the old one would query the cursor position, and the reply would reach the key
        // reader.
        self.terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        Ok(())
    }

    /// Draws lines for a width and a height.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn draw(&mut self, lines: impl FnOnce(usize, usize) -> Vec<Line<'static>>) -> io::Result<()> {
        let colours = printer::has_colours();
        let drawn = self.terminal.draw(|frame| {
            let area = frame.area();
            let mut text = Text::from(lines(area.width.into(), area.height.into()));
            if !colours {
                let spans = text.lines.iter_mut().flat_map(|l| &mut l.spans);
                spans.for_each(|s| s.style = Style::new().add_modifier(s.style.add_modifier));
            }
            frame.render_widget(text, area);
        });
        drawn.map(|_| ())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn hold() -> io::Result<()> {
    TAKEN.store(true, Ordering::SeqCst);
    printer::screen_is_taken(true);
    enable_raw_mode().and_then(|()| execute!(stdout(), EnterAlternateScreen))
}

fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // A terminal that is gone needs no restoring.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
        printer::screen_is_taken(false);
    }
}
