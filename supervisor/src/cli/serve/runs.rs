//! The runs that are shown, each read on a thread of its own with a deadline: one that hangs is said to hang, and the others are shown.

use super::super::target;
use super::story::{Stories, Told};
use crate::prepare::listed_runs;
use crate::render::status::{Alive, StatusView};
use camino::Utf8PathBuf;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use supervise_core::id::RunId;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// A run, and its directory where that is known.
pub(super) type Named = (RunId, Option<Utf8PathBuf>);

/// A view of a run is good for so long.
const FRESH: Duration = Duration::from_millis(900);
/// In the list of all runs for so long by each of them: reading them anew costs a helper process each.
const FRESH_EACH: Duration = Duration::from_millis(50);
/// A page waits so long for a run.
const DEADLINE: Duration = Duration::from_secs(4);
/// A run that is read for so long does not answer.
const SILENT: Duration = Duration::from_secs(3);
/// A story that is read for the first time has so long.
const STORY: Duration = Duration::from_secs(30);
/// Runs that are read at once.
const SLOTS: usize = 16;

/// The runs.
pub(super) struct Runs {
    named: Vec<Named>,
    known: Mutex<HashMap<RunId, (Instant, StatusView)>>,
    /// Runs that are being read, and since when; `None`: it is not their turn yet.
    busy: Mutex<HashMap<RunId, Option<Instant>>>,
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
        let fresh = FRESH.max(FRESH_EACH * u32::try_from(listed.len()).unwrap_or(u32::MAX));
        let mut reading = JoinSet::new();
        for (n, named) in listed.into_iter().enumerate() {
            let runs = self.clone();
            reading.spawn(async move { (n, runs.view(named, fresh).await) });
        }
        let mut views: Vec<(usize, StatusView)> = reading.join_all().await;
        let all = views.len();
        views.sort_by_key(|(n, _)| *n);
        let views: Vec<StatusView> = views.into_iter().map(|(_, v)| v).filter(|v| !is_gone(v)).collect();
        let gone = all - views.len();
        (views, gone)
    }

    pub(super) async fn one(self: &Arc<Self>, run: &str) -> Option<StatusView> {
        Some(self.view(self.find(run)?, FRESH).await)
    }

    async fn view(self: &Arc<Self>, (run, dir): Named, fresh: Duration) -> StatusView {
        let known = locked(&self.known).get(&run).cloned();
        if let Some((at, view)) = &known
            && at.elapsed() < fresh
        {
            return view.clone();
        }
        let begun = Instant::now();
        let begins = match locked(&self.busy).entry(run.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert(None);
                true
            }
        };
        if begins {
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
        let since = locked(&self.busy).get(&run).copied().flatten();
        let why = late(since.map(|at| at.elapsed()));
        match known {
            // A queue is no fault of the run's.
            Some((_, view)) if why.is_none() => view,
            Some((at, mut view)) => {
                let ago = at.elapsed().as_secs();
                view.problem = why.map(|why| format!("{why}: this is what was known {ago} s ago"));
                view
            }
            None => {
                let why = why.unwrap_or("it was not read yet: other runs come first, look again in a moment");
                StatusView::unknown(&run.0, Alive::default(), why.to_owned())
            }
        }
    }

    async fn read(&self, run: RunId, dir: Option<Utf8PathBuf>) {
        if let Ok(_slot) = self.slots.acquire().await {
            locked(&self.busy).insert(run.clone(), Some(Instant::now()));
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

/// Why a run is not shown as it is now; `None`: it is not its turn, or was not for long.
fn late(reading: Option<Duration>) -> Option<&'static str> {
    (reading? >= SILENT).then_some("its directory does not answer")
}

/// Nothing runs, and no journal is there any more.
fn is_gone(v: &StatusView) -> bool {
    let nothing = v.problem.as_deref() == Some("nothing is known of it here");
    v.term == 0 && !v.supervisor.alive && !v.guard.alive && (v.problem.is_none() || nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_waits_for_its_turn_is_not_said_to_hang() {
        assert_eq!(late(None), None);
        assert_eq!(late(Some(Duration::from_secs(1))), None);
        assert_eq!(late(Some(SILENT)), Some("its directory does not answer"));
    }

    #[tokio::test]
    async fn runs_beyond_the_slots_are_not_read_yet_and_the_rest_is_shown() {
        let run = |n: usize| (RunId(format!("{n:016x}")), Some(Utf8PathBuf::from("/nowhere")));
        let runs = Arc::new(Runs::new(vec![run(1), run(2)]));
        let all = runs
            .slots
            .clone()
            .acquire_many_owned(u32::try_from(SLOTS).unwrap())
            .await
            .unwrap();
        let (views, _) = runs.all().await;
        assert_eq!(views.len(), 2);
        assert!(
            views
                .iter()
                .all(|v| v.problem.as_ref().unwrap().contains("not read yet")),
            "{views:?}"
        );
        drop(all);
    }
}
