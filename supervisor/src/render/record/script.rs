//! Actions of a launch script, as text.

use crate::render::one_line;
use supervise_core::spec::script::ScriptNews;

const FOREIGN: usize = 300;

pub(super) fn words(news: &ScriptNews) -> String {
    match news {
        ScriptNews::Refused { why } => format!("the script was refused the start: {}", one_line(why, FOREIGN)),
        ScriptNews::Unmarked { what } => format!(
            "the script started a trainer without our overrides: {}",
            one_line(what, FOREIGN)
        ),
        ScriptNews::Again => "the script wants to start a trainer again".to_owned(),
        ScriptNews::Called { what, .. } => format!("the script calls the trainer: {}", one_line(what, FOREIGN)),
        ScriptNews::Returned { what, status } => {
            format!(
                "the trainer of the script {}: {}",
                status.words(),
                one_line(what, FOREIGN)
            )
        }
        ScriptNews::HeldBack { what, .. } => {
            format!(
                "another training of the script was held back: {}",
                one_line(what, FOREIGN)
            )
        }
        ScriptNews::Spoilt { what } => {
            format!(
                "the script removed the step to resume from: {}",
                one_line(what, FOREIGN)
            )
        }
        ScriptNews::Failed { status } => format!("the training ended well, the script {}", status.words()),
    }
}
