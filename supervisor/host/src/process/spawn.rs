//! Starts a program without ever blocking.
//!
//! The standard library waits until the new process has executed its program, which takes forever if the program or
//! its directory is on a dead mount. Here the new process reports through a pipe that its creator polls: closed
//! without data means that the program is running, eight bytes say what failed.
//!
//! Everything the new process needs is prepared before the fork: between fork and exec it only makes system calls. It
//! leads its own session, inherits no descriptors, has default signal handling and an empty signal mask, and, if
//! requested, dies with its creator.

#![expect(
    unsafe_code,
    reason = "a process cannot be placed, armed and watched like this with safe calls"
)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Directories that are searched for programs if the environment has no PATH.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

const PATH_LIMIT: usize = 256;

/// A program, ready to be executed.
#[derive(Debug)]
pub struct SpawnProgram {
    candidates: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: Option<CString>,
}

impl SpawnProgram {
    /// Prepares a program, which is searched as a shell would, in the PATH of its own environment.
    ///
    /// # Errors
    /// Nothing to execute, or a text with a zero byte in it.
    pub fn new(argv: &[String], env: &[(String, String)], cwd: Option<&str>) -> io::Result<Self> {
        let name = argv.first().filter(|n| !n.is_empty());
        let name = name.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let candidates = if name.contains('/') {
            vec![text(name)?]
        } else {
            let path = env.iter().find(|(k, _)| k == "PATH");
            let path = path.map_or(DEFAULT_PATH, |(_, v)| v.as_str());
            path.split(':')
                .take(PATH_LIMIT)
                .map(|dir| if dir.is_empty() { "." } else { dir })
                .map(|dir| text(&format!("{dir}/{name}")))
                .collect::<io::Result<_>>()?
        };
        Self::at(candidates, argv, env, cwd)
    }

    /// Prepares the first of several files that can be executed.
    ///
    /// # Errors
    /// A text with a zero byte in it.
    pub fn first_of(files: &[&str], argv: &[String], env: &[(String, String)]) -> io::Result<Self> {
        let candidates = files.iter().map(|f| text(f)).collect::<io::Result<_>>()?;
        Self::at(candidates, argv, env, None)
    }

    fn at(candidates: Vec<CString>, argv: &[String], env: &[(String, String)], cwd: Option<&str>) -> io::Result<Self> {
        Ok(Self {
            candidates,
            argv: argv.iter().map(|a| text(a)).collect::<io::Result<_>>()?,
            env: env
                .iter()
                .map(|(k, v)| text(&format!("{k}={v}")))
                .collect::<io::Result<_>>()?,
            cwd: cwd.map(text).transpose()?,
        })
    }
}

fn text(s: &str) -> io::Result<CString> {
    CString::new(s).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a zero byte"))
}

/// Setup of a new process.
#[derive(Debug)]
pub struct SpawnWiring<'a> {
    pub input: BorrowedFd<'a>,
    pub output: BorrowedFd<'a>,
    pub errors: BorrowedFd<'a>,
    pub cgroup: Option<CgroupFds<'a>>,
    /// It is killed when its creator exits.
    pub dies_with_creator: bool,
    /// It waits here before it executes its program.
    pub gate: Option<&'a SpawnGate>,
}

/// Keeps new processes from their programs until it is opened; if it is dropped first, they exit.
#[derive(Debug)]
pub struct SpawnGate {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl SpawnGate {
    /// A closed gate.
    ///
    /// # Errors
    /// No pipe can be created.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        Ok(Self { reader, writer })
    }

    /// Lets this many processes continue.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(self, waiting: usize) -> io::Result<()> {
        let words = vec![0; waiting];
        match nix::unistd::write(&self.writer, &words)? == waiting {
            true => Ok(()),
            false => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

/// A cgroup, by its directory and by the file through which processes join.
#[derive(Debug, Clone, Copy)]
pub struct CgroupFds<'a> {
    pub directory: BorrowedFd<'a>,
    pub entrance: BorrowedFd<'a>,
}

/// A process that was created.
#[derive(Debug)]
pub struct SpawnedProcess {
    pub pid: i32,
    /// Closed without data once the program runs; otherwise holds a [`SpawnError`].
    pub report: OwnedFd,
}

/// Why a program does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpawnError {
    pub stage: SpawnStage,
    pub errno: i32,
}

/// The steps between fork and exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpawnStage {
    Directory,
    Execute,
    /// Descriptors and the like.
    Setup,
}

/// Length of an error report on the pipe.
pub const REFUSAL_LEN: usize = 8;

