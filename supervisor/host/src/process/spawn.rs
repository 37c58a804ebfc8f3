//! Starting a program without ever waiting for it.
//!
//! The standard library's way waits until the new process has executed its program, which takes for ever where
//! the program or its directory lies on a dead mount. Here the new process reports through a pipe of its own
//! that its creator polls: closed without a word means that the program runs, eight bytes say what failed.
//!
//! Everything the new process needs is prepared before it is made: between its making and the program it only
//! makes system calls. It leads its own session, has no inherited descriptors, default signal handling, an
//! empty signal mask, and dies with its creator where that is asked for.

#![expect(
    unsafe_code,
    reason = "a process cannot be placed, armed and watched like this with safe calls"
)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Directories where programs are looked for when the environment has no PATH.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Entries of PATH that are tried.
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
    /// Prepares a program that is looked for as the shell would, in the PATH of its own environment.
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
    /// Its standard input.
    pub input: BorrowedFd<'a>,
    /// Its standard output.
    pub output: BorrowedFd<'a>,
    /// Its standard error.
    pub errors: BorrowedFd<'a>,
    /// The cgroup it is born in.
    pub cgroup: Option<CgroupFds<'a>>,
    /// It is killed when its creator ends.
    pub dies_with_creator: bool,
    /// It waits here before its program.
    pub gate: Option<&'a SpawnGate>,
}

/// Keeps new processes from their programs until it is opened; where it is dropped first they end.
#[derive(Debug)]
pub struct SpawnGate {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl SpawnGate {
    /// A closed one.
    ///
    /// # Errors
    /// No pipe can be made.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        Ok(Self { reader, writer })
    }

    /// Lets so many processes go on.
    ///
    /// # Errors
    /// Report of the kernel.
    pub fn open(self, waiting: usize) -> io::Result<()> {
        let words = vec![0; waiting];
        match nix::unistd::write(&self.writer, &words)? == waiting {
            true => Ok(()),
            false => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

/// A cgroup, by its directory and by the file that lets a process in.
#[derive(Debug, Clone, Copy)]
pub struct CgroupFds<'a> {
    /// The directory.
    pub directory: BorrowedFd<'a>,
    /// `cgroup.procs`.
    pub entrance: BorrowedFd<'a>,
}

/// A process that was made.
#[derive(Debug)]
pub struct SpawnedProcess {
    /// Its number.
    pub pid: i32,
    /// Ends without a byte once the program runs; else holds a [`Refusal`].
    pub report: OwnedFd,
}

/// Why a program does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpawnError {
    /// The step that failed.
    pub stage: SpawnStage,
    /// The error number.
    pub errno: i32,
}

/// The steps between the making of a process and its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpawnStage {
    /// Changing to its working directory.
    Directory,
    /// Executing the program.
    Execute,
    /// Descriptors and the like.
    Setup,
}

/// Length of a refusal on the pipe.
pub const REFUSAL_LEN: usize = 8;

impl SpawnError {
    /// Reads what a new process wrote.
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

    /// The error.
    #[must_use]
    pub fn error(&self) -> io::Error {
        io::Error::from_raw_os_error(self.errno)
    }
}

const STAGE_SETUP: c_int = 0;
const STAGE_DIRECTORY: c_int = 1;
const STAGE_EXECUTE: c_int = 2;

/// Everything a new process touches, as plain numbers and pointers.
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

/// Makes a process that will execute the program.
///
/// # Errors
/// No process can be made (limits, memory).
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

/// Makes a second process of this one: its number in the older, nothing in the younger.
///
/// # Errors
/// No process can be made (limits, memory).
pub(crate) fn split() -> io::Result<Option<i32>> {
    // SAFETY: the caller has one thread, so that no lock is held by another one in the new process.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid)),
    }
}

/// Lets a program that is started later die with this thread, and gives it this signal mask.
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

/// The pointers that execve wants; for a script without a first line the shell comes first.
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

/// Makes a process inside a cgroup: no moment outside, and none of the milliseconds that moving it costs.
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
            // Whether it got in shows in the cgroup's list of members: without it we sweep.
            libc::write(entrance, c"0".as_ptr().cast(), 1);
        }
        let wired =
            libc::dup2(birth.input, 0) == 0 && libc::dup2(birth.output, 1) == 1 && libc::dup2(birth.errors, 2) == 2;
        if !wired {
            refuse(birth, STAGE_SETUP);
        }
        // Not to be closed yet: the report must live until the program runs. Without the call (before 5.9)
        // our own descriptors close by themselves anyway.
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 4 /* CLOSE_RANGE_CLOEXEC */);
        reset_signals();
        if let Some((reader, writer)) = birth.gate {
            // Held by those that wait as well, it would never end.
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
    // SAFETY: see above; execve returns only where it failed.
    unsafe {
        for file in birth.candidates {
            libc::execve(file.as_ptr(), birth.argv.as_ptr(), birth.env.as_ptr());
            match *libc::__errno_location() {
                libc::ENOEXEC => {
                    // The second entry takes the place of the program's name: the shell wants the file there.
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

/// Closes every descriptor above the standard three: what a careless creator leaked must not be held open.
pub fn close_inherited() {
    // SAFETY: called first thing in a process that owns no descriptors yet beside the standard three.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
    }
}

/// Takes a standard descriptor away, puts /dev/null in its place and returns what it was.
///
/// # Errors
/// It is not open.
pub fn take_standard(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl makes a new descriptor that nobody else owns.
    let taken = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if taken < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, owned by nobody.
    let taken = unsafe { OwnedFd::from_raw_fd(taken) };
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    // SAFETY: both descriptors are open; the old one is replaced in one step.
    if unsafe { libc::dup2(null.as_raw_fd(), number) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(taken)
}
