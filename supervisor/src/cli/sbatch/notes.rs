//! Warns about options of sbatch that work against the run.

use crate::render::count;
use crate::render::sbatch::Batch;
use crate::render::time::span;
use std::time::Duration;
use supervise_core::id::Ms;
use supervise_trainers::MachineCount;

pub(super) fn notes(batch: &Batch, spares: u32) -> Vec<String> {
    let mut out: Vec<String> = given(&batch.options)
        .into_iter()
        .filter_map(|(option, value)| against(batch, option, value))
        .collect();
    out.extend(match batch.machines {
        None => {
            Some("how many machines and GPUs the run needs is not known: give --nodes and --gres after `--`".to_owned())
        }
        Some(MachineCount { nodes, .. }) if nodes > 1 && !batch.gang => Some(format!(
            "the trainer is started on the first of {nodes} nodes: a Ray cluster over all of them is started by lines of your own before `exec`"
        )),
        Some(_) if spares > batch.spares => Some(format!(
            "gang.spares: {spares}: it counts where ranks or Ray are started on several nodes, and this run has none to spare"
        )),
        Some(_) => None,
    });
    out
}

/// Options with their values, each as one argument, two, or a letter followed by its value. The last of a kind counts, as for
/// sbatch.
fn given(words: &[String]) -> Vec<(&str, &str)> {
    let mut out: Vec<(&str, &str)> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let follows = || {
            words
                .get(at + 1)
                .map(String::as_str)
                .filter(|next| !next.starts_with('-'))
        };
        let (option, value) = match word.strip_prefix("--") {
            Some(_) => word.split_once('=').unwrap_or((word, follows().unwrap_or_default())),
            None if !word.starts_with('-') => continue,
            None if word.len() > 2 && word.is_char_boundary(2) => word.split_at(2),
            None => (word.as_str(), follows().unwrap_or_default()),
        };
        out.retain(|(known, _)| long(known) != long(option));
        out.push((option, value));
    }
    out
}

/// The long form of an option that is checked.
fn long(option: &str) -> &str {
    match option {
        "-a" => "--array",
        "-D" => "--chdir",
        "-N" => "--nodes",
        "-t" => "--time",
        "-G" => "--gpus",
        other => other,
    }
}

/// What an option costs the run, if anything.
fn against(batch: &Batch, option: &str, value: &str) -> Option<String> {
    let what = match long(option) {
        "--signal" => signal(batch, value)?,
        "--no-requeue" => "the job is not started again after a failure of its node".to_owned(),
        "--array" => "each task of the array is the same run, and only one of them can hold it".to_owned(),
        "--chdir" if value != batch.cwd => format!("paths of the run are relative to it, and no more to {}", batch.cwd),
        "--open-mode" if value.starts_with(['t', 'T']) => {
            "a job that is requeued loses the output from before".to_owned()
        }
        "--export" if !value.split(',').any(|name| name.eq_ignore_ascii_case("ALL")) => {
            "the job has nothing else of this shell's environment: `PATH`, the Python environment and tokens too have to be in it, or in the script"
                .to_owned()
        }
        "--nodes" => nodes(batch, value)?,
        "--gres" | "--gpus-per-node" | "--gpus" => gpus(batch, long(option), value)?,
        "--time" => {
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

/// `[B:]USR1[@SECONDS]`; 60 by default.
fn signal(batch: &Batch, value: &str) -> Option<String> {
    let (which, seconds) = value.split_once('@').unwrap_or((value, "60"));
    let signal = which.strip_prefix("B:").map(|s| s.trim_start_matches("SIG"));
    let notice = batch.notice.as_secs();
    match (signal, seconds.parse::<u64>()) {
        (Some("USR1" | "10"), Ok(seconds)) if seconds >= notice => None,
        (Some("USR1" | "10"), Ok(seconds)) => Some(format!(
            "it comes {seconds} s before the end, and the last save may take {} (`grace.save`, `grace.stop`): {notice} leave it its time",
            told(batch.notice)
        )),
        _ => Some(format!(
            "it counts instead of B:USR1@{notice}, which leaves time for the last save: only SIGUSR1 to the batch process itself (B:) does"
        )),
    }
}

/// `4`, `2-4`: the minimum counts.
fn nodes(batch: &Batch, value: &str) -> Option<String> {
    let needs = batch.machines?.nodes;
    let wanted = needs.saturating_add(batch.spares);
    let least: u32 = value.split('-').next()?.parse().ok().filter(|n| *n > 0)?;
    if least < needs {
        return Some(format!(
            "the run needs {}, and is refused with {least}",
            count(needs.into(), "node")
        ));
    }
    if least < wanted {
        return Some("no node is left for `gang.spares`".to_owned());
    }
    (least > wanted).then(|| format!("the run uses {wanted} of them: what its configuration says counts"))
}

/// `gpu:2`, `gpu:h100:8`, `8`, `none`: per node, or in total (`--gpus`).
fn gpus(batch: &Batch, option: &str, value: &str) -> Option<String> {
    let MachineCount { nodes, gpus } = batch.machines.filter(|m| m.gpus > 0)?;
    let number = |word: &str| word.rsplit(':').next().and_then(|n| n.parse::<u32>().ok());
    let given: u32 = match option {
        "--gres" => {
            let of_gpus = value
                .split(',')
                .filter(|part| *part == "gpu" || part.starts_with("gpu:"));
            of_gpus.map(|part| number(part).unwrap_or(1)).sum()
        }
        _ => value.split(',').map(|part| number(part).unwrap_or_default()).sum(),
    };
    let (needs, of) = match option {
        "--gpus" => (gpus.saturating_mul(nodes), "in all"),
        _ => (gpus, "on each node"),
    };
    (given < needs).then(|| format!("the run needs {} {of}", count(needs.into(), "GPU")))
}

fn told(time: Duration) -> String {
    span(Ms(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
}

/// A time limit as sbatch accepts it: `minutes`, `minutes:seconds`, `hours:minutes:seconds`, or `days-hours[:minutes[:seconds]]`.
/// `None`: no limit (0, `UNLIMITED`).
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
        let words = "-N 2 --time=5 -t7 --export NONE --exclusive -D".split(' ');
        let words: Vec<String> = words.map(str::to_owned).collect();
        let read = [
            ("-N", "2"),
            ("-t", "7"),
            ("--export", "NONE"),
            ("--exclusive", ""),
            ("-D", ""),
        ];
        assert_eq!(given(&words), read);
    }
}
