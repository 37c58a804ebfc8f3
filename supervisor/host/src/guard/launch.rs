//! The guard's start: order, socket, workers.
//!
//! Workers are started before anything that they do not need; nothing waits for their programs to run.

use crate::address::{self, SocketRole};
use crate::guard::Primer;
use crate::guard::connection::DriverConnection;
use crate::guard::keeper::{ForkSide, Keeper, KeeperPipe, part, part_early};
use crate::guard::log_queue::{LogQueue, log_writer_order, null};
use crate::guard::nodes::NodeLauncher;
use crate::guard::oom::OomWatch;
use crate::guard::orders::{OrderReader, read_json};
use crate::guard::output_facts::OutputFacts;
use crate::guard::protocol::{FromGuard, GuardOrder, WorkerOrder};
use crate::guard::rank_watch::RankWatch;
use crate::guard::record::boot_line;
use crate::guard::run::calls::{Calls, look_every};
use crate::guard::run::{Guard, ReportSchedule};
use crate::guard::scratch;
use crate::guard::setup::{pipe, signals};
use crate::guard::standby::{DraftOrder, StandbyFiles, StandbyGang, worker_env};
use crate::guard::tree::ProcessTree;
use crate::guard::worker::{WORKERS_LIMIT, WorkerProcess};
use crate::process::cgroup::{CgroupLeaf, leaf_name};
use crate::process::spawn::{
    CgroupFds, SpawnGate, SpawnProgram, SpawnWiring, SpawnedProcess, close_inherited, start, take_standard,
};
use crate::process::{boottime_ms, own_ref};
use nix::sys::signalfd::SignalFd;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;
use supervise_core::event::StandbyResult;
use supervise_core::id::WorkerId;

pub(crate) enum StartedProcess {
    Guard(Box<Guard>, KeeperPipe),
    Keeper(Keeper),
    Nothing,
}

#[derive(Default)]
struct Early {
    files: Option<StandbyFiles>,
    waiting: Option<io::Result<StandbyGang>>,
    held: Option<(SpawnGate, StartedTree)>,
}

struct StartedTree {
    leaf: Option<CgroupLeaf>,
    memory: OomWatch,
    nodes: Option<NodeLauncher>,
    workers: StartedWorkers,
}

/// Reads the order, forks into keeper and guard, and starts the workers. `primed`: standard error holds a [`Primer`].
pub(crate) fn begin(primed: bool) -> io::Result<StartedProcess> {
    close_inherited();
    let order_file = File::from(take_standard(0)?);
    let mut connection = DriverConnection::new(UnixStream::from(take_standard(1)?))?;
    let signals = signals()?;
    detach();
    if primed {
        let primer = read_json(File::from(take_standard(2)?))?;
        return begin_primed(primer, order_file, connection, signals);
    }
    let mut orders = OrderReader::new(order_file, Vec::new());
    let order = orders.read()?;
    if let Err(what) = wait_for_predecessors(&order) {
        return Ok(failed(&mut connection, what));
    }
    let tether = match part(&order) {
        Ok(ForkSide::Keeper(keeper)) => return Ok(StartedProcess::Keeper(keeper)),
        Ok(ForkSide::Guard(tether)) => tether,
        Err(e) => {
            return Ok(failed(
                &mut connection,
                format!("the guard's keeper cannot be made: {e}"),
            ));
        }
    };
    become_guard(c"supervise-guard");
    let early = make_early(&order);
    orders.wait_for_word()?;
    Ok(prepared(order, connection, signals, early, tether))
}

fn make_early(order: &GuardOrder) -> Early {
    let mut early = Early::default();
    // Creating processes takes as long as writing the intent to disk, so both happen at once. Not on several nodes,
    // where the launcher would start something there.
    if order.nodes.is_none()
        && has_a_fit_number(order)
        && let Ok(gate) = SpawnGate::new()
    {
        let made = make(order, None, Early::default(), Some(&gate));
        early.held = Some((gate, made));
    }
    early
}

