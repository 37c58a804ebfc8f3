//! Facts about one log.

use crate::diagnosis::log_encoding::Shape;
use crate::diagnosis::runs::Runs;
use crate::diagnosis::steps::LogSteps;

#[derive(Debug, Default, Clone)]
pub(in crate::diagnosis) struct ParsedLog {
    pub(in crate::diagnosis) steps: LogSteps,
    /// Step and total of the last record that has both.
    pub(in crate::diagnosis) last: Option<(u64, u64)>,
    /// Last planned step, if a separate line says it.
    pub(in crate::diagnosis) planned: Option<u64>,
    /// Whether it says that training is over, or that its process exited with success.
    pub(in crate::diagnosis) says_end: bool,
    pub(in crate::diagnosis) exited: bool,
    /// Line that says that training finished, if no step follows.
    pub(in crate::diagnosis) done: Option<u64>,
    /// Whether an end before the last step was intended.
    pub(in crate::diagnosis) wanted: bool,
    /// Whether training began, even without a finished step.
    pub(in crate::diagnosis) began: bool,
    /// Whether GPU memory is held by a process that has exited.
    pub(in crate::diagnosis) orphan: bool,
    /// World size that wrote its checkpoint shards, and whether there are two.
    pub(in crate::diagnosis) world: Option<u64>,
    pub(in crate::diagnosis) other_world: bool,
    pub(in crate::diagnosis) node_gone: bool,
    /// Whether a resume was ordered or started.
    pub(in crate::diagnosis) resumes: bool,
    pub(in crate::diagnosis) shape: Shape,
    pub(in crate::diagnosis) runs: Runs,
    /// Whether it is the log of a server, and the first line that says that the server shuts down.
    pub(in crate::diagnosis) serves: bool,
    pub(in crate::diagnosis) shut: Option<(u64, Vec<u8>)>,
}

impl ParsedLog {
    /// Returns true if it shows a step or the end of training.
    pub(in crate::diagnosis) fn shows_life(&self) -> bool {
        self.steps.count > 0 || self.says_end || self.exited || self.done.is_some()
    }
}
