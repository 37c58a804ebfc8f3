//! The GPUs of this machine, in the words of `nvidia-smi`: a process of its own, for its calls can hang for ever on a sick device.

use crate::evidence::said;
use std::time::Duration;
use supervise_core::gpu::{DEVICE_FIELDS, Device, Named, OWNER_FIELDS, Owner, devices, is_any_in_use, owners};

/// It is given up after this; where it hangs in the kernel it is left there.
const LIMIT: Duration = Duration::from_secs(10);

/// Devices and who uses them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gpus {
    /// All that the driver lists; empty where there is no driver.
    pub devices: Vec<Device>,
    /// Processes on them; asked only where one that is named is not empty.
    pub owners: Vec<Owner>,
}

/// Asks. Blocks, at most twice the limit.
///
/// # Errors
/// There is a driver, and it does not say.
pub fn look(named: &Named) -> Result<Gpus, String> {
    let query = |what: &str, fields: &str| {
        let query = format!("--query-{what}={fields}");
        let words = ["nvidia-smi", query.as_str(), "--format=csv,noheader,nounits"];
        said(&words, LIMIT).map_err(|why| why.map(|why| format!("nvidia-smi: {why}")))
    };
    let devices = match query("gpu", DEVICE_FIELDS) {
        Ok(text) => devices(&text),
        Err(None) => return Ok(Gpus::default()),
        Err(Some(why)) => return Err(why),
    };
    let owners = match is_any_in_use(named, &devices) {
        true => owners(&query("compute-apps", OWNER_FIELDS).unwrap_or_default()),
        false => Vec::new(),
    };
    Ok(Gpus { devices, owners })
}
