//! A driver for tests: starts a guard, reads what it says, and leaves nothing behind.

use std::cell::Cell;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use camino::{Utf8Path, Utf8PathBuf};
use supervise_core::event::{ExitStatus, Sighting};
use supervise_core::id::{AttemptNo, Ms, ProcRef, RunId, Term, WorkerId};
use supervise_host::address::{SocketRole, connect, fresh};
use supervise_host::guard::protocol::{FromGuard, GuardHello, GuardOrder, ToGuard, WorkerOrder};
use supervise_host::guard::record::parse_tree;
use supervise_host::guard::spawn;
use supervise_host::process::kill::signal_process;
use supervise_host::process::{
    find_attempt_processes, is_alive, is_log_writer, kill_until_gone, list_descendants, proc_stat,
};

/// Longer than anything takes here, on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Rig {
    pub(crate) order: GuardOrder,
    base: tempfile::TempDir,
    /// The process that was started: the keeper, once the guard has its order.
    child: Child,
    guard: Cell<Option<i32>>,
    connection: Option<BufReader<UnixStream>>,
    heard: Vec<FromGuard>,
    status: Option<Option<i32>>,
}

impl Rig {
    pub(crate) fn start(name: &str, change: impl FnOnce(&mut GuardOrder)) -> Self {
        Self::prepare(name, |order, _| change(order))
    }

    /// As `start`, with the attempt's directory, which does not exist yet.
    pub(crate) fn prepare(name: &str, change: impl FnOnce(&mut GuardOrder, &Utf8Path)) -> Self {
        Self::begun_by(name, change, |order| spawn(&order.exe, order).unwrap())
    }

