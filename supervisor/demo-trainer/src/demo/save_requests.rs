//! Requests for a save: the launcher writes a number into a file, and the trainer saves at the next step boundary.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use super::failure::Failure;

/// Names the file with the newest request.
const VARIABLE: &str = "SUPERVISE_SAVE_REQUEST";

/// The file of requests, and the last one that was served.
#[derive(Debug)]
pub struct SaveRequests {
    file: Option<PathBuf>,
    served: u64,
}

impl SaveRequests {
    /// Requests as the environment says; none if `answers` is not set.
    pub fn from_environment(answers: bool) -> Self {
        let file = std::env::var_os(VARIABLE).filter(|_| answers).map(PathBuf::from);
        SaveRequests { file, served: 0 }
    }

    /// Whether there can be any, at every rank alike.
    pub fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// Serves a new request by saving this step. For rank 0 only.
    pub fn serve(&mut self, step: u64) -> Result<bool, Failure> {
        let Some(file) = &self.file else { return Ok(false) };
        // What is no number is no request.
        let text = fs::read_to_string(file).unwrap_or_default();
        let Some(id) = text.trim().parse().ok().filter(|id| *id > self.served) else {
            return Ok(false);
        };
        self.served = id;
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = serde_json::json!({ "id": id, "step": step, "at": at.as_secs_f64() });
        let answers = file.with_file_name("save-answers");
        let opened = OpenOptions::new().append(true).create(true).open(&answers);
        opened
            .and_then(|mut f| f.write_all(format!("{line}\n").as_bytes()))
            .map_err(|e| Failure::file("answer_save_request", &answers, &e))?;
        Ok(true)
    }
}
