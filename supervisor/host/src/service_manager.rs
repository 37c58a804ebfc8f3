//! The service manager that started this process (systemd): status messages and the watchdog.
//!
//! Source: sd_notify(3), sd_watchdog_enabled(3). Messages are datagrams of `NAME=VALUE` lines to the socket in
//! `NOTIFY_SOCKET`. Nothing here blocks, and a manager that does not listen changes nothing.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use supervise_core::id::Ms;

/// Variables for this process only: workers that had them would send messages in our name.
pub const OWN_VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// The connection to the service manager, if there is one.
#[derive(Debug, Default)]
pub struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// It kills us if we send nothing for this long.
    watchdog: Option<Ms>,
}

impl ServiceManager {
    /// Finds it by the variables of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        let get = |name: &str| std::env::var(name).ok();
        let socket = get("NOTIFY_SOCKET").and_then(|at| connect(&at).ok());
        let meant = get("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let watchdog = get("WATCHDOG_USEC").and_then(|us| us.parse::<u64>().ok());
        Self {
            watchdog: watchdog
                .filter(|us| *us > 0 && meant && socket.is_some())
                .map(|us| Ms(us / 1000)),
            socket,
        }
    }

    /// Returns true if there may be a listener.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// It kills us if we send nothing for this long.
    #[must_use]
    pub fn watchdog(&self) -> Option<Ms> {
        self.watchdog
    }

    /// Sends lines of `NAME=VALUE`. Returns false if they cannot be sent now.
    pub fn say(&self, lines: &str) -> bool {
        self.socket.as_ref().is_some_and(|s| s.send(lines.as_bytes()).is_ok())
    }
}

fn connect(at: &str) -> std::io::Result<UnixDatagram> {
    let address = match at.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(at)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