    /// As `prepare`, with another way to give the order.
    pub(crate) fn begun_by(
        name: &str,
        change: impl FnOnce(&mut GuardOrder, &Utf8Path),
        begin: impl FnOnce(&GuardOrder) -> (UnixStream, Child),
    ) -> Self {
        let base = tempfile::tempdir().unwrap();
        let root = Utf8PathBuf::from_path_buf(base.path().to_path_buf()).unwrap();
        let run = RunId(format!("test-{}-{name}", std::process::id()));
        let dir = root.join("attempts/0007");
        let mut order = GuardOrder {
            nodes: None,
            socket: fresh(&run, SocketRole::Guard).unwrap(),
            run,
            term: Term(2),
            attempt: AttemptNo(7),
            exe: env!("CARGO_BIN_EXE_supervise").into(),
            dir: Some(dir.clone()),
            workers: vec![sh("exit 0")],
            rules: Vec::new(),
            orphan_grace: Ms::secs(100),
            save_grace: Ms(0),
            stop_grace: Ms::secs(10),
            output_max: 1 << 30,
            output_keep: 1,
            script: None,
            patient: false,
            interpreters: false,
            ray: false,
            endings: false,
            hook: None,
            door: None,
            secrets: Vec::new(),
            cgroup: false,
            scratch: None,
            stale_names: None,
        };
        change(&mut order, &dir);
        let go = root.join("go");
        nix::unistd::mkfifo(go.as_std_path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for worker in &mut order.workers {
            for (key, value) in &mut worker.env {
                match key.as_str() {
                    "GO" => *value = go.to_string(),
                    "SAVED" => *value = root.join("saved").to_string(),
                    _ => {}
                }
            }
        }
        let (stream, child) = begin(&order);
        Self {
            order,
            base,
            child,
            guard: Cell::new(None),
            connection: Some(reader(stream)),
            heard: Vec::new(),
            status: None,
        }
    }

    /// A second guard with the same order.
    pub(crate) fn again(&self) -> Self {
        let (stream, child) = spawn(&self.order.exe, &self.order).unwrap();
        let mut order = self.order.clone();
        // Its own name when it clears up: the first one is still needed.
        order.run = RunId(format!("{}-again", order.run));
        Self {
            order,
            base: tempfile::tempdir().unwrap(),
            child,
            guard: Cell::new(None),
            connection: Some(reader(stream)),
            heard: Vec::new(),
            status: None,
        }
    }

    pub(crate) fn run(&self) -> RunId {
        self.order.run.clone()
    }

    pub(crate) fn socket(&self) -> String {
        self.order.socket.clone()
    }

    pub(crate) fn keeper(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn guard(&self) -> i32 {
        let end = Instant::now() + PATIENCE;
        while self.guard.get().is_none() {
            self.guard.set(self.kept());
            assert!(Instant::now() < end, "there is no guard");
        }
        self.guard.get().unwrap()
    }

    /// The child of the keeper.
    fn kept(&self) -> Option<i32> {
        let keeper = self.keeper();
        let list = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).ok()?;
        list.split_ascii_whitespace().next()?.parse().ok()
    }

    pub(crate) fn path(&self, name: &str) -> Utf8PathBuf {
        Utf8PathBuf::from_path_buf(self.base.path().join(name)).unwrap()
    }

    pub(crate) fn log(&self, worker: u32) -> Utf8PathBuf {
        self.order.dir.as_ref().unwrap().join(format!("worker-{worker}.log"))
    }

    /// Lets a worker go on that reads a line from `$GO`.
    pub(crate) fn go(&self) {
        fs::write(self.path("go"), "go\n").unwrap();
    }

    pub(crate) fn say(&mut self, message: ToGuard) {
        let mut line = serde_json::to_vec(&message).unwrap();
        line.push(b'\n');
        let connection = self.connection.as_mut().unwrap();
        connection.get_mut().write_all(&line).unwrap();
    }

    fn hear(&mut self) -> Option<FromGuard> {
        let mut line = String::new();
        let connection = self.connection.as_mut().unwrap();
        connection.read_line(&mut line).unwrap_or(0);
        if line.is_empty() {
            return None;
        }
        Some(serde_json::from_str(&line).unwrap())
    }

    /// Waits for a message; others are kept in mind.
    pub(crate) fn find<T>(&mut self, mut pick: impl FnMut(&FromGuard) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "only this was heard: {:?}", self.heard);
            let Some(message) = self.hear() else {
                let end = self.child.try_wait();
                panic!("the guard fell silent ({end:?}) after {:?}", self.heard);
            };
            if let Some(found) = pick(&message) {
                return found;
            }
            self.heard.push(message);
        }
    }

    pub(crate) fn launched(&mut self) -> Vec<ProcRef> {
        let (workers, guard) = self.find(|m| match m {
            FromGuard::Launched { workers, guard, .. } => Some((workers.clone(), guard.unwrap())),
            _ => None,
        });
        self.guard.set(Some(guard.pid));
        workers
    }

    pub(crate) fn failed(&mut self) -> (String, bool) {
        self.find(|m| match m {
            FromGuard::LaunchFailed { what, command } => Some((what.clone(), *command)),
            _ => None,
        })
    }

    pub(crate) fn exit(&mut self) -> (WorkerId, ExitStatus, bool) {
        self.find(|m| match m {
            FromGuard::Exited {
                worker, status, first, ..
            } => Some((*worker, *status, *first)),
            _ => None,
        })
    }

    pub(crate) fn gone(&mut self) -> Vec<ProcRef> {
        self.find(|m| match m {
            FromGuard::TreeGone { unkillable } => Some(unkillable.clone()),
            _ => None,
        })
    }

    pub(crate) fn sighted(&mut self, rule: &str) -> Sighting {
        self.find(|m| sighting(m, rule))
    }

    /// A sighting that was heard while waiting for something else.
    pub(crate) fn seen(&self, rule: &str) -> Sighting {
        self.heard.iter().find_map(|m| sighting(m, rule)).unwrap()
    }

    pub(crate) fn break_connection(&mut self) {
        self.connection = None;
    }

    pub(crate) fn keep_connection(&mut self) -> BufReader<UnixStream> {
        self.connection.take().unwrap()
    }

    /// Asks for the connection; it is ours from now on where the guard says hello.
    pub(crate) fn take(&mut self, term: Term) -> Option<GuardHello> {
        let held = self.connection.take();
        self.connection = Some(reader(connect(&self.order.socket).unwrap().unwrap()));
        self.say(ToGuard::Take { term });
        match self.hear() {
            Some(FromGuard::Hello(hello)) => Some(*hello),
            Some(other) => panic!("{other:?} before a hello"),
            None => {
                self.connection = held;
                None
            }
        }
    }

    /// Waits until the guard has noticed that nobody holds the connection.
    pub(crate) fn settle(&self) {
        // It answers connections in the order in which things happened: a refused one comes after the loss.
        let mut stream = connect(&self.order.socket).unwrap().unwrap();
        stream.write_all(b"{}\n").unwrap();
        let mut line = String::new();
        assert_eq!(reader(stream).read_line(&mut line).unwrap_or(0), 0);
    }

    pub(crate) fn signal_guard(&self, signal: i32) {
        let guard = proc_stat(self.guard()).unwrap().proc_ref();
        assert!(signal_process(guard, signal).unwrap());
    }

    /// Kills the guard, and before it the keeper: nothing of ours is left that could end what they leave.
    pub(crate) fn kill_guard(&mut self) {
        let guard = proc_stat(self.guard()).unwrap().proc_ref();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        assert!(signal_process(guard, libc::SIGKILL).unwrap());
        eventually(|| !is_alive(guard));
        self.status = Some(None);
        self.connection = None;
    }

    /// Kills the guard alone.
    pub(crate) fn kill_only_the_guard(&mut self) {
        let guard = proc_stat(self.guard()).unwrap().proc_ref();
        assert!(signal_process(guard, libc::SIGKILL).unwrap());
        eventually(|| !is_alive(guard));
        self.connection = None;
    }

    /// Waits for the guard's end.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.status = Some(status.code());
                return status.code();
            }
            assert!(Instant::now() < end, "the guard does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn log_writer(&self) -> Option<ProcRef> {
        list_descendants(self.guard())
            .into_iter()
            .find(|p| is_log_writer(p.pid))
    }

    /// Processes of the run that run `sleep`.
    pub(crate) fn sleepers(&self) -> usize {
        let found = find_attempt_processes(&self.order.run, &[]);
        let names = found
            .iter()
            .map(|p| fs::read_to_string(format!("/proc/{}/comm", p.pid)));
        names.filter(|n| n.as_ref().is_ok_and(|n| n == "sleep\n")).count()
    }

    /// Descendants as the guard wrote them down.
    pub(crate) fn recorded(&self) -> Vec<ProcRef> {
        let file = self.order.dir.as_ref().unwrap().join("tree");
        let here = supervise_host::process::own_pid_scope();
        parse_tree(&fs::read(file).unwrap_or_default(), &here).procs
    }

    /// Ends what a dead guard left, as a new supervisor does.
    pub(crate) fn fence(&self, recorded: &[ProcRef]) -> Vec<ProcRef> {
        let run = &self.order.run;
        kill_until_gone(|| find_attempt_processes(run, recorded), PATIENCE)
    }

    pub(crate) fn leftovers(&self, procs: &[ProcRef]) -> Vec<ProcRef> {
        let log_writer = self.log_writer();
        let left = procs.iter().filter(|p| Some(**p) != log_writer && is_alive(**p));
        left.copied().collect()
    }

    pub(crate) fn leaf(&self) -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = mounts.lines().find(|l| l.contains(" - cgroup2 "))?;
        let mount = line.split(' ').nth(4)?;
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = own.lines().find_map(|l| l.strip_prefix("0::/"))?;
        let name = format!("supervise-{}-2-7", self.order.run);
        Some(PathBuf::from(mount).join(own).join(name))
    }

    pub(crate) fn cgroup_says(&self, line: &str) -> bool {
        let Some(leaf) = self.leaf().filter(|l| l.exists()) else {
            // Where no cgroup may be made, the tree was stopped by signals.
            return true;
        };
        fs::read_to_string(leaf.join("cgroup.events")).is_ok_and(|t| t.lines().any(|l| l == line))
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.connection = None;
        if self.status.is_none() {
            let guard = self.guard.get().or_else(|| self.kept());
            let guard = guard.and_then(proc_stat).map(|s| s.proc_ref());
            // Ours and not reaped: the number is its own.
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = guard.map(|g| signal_process(g, libc::SIGKILL));
        }
        let recorded = self.recorded();
        let _ = self.fence(&recorded);
    }
}

