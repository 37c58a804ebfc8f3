//! The guard's side of a gang across several nodes: the launcher, and the commands of its relays.

use super::rank_windows::{Gathered, NodeWindows};
use super::{FENCED_MS, LauncherOrder, NOT_BEGUN, WORDS_AT};
use crate::address::{self, SocketRole};
use crate::guard::protocol::{GuardOrder, NodesOrder, WorkerOrder};
use crate::guard::setup::marks;
use crate::process::own_program;
use camino::Utf8Path;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use supervise_core::event::ExitStatus;

const WORDS: usize = 1000;

const LOOK_MS: u64 = 2000;

/// The launcher of the nodes. It is reaped like the guard's other children.
#[derive(Debug)]
pub(crate) struct NodeLauncher {
    pub(crate) pid: i32,
    /// It has exited, and everything on the nodes has ended.
    pub(crate) ended: bool,
    /// It was killed: by this time, the nodes have killed their ranks themselves.
    pub(crate) fenced: Option<u64>,
    socket: String,
    /// Shared memory: CPU time of all ranks in milliseconds, what the launcher waits for, and the nodes' newest
    /// windows.
    counter: File,
    told: u64,
    gathering: NodeWindows,
    pub(crate) due: u64,
}

impl NodeLauncher {
    /// Starts the launcher. It must not carry the attempt's mark: it runs until the step has ended.
    pub(crate) fn start(order: &GuardOrder, nodes: &NodesOrder) -> io::Result<Self> {
        let launch = LauncherOrder::new(order, nodes, &marks(order))
            .ok_or_else(|| io::Error::other("the workers cannot be dealt out to the nodes"))?;
        let memory = |name| Ok::<_, io::Error>(File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?));
        let (mut json, counter) = (memory("nodes")?, memory("counter")?);
        json.write_all(&serde_json::to_vec(&launch)?)?;
        json.rewind()?;
        counter.write_at(&0_u64.to_le_bytes(), 0)?;
        let socket = address::fresh(&order.run, SocketRole::Nodes)?;
        let listener = address::listen(&socket)?;
        let child = Command::new(own_program(order.exe.as_std_path()))
            .arg0(&order.exe)
            .args(["__nodes", &nodes.step])
            .stdin(Stdio::from(json))
            .stdout(Stdio::from(counter.try_clone()?))
            .stderr(Stdio::from(OwnedFd::from(listener)))
            .process_group(0)
            .spawn()?;
        Ok(Self {
            pid: i32::try_from(child.id()).unwrap_or_default(),
            ended: false,
            fenced: None,
            socket,
            counter,
            told: 0,
            gathering: NodeWindows::new(nodes.nodes, order.workers.len()),
            due: 0,
        })
    }

    pub(crate) fn is(&self, pid: i32) -> bool {
        self.pid == pid && !self.ended && self.fenced.is_none()
    }

    /// Notes that the launcher has exited. Only a clean exit means that nothing is left on the nodes, or was started
    /// there.
    pub(crate) fn note_end(&mut self, status: ExitStatus, now: u64) {
        match status {
            ExitStatus::Code(0 | NOT_BEGUN) => self.ended = true,
            _ => self.fenced = Some(now.saturating_add(FENCED_MS)),
        }
    }

    pub(crate) fn waits_for(&self) -> String {
        if self.fenced.is_some() {
            return "the nodes, whose launcher was killed, to end their ranks by themselves".to_owned();
        }
        let mut text = vec![0; WORDS];
        let length = self.counter.read_at(&mut text, WORDS_AT).unwrap_or_default();
        text.truncate(length);
        let text = String::from_utf8(text).unwrap_or_default();
        match text.trim_end_matches('\0') {
            text if !text.is_empty() => text.to_owned(),
            _ => "the launcher of the nodes".to_owned(),
        }
    }

    pub(crate) fn relay(&self, exe: &Utf8Path, rank: u32) -> WorkerOrder {
        let argv = [exe.as_str(), "__relay", &rank.to_string(), &self.socket];
        WorkerOrder {
            argv: argv.map(str::to_owned).to_vec(),
            env: Vec::new(),
            cwd: "/".into(),
        }
    }

    /// A window of the ranks of all nodes, once each node has reported one since the last.
    pub(crate) fn window(&mut self, now: u64) -> Option<Gathered> {
        self.due = now.saturating_add(LOOK_MS);
        self.gathering.read(&self.counter, now);
        self.gathering.take()
    }

    /// CPU time of the ranks since the last call, in milliseconds.
    pub(crate) fn cpu_ms(&mut self) -> u64 {
        let mut bytes = [0_u8; 8];
        if self.counter.read_exact_at(&mut bytes, 0).is_err() {
            return 0;
        }
        let now = u64::from_le_bytes(bytes);
        now.saturating_sub(std::mem::replace(&mut self.told, now))
    }
}