/// Like [`begin`], but with the keeper created before there is an order: a relaunch need not wait for it, and
/// pre-importing interpreters must be children of the guard.
fn begin_primed(
    primer: Primer<'_>,
    order_file: File,
    mut connection: DriverConnection,
    signals: SignalFd,
) -> io::Result<StartedProcess> {
    let mut orders = OrderReader::new(order_file, primer.rules.into_owned());
    let mut tether = match part_early()? {
        ForkSide::Keeper(keeper) => {
            drop((orders, connection, signals));
            return Ok(StartedProcess::Keeper(keeper.wait_for_order()));
        }
        ForkSide::Guard(tether) => tether,
    };
    become_guard(c"supervise-spare");
    if let Some(draft) = primer.draft {
        return begin_drafted(draft.into_owned(), orders, connection, signals, tether);
    }
    let order = orders.read()?;
    if let Err(what) = named(&mut tether, &order) {
        return Ok(failed(&mut connection, what));
    }
    let early = make_early(&order);
    orders.wait_for_word()?;
    Ok(prepared(order, connection, signals, early, tether))
}

/// Tells the keeper its run, once no other guard of the run is running.
fn named(tether: &mut KeeperPipe, order: &GuardOrder) -> Result<(), String> {
    wait_for_predecessors(order)?;
    tether
        .name(order)
        .map_err(|e| format!("the guard's keeper does not answer: {e}"))?;
    let _ = nix::sys::prctl::set_name(c"supervise-guard");
    Ok(())
}

fn begin_drafted(
    draft: DraftOrder,
    mut orders: OrderReader,
    mut connection: DriverConnection,
    signals: SignalFd,
    mut tether: KeeperPipe,
) -> io::Result<StartedProcess> {
    let files = StandbyFiles::new(&draft.order, Some(&draft))?;
    let waiting = StandbyGang::start(draft, &files);
    let order = match orders.read().and_then(|order| orders.wait_for_word().map(|()| order)) {
        Ok(order) => order,
        Err(e) => {
            // No order will come. Our parent waits for us, and so for them.
            if let Ok(waiting) = waiting {
                waiting.end();
            }
            return Err(e);
        }
    };
    let early = Early {
        // If they failed, the order's workers are started the usual way.
        waiting: Some(waiting),
        files: Some(files),
        held: None,
    };
    if let Err(what) = named(&mut tether, &order) {
        return Ok(failed(&mut connection, what));
    }
    Ok(prepared(order, connection, signals, early, tether))
}

fn prepared(
    order: GuardOrder,
    connection: DriverConnection,
    signals: SignalFd,
    early: Early,
    tether: KeeperPipe,
) -> StartedProcess {
    match prepare(order, connection, signals, early) {
        Ok(guard) => StartedProcess::Guard(Box::new(guard), tether),
        Err((mut connection, what)) => failed(&mut connection, what),
    }
}

fn failed(connection: &mut DriverConnection, what: String) -> StartedProcess {
    let command = false;
    let _ = connection.send(FromGuard::LaunchFailed { what, command });
    StartedProcess::Nothing
}

/// Separates the guard from the keeper: a signal to one session does not reach the other.
fn become_guard(name: &std::ffi::CStr) {
    let _ = nix::unistd::setsid();
    // A forked process does not inherit either of these.
    let _ = nix::sys::prctl::set_child_subreaper(true);
    let _ = nix::sys::prctl::set_name(name);
}

/// Detaches the guard from the supervisor's session, directory and children.
fn detach() {
    use nix::unistd::{Pid, getpgid, getppid, setpgid, setsid};
    // Each of these may fail if it is not needed. The guard was started as leader of a process group, so that no
    // signal of the terminal reaches it, but a group leader cannot start a session: it first rejoins its parent's
    // group.
    if let Ok(group) = getpgid(Some(getppid())) {
        let _ = setpgid(Pid::from_raw(0), group);
    }
    let _ = setsid();
    let _ = nix::unistd::chdir("/");
    let _ = nix::sys::prctl::set_child_subreaper(true);
    // Until it has its order, it guards nothing.
    let _ = nix::sys::prctl::set_name(c"supervise-spare");
}

/// How long the previous guard may take to exit once it has finished.
const PREDECESSOR_MS: u64 = 3_000;
/// Pauses between checks for it: it was told to exit before this guard had its order.
const FIRST_LOOK: Duration = Duration::from_micros(50);
const LAST_LOOK: Duration = Duration::from_millis(2);