impl SpawnError {
    /// Parses what a new process wrote.
    #[must_use]
    pub fn parse(bytes: [u8; REFUSAL_LEN]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self {
            stage: match i32::from_ne_bytes([a, b, c, d]) {
                STAGE_DIRECTORY => SpawnStage::Directory,
                STAGE_EXECUTE => SpawnStage::Execute,
                _ => SpawnStage::Setup,
            },
            errno: i32::from_ne_bytes([e, f, g, h]),
        }
    }

    /// The error number as an error.
    #[must_use]
    pub fn error(&self) -> io::Error {
        io::Error::from_raw_os_error(self.errno)
    }
}

const STAGE_SETUP: c_int = 0;
const STAGE_DIRECTORY: c_int = 1;
const STAGE_EXECUTE: c_int = 2;

struct Birth<'a> {
    candidates: &'a [CString],
    argv: Vec<*const c_char>,
    script: Vec<*const c_char>,
    env: Vec<*const c_char>,
    cwd: Option<&'a CStr>,
    input: RawFd,
    output: RawFd,
    errors: RawFd,
    report: RawFd,
    entrance: Option<RawFd>,
    creator: Option<libc::pid_t>,
    gate: Option<(RawFd, RawFd)>,
}

/// Creates a process that will execute the program.
///
/// # Errors
/// No process can be created (limits, memory).
pub fn start(program: &SpawnProgram, wiring: &SpawnWiring<'_>) -> io::Result<SpawnedProcess> {
    let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK)?;
    let mut birth = Birth {
        candidates: &program.candidates,
        argv: pointers(&program.argv, None),
        script: pointers(&program.argv, Some(c"/bin/sh")),
        env: pointers(&program.env, None),
        cwd: program.cwd.as_deref(),
        input: wiring.input.as_raw_fd(),
        output: wiring.output.as_raw_fd(),
        errors: wiring.errors.as_raw_fd(),
        report: writer.as_raw_fd(),
        entrance: wiring.cgroup.map(|c| c.entrance.as_raw_fd()),
        creator: wiring.dies_with_creator.then(|| nix::unistd::getpid().as_raw()),
        gate: wiring.gate.map(|g| (g.reader.as_raw_fd(), g.writer.as_raw_fd())),
    };
    let placed = wiring.cgroup.map(|c| make_in(c.directory.as_raw_fd()));
    let pid = match placed {
        Some(Ok(pid)) => {
            birth.entrance = None;
            pid
        }
        // SAFETY: the new process only makes system calls on prepared data until it executes or exits.
        _ => unsafe { libc::fork() },
    };
    match pid {
        0 => be_born(&birth),
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(SpawnedProcess { pid, report: reader }),
    }
}

/// Forks this process: returns the child's PID in the parent, `None` in the child.
///
/// # Errors
/// No process can be created (limits, memory).
pub(crate) fn split() -> io::Result<Option<i32>> {
    // SAFETY: the caller has one thread, so that no lock is held by another one in the new process.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid)),
    }
}

