//! The displayed runs, each read on its own thread with a deadline: a run that hangs is reported, and the others are shown.

use super::super::target::{self, Readers, RunInfo};
use super::story::{Stories, StorySnapshot};
use crate::prepare::listed_runs;
use crate::render::next::NextView;
use crate::render::status::{RunLiveness, StatusView};
use camino::Utf8PathBuf;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use supervise_core::id::RunId;
use supervise_core::spec::RunSpec;
use supervise_host::process::boot_id;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// A run, and its directory if known.
pub(in crate::cli) type RunRef = (RunId, Option<Utf8PathBuf>);

/// How long a view of a run is used.
const FRESH: Duration = Duration::from_millis(900);
/// In the list of all runs, this long for each of them: reading again costs an I/O worker per run.
const FRESH_EACH: Duration = Duration::from_millis(50);
/// How long a page waits for a run.
const DEADLINE: Duration = Duration::from_secs(4);
/// A run that takes this long to read does not answer.
const SILENT: Duration = Duration::from_secs(3);
const STORY: Duration = Duration::from_secs(30);
/// Number of runs whose pages are prepared.
const READY: usize = 4;
/// Maximum number of runs read at once.
const SLOTS: usize = 16;
/// Maximum number of outputs of one run read at once, so that a run that hangs does not block others.
const OUTPUTS: usize = 4;

pub(in crate::cli) struct RunCache {
    named: Vec<RunRef>,
    /// The last list of runs, and whether it is being read.
    listed: Mutex<Vec<RunRef>>,
    listing: AtomicBool,
    list_read: watch::Sender<()>,
    known: Mutex<HashMap<RunId, (Instant, CachedRun)>>,
    busy: Mutex<HashMap<RunId, Being>>,
    slots: Arc<Semaphore>,
    outputs: Mutex<HashMap<String, Arc<Semaphore>>>,
    stories: Stories,
    readers: Arc<Readers>,
}

struct Being {
    /// When reading began; `None`: it waits for its turn.
    since: Option<Instant>,
    ended: watch::Receiver<()>,
}

/// A run, and whether only its name is left.
#[derive(Clone)]
struct CachedRun {
    view: Arc<StatusView>,
    gone: bool,
    next: Option<Arc<NextView>>,
    spec: Option<Arc<RunSpec>>,
}

