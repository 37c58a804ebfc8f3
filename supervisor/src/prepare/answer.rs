//! Places on file systems that do not answer: looked at by a process that may be left behind, and waited for in words.

use crate::printer;
use camino::{Utf8Path, Utf8PathBuf};
use std::time::Duration;
use supervise_host::lane::{Client, LaneError, Question};

/// A file system has this long to answer before anything is said.
const PATIENCE: Duration = Duration::from_secs(5);
/// Then it is waited for: a mount comes back, or a person ends this.
const ANOTHER: Duration = Duration::from_secs(600);

/// Returns when every place can be looked at: whoever does so while a mount hangs cannot be stopped, and says nothing.
///
/// No process can be started to look: the places are taken as they are, and the launch says what is wrong.
pub(super) fn wait_for(places: impl IntoIterator<Item = Utf8PathBuf>) {
    let Ok(mut lane) = lane() else { return };
    for place in places {
        if answers(&mut lane, &place, PATIENCE) {
            continue;
        }
        printer::err(&format!(
            "waiting: the file system under {place} does not answer (SIGTERM or Ctrl-C ends this)\n"
        ));
        loop {
            let Ok(another) = self::lane() else { return };
            lane = another;
            if answers(&mut lane, &place, ANOTHER) {
                break;
            }
        }
    }
}

fn lane() -> Result<Client, LaneError> {
    Client::start(&std::env::current_exe()?)
}

/// A name that was never looked up is asked for: the answer is in no cache. Any answer will do.
fn answers(lane: &mut Client, place: &Utf8Path, limit: Duration) -> bool {
    let run_dir = place.join(format!(".supervise-probe-{}", std::process::id()));
    !matches!(lane.ask(Question::Peek { run_dir }, limit), Err(LaneError::Stalled(_)))
}
