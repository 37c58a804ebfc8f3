//! `supervise top`: shows runs on one screen, read from their directories as `supervise serve` does.
//!
//! Keys, signals and read results arrive in one queue; its reader changes the screen and draws it. No run is read here, so a
//! directory that hangs blocks neither keys nor other runs.

use super::serve::log_tail::tail;
use super::serve::runs::{RunCache, RunRef};
use super::target;
use crate::environment::wall;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::printer;
use crate::render::status::StatusView;
use crate::render::top::{KeyPress, TopAnswer, TopQuery, TopState};
use crate::screen::Screen;
use futures_util::future::select;
use ratatui::crossterm::event::{self, Event as Typed, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use supervise_host::process::job;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

pub(super) const EXAMPLES: &str = "  supervise top                         every run of this user
  supervise top ppo.yaml                one run, its attempts, its output
  supervise status --watch ppo.yaml     the same
";

/// How often the screen is refreshed.
const LOOK: Duration = Duration::from_secs(1);
const QUEUE: usize = 64;

pub(super) const EXITS: [SuperviseExitCode; 5] = [
    SuperviseExitCode::Finished,
    SuperviseExitCode::Usage,
    SuperviseExitCode::Environment,
    SuperviseExitCode::Interrupted,
    SuperviseExitCode::Terminated,
];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name, identity, YAML, checkpoint root or run directory [default: every run]
    ///
    /// Without it, every run of this user on this machine.
    #[arg(value_name = "RUN")]
    runs: Vec<String>,
}

enum ScreenEvent {
    Key(KeyPress),
    Resized,
    Read(TopAnswer),
    Signal(SuperviseExitCode),
    /// The job of this process is to be suspended.
    Stop,
    Gone(io::Error),
}

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    watch(&args.runs)
}

/// Shows runs until the user quits.
pub(super) fn watch(names: &[String]) -> Result<u8, CliError> {
    if !Screen::is_there() {
        let text = "expected a terminal to draw on, found a pipe, a file or TERM=dumb".to_owned();
        return Err(CliError::usage(text).hint("`supervise status` prints the same once, `status --json` for programs"));
    }
    let seen: Result<Vec<_>, _> = names.iter().map(|n| target::find(n)).collect();
    let named: Vec<RunRef> = seen?.into_iter().map(|seen| (seen.run, seen.run_dir)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| CliError::environment(format!("no event loop: {e}")))?;
    let result = runtime.block_on(show(named));
    // Do not wait for a thread that hangs on a file system.
    runtime.shutdown_background();
    result.map(SuperviseExitCode::code)
}

async fn show(named: Vec<RunRef>) -> Result<SuperviseExitCode, CliError> {
    let gone = |e: io::Error| CliError::environment(format!("the terminal: {e}"));
    let alone = match named.as_slice() {
        [(run, _)] => Some(run.0.clone()),
        _ => None,
    };
    let mut top = TopState::new(alone.as_deref());
    top.curves = printer::takes_blocks();
    let (tell, mut events) = mpsc::channel(QUEUE);
    // Before the screen is taken: from then on, every exit must restore it.
    for (kind, exit) in [
        (SignalKind::terminate(), SuperviseExitCode::Terminated),
        (SignalKind::interrupt(), SuperviseExitCode::Interrupted),
        (SignalKind::hangup(), SuperviseExitCode::Finished),
    ] {
        let mut signals = signal(kind).map_err(|e| CliError::environment(e.to_string()))?;
        let tell = tell.clone();
        tokio::spawn(async move {
            signals.recv().await;
            let _ = tell.send(ScreenEvent::Signal(exit)).await;
        });
    }
    let stop = SignalKind::from_raw(libc::SIGTSTP);
    let mut stops = signal(stop).map_err(|e| CliError::environment(e.to_string()))?;
    let told = tell.clone();
    tokio::spawn(async move { while stops.recv().await.is_some() && told.send(ScreenEvent::Stop).await.is_ok() {} });
    let (want, wanted) = watch::channel(top.wants());
    tokio::spawn(follow(Arc::new(RunCache::new(named)), wanted, tell.clone()));
    let mut screen = Screen::take().map_err(gone)?;
    std::thread::spawn(move || while tell.blocking_send(typed()).is_ok() {});
    loop {
        screen
            .draw(|width, height| top.draw(width, height, wall()))
            .map_err(gone)?;
        let Some(mut event) = events.recv().await else {
            return Ok(SuperviseExitCode::Finished);
        };
        // Handle all queued events before drawing.
        loop {
            match event {
                ScreenEvent::Key(key) if !top.key(key) => return Ok(SuperviseExitCode::Finished),
                ScreenEvent::Key(_) | ScreenEvent::Resized => {}
                ScreenEvent::Read(data) => top.take(data),
                ScreenEvent::Stop => screen.pause().map_err(gone)?,
                ScreenEvent::Signal(exit) => return Ok(exit),
                ScreenEvent::Gone(e) => return Err(gone(e)),
            }
            match events.try_recv() {
                Ok(next) => event = next,
                Err(_) => break,
            }
        }
        want.send_if_modified(|old| {
            let now = top.wants();
            let changed = *old != now;
            *old = now;
            changed
        });
    }
}