type LaunchFailure = (DriverConnection, String);

fn prepare(
    order: GuardOrder,
    connection: DriverConnection,
    signals: SignalFd,
    mut early: Early,
) -> Result<Guard, LaunchFailure> {
    supervise_config::know_values(&order.secrets);
    let socket = match listen(&order.socket) {
        Ok(socket) => socket,
        Err(e) => return Err((connection, format!("the guard's socket {}: {e}", order.socket))),
    };
    if !has_a_fit_number(&order) {
        return Err((connection, format!("{} workers", order.workers.len())));
    }
    if let Some(dir) = &order.scratch
        && let Err(e) = scratch::make(dir)
    {
        return Err((
            connection,
            format!("the attempt's own directory {dir} cannot be made: {e}"),
        ));
    }
    if let Some(dir) = &order.stale_names {
        scratch::clear_names(dir);
    }
    let made = match early.held.take() {
        // If one of them failed, none runs its program.
        Some((_, made)) if made.workers.failure.is_some() => Ok(made),
        Some((gate, made)) => match gate.open(made.workers.workers.len()) {
            Ok(()) => Ok(made),
            Err(e) => Err(format!("the workers cannot be let go on: {e}")),
        },
        None => match order
            .nodes
            .as_ref()
            .map(|nodes| NodeLauncher::start(&order, nodes))
            .transpose()
        {
            Ok(nodes) => Ok(make(&order, nodes, early, None)),
            Err(e) => Err(format!("the launcher of the nodes cannot be started: {e}")),
        },
    };
    let (leaf, mut memory, nodes, workers) = match made {
        Ok(made) => (made.leaf, made.memory, made.nodes, made.workers),
        Err(what) => return Err((connection, what)),
    };
    let StartedWorkers {
        workers,
        ahead,
        notes,
        failure,
    } = workers;
    let now = boottime_ms();
    let me = own_ref();
    workers.iter().for_each(|w| memory.note(w.proc.pid));
    let tag = format!("{}/", order.run);
    let mut tree = ProcessTree::new(me, tag, leaf, now);
    tree.except(nodes.as_ref().map(|n| n.pid));
    let mut guard = Guard {
        me,
        term: order.term,
        socket,
        signals,
        connection: Some(connection),
        newcomers: Vec::new(),
        lost_at: None,
        lease: None,
        stop_due: None,
        scanner: None,
        facts: OutputFacts::default(),
        calls: Calls::default(),
        log_queue: LogQueue::new(log_writer_order(&order)),
        nodes,
        log_writer: None,
        log_writer_due: None,
        log_writer_pause: 0,
        log_writer_came_last: false,
        pulses: RankWatch::new(now, tree.ms_per_tick),
        tree,
        memory,
        pace: ReportSchedule::new(now),
        workers,
        order,
        launched: false,
        ahead,
        notes,
        early: Vec::new(),
        failed: false,
        frozen: false,
        bye: false,
        unkillable: Vec::new(),
        closing: None,
        stirred: false,
        buffer: vec![0; 64 << 10],
    };
    guard.tree.hurry(guard.order.script.as_ref().map(look_every));
    // Marks what follows as of this boot; a worker may exit at any moment from here on.
    guard.log_queue.tree(boot_line());
    if let Some(what) = failure {
        guard.fail(what, false, now);
    }
    Ok(guard)
}

/// Waits for the previous attempt's guard and keeper, which may still be exiting.
fn wait_for_predecessors(order: &GuardOrder) -> Result<(), String> {
    let end = boottime_ms() + PREDECESSOR_MS;
    for (role, who) in [(SocketRole::Guard, "guard"), (SocketRole::Keeper, "keeper")] {
        let mut pause = FIRST_LOOK;
        while address::lives(&order.run, role) {
            if boottime_ms() >= end {
                return Err(format!("another {who} of this run still lives"));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LAST_LOOK);
        }
    }
    Ok(())
}

