//! Inputs of the loop from our own tasks: signals and clients of the control socket.

use super::DriverMessage;
use crate::control::{ControlReply, ControlRequest};
use std::os::unix::net::UnixListener as StdListener;
use std::time::Duration;
use supervise_host::wire;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

/// Longest request, in bytes.
const REQUEST: u64 = 1 << 16;
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Inputs {
    pub(super) internal: mpsc::UnboundedReceiver<DriverMessage>,
    pub(super) signals: mpsc::UnboundedReceiver<i32>,
}

/// Starts the listening tasks.
///
/// # Errors
/// A signal handler cannot be installed.
pub(super) fn connect(control: StdListener) -> std::io::Result<(Inputs, mpsc::UnboundedSender<DriverMessage>)> {
    let (internal_tx, internal) = mpsc::unbounded_channel();
    let (signal_tx, signals) = mpsc::unbounded_channel();
    for kind in [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
    ] {
        let mut stream = signal(kind)?;
        let tx = signal_tx.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                if tx.send(kind.as_raw_value()).is_err() {
                    return;
                }
            }
        });
    }
    // Slurm sends it with every stop; it is ignored.
    let mut stream = signal(SignalKind::from_raw(libc::SIGCONT))?;
    tokio::spawn(async move { while stream.recv().await.is_some() {} });
    control.set_nonblocking(true)?;
    let listener = UnixListener::from_std(control)?;
    tokio::spawn(accept(listener, internal_tx.clone()));
    Ok((Inputs { internal, signals }, internal_tx))
}

async fn accept(listener: UnixListener, tx: mpsc::UnboundedSender<DriverMessage>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(tokio::time::timeout(PATIENCE, serve(stream, tx.clone())));
            }
            // Most likely out of descriptors: do not spin.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve(mut stream: UnixStream, tx: mpsc::UnboundedSender<DriverMessage>) -> std::io::Result<()> {
    let own = supervise_host::system::effective_user();
    let peer = stream.peer_cred()?.uid();
    if peer != own && peer != 0 {
        return Ok(());
    }
    let (read, mut write) = stream.split();
    let mut line = String::new();
    BufReader::new(read).take(REQUEST).read_line(&mut line).await?;
    let reply = match serde_json::from_slice::<ControlRequest>(line.as_bytes()) {
        Ok(request) => {
            let (reply_tx, reply_rx) = oneshot::channel();
            if tx.send(DriverMessage::Asked(request, reply_tx)).is_err() {
                return Ok(());
            }
            reply_rx
                .await
                .unwrap_or_else(|_| ControlReply::Refused("the supervisor is ending".into()))
        }
        Err(e) => ControlReply::Refused(format!("not a request: {e}")),
    };
    write.write_all(&wire::encode(&reply)?).await
}