fn sighting(message: &FromGuard, rule: &str) -> Option<Sighting> {
    match message {
        FromGuard::Sighted { sighting, .. } if sighting.rule == rule.into() => Some(sighting.clone()),
        _ => None,
    }
}

fn reader(stream: UnixStream) -> BufReader<UnixStream> {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    BufReader::new(stream)
}

fn worker(argv: &[&str]) -> WorkerOrder {
    let path = std::env::var("PATH").unwrap();
    let env = [
        ("PATH", path.as_str()),
        ("FAKE", env!("CARGO_BIN_EXE_fake_worker")),
        ("GO", ""),
        ("SAVED", ""),
    ];
    WorkerOrder {
        argv: argv.iter().map(|a| (*a).to_owned()).collect(),
        env: env.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec(),
        cwd: "/".into(),
    }
}

pub(crate) fn sh(script: &str) -> WorkerOrder {
    worker(&["sh", "-c", script])
}

pub(crate) fn fake(words: &[&str]) -> WorkerOrder {
    let mut argv = vec![env!("CARGO_BIN_EXE_fake_worker")];
    argv.extend(words);
    worker(&argv)
}

/// Waits for something that is bound to happen.
#[track_caller]
pub(crate) fn eventually(done: impl FnMut() -> bool) {
    supervise_tests::harness::wait_for("what was bound to happen", done);
}
