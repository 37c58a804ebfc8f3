//! `supervise __ray`: one of an attempt's processes on each node. Each starts Ray there; the first one also starts
//! the driver, once all nodes have joined the cluster.
//!
//! The first listens where the ranks of a gang would meet (`MASTER_ADDR`, `MASTER_PORT`). The others connect, receive
//! the cluster's address, join it, and receive `done` when the driver has succeeded. If a connection breaks before
//! that, the attempt is over, and the guard will stop these processes, too. Ray processes that are left belong to the
//! attempt's tree and end with it.

use super::relay::die_of;
use crate::cluster::{RayQuery, ask};
use crate::guard::scratch;
use crate::guard::setup::signals;
use crate::interpreter;
use crate::process::kill::signal_group;
use crate::process::reap::reap_one;
use crate::process::spawn::{REFUSAL_LEN, SpawnError, SpawnProgram, SpawnWiring, close_inherited, start};
use crate::process::{ATTEMPT_VARIABLE, boottime_ms, proc_stat};
use crate::system::free_port;
use camino::{Utf8Path, Utf8PathBuf};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;
use supervise_core::event::ExitStatus;
use supervise_core::id::ProcRef;

/// Time for all nodes to connect, and again for all to join the cluster.
const GATHERING_MS: u64 = 180_000;
/// How long a node that has connected may take to identify itself.
const HELLO: Duration = Duration::from_secs(5);
/// How long the guard may take to stop this process at the end of an attempt.
const ENDED_MS: u64 = 60_000;
const LOOK_MS: u64 = 200;
const LINE: u64 = 300;
const DONE: &str = "done";
/// Options that `ray start` refuses on any node but the first (Ray 2.60, `scripts.py`).
const OF_A_HEAD: [&str; 2] = ["--include-dashboard", "--redis-shard-ports"];

/// Settings for Ray besides the driver's command, the same on each node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RayOrder {
    pub nodes: u32,
    /// GPUs of each node; `None`: Ray detects them, and they are not checked.
    pub gpus: Option<u32>,
    pub options: Vec<String>,
    pub scratch: Option<Utf8PathBuf>,
}

impl RayOrder {
    /// The command of each node; `exe` is our own program, `driver` the trainer's command.
    #[must_use]
    pub fn command(&self, exe: &Utf8Path, driver: &[String]) -> Vec<String> {
        let order = serde_json::to_string(self).unwrap_or_default();
        let own = [exe.to_string(), "__ray".to_owned(), order];
        own.into_iter().chain(driver.iter().cloned()).collect()
    }
}

/// Runs until the driver has exited; on the first node, returns its exit code. Arguments: the order, the driver's
/// command.
#[must_use]
pub fn main(args: &[OsString]) -> i32 {
    let words: Option<Vec<String>> = args.iter().map(|a| a.to_str().map(str::to_owned)).collect();
    let ended = words
        .ok_or_else(|| "a word of the command is not UTF-8".to_owned())
        .and_then(|words| RayNode::begin(&words)?.run());
    match ended {
        Ok(ExitStatus::Code(code)) => code,
        Ok(ExitStatus::Signal(signal)) => die_of(signal),
        Ok(ExitStatus::Unknown) => 70,
        Err(what) => {
            say(&what);
            1
        }
    }
}

fn say(what: &str) {
    // There may be no reader any more; then nobody needs the message.
    let _ = writeln!(io::stdout(), "supervise: {what}");
}

struct Child {
    proc: ProcRef,
    exit: Option<ExitStatus>,
}

struct RayNode {
    order: RayOrder,
    driver: Vec<String>,
    cwd: Utf8PathBuf,
    env: BTreeMap<String, String>,
    number: u32,
    name: String,
    master: (String, u16),
    mark: String,
    signals: SignalFd,
    asked: Option<i32>,
    children: Vec<Child>,
}

impl RayNode {
    fn begin(words: &[String]) -> Result<Self, String> {
        close_inherited();
        let (order, driver) = words.split_first().ok_or("no order")?;
        let order: RayOrder =
            serde_json::from_slice(order.as_bytes()).map_err(|e| format!("an order that is none: {e}"))?;
        let mut env: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
            .collect();
        let number = env.get("SLURM_NODEID").and_then(|n| n.parse().ok());
        // These are for us: the processes that Ray starts have ranks of their own.
        let master = (env.remove("MASTER_ADDR"), env.remove("MASTER_PORT"));
        let (Some(number), Some(address), Some(port)) = (number, master.0, master.1.and_then(|p| p.parse().ok()))
        else {
            return Err("SLURM_NODEID, MASTER_ADDR or MASTER_PORT is missing".to_owned());
        };
        let cwd = std::env::current_dir().map_err(|e| format!("the working directory: {e}"))?;
        let cwd = Utf8PathBuf::from_path_buf(cwd).map_err(|_| "the working directory is not UTF-8".to_owned())?;
        Ok(Self {
            order,
            driver: driver.to_vec(),
            cwd,
            number,
            name: env
                .get("SLURMD_NODENAME")
                .cloned()
                .unwrap_or_else(crate::process::host_name),
            master: (address, port),
            mark: env.get(ATTEMPT_VARIABLE).cloned().unwrap_or_default(),
            signals: signals().map_err(|e| format!("signals: {e}"))?,
            asked: None,
            env,
            children: Vec::new(),
        })
    }