/// Reads what the screen shows, repeatedly, and drops reads that are no longer needed.
async fn follow(runs: Arc<RunCache>, mut wanted: watch::Receiver<TopQuery>, tell: mpsc::Sender<ScreenEvent>) {
    loop {
        let wants = wanted.borrow_and_update().clone();
        let reading = async {
            read(&runs, wants, &tell).await;
            sleep(LOOK).await;
        };
        select(pin!(reading), pin!(wanted.changed())).await;
        if tell.is_closed() {
            return;
        }
    }
}

async fn read(runs: &Arc<RunCache>, wants: TopQuery, tell: &mpsc::Sender<ScreenEvent>) {
    let say = async |data| drop(tell.send(ScreenEvent::Read(data)).await);
    let run = match &wants {
        TopQuery::Runs => {
            let (views, gone) = runs.all().await;
            let views = views.iter().map(|v| StatusView::clone(v)).collect();
            return say(TopAnswer::Runs(views, gone)).await;
        }
        TopQuery::Run(run) | TopQuery::Log { run, .. } => run.clone(),
    };
    let Some(view) = runs.one(&run).await else {
        return say(TopAnswer::Lost(run)).await;
    };
    say(TopAnswer::Run(Box::new(StatusView::clone(&view)))).await;
    match &wants {
        TopQuery::Log {
            attempt, worker, query, ..
        } => {
            let Some(dir) = runs.dir(&run).await else { return };
            let (attempt, worker, query) = (*attempt, *worker, query.clone());
            let read = runs.output(&run, move || tail(&dir, attempt, worker, &query)).await;
            let output = read.map_err(str::to_owned).and_then(|read| read);
            say(TopAnswer::Log(wants, output)).await;
        }
        _ => {
            let story = runs.story(&run).await.map(|told| Box::new(told.story));
            say(TopAnswer::Story(run, story)).await;
        }
    }
}

fn typed() -> ScreenEvent {
    loop {
        match event::read() {
            // It returns as a signal to the whole job.
            Ok(Typed::Key(key)) if is_stop(key) => job::ask_job_to_stop(),
            Ok(Typed::Key(key)) if key.kind != KeyEventKind::Release => {
                if let Some(key) = meant(key) {
                    return ScreenEvent::Key(key);
                }
            }
            Ok(Typed::Resize(..)) => return ScreenEvent::Resized,
            Ok(_) => {}
            Err(e) => return ScreenEvent::Gone(e),
        }
    }
}

fn is_stop(key: KeyEvent) -> bool {
    key.code == KeyCode::Char('z') && key.modifiers.contains(KeyModifiers::CONTROL) && key.kind == KeyEventKind::Press
}

fn meant(key: KeyEvent) -> Option<KeyPress> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c' | 'd') if control => KeyPress::Interrupt,
        KeyCode::Char(_) if control => return None,
        KeyCode::Char(c) => KeyPress::Letter(c),
        KeyCode::Up => KeyPress::Up,
        KeyCode::Down => KeyPress::Down,
        KeyCode::PageUp => KeyPress::PageUp,
        KeyCode::PageDown => KeyPress::PageDown,
        KeyCode::Home => KeyPress::First,
        KeyCode::End => KeyPress::Last,
        KeyCode::Enter | KeyCode::Right => KeyPress::Open,
        KeyCode::Esc | KeyCode::Left => KeyPress::Back,
        KeyCode::Backspace => KeyPress::Erase,
        _ => return None,
    })
}
