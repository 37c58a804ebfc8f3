//! `ray job submit … -- python3 -m verl…`: the command only waits for a job on a cluster, and may die without it.
//!
//! Each attempt's job gets an id from us, so that it can be queried and stopped whatever happened to the command that
//! submitted it.

use supervise_core::id::{AttemptNo, RunId};

/// Options of `ray job submit` that say how to reach the cluster; each has a value.
const REACHING: [&str; 3] = ["--address", "--headers", "--verify"];
const NAMING: [&str; 2] = ["--submission-id", "--job-id"];

/// The id of an attempt's job.
#[must_use]
pub fn id(run: &RunId, attempt: AttemptNo) -> String {
    format!("supervise-{run}-{attempt}")
}

/// Position of `ray job submit` in a command, and where its own words end.
fn submit(command: &[String]) -> Option<(usize, usize)> {
    let at = command.windows(3).position(|words| match words {
        [ray, job, submit] => ray.rsplit('/').next() == Some("ray") && job == "job" && submit == "submit",
        _ => false,
    })?;
    let ours = command.iter().skip(at).position(|w| w == "--");
    Some((at, ours.map_or(command.len(), |n| at + n)))
}

/// Returns true if `ray job submit …` is anywhere in the command.
#[must_use]
pub fn submits(command: &[String]) -> bool {
    submit(command).is_some()
}

/// Names the job; Ray would refuse an id from the command the second time. Returns the change as text.
pub(crate) fn name(command: &mut Vec<String>, id: &str) -> Option<String> {
    let (at, end) = submit(command)?;
    let mut taken = None;
    let mut n = at + 3;
    let mut end = end;
    while n < end {
        match option(command, n, end, &NAMING) {
            Some((value, words)) => {
                taken = Some(value);
                command.drain(n..n + words);
                end -= words;
            }
            None => n += 1,
        }
    }
    command.insert(at + 3, format!("--submission-id={id}"));
    taken.filter(|given| given != id).map(|given| {
        format!("ray job submit's --submission-id={given} becomes {id}: each attempt is a job of its own, and is stopped by its name")
    })
}

/// Builds the command that stops a job and waits until it has stopped; `None` if the command submits none.
#[must_use]
pub fn stop(command: &[String], id: &str) -> Option<Vec<String>> {
    let (at, end) = submit(command)?;
    let mut out = command.get(..at + 2)?.to_vec();
    // Words before `ray` run it (`env A=1`).
    out.push("stop".to_owned());
    let mut n = at + 3;
    while n < end {
        let found = option(command, n, end, &REACHING).map_or(0, |(_, words)| words);
        out.extend(command[n..n + found].iter().cloned());
        n += found.max(1);
    }
    out.push(id.to_owned());
    Some(out)
}

/// One of these options at this position: its value, and how many words it takes.
fn option(command: &[String], at: usize, end: usize, names: &[&str]) -> Option<(String, usize)> {
    let word = command.get(at)?;
    let (name, value) = word
        .split_once('=')
        .map_or((word.as_str(), None), |(n, v)| (n, Some(v)));
    if !names.contains(&name) {
        return None;
    }
    match value {
        Some(value) => Some((value.to_owned(), 1)),
        None if at + 1 < end => Some((command.get(at + 1)?.clone(), 2)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_job_is_named_once_and_stopped_by_that_name() {
        for (before, given) in [
            ("/v/bin/ray job submit --address http://h:1 -- python3 -m m a=1", None),
            (
                "/v/bin/ray job submit --submission-id=mine --address http://h:1 -- python3 -m m a=1",
                Some("mine"),
            ),
            (
                "/v/bin/ray job submit --job-id mine --address http://h:1 -- python3 -m m a=1",
                Some("mine"),
            ),
        ] {
            let mut command = words(before);
            let note = name(&mut command, "ours-1");
            assert_eq!(
                note.is_some_and(|n| n.contains("=mine becomes ours-1")),
                given.is_some(),
                "{before}"
            );
            let named = "/v/bin/ray job submit --submission-id=ours-1 --address http://h:1 -- python3 -m m a=1";
            assert_eq!(command.join(" "), named);
            // Our own id is not reported.
            assert_eq!(name(&mut command, "ours-1"), None);
            assert_eq!(command.join(" "), named);
        }
        // Words after `--` belong to the trainer.
        let mut command = words("ray job submit -- python3 -m m --submission-id=x");
        assert_eq!(name(&mut command, "ours-1"), None);
        assert_eq!(
            command.join(" "),
            "ray job submit --submission-id=ours-1 -- python3 -m m --submission-id=x"
        );
    }

    #[test]
    fn it_is_stopped_where_it_was_submitted() {
        let command = words(
            "env A=1 ray job submit --address=http://h:1 --working-dir . --verify no --no-wait -- python3 -m m --address=x",
        );
        let stopped = stop(&command, "ours-1").unwrap_or_default();
        assert_eq!(
            stopped.join(" "),
            "env A=1 ray job stop --address=http://h:1 --verify no ours-1"
        );
        assert_eq!(stop(&words("python3 -m m"), "ours-1"), None);
    }
}