    fn run(mut self) -> Result<ExitStatus, String> {
        match self.number {
            0 => self.lead(),
            _ => self.join(),
        }
    }

    /// On the first node: starts the cluster's head, then the driver.
    fn lead(&mut self) -> Result<ExitStatus, String> {
        let (members, own) = self.gather()?;
        let port = free_port(own).map_err(|e| format!("no free port at {own}: {e}"))?;
        let address = SocketAddr::new(own, port).to_string();
        let words = [
            "--head".to_owned(),
            format!("--node-ip-address={own}"),
            format!("--port={port}"),
        ];
        self.start_ray(&words)?;
        self.until("Ray's head does not answer", || TcpStream::connect(&address).ok())?;
        for member in &members {
            // A node that has exited will be missing in the cluster.
            let _ = writeln!(&*member, "{address}");
        }
        self.count(&address)?;
        self.env.insert("RAY_ADDRESS".to_owned(), address);
        let driver = self.driver.clone();
        self.start(&driver)?;
        loop {
            self.wait();
            if let Some(exit) = self.children.last().and_then(|driver| driver.exit) {
                if exit.is_success() {
                    for member in &members {
                        let _ = writeln!(&*member, "{DONE}");
                    }
                }
                return Ok(exit);
            }
            self.check_ray()?;
        }
    }

    /// On the other nodes: runs Ray until the driver has exited.
    fn join(&mut self) -> Result<ExitStatus, String> {
        if let Some(dir) = &self.order.scratch {
            scratch::make(dir).map_err(|e| format!("the attempt's own directory {dir} cannot be made: {e}"))?;
        }
        let master = self.master.clone();
        let head = self.until("the first node does not answer", || {
            TcpStream::connect((master.0.as_str(), master.1)).ok()
        })?;
        let lost = |e: io::Error| format!("the first node is gone: {e}");
        writeln!(&head, "{}", self.mark).map_err(lost)?;
        let own = head.local_addr().map_err(lost)?.ip();
        let mut lines = BufReader::new((&head).take(2 * LINE));
        let mut address = String::new();
        lines.read_line(&mut address).map_err(lost)?;
        let Ok(address) = address.trim().parse::<SocketAddr>() else {
            return self.is_over();
        };
        self.start_ray(&[format!("--address={address}"), format!("--node-ip-address={own}")])?;
        head.set_nonblocking(true).map_err(lost)?;
        let mut last = String::new();
        loop {
            let mut fds = [head.as_fd(), self.signals.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            let _ = poll(&mut fds, PollTimeout::NONE);
            match lines.read_line(&mut last) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Ok(_) if last.trim() == DONE => return Ok(ExitStatus::Code(0)),
                _ => return self.is_over(),
            }
            self.wait();
            self.check_ray()?;
        }
    }

    /// The attempt has failed on another node, which reports it; or it was asked to stop, and the driver has exited.
    fn is_over(&mut self) -> Result<ExitStatus, String> {
        let until = boottime_ms().saturating_add(ENDED_MS);
        while boottime_ms() < until {
            if let Some(signal) = self.asked {
                return Ok(ExitStatus::Signal(signal));
            }
            self.wait();
        }
        Err("the first node has gone, and nobody has ended this one".to_owned())
    }

    fn gather(&mut self) -> Result<(Vec<TcpStream>, IpAddr), String> {
        let listener = TcpListener::bind(("0.0.0.0", self.master.1));
        let listener = listener.map_err(|e| format!("port {}: {e}", self.master.1))?;
        listener
            .set_nonblocking(true)
            .map_err(|e| format!("port {}: {e}", self.master.1))?;
        let wanted = self.order.nodes.saturating_sub(1);
        let (mark, mut members, mut own) = (self.mark.clone(), Vec::new(), None);
        self.until("not all nodes have come", || {
            while let Ok((stream, _)) = listener.accept() {
                if is_ours(&stream, &mark) {
                    own = stream.local_addr().ok().map(|a| a.ip());
                    members.push(stream);
                }
            }
            (members.len() >= wanted as usize).then_some(())
        })?;
        let own = own.ok_or("no other node has come")?;
        Ok((members, own))
    }

    /// Asks the cluster until it has everything that the run needs.
    fn count(&mut self, address: &str) -> Result<(), String> {
        let query = RayQuery {
            command: self.driver.clone(),
            cwd: self.cwd.clone(),
            env: self.env.clone(),
            address: address.to_owned(),
            ..RayQuery::default()
        };
        let nodes = self.order.nodes;
        let gpus = self.order.gpus.map(|each| each.saturating_mul(nodes));
        let mut words = String::new();
        let until = boottime_ms().saturating_add(GATHERING_MS);
        while boottime_ms() < until {
            words = match ask(&query) {
                Ok(c) if c.nodes >= nodes && gpus.is_none_or(|g| c.gpus >= f64::from(g)) => {
                    say(&format!(
                        "the Ray cluster at {address} has {} machines and {} GPUs",
                        c.nodes, c.gpus
                    ));
                    return Ok(());
                }
                Ok(c) => {
                    let of = gpus.map(|g| format!(" and {} of {g} GPUs", c.gpus)).unwrap_or_default();
                    format!("it has {} of {nodes} machines{of}", c.nodes)
                }
                Err(why) => why,
            };
            self.wait();
            self.check_ray()?;
        }
        Err(format!(
            "the Ray cluster is not complete after {} s: {words}",
            GATHERING_MS / 1000
        ))
    }