/// Makes a program die with this thread, and sets its signal mask.
pub(crate) fn dies_with_us(command: &mut std::process::Command, mask: nix::sys::signal::SigSet) {
    use std::os::unix::process::CommandExt;
    let creator = libc::pid_t::try_from(std::process::id()).unwrap_or_default();
    let arm = move || {
        mask.thread_set_mask()?;
        // SAFETY: prctl takes plain numbers here.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: getppid cannot fail.
        match unsafe { libc::getppid() } == creator {
            true => Ok(()),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    };
    // SAFETY: the closure only makes system calls on plain numbers.
    unsafe { command.pre_exec(arm) };
}

/// The argument list for execve; for a script without a `#!` line the shell comes first.
fn pointers(texts: &[CString], shell: Option<&'static CStr>) -> Vec<*const c_char> {
    let mut list: Vec<*const c_char> = shell.iter().map(|s| s.as_ptr()).collect();
    list.extend(texts.iter().map(|t| t.as_ptr()));
    list.push(std::ptr::null());
    list
}

#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Creates a process inside a cgroup, so that it is never outside, and saves the milliseconds of moving it.
fn make_in(directory: RawFd) -> io::Result<libc::pid_t> {
    let args = CloneArgs {
        flags: 0x2_0000_0000, // CLONE_INTO_CGROUP
        exit_signal: u64::try_from(libc::SIGCHLD).unwrap_or(17),
        cgroup: u64::try_from(directory).unwrap_or(0),
        ..CloneArgs::default()
    };
    // SAFETY: without CLONE_VM this is a fork; the caller is single-threaded and the new process only makes
    // system calls on prepared data.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    libc::pid_t::try_from(pid).map_err(io::Error::other)
}

/// Steps of the new process. Only system calls: no allocation, no locks.
fn be_born(birth: &Birth<'_>) -> ! {
    // SAFETY: every pointer was made from a CString or list that the frames above hold, and the calls are
    // those that may be made between fork and exec.
    unsafe {
        libc::setsid();
        if let Some(creator) = birth.creator {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                refuse(birth, STAGE_SETUP);
            }
            if libc::getppid() != creator {
                libc::_exit(127);
            }
        }
        if let Some(entrance) = birth.entrance {
            // The cgroup's list of members shows whether it joined: otherwise we sweep.
            libc::write(entrance, c"0".as_ptr().cast(), 1);
        }
        let wired =
            libc::dup2(birth.input, 0) == 0 && libc::dup2(birth.output, 1) == 1 && libc::dup2(birth.errors, 2) == 2;
        if !wired {
            refuse(birth, STAGE_SETUP);
        }
        // Not closed yet: the report must stay open until the program runs. Without this call (before 5.9), our own
        // descriptors are close-on-exec anyway.
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 4 /* CLOSE_RANGE_CLOEXEC */);
        reset_signals();
        if let Some((reader, writer)) = birth.gate {
            // If the waiting processes held it, the pipe would never end.
            libc::close(writer);
            let mut word = 0_u8;
            if libc::read(reader, (&raw mut word).cast(), 1) != 1 {
                libc::_exit(127);
            }
        }
        if let Some(cwd) = birth.cwd
            && libc::chdir(cwd.as_ptr()) != 0
        {
            refuse(birth, STAGE_DIRECTORY);
        }
        execute(birth)
    }
}

/// # Safety
/// Called in a new process only.
unsafe fn reset_signals() {
    // SAFETY: plain system calls on zeroed or freshly filled structures. The kernel's own structure for one
    // signal is four words, all zeroes being the default; the library's call leaves out the signals that it
    // keeps for itself, which a careless ancestor may have ignored as well.
    unsafe {
        let default = [0_u64; 4];
        let nothing = std::ptr::null_mut::<u64>();
        for number in 1..=64_i64 {
            libc::syscall(libc::SYS_rt_sigaction, number, default.as_ptr(), nothing, 8_i64);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Tries the candidates in turn, as execvp does: a forbidden one is remembered, a missing one is not.
///
/// # Safety
/// Called in a new process only, with lists that end in a null pointer.
unsafe fn execute(birth: &Birth<'_>) -> ! {
    let mut forbidden = false;
    // SAFETY: see above; execve returns only if it failed.
    unsafe {
        for file in birth.candidates {
            libc::execve(file.as_ptr(), birth.argv.as_ptr(), birth.env.as_ptr());
            match *libc::__errno_location() {
                libc::ENOEXEC => {
                    // The second entry replaces the program's name: the shell expects the file there.
                    let list = birth.script.as_ptr().cast_mut();
                    *list.add(1) = file.as_ptr();
                    libc::execve(c"/bin/sh".as_ptr(), list, birth.env.as_ptr());
                    break;
                }
                libc::EACCES => forbidden = true,
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
                _ => break,
            }
        }
        let errno = libc::__errno_location();
        if forbidden && matches!(*errno, libc::ENOENT | libc::ENOTDIR) {
            *errno = libc::EACCES;
        }
        refuse(birth, STAGE_EXECUTE)
    }
}

/// # Safety
/// Called in a new process only.
unsafe fn refuse(birth: &Birth<'_>, stage: c_int) -> ! {
    // SAFETY: two integers on this stack are written to a descriptor; a failed write leaves an exit code.
    unsafe {
        let words = [stage, *libc::__errno_location()];
        libc::write(birth.report, words.as_ptr().cast(), REFUSAL_LEN);
        libc::_exit(127)
    }
}

/// Closes every descriptor above the standard three, in case the creator leaked some.
pub fn close_inherited() {
    // SAFETY: called first thing in a process that owns no descriptors yet besides the standard three.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
    }
}

/// Takes over a standard descriptor, replaces it by /dev/null and returns the original.
///
/// # Errors
/// It is not open.
pub fn take_standard(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl creates a new descriptor that is not owned elsewhere.
    let taken = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if taken < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just created, not owned elsewhere.
    let taken = unsafe { OwnedFd::from_raw_fd(taken) };
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    // SAFETY: both descriptors are open; the old one is replaced in one step.
    if unsafe { libc::dup2(null.as_raw_fd(), number) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(taken)
}