impl CachedRun {
    fn of(seen: &RunInfo) -> Self {
        let known = seen.state.as_ref().zip(seen.spec.as_ref());
        let boot = boot_id().unwrap_or_default();
        let view = seen.view();
        let mut alive = seen.alive;
        alive.supervisor.alive = view.lives();
        Self {
            gone: seen.is_gone(),
            view: Arc::new(view),
            next: known.map(|(state, spec)| Arc::new(NextView::of(state, spec, alive, &boot))),
            spec: seen.spec.clone().map(Arc::new),
        }
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunCache {
    pub(in crate::cli) fn new(named: Vec<RunRef>) -> Self {
        Self {
            named,
            listed: Mutex::default(),
            listing: AtomicBool::new(false),
            list_read: watch::Sender::new(()),
            known: Mutex::default(),
            busy: Mutex::default(),
            slots: Arc::new(Semaphore::new(SLOTS)),
            outputs: Mutex::default(),
            stories: Stories::default(),
            readers: Arc::default(),
        }
    }

    /// The current runs; if the list hangs, the last known ones.
    async fn listed(self: &Arc<Self>) -> Vec<RunRef> {
        if !self.named.is_empty() {
            return self.named.clone();
        }
        let mut read = self.list_read.subscribe();
        let begins = !self.listing.swap(true, Ordering::AcqRel);
        if begins {
            let runs = self.clone();
            tokio::task::spawn_blocking(move || {
                let list = listed_runs().into_iter().map(|l| (l.run, Some(l.run_dir))).collect();
                *locked(&runs.listed) = list;
                runs.listing.store(false, Ordering::Release);
                runs.list_read.send_replace(());
            });
        }
        // A list that is being read may be older than the request: use the previous one if there is one.
        if begins || locked(&self.listed).is_empty() {
            let _ = tokio::time::timeout(DEADLINE, read.changed()).await;
        }
        locked(&self.listed).clone()
    }

    async fn find(self: &Arc<Self>, run: &str) -> Option<RunRef> {
        self.listed().await.into_iter().find(|(id, _)| id.0 == run)
    }

    /// Every run with its state, and how many are gone.
    pub(in crate::cli) async fn all(self: &Arc<Self>) -> (Vec<Arc<StatusView>>, usize) {
        let listed = self.listed().await;
        let fresh = FRESH.max(FRESH_EACH * u32::try_from(listed.len()).unwrap_or(u32::MAX));
        let mut reading = JoinSet::new();
        let mut all: Vec<(usize, CachedRun)> = Vec::with_capacity(listed.len());
        for (n, named) in listed.into_iter().enumerate() {
            if let Some(shown) = self.known(&named.0, fresh) {
                all.push((n, shown));
                continue;
            }
            let runs = self.clone();
            reading.spawn(async move { (n, runs.view(named, fresh).await) });
        }
        all.extend(reading.join_all().await);
        all.sort_by_key(|(n, _)| *n);
        let (gone, there): (Vec<CachedRun>, Vec<CachedRun>) = all.into_iter().map(|(_, s)| s).partition(|s| s.gone);
        (there.into_iter().map(|s| s.view).collect(), gone.len())
    }

    /// Reads what the first pages will show: the list, then the stories of the runs that changed last.
    pub(in crate::cli) async fn get_ready(self: &Arc<Self>) {
        let (mut views, _) = self.all().await;
        views.sort_by_key(|view| Reverse(view.now));
        for view in views.iter().take(READY) {
            // A story that cannot be read now is reported to the next reader.
            let _ = self.story(&view.run).await;
        }
    }

    pub(in crate::cli) async fn one(self: &Arc<Self>, run: &str) -> Option<Arc<StatusView>> {
        Some(self.view(self.find(run).await?, FRESH).await.view)
    }

    pub(super) fn next(&self, run: &str) -> Option<Arc<NextView>> {
        locked(&self.known).get(&RunId(run.to_owned()))?.1.next.clone()
    }

    pub(super) fn spec(&self, run: &str) -> Option<Arc<RunSpec>> {
        locked(&self.known).get(&RunId(run.to_owned()))?.1.spec.clone()
    }

    /// A run that was read less than this long ago.
    fn known(&self, run: &RunId, fresh: Duration) -> Option<CachedRun> {
        let known = locked(&self.known);
        let (_, shown) = known.get(run).filter(|(at, _)| at.elapsed() < fresh)?;
        Some(shown.clone())
    }

    async fn view(self: &Arc<Self>, (run, dir): RunRef, fresh: Duration) -> CachedRun {
        if let Some(shown) = self.known(&run, fresh) {
            return shown;
        }
        let known = locked(&self.known).get(&run).cloned();
        let begun = Instant::now();
        let mut ended = match locked(&self.busy).entry(run.clone()) {
            Entry::Occupied(being) => being.get().ended.clone(),
            Entry::Vacant(free) => {
                let (ends, ended) = watch::channel(());
                let runs = self.clone();
                let id = run.clone();
                // It continues when the page stopped waiting.
                tokio::spawn(async move {
                    runs.read(id, dir).await;
                    drop(ends);
                });
                let being = Being { since: None, ended };
                free.insert(being).ended.clone()
            }
        };
        // Nothing is ever sent: the channel closes at the end.
        let _ = tokio::time::timeout(DEADLINE, ended.changed()).await;
        let shown = locked(&self.known).get(&run).filter(|(at, _)| *at >= begun).cloned();
        if let Some((_, shown)) = shown {
            return shown;
        }
        let since = locked(&self.busy).get(&run).and_then(|being| being.since);
        let why = late(since.map(|at| at.elapsed()));
        match known {
            // Waiting for its turn is not the run's fault.
            Some((_, shown)) if why.is_none() => shown,
            Some((at, mut shown)) => {
                let ago = at.elapsed().as_secs();
                let problem = why.map(|why| format!("{why}: this is what was known {ago} s ago"));
                Arc::make_mut(&mut shown.view).problem = problem;
                shown
            }
            None => {
                let why = why.unwrap_or("it was not read yet: other runs come first, look again in a moment");
                CachedRun {
                    view: Arc::new(StatusView::unknown(&run.0, RunLiveness::default(), why.to_owned())),
                    gone: false,
                    next: None,
                    spec: None,
                }
            }
        }
    }

    async fn read(&self, run: RunId, dir: Option<Utf8PathBuf>) {
        if let Ok(_slot) = self.slots.acquire().await {
            if let Some(being) = locked(&self.busy).get_mut(&run) {
                being.since = Some(Instant::now());
            }
            let (id, readers) = (run.clone(), self.readers.clone());
            let read = tokio::task::spawn_blocking(move || {
                CachedRun::of(&target::look_by(&id, dir.as_deref(), &|dir| readers.peek(dir)))
            });
            if let Ok(shown) = read.await {
                locked(&self.known).insert(run.clone(), (Instant::now(), shown));
            }
        }
        locked(&self.busy).remove(&run);
    }

    /// The story of a run, up to the current end of its journal.
    ///
    /// # Errors
    /// Why it cannot be read now, as text.
    pub(in crate::cli) async fn story(self: &Arc<Self>, run: &str) -> Result<StorySnapshot, String> {
        let (run, dir) = self.find(run).await.ok_or("no run of this identity is known")?;
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

    /// Forgets a run that was changed, so that the next page shows the result.
    pub(super) fn forget(&self, run: &RunId) {
        locked(&self.known).remove(run);
    }

    pub(super) async fn knows(self: &Arc<Self>, run: &str) -> bool {
        self.find(run).await.is_some()
    }

    pub(in crate::cli) async fn dir(self: &Arc<Self>, run: &str) -> Option<Utf8PathBuf> {
        self.find(run).await?.1
    }

    /// Reads from the output of a known run, with a deadline.
    ///
    /// # Errors
    /// Why it cannot be read now.
    pub(in crate::cli) async fn output<T: Send + 'static>(
        &self,
        run: &str,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, &'static str> {
        let new = || Arc::new(Semaphore::new(OUTPUTS));
        let places = locked(&self.outputs).entry(run.to_owned()).or_insert_with(new).clone();
        let place = tokio::time::timeout(DEADLINE, places.acquire_owned()).await;
        let busy = "Other outputs of this run are being read: look again in a moment.";
        let place = place.map_err(|_| busy)?.map_err(|_| busy)?;
        let reading = tokio::task::spawn_blocking(move || {
            let _place = place;
            read()
        });
        let read = tokio::time::timeout(DEADLINE, reading).await;
        let late = "It is not read yet: the file system does not answer, or the output is long.";
        read.ok().and_then(Result::ok).ok_or(late)
    }
}

/// Why a run is not shown with its current state; `None`: it waits for its turn, or reading has just begun.
fn late(reading: Option<Duration>) -> Option<&'static str> {
    (reading? >= SILENT).then_some("its directory does not answer")
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
    async fn the_pages_of_a_few_runs_are_made_ready() {
        let run = |n: usize| (RunId(format!("{n:016x}")), Some(Utf8PathBuf::from("/nowhere")));
        let runs = Arc::new(RunCache::new((0..READY + 2).map(run).collect()));
        runs.get_ready().await;
        assert_eq!(runs.stories.len(), READY);
    }

    #[tokio::test]
    async fn runs_beyond_the_slots_are_not_read_yet_and_the_rest_is_shown() {
        let run = |n: usize| (RunId(format!("{n:016x}")), Some(Utf8PathBuf::from("/nowhere")));
        let runs = Arc::new(RunCache::new(vec![run(1), run(2)]));
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