    fn until<T>(&mut self, or: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, String> {
        let until = boottime_ms().saturating_add(GATHERING_MS);
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            if boottime_ms() >= until {
                return Err(format!(
                    "the Ray cluster is not complete after {} s: {or}",
                    GATHERING_MS / 1000
                ));
            }
            self.wait();
            self.check_ray()?;
        }
    }

    /// Starts `ray start`, which keeps running as long as Ray does.
    fn start_ray(&mut self, words: &[String]) -> Result<(), String> {
        let python = interpreter::find(&self.driver, &self.cwd, &self.env)
            .map_err(|why| format!("the interpreter that has Ray is not known: {why}"))?;
        self.env.extend(python.env.iter().cloned());
        let start = ["-m", "ray.scripts.scripts", "start", "--block"].map(str::to_owned);
        let gpus = self.order.gpus.map(|n| format!("--num-gpus={n}"));
        let argv: Vec<String> = (python.words.iter().chain(&start).chain(words).cloned())
            .chain(gpus)
            .chain(self.options())
            .collect();
        self.start(&argv)
    }

    /// The user's options that this node's `ray start` accepts.
    fn options(&self) -> impl Iterator<Item = String> + use<'_> {
        let is_for_here = |word: &&String| {
            let name = word.split('=').next().unwrap_or_default();
            self.number == 0 || !OF_A_HEAD.contains(&name)
        };
        self.order.options.iter().filter(is_for_here).cloned()
    }

    fn start(&mut self, argv: &[String]) -> Result<(), String> {
        let told = |e: &dyn std::fmt::Display| format!("`{}` cannot be started: {e}", argv.first().map_or("", |w| w));
        let env: Vec<(String, String)> = self.env.clone().into_iter().collect();
        let program = SpawnProgram::new(argv, &env, Some(self.cwd.as_str())).map_err(|e| told(&e))?;
        let null = crate::guard::log_queue::null().map_err(|e| told(&e))?;
        let (output, errors) = (io::stdout(), io::stderr());
        let wiring = SpawnWiring {
            input: null.as_fd(),
            output: output.as_fd(),
            errors: errors.as_fd(),
            cgroup: None,
            dies_with_creator: true,
            gate: None,
        };
        let started = start(&program, &wiring).map_err(|e| told(&e))?;
        let proc = ProcRef {
            pid: started.pid,
            start: proc_stat(started.pid).map_or(0, |s| s.start),
        };
        self.children.push(Child { proc, exit: None });
        let mut fds = [PollFd::new(started.report.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::NONE);
        let mut bytes = [0_u8; REFUSAL_LEN];
        match File::from(started.report).read(&mut bytes) {
            Ok(REFUSAL_LEN) => Err(told(&SpawnError::parse(bytes).error())),
            _ => Ok(()),
        }
    }

    /// Waits a moment: forwards signals and notices children that have exited.
    fn wait(&mut self) {
        let mut fds = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let _ = poll(
            &mut fds,
            u16::try_from(LOOK_MS).map_or(PollTimeout::ZERO, PollTimeout::from),
        );
        while let Ok(Some(info)) = self.signals.read_signal() {
            let Ok(signal) = i32::try_from(info.ssi_signo) else {
                continue;
            };
            if signal != libc::SIGCHLD {
                if matches!(signal, libc::SIGTERM | libc::SIGINT) {
                    self.asked = Some(signal);
                }
                // Only to the driver, which needs Ray's processes until it exits.
                for child in self.children.iter().skip(1).filter(|c| c.exit.is_none()) {
                    let _ = signal_group(child.proc, signal);
                }
            }
        }
        while let Ok(Some((pid, status))) = reap_one() {
            if let Some(child) = self.children.iter_mut().find(|c| c.proc.pid == pid && c.exit.is_none()) {
                child.exit = Some(status);
            }
        }
    }

    /// # Errors
    /// `ray start` has exited, and with it what it started.
    fn check_ray(&self) -> Result<(), String> {
        match self.children.first().and_then(|ray| ray.exit) {
            None => Ok(()),
            Some(exit) => Err(format!("Ray has ended on node {} ({exit})", self.name)),
        }
    }
}

/// Returns true if the peer identifies itself at once as a node of this attempt.
fn is_ours(stream: &TcpStream, mark: &str) -> bool {
    let mut line = String::new();
    let read = stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_read_timeout(Some(HELLO)));
    read.and_then(|()| BufReader::new(stream.take(LINE)).read_line(&mut line))
        .is_ok()
        && line.trim_end() == mark
}
