//! Operators' requests to a running supervisor: over the control socket, or left in the run directory.

use super::Driver;
use crate::control::{ControlReply, ControlRequest, LeftRequest};
use supervise_core::decide::save_requests::cannot_save;
use supervise_core::event::{EventKind, OperatorRequest};

impl Driver {
    pub(super) fn obey(&mut self, request: ControlRequest) -> ControlReply {
        let request = match request {
            ControlRequest::Status => {
                return ControlReply::Status {
                    state: Box::new(self.state.clone()),
                    spec: Box::new(self.spec.clone()),
                    ledger: Box::new(self.ledger.clone()),
                };
            }
            ControlRequest::Stop { after_save, now, by } => {
                let by = by.unwrap_or_else(|| "supervise stop".to_owned());
                match now {
                    true => OperatorRequest::StopNow { by },
                    false => OperatorRequest::Stop {
                        after_save,
                        by,
                        left: None,
                    },
                }
            }
            ControlRequest::Save { by } => match cannot_save(&self.state, &self.spec) {
                Some(why) => return ControlReply::Refused(why),
                None => OperatorRequest::Save { by },
            },
            ControlRequest::Hold { by, why } => OperatorRequest::Hold { by, why },
            ControlRequest::Unhold { .. } if self.state.requests.held.is_none() => {
                return ControlReply::Refused("nobody holds the run".to_owned());
            }
            ControlRequest::Unhold { by } => OperatorRequest::Unhold { by },
        };
        self.feed(EventKind::Operator(request));
        ControlReply::Done
    }

    /// Obeys a request that was left in the run directory. The journal is the reply.
    pub(super) fn on_left(&mut self, text: &str) {
        match serde_json::from_slice::<LeftRequest>(text.as_bytes()) {
            Ok(left) if left.term == self.state.term => {
                if let ControlReply::Refused(why) = self.obey(left.request) {
                    self.printer
                        .note(&format!("a request in the run directory is refused: {why}"));
                }
            }
            Ok(left) => self.printer.note(&format!(
                "a request in the run directory is left alone: it was for the supervisor of term {}",
                left.term
            )),
            Err(e) => tracing::warn!("a request in the run directory that is none: {e}"),
        }
    }
}
