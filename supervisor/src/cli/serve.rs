//! `supervise serve`: pages of the runs and their metrics, read from their directories.
//!
//! Reads only journals and the state of running supervisors, so that the pages are correct without a supervisor. They change
//! nothing without `--allow-actions`. One thread answers requests; reads that may hang (run directories) have their own threads,
//! with deadlines.

mod access;
mod act;
mod answer;
mod child;
mod configuration;
mod connections;
mod listen;
pub(in crate::cli) mod log_tail;
mod machine;
mod origin;
mod output;
mod places;
mod resume;
mod rollback;
pub(in crate::cli) mod runs;
mod site;
pub(in crate::cli) mod story;
mod wishes;

use super::target;
use crate::error::CliError;
use crate::exit::SuperviseExitCode;
use crate::prepare::state_dir;
use crate::printer;
use access::Access;
use camino::Utf8PathBuf;
use futures_util::FutureExt as _;
use futures_util::future::{select, select_all};
use listen::{Owned, socket};
use runs::{RunCache, RunRef};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

/// How long an idle reader thread is kept. Threads take turns: without a limit, those that a burst needed would stay as long as
/// there are requests, each with its stack and allocator cache.
const IDLE: Duration = Duration::from_secs(1);

pub(super) const EXAMPLES: &str =
    "  supervise serve                          every run of this user, on http://127.0.0.1:8617
  supervise serve ppo.yaml --listen none --socket /run/user/1000/supervise.sock
  ssh -L 8617:127.0.0.1:8617 node          then open the link it printed
";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name, identity, YAML, checkpoint root or run directory [default: every run]
    ///
    /// Without it, every run of this user on this machine.
    #[arg(value_name = "RUN")]
    runs: Vec<String>,
    /// Address to listen on; `none`: only the socket
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8617")]
    listen: String,
    /// Unix socket to listen on, for this user only
    ///
    /// Default: `serve.sock` next to the list of runs.
    #[arg(long, value_name = "PATH")]
    socket: Option<Utf8PathBuf>,
    /// Accept this Host header too, for a proxy
    ///
    /// May be given several times.
    #[arg(long, value_name = "NAME[:PORT]")]
    host: Vec<String>,
    /// Let everybody who reaches the address read, without the token
    #[arg(long)]
    public_read: bool,
    /// Let holders of the key act on runs from their pages
    ///
    /// They can stop, hold, release, resume and roll back runs.
    #[arg(long)]
    allow_actions: bool,
}

const STATE_HOME: &str = "set XDG_STATE_HOME to a directory that only you can write to";

pub(super) fn run(args: &Args) -> Result<u8, CliError> {
    let named = args
        .runs
        .iter()
        .map(|n| target::find(n))
        .collect::<Result<Vec<_>, _>>()?;
    let named: Vec<RunRef> = named.into_iter().map(|seen| (seen.run, seen.run_dir)).collect();
    let place = state_dir().ok_or_else(|| {
        CliError::environment("there is no directory for the token that only this user can write to").hint(STATE_HOME)
    })?;
    let failed = |e: std::io::Error| CliError::environment(format!("{place}: {e}")).hint(STATE_HOME);
    // The directory itself may be in `/tmp`, which is not ours.
    supervise_host::io_worker::own_place(&place.join("runs")).map_err(failed)?;
    supervise_host::process::share_heaps();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(IDLE)
        .build();
    let runtime = runtime.map_err(|e| CliError::environment(format!("no event loop: {e}")))?;
    let result = runtime.block_on(serve(args, named, place));
    // Do not wait for a thread that hangs on a file system.
    runtime.shutdown_background();
    result.map(|()| SuperviseExitCode::Finished.code())
}

async fn serve(args: &Args, named: Vec<RunRef>, place: Utf8PathBuf) -> Result<(), CliError> {
    let runs = Arc::new(RunCache::new(named));
    let path = args.socket.clone().unwrap_or_else(|| place.join("serve.sock"));
    let tcp = match args.listen.as_str() {
        "none" => None,
        at => Some(TcpListener::bind(at).await.map_err(|e| cannot_listen(at, &e))?),
    };
    let unix = socket(&path)?;
    let port = tcp.as_ref().and_then(|l| l.local_addr().ok()).map(|at| at.port());
    let access = Access::new(&place, port, args.public_read)?;
    let ahead = runs.clone();
    tokio::spawn(async move { ahead.get_ready().await });
    let site = Arc::new(site::ServeState {
        runs,
        access,
        hosts: hosts(tcp.as_ref(), &args.host),
        followers: Arc::new(Semaphore::new(answer::FOLLOWERS)),
        plans: Semaphore::new(answer::PLANS),
        wishes: wishes::PendingRollbacks::default(),
        allow_actions: args.allow_actions,
    });
    let mut ended = signal(SignalKind::terminate()).map_err(|e| CliError::environment(e.to_string()))?;
    printer::note(&format!("the socket for programs of this user: {path}"));
    if let Some(at) = tcp.as_ref().and_then(|l| l.local_addr().ok()) {
        let link = site.access.link();
        printer::note(&format!(
            "open once, in a browser that is to keep the key: http://{at}/enter/{link}"
        ));
        if !at.ip().is_loopback() {
            printer::err(
                "WARNING: this address is reached from other machines, and nothing is encrypted: put a proxy with TLS before it\n",
            );
        }
    }
    let trusted = connections::hear_owner(Owned(unix), answer::router(&site, true));
    let asked = async {
        match tcp {
            Some(listener) => connections::hear_anyone(listener, answer::router(&site, false)).await,
            None => std::future::pending().await,
        }
    };
    let told = async {
        let ctrl_c = std::pin::pin!(tokio::signal::ctrl_c());
        select(ctrl_c, std::pin::pin!(ended.recv())).await;
    };
    select_all([trusted.boxed(), asked.boxed(), told.boxed()]).await;
    let _ = std::fs::remove_file(&path);
    Ok(())
}

fn cannot_listen(at: &str, e: &std::io::Error) -> CliError {
    if e.kind() == std::io::ErrorKind::InvalidInput {
        return CliError::usage(format!(
            "--listen {at}: expected an address and a port (127.0.0.1:8617), or `none`: {e}"
        ));
    }
    CliError::environment(format!("--listen {at}: {e}"))
        .hint("another port: `--listen 127.0.0.1:0` takes any that is free")
}

/// Accepted names in the `Host` header: another name comes from a foreign page whose name resolves to this machine.
fn hosts(tcp: Option<&TcpListener>, more: &[String]) -> Vec<String> {
    let mut out = more.to_vec();
    if let Some(at) = tcp.and_then(|l| l.local_addr().ok()) {
        let port = at.port();
        out.extend([
            at.to_string(),
            format!("localhost:{port}"),
            format!("127.0.0.1:{port}"),
            format!("[::1]:{port}"),
        ]);
    }
    out
}