fn listen(name: &str) -> io::Result<UnixListener> {
    let socket = address::listen(name)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn has_a_fit_number(order: &GuardOrder) -> bool {
    (1..=WORKERS_LIMIT).contains(&order.workers.len())
}

/// With a gate, the workers wait at it before they run their programs.
fn make(order: &GuardOrder, nodes: Option<NodeLauncher>, early: Early, gate: Option<&SpawnGate>) -> StartedTree {
    let name = leaf_name(&order.run, order.term.0, order.attempt.0);
    let leaf = order.cgroup.then(|| CgroupLeaf::create(&name).ok()).flatten();
    let memory = OomWatch::watch();
    let workers = start_workers(order, nodes.as_ref(), leaf.as_ref(), early, gate);
    StartedTree {
        leaf,
        memory,
        nodes,
        workers,
    }
}

struct StartedWorkers {
    workers: Vec<WorkerProcess>,
    ahead: Option<StandbyResult>,
    notes: Option<i32>,
    failure: Option<String>,
}

/// Starts the workers in order and stops at the first failure. A pre-started interpreter is used if there is one.
fn start_workers(
    order: &GuardOrder,
    nodes: Option<&NodeLauncher>,
    leaf: Option<&CgroupLeaf>,
    mut early: Early,
    gate: Option<&SpawnGate>,
) -> StartedWorkers {
    let mut workers = Vec::with_capacity(order.workers.len());
    let place = leaf.and_then(|l| Some((l.directory().ok()?, l.entrance().ok()?)));
    let files = match early.files.take() {
        None if order.interpreters || order.endings || order.hook.is_some() || order.door.is_some() => {
            StandbyFiles::new(order, None).ok()
        }
        files => files,
    };
    let cgroup = place.as_ref().map(as_place);
    let (waiting, ahead) = match early.waiting.take() {
        Some(Ok(waiting)) => {
            let (waiting, ahead) = waiting.go(order, cgroup.as_ref());
            (waiting, Some(ahead))
        }
        Some(Err(e)) => {
            // Another interpreter would fail to wait, too.
            let lasting = e.kind() == io::ErrorKind::TimedOut;
            let why = e.to_string();
            (Vec::new(), Some(StandbyResult::Cold { why, lasting }))
        }
        None => (Vec::new(), None),
    };
    let mut waiting = waiting.into_iter();
    let notes = files.as_ref().filter(|_| order.interpreters).map(StandbyFiles::notes);
    for (id, worker) in (0_u32..).zip(&order.workers) {
        let at = workers.len();
        let relay = nodes.map(|n| n.relay(&order.exe, id));
        let worker = relay.as_ref().unwrap_or(worker);
        let started = match waiting.next().flatten() {
            Some(started) => Ok(started),
            None => start_worker(order, at, worker, files.as_ref(), place.as_ref(), gate),
        };
        match started {
            Ok((started, output)) => workers.push(WorkerProcess::new(WorkerId(id), started, output)),
            Err(e) => {
                let failure = Some(format!("worker {id} cannot be started: {e}"));
                return StartedWorkers {
                    workers,
                    ahead,
                    notes,
                    failure,
                };
            }
        }
    }
    StartedWorkers {
        workers,
        ahead,
        notes,
        failure: None,
    }
}

fn as_place((directory, entrance): &(File, File)) -> CgroupFds<'_> {
    CgroupFds {
        directory: directory.as_fd(),
        entrance: entrance.as_fd(),
    }
}

fn start_worker(
    order: &GuardOrder,
    id: usize,
    worker: &WorkerOrder,
    files: Option<&StandbyFiles>,
    place: Option<&(File, File)>,
    gate: Option<&SpawnGate>,
) -> io::Result<(SpawnedProcess, OwnedFd)> {
    let env = worker_env(order, id, worker, files);
    let program = SpawnProgram::new(&worker.argv, &env, Some(worker.cwd.as_str()))?;
    let (reader, writer) = pipe()?;
    let null = null()?;
    let wiring = SpawnWiring {
        input: null.as_fd(),
        output: writer.as_fd(),
        errors: writer.as_fd(),
        cgroup: place.map(as_place),
        dies_with_creator: true,
        gate,
    };
    Ok((start(&program, &wiring)?, reader))
}
