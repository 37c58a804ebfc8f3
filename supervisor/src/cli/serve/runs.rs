//! The runs that are shown, each read on a thread of its own with a deadline: one that hangs is said to hang, and the others are shown.

use super::super::target;
use super::story::{Stories, Told};
use crate::prepare::listed_runs;
use crate::render::status::{Alive, StatusView};
use camino::Utf8PathBuf;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use supervise_core::id::RunId;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// A run, and its directory where that is known.
pub(super) type Named = (RunId, Option<Utf8PathBuf>);

/// A view is good for so long.
const FRESH: Duration = Duration::from_millis(900);
/// A page waits so long for a run.
const DEADLINE: Duration = Duration::from_secs(4);
/// A story that is read for the first time has so long.
const STORY: Duration = Duration::from_secs(30);
/// Runs that are read at once.
const SLOTS: usize = 16;

/// The runs.
pub(super) struct Runs {
    named: Vec<Named>,
    known: Mutex<HashMap<RunId, (Instant, StatusView)>>,
    /// Runs that are just being read.
    busy: Mutex<HashSet<RunId>>,
    slots: Arc<Semaphore>,
    stories: Stories,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Runs {
    pub(super) fn new(named: Vec<Named>) -> Self {
        Self {
            named,
            known: Mutex::default(),
            busy: Mutex::default(),
            slots: Arc::new(Semaphore::new(SLOTS)),
            stories: Stories::default(),
        }
    }

    /// The runs there are now.
    fn listed(&self) -> Vec<Named> {
        match self.named.as_slice() {
            [] => listed_runs().into_iter().map(|l| (l.run, Some(l.run_dir))).collect(),
            named => named.to_vec(),
        }
    }

    fn find(&self, run: &str) -> Option<Named> {
        self.listed().into_iter().find(|(id, _)| id.0 == run)
    }

    /// Every run as it is, and how many are gone.
    pub(super) async fn all(self: &Arc<Self>) -> (Vec<StatusView>, usize) {
        let listed = self.listed();
        let mut reading = JoinSet::new();
        for (n, named) in listed.into_iter().enumerate() {
            let runs = self.clone();
            reading.spawn(async move { (n, runs.view(named).await) });
        }
        let mut views: Vec<(usize, StatusView)> = reading.join_all().await;
        let all = views.len();
        views.sort_by_key(|(n, _)| *n);
        let views: Vec<StatusView> = views.into_iter().map(|(_, v)| v).filter(|v| !is_gone(v)).collect();
        let gone = all - views.len();
        (views, gone)
    }

    pub(super) async fn one(self: &Arc<Self>, run: &str) -> Option<StatusView> {
        Some(self.view(self.find(run)?).await)
    }

    async fn view(self: &Arc<Self>, (run, dir): Named) -> StatusView {
        let known = locked(&self.known).get(&run).cloned();
        if let Some((at, view)) = &known
            && at.elapsed() < FRESH
        {
            return view.clone();
        }
        let begun = Instant::now();
        if locked(&self.busy).insert(run.clone()) {
            let runs = self.clone();
            let id = run.clone();
            // It goes on where nobody waits for it any more.
            tokio::spawn(async move { runs.read(id, dir).await });
        }
        let look = || {
            locked(&self.known)
                .get(&run)
                .filter(|(at, _)| *at >= begun)
                .map(|(_, v)| v.clone())
        };
        while begun.elapsed() < DEADLINE {
            if let Some(view) = look() {
                return view;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        match known {
            Some((at, mut view)) => {
                let ago = at.elapsed().as_secs();
                view.problem = Some(format!(
                    "its directory does not answer: this is what was known {ago} s ago"
                ));
                view
            }
            None => StatusView::unknown(&run.0, Alive::default(), "its directory does not answer".to_owned()),
        }
    }

    async fn read(&self, run: RunId, dir: Option<Utf8PathBuf>) {
        if let Ok(_slot) = self.slots.acquire().await {
            let id = run.clone();
            let read = tokio::task::spawn_blocking(move || target::look(&id, dir.as_deref()).view());
            if let Ok(view) = read.await {
                locked(&self.known).insert(run.clone(), (Instant::now(), view));
            }
        }
        locked(&self.busy).remove(&run);
    }

    /// The story of a run, as far as its journal goes now.
    ///
    /// # Errors
    /// In words, why it cannot be told now.
    pub(super) async fn story(&self, run: &str) -> Result<Told, String> {
        let (run, dir) = self.find(run).ok_or("no run of this identity is known")?;
        let dir = dir.ok_or("its run directory is not known here")?;
        let story = self.stories.of(&run, &dir);
        let slot = self.slots.clone().acquire_owned();
        let reading = async {
            let slot = slot.await.map_err(|e| e.to_string())?;
            let read = tokio::task::spawn_blocking(move || {
                let _slot = slot;
                story.read()
            });
            read.await.map_err(|e| e.to_string())?
        };
        match tokio::time::timeout(STORY, reading).await {
            Ok(told) => told,
            Err(_) => Err("its journal is still being read: look again in a moment".to_owned()),
        }
    }

    pub(super) fn dir(&self, run: &str) -> Option<Utf8PathBuf> {
        self.find(run)?.1
    }

    /// Something that is read from a run's directory, with a deadline.
    pub(super) async fn off_loop<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let slots = self.slots.clone();
        let reading = async move {
            let slot = slots.acquire_owned().await.ok()?;
            let read = tokio::task::spawn_blocking(move || {
                let _slot = slot;
                what()
            });
            read.await.ok()
        };
        tokio::time::timeout(DEADLINE, reading).await.ok().flatten()
    }
}

/// Nothing runs, and no journal is there any more.
fn is_gone(v: &StatusView) -> bool {
    let nothing = v.problem.as_deref() == Some("nothing is known of it here");
    v.term == 0 && !v.supervisor.alive && !v.guard.alive && (v.problem.is_none() || nothing)
}
