//! The GPUs of this machine, by `nvidia-smi`: a separate process, because its calls can hang forever on a broken
//! device.

use crate::evidence::said;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use supervise_core::event::gpu::{
    DEVICE_FIELDS, Device, FOLLOW, GpuIds, GpuProcess, OWNER_FIELDS, ROW_FIELDS, devices, is_any_in_use, note_rows,
    owners, wanted_words,
};

/// Time limit; a process that hangs in the kernel is abandoned.
const LIMIT: Duration = Duration::from_secs(10);

/// Devices, and the processes that use them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GpuReport {
    /// All devices that the driver lists; empty if there is no driver.
    pub devices: Vec<Device>,
    /// Processes on them; only queried if `named` is not empty.
    pub owners: Vec<GpuProcess>,
}

/// A command that prints device activity, one line per second and device, until its output is closed. Starting it for
/// each sample would cost a hundred times the CPU time.
#[must_use]
pub fn follow(named: &GpuIds) -> Command {
    let mut command = Command::new("nvidia-smi");
    command.arg(FOLLOW).args(["--format=csv,noheader,nounits", "--loop=1"]);
    if let Some(words) = wanted_words(named) {
        command.arg(format!("--id={words}"));
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .current_dir("/")
        .process_group(0);
    command
}

/// Queries the GPUs; `rows`: also the remapped rows of their memory. Blocks, at most for twice the limit.
///
/// # Errors
/// There is a driver, but it gives no answer.
pub fn look(named: &GpuIds, rows: bool) -> Result<GpuReport, String> {
    std::thread::scope(|scope| {
        let ask = || query("remapped-rows", ROW_FIELDS).unwrap_or_default();
        let beside = rows.then(|| std::thread::Builder::new().spawn_scoped(scope, ask));
        let mut gpus = devices_and_owners(named)?;
        // Drivers and devices that do not support this query leave it unknown.
        if let Some(Ok(text)) = beside.and_then(Result::ok).map(|thread| thread.join()) {
            note_rows(&mut gpus.devices, &text);
        }
        Ok(gpus)
    })
}

fn query(what: &str, fields: &str) -> Result<String, Option<String>> {
    let query = format!("--query-{what}={fields}");
    let words = ["nvidia-smi", query.as_str(), "--format=csv,noheader,nounits"];
    said(&words, LIMIT).map_err(|why| why.map(|why| format!("nvidia-smi: {why}")))
}

fn devices_and_owners(named: &GpuIds) -> Result<GpuReport, String> {
    let devices = match query("gpu", DEVICE_FIELDS) {
        Ok(text) => devices(&text),
        Err(None) => return Ok(GpuReport::default()),
        Err(Some(why)) => return Err(why),
    };
    let owners = match is_any_in_use(named, &devices) {
        true => owners(&query("compute-apps", OWNER_FIELDS).unwrap_or_default()),
        false => Vec::new(),
    };
    Ok(GpuReport { devices, owners })
}
