//! Text about stacks.

use super::{PyFrame, RankProcess, StackGroup, Stacks, WaitKind, waits};

const TOLD: usize = 3;
const LISTED: usize = 6;
const PATH: usize = 80;

impl Stacks {
    /// The first two groups as text, if one rank differs or there are no more groups; else `None`.
    #[must_use]
    pub fn named(&self) -> Option<String> {
        let few = self.odd().is_some() || matches!(self.groups.len(), 1 | 2);
        few.then(|| self.told().take(2).collect::<Vec<_>>().join("; "))
    }

    /// Groups as text, first the one that the others may be waiting for.
    pub fn told(&self) -> impl Iterator<Item = String> {
        self.groups.iter().take(TOLD).map(StackGroup::words)
    }

    /// A list for a file: each group with its frames.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = String::new();
        for group in &self.groups {
            out.push_str(&format!("{}\n", group.words()));
            for f in &group.frames {
                out.push_str(&format!("{f}\n"));
            }
            out.push('\n');
        }
        if !self.silent.is_empty() {
            let silent: Vec<String> = self.silent.iter().map(ToString::to_string).collect();
            out.push_str(&format!("no stack of Python: worker {}\n\n", silent.join(", ")));
        }
        out
    }
}

impl StackGroup {
    /// `worker 1 (pid 77) stands in spin (/home/me/train.py:33)`.
    fn words(&self) -> String {
        let verb = match (waits(&self.frames), self.size()) {
            (WaitKind::No, 1) => "stands",
            (WaitKind::No, _) => "stand",
            (_, 1) => "waits",
            (_, _) => "wait",
        };
        let Some(inner) = self.frames.first() else {
            return self.names();
        };
        let caller = self.frames.iter().find(|f| is_own(f)).filter(|f| *f != inner);
        let caller = caller.map(|f| format!(", called in {}", place(f))).unwrap_or_default();
        format!("{} {verb} in {}{caller}", self.names(), place(inner))
    }

    fn names(&self) -> String {
        let (workers, others): (Vec<&RankProcess>, Vec<&RankProcess>) = self.who.iter().partition(|w| w.depth == 0);
        let mut out = Vec::new();
        match workers.as_slice() {
            [] => {}
            [one] => out.push(format!("worker {} (pid {})", one.worker, one.pid)),
            many => out.push(format!("workers {}", list(many.iter().map(|w| w.worker.to_string())))),
        }
        match others.as_slice() {
            [] => {}
            [one] => out.push(format!("process {} of worker {}", one.pid, one.worker)),
            many => out.push(format!("processes {}", list(many.iter().map(|w| w.pid.to_string())))),
        }
        if self.more > 0 {
            out.push(format!("{} more", self.more));
        }
        out.join(" and ")
    }
}

fn list(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    let more = match names.len().saturating_sub(LISTED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let first = names.get(..LISTED.min(names.len())).unwrap_or_default();
    format!("{}{more}", first.join(", "))
}

/// Returns true for code of the trainer itself rather than of an installed package.
fn is_own(frame: &PyFrame) -> bool {
    let installed = ["/site-packages/", "/dist-packages/", "/lib/python", "/lib64/python"];
    !frame.file.starts_with('<') && !installed.iter().any(|part| frame.file.contains(part))
}

fn place(frame: &PyFrame) -> String {
    let skip = match frame.file.rfind("-packages/") {
        Some(at) => at.saturating_add("-packages/".len()),
        None => 0,
    };
    let file = &frame.file[skip..];
    let from = file.ceil_char_boundary(file.len().saturating_sub(PATH));
    let cut = if from > 0 { "…" } else { "" };
    format!("{} ({cut}{}:{})", frame.function, &file[from..], frame.line)
}

#[cfg(test)]
mod tests {
    use super::super::{PyFrame, RankProcess, RankStack, Stacks};
    use crate::id::WorkerId;

    fn frame(file: &str, line: u32, function: &str) -> PyFrame {
        PyFrame {
            file: file.to_owned(),
            line,
            function: function.to_owned(),
        }
    }

    fn stand(worker: u32, frames: &[PyFrame]) -> RankStack {
        RankStack {
            who: RankProcess {
                worker: WorkerId(worker),
                pid: 100 + i32::try_from(worker).unwrap(),
                depth: 0,
            },
            frames: frames.to_vec(),
        }
    }

    fn all(stands: Vec<RankStack>, workers: u32) -> Stacks {
        let workers: Vec<WorkerId> = (0..workers).map(WorkerId).collect();
        Stacks::of(stands, &workers)
    }

    const REDUCE: &str = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py";

    #[test]
    fn the_rank_that_others_wait_for_comes_first() {
        let waits = [frame(REDUCE, 2810, "all_reduce"), frame("/me/train.py", 40, "step")];
        let spins = [frame("/me/train.py", 33, "spin"), frame("/me/train.py", 39, "step")];
        let found = all(vec![stand(0, &waits), stand(1, &spins), stand(2, &waits)], 4);
        assert_eq!(
            found.named().unwrap(),
            "worker 1 (pid 101) stands in spin (/me/train.py:33); workers 0, 2 wait in all_reduce \
             (torch/distributed/distributed_c10d.py:2810), called in step (/me/train.py:40)"
        );
        assert_eq!(
            (found.odd(), found.silent.as_slice()),
            (Some(WorkerId(1)), &[WorkerId(3)][..])
        );
        assert!(
            found.table().contains("no stack of Python: worker 3"),
            "{}",
            found.table()
        );
        // Of two ranks, the one that waits is known from where it waits.
        assert_eq!(
            all(vec![stand(0, &spins), stand(1, &waits)], 2).odd(),
            Some(WorkerId(0))
        );
    }

    #[test]
    fn a_rank_in_another_collective_is_unlike_the_others_and_equal_ranks_name_nobody() {
        let waits = [frame(REDUCE, 2810, "all_reduce")];
        let other = [frame(REDUCE, 4800, "barrier")];
        let found = all(vec![stand(0, &waits), stand(1, &waits), stand(2, &other)], 3);
        assert_eq!(found.odd(), Some(WorkerId(2)));
        let same = all(vec![stand(0, &waits), stand(1, &waits)], 2);
        assert_eq!(same.odd(), None);
        assert!(same.named().unwrap().starts_with("workers 0, 1 wait in all_reduce "));
        // One against one, both in a collective: it is not known which one is wrong.
        assert_eq!(all(vec![stand(0, &waits), stand(1, &other)], 2).odd(), None);
        let many: Vec<_> = (0..3).map(|n| stand(n, &[frame("/me/train.py", n, "step")])).collect();
        assert_eq!((all(many, 3).named(), all(Vec::new(), 2).named()), (None, None));
    }

    #[test]
    fn a_process_that_waits_for_work_is_left_out() {
        let mut idle = stand(0, &[frame("/lib/python3.11/selectors.py", 415, "select")]);
        idle.who.depth = 1;
        let mut reads = stand(0, &[frame("/me/data.py", 9, "__getitem__")]);
        reads.who = RankProcess {
            depth: 1,
            pid: 7,
            ..reads.who
        };
        let waits = stand(0, &[frame("/lib/python3.11/multiprocessing/connection.py", 9, "poll")]);
        let words = all(vec![waits, idle, reads], 1).named().unwrap();
        assert!(
            words.starts_with("process 7 of worker 0 stands in __getitem__ "),
            "{words}"
        );
        assert!(
            words.ends_with("worker 0 (pid 100) waits in poll (/lib/python3.11/multiprocessing/connection.py:9)"),
            "{words}"
        );
    }
}
