//! What a person should know of a batch script: options of sbatch that work against the run.

use crate::render::sbatch::Batch;
use crate::render::time::span;
use std::time::Duration;
use supervise_core::id::Ms;
use supervise_trainers::Machines;

/// Notes for a person to act on.
pub(super) fn notes(batch: &Batch, spares: u32) -> Vec<String> {
    let mut out: Vec<String> = given(&batch.options)
        .filter_map(|(option, value)| against(batch, option, value))
        .collect();
    out.extend(match batch.machines {
        None => {
            Some("how many machines and GPUs the run needs is not known: give --nodes and --gres after `--`".to_owned())
        }
        Some(Machines { nodes, .. }) if nodes > 1 && !batch.gang => Some(format!(
            "the trainer is started on the first of {nodes} nodes: a Ray cluster over all of them is started by lines of your own before `exec`"
        )),
        Some(_) if spares > batch.spares => Some(format!(
            "gang.spares: {spares}: it counts where ranks or Ray are started on several nodes, and this run has none to spare"
        )),
        Some(_) => None,
    });
    out
}

/// Options with their values, each as one word, two, or a letter with its value behind it.
fn given(words: &[String]) -> impl Iterator<Item = (&str, &str)> {
    words.iter().enumerate().filter_map(|(at, word)| {
        let follows = || {
            words
                .get(at + 1)
                .map(String::as_str)
                .filter(|next| !next.starts_with('-'))
        };
        match word.strip_prefix("--") {
            Some(_) => Some(match word.split_once('=') {
                Some(both) => both,
                None => (word.as_str(), follows().unwrap_or_default()),
            }),
            None if word.starts_with('-') && word.len() > 2 && word.is_char_boundary(2) => Some(word.split_at(2)),
            None if word.starts_with('-') => Some((word.as_str(), follows().unwrap_or_default())),
            None => None,
        }
    })
}

/// The loss that an option is for the run, if any.
fn against(batch: &Batch, option: &str, value: &str) -> Option<String> {
    let what = match option {
        "--signal" => {
            "it counts instead of the signal that is written here, which leaves time for the last save".to_owned()
        }
        "--no-requeue" => "the job is not started again after a failure of its node".to_owned(),
        "-a" | "--array" => "each task of the array is the same run, and only one of them can hold it".to_owned(),
        "-D" | "--chdir" => format!("paths of the run are relative to it, and no more to {}", batch.cwd),
        "--open-mode" if value.starts_with('t') => "a job that is requeued loses the output from before".to_owned(),
        "--export" if !value.split(',').any(|name| name == "ALL") => {
            "the job has nothing else of this shell's environment: `PATH`, the Python environment and tokens too have to be in it, or in the script"
                .to_owned()
        }
        "-N" | "--nodes" => {
            let wanted = batch.machines?.nodes.saturating_add(batch.spares);
            let least: u32 = value.split('-').next()?.parse().ok().filter(|n| *n != wanted)?;
            match least < wanted {
                true => format!("the run needs {wanted} nodes, and is refused with {least}"),
                false => format!("the run uses {wanted} of {least} nodes: what its configuration says counts"),
            }
        }
        "-t" | "--time" => {
            let limit = limit(value).filter(|limit| *limit <= batch.notice)?;
            format!(
                "{} is no more than the {} that are kept for the last save (`grace.save`, `grace.stop`): the job hands its time back as it begins",
                told(limit),
                told(batch.notice)
            )
        }
        _ => return None,
    };
    let both = match (option.starts_with("--"), value) {
        (_, "") => option.to_owned(),
        (true, value) => format!("{option}={value}"),
        (false, value) => format!("{option} {value}"),
    };
    Some(format!("{both}: {what}"))
}

fn told(time: Duration) -> String {
    span(Ms(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
}

/// A time limit as sbatch takes it: `minutes`, `minutes:seconds`, `hours:minutes:seconds`, each of the last two and
/// `days-hours[:minutes[:seconds]]`. Without a limit (0, `UNLIMITED`): none.
fn limit(text: &str) -> Option<Duration> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(days.parse::<u64>().ok()?), rest),
        None => (None, text),
    };
    let parts: Option<Vec<u64>> = rest.split(':').map(|part| part.parse().ok()).collect();
    let seconds = match (days, parts?.as_slice()) {
        (None, [m]) => m.checked_mul(60)?,
        (None, [m, s]) => m.checked_mul(60)?.checked_add(*s)?,
        (_, [h, m, s]) => hours(*h, *m, *s)?,
        (Some(_), [h]) => hours(*h, 0, 0)?,
        (Some(_), [h, m]) => hours(*h, *m, 0)?,
        _ => return None,
    };
    let all = days.unwrap_or(0).checked_mul(86_400)?.checked_add(seconds)?;
    (all > 0).then(|| Duration::from_secs(all))
}

fn hours(h: u64, m: u64, s: u64) -> Option<u64> {
    h.checked_mul(60)?.checked_add(m)?.checked_mul(60)?.checked_add(s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limits_are_read_as_sbatch_reads_them() {
        let seconds = |text: &str| limit(text).map(|d| d.as_secs());
        let cases = [
            ("5", Some(300)),
            ("5:30", Some(330)),
            ("1:00:00", Some(3600)),
            ("1-0", Some(86_400)),
            ("1-2:30", Some(95_400)),
            ("0-0:0:9", Some(9)),
            ("0", None),
            ("UNLIMITED", None),
            ("1:2:3:4", None),
            ("99999999999999999999", None),
            ("999999999999999999-0", None),
        ];
        for (text, expected) in cases {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn options_are_read_in_every_form() {
        let words: Vec<String> = "-N 2 --time=5 -t7 --export NONE --exclusive -D"
            .split(' ')
            .map(str::to_owned)
            .collect();
        let read: Vec<(&str, &str)> = given(&words).collect();
        assert_eq!(
            read,
            [
                ("-N", "2"),
                ("--time", "5"),
                ("-t", "7"),
                ("--export", "NONE"),
                ("--exclusive", ""),
                ("-D", "")
            ]
        );
    }
}
