//! How a guard receives its order.

use crate::guard::GO;
use crate::guard::protocol::{GuardOrder, ORDER_LIMIT};
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use supervise_core::event::scan::ScanRule;

/// Reads an order, and then the byte to begin: until that arrives, no program is started and nothing on disk changes.
pub(super) struct OrderReader {
    file: BufReader<File>,
    rules: Vec<ScanRule>,
}

impl OrderReader {
    pub(super) fn new(file: File, rules: Vec<ScanRule>) -> Self {
        Self {
            file: BufReader::with_capacity(64 << 10, file),
            rules,
        }
    }

    pub(super) fn read(&mut self) -> io::Result<GuardOrder> {
        let mut line = Vec::new();
        let limit = u64::try_from(ORDER_LIMIT).unwrap_or(u64::MAX);
        let mut limited = (&mut self.file).take(limit.saturating_add(1));
        limited.read_until(b'\n', &mut line)?;
        let mut order: GuardOrder = serde_json::from_slice(&line)?;
        if order.rules.is_empty() {
            order.rules = std::mem::take(&mut self.rules);
        }
        Ok(order)
    }

    pub(super) fn wait_for_word(mut self) -> io::Result<()> {
        let mut word = [0];
        self.file.read_exact(&mut word)?;
        match word == [GO] {
            true => Ok(()),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

pub(super) fn read_json<T: DeserializeOwned>(file: File) -> io::Result<T> {
    let mut json = Vec::new();
    let limit = u64::try_from(ORDER_LIMIT).unwrap_or(u64::MAX);
    file.take(limit.saturating_add(1)).read_to_end(&mut json)?;
    if json.len() > ORDER_LIMIT {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(serde_json::from_slice(&json)?)
}
