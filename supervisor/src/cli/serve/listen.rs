//! The Unix socket for this user only.

use crate::error::CliError;
use axum::serve::Listener;
use camino::Utf8Path;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream as Probe;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};

/// A listener that accepts only this user and root.
pub(super) struct Owned(pub(super) UnixListener);

impl Listener for Owned {
    type Io = UnixStream;
    type Addr = tokio::net::unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            match self.0.accept().await {
                Ok((stream, at)) if stream.peer_cred().is_ok_and(|c| is_ours(c.uid())) => return (stream, at),
                Ok(_) => {}
                // Probably out of descriptors, which passes.
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

fn is_ours(uid: u32) -> bool {
    uid == supervise_host::system::effective_user() || uid == 0
}

/// Opens the socket; replaces one that has no listener.
pub(super) fn socket(path: &Utf8Path) -> Result<UnixListener, CliError> {
    let failed = |e: io::Error| CliError::environment(format!("{path}: the socket cannot be opened: {e}"));
    match fs::symlink_metadata(path) {
        Ok(m) if m.file_type().is_socket() => {
            if Probe::connect(path).is_ok() {
                return Err(
                    CliError::environment(format!("{path}: another `supervise serve` listens there"))
                        .hint("name another one: --socket PATH, and another address: --listen 127.0.0.1:0"),
                );
            }
            fs::remove_file(path).map_err(failed)?;
        }
        Ok(_) => {
            return Err(CliError::environment(format!(
                "{path}: expected a socket or nothing, found something else"
            )));
        }
        Err(_) => {}
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    // Until then its directory, or the check of the peer's UID, keeps others out.
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}
