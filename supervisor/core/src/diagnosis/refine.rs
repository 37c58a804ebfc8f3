//! Refinements: a second signal in the logs that changes the class of the root or the answer.

use super::log_reader::{LogMatch, LogReader};
use crate::id::Step;
use crate::journal::record::FailureAction;
use crate::rulebook::taxonomy::{self, Class, SecondSignal};

/// Texts of a health probe of an engine.
const PROBES: [&str; 3] = ["ealth", "probe", "consecutive_failures"];

/// Lines below an exception within which an engine says that it dies of it, and above if it prints the traceback last.
const BELOW: u64 = 8;
const ABOVE: u64 = 60;

/// Steps that a run may do between a preemption notice and its end.
const NOTICE: u32 = 8;

fn is_in_a_step(text: &str) -> bool {
    ["/global_step_", "/checkpoint-", "/iter_0"]
        .iter()
        .any(|dir| text.contains(dir))
}

/// Returns true if the hub library was given a path, and finds no folder there: no file of the step is missing.
fn is_without_folder(text: &str) -> bool {
    ["Repo id must", "Incorrect path_or_model_id", "is not a local folder"]
        .iter()
        .any(|words| text.contains(words))
}

impl LogReader {
    /// The refined class of the root, and the answer.
    pub(super) fn refined(&self, root: &LogMatch) -> (Class, FailureAction) {
        let class = root.class;
        let mut refinements = class.row().refinements.iter();
        if let Some(r) = refinements.find(|r| self.applies(r.when, root)) {
            return (r.class, r.action);
        }
        match taxonomy::action(&class.into()) {
            FailureAction::RelaunchOnce if self.came_at_this_step(root) => (class, FailureAction::Stop),
            action => (class, action),
        }
    }

    fn applies(&self, when: SecondSignal, root: &LogMatch) -> bool {
        match when {
            SecondSignal::GpuHeldByAnother => root.steps == 0 && is_occupied(&root.sighting.text),
            SecondSignal::GpuHeldByNobody => self.is_held_by_nobody(root),
            SecondSignal::FirstStep => self.is_first_step(root),
            SecondSignal::OtherWorldSize => self.is_of_another_world(root),
            SecondSignal::InsideStep => is_in_a_step(&root.sighting.text) && !is_without_folder(&root.sighting.text),
            SecondSignal::NodePreempted => self.was_preempted(root),
            SecondSignal::GpusMissing => self.lacks_gpus(root),
            SecondSignal::NodeLost => self.lost_a_node(),
            SecondSignal::EndsEngine => self.ends_an_engine(root),
            SecondSignal::ProbeFailed => self.is_told_twice(root),
            SecondSignal::NamesNode => self.is_one_of_many(root),
        }
    }

    /// Returns true if training began but did not finish a step.
    fn is_first_step(&self, root: &LogMatch) -> bool {
        let stepped = |newest: Option<Step>| newest.is_some_and(|s| s.0 > 0);
        if self.logs.iter().any(|log| stepped(log.steps.newest)) {
            return false;
        }
        let drawn = root.step == Some(Step(0)) && root.steps <= 1;
        drawn || root.steps == 0 && self.logs.iter().any(|log| log.began)
    }

    /// Returns true if an earlier attempt in the same log failed in the same way at this step.
    fn came_at_this_step(&self, root: &LogMatch) -> bool {
        let same = |f: &&LogMatch| f.file == root.file && f.class == root.class && f.step == root.step;
        root.step.is_some() && self.found.iter().filter(same).any(|f| f.steps < root.steps)
    }

    /// Returns true if an engine dies of this exception.
    fn ends_an_engine(&self, root: &LogMatch) -> bool {
        let at = root.sighting.line;
        let near = at.saturating_sub(ABOVE)..=at + BELOW;
        let dies =
            |f: &LogMatch| f.class == Class::EngineVllmDead && f.file == root.file && near.contains(&f.sighting.line);
        self.found.iter().any(dies)
    }

    fn is_held_by_nobody(&self, root: &LogMatch) -> bool {
        root.sighting.text.contains("Free memory on device") && self.logs.iter().any(|log| log.orphan)
    }

    /// A rank opens its model shard first, named after the current world size. A step marked complete has all its shards, named after the
    /// world size that saved it. Other shards may have been lost.
    fn is_of_another_world(&self, root: &LogMatch) -> bool {
        let text = &root.sighting.text;
        let differs = || self.logs.iter().any(|log| log.other_world);
        text.contains("/model_world_size_") || text.contains("_world_size_") && differs()
    }

    fn was_preempted(&self, root: &LogMatch) -> bool {
        let near = |f: &LogMatch| f.file != root.file || f.steps + NOTICE >= root.steps;
        let says = |f: &LogMatch| {
            ["preempt", "spot", "disruptiontarget"]
                .iter()
                .any(|w| f.sighting.text.to_ascii_lowercase().contains(w))
        };
        self.found
            .iter()
            .any(|f| f.class == Class::SchedPreempt && says(f) && near(f))
    }

    fn lacks_gpus(&self, root: &LogMatch) -> bool {
        let asks =
            |f: &LogMatch| f.class == Class::RayResources && f.sighting.text.contains("is less than total desired");
        let after = |f: &&LogMatch| f.file != root.file || f.sighting.line > root.sighting.line;
        self.found.iter().filter(after).any(asks)
    }

    fn lost_a_node(&self) -> bool {
        let lost = |f: &LogMatch| matches!(f.class, Class::NodeLost | Class::NodeReboot | Class::SchedNodeFail);
        self.logs.iter().any(|log| log.node_gone) || self.found.iter().any(lost)
    }

    /// Returns true if both a request and a health probe failed: the engines are not merely slow.
    fn is_told_twice(&self, root: &LogMatch) -> bool {
        let probes = |f: &LogMatch| PROBES.iter().any(|word| f.sighting.text.contains(word));
        let other = |f: &&LogMatch| matches!(f.class, Class::EngineHttp | Class::CommConn);
        self.found.iter().filter(other).any(|f| probes(f) != probes(root))
    }

    /// Returns true if the failure is attributed to one node of several.
    fn is_one_of_many(&self, root: &LogMatch) -> bool {
        let of_srun = |f: &LogMatch| f.sighting.text.starts_with("srun: error: ");
        root.named || is_of_node(&root.sighting.text) || self.found.iter().any(of_srun)
    }
}

/// Returns true if a node name precedes the message.
fn is_of_node(text: &str) -> bool {
    let Some((head, _)) = text.split_once(": ") else {
        return false;
    };
    let name = head.split(' ').next().unwrap_or_default();
    head.split(' ').count() <= 2
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.ends_with(|c: char| c.is_ascii_digit())
        && !name.contains(':')
        && !name.starts_with("python")
}

/// Returns true if another process holds more than twice as much GPU memory as this one.
fn is_occupied(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (mut own, mut pooled, mut other) = (0.0, 0.0, 0.0f64);
    for at in words.windows(4).enumerate() {
        match at {
            (n, ["has", size, unit, "memory"]) => {
                let held = gib(size, unit);
                match n.checked_sub(1).and_then(|before| words.get(before)) {
                    Some(&"process") => own = held,
                    _ => other = other.max(held),
                }
            }
            (_, [size, unit, "is", "allocated" | "reserved"]) => pooled += gib(size, unit),
            _ => {}
        }
    }
    let own = if own > 0.0 { own } else { pooled };
    own > 0.0 && other > 2.0 * own
}

/// A size in GiB; 0 if it is not one.
fn gib(size: &str, unit: &str) -> f64 {
    let size: f64 = size.parse().unwrap_or_default();
    match unit {
        "GiB" => size,
        "MiB" => size / 1024.0,
        "KiB" => size / 1024.0 / 1024.0,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rulebook::taxonomy::FailureClass;

    fn told(log: &str) -> (FailureClass, FailureAction) {
        let mut reading = LogReader::new(&[]).unwrap();
        reading.begin();
        reading.feed(log.as_bytes());
        reading.end_log();
        let v = reading.verdict(Some(1));
        (v.class.unwrap(), v.action.unwrap())
    }

    const FULL: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB.";

    #[test]
    fn out_of_memory_is_answered_by_what_was_done_before() {
        let oom = |action| (Class::MemCudaOom.into(), action);
        assert_eq!(told(FULL), oom(FailureAction::RelaunchOnce));
        assert_eq!(
            told(&format!("step 3\nstep 4\n{FULL}\n")),
            oom(FailureAction::RelaunchOnce)
        );
        let drawn = format!("  0%|          | 0/410 [00:00<?, ?it/s]\n{FULL}\n");
        assert_eq!(told(&drawn), oom(FailureAction::Stop));
        assert_eq!(
            told(&format!("***** Running training *****\n{FULL}\n")),
            oom(FailureAction::Stop)
        );
        assert_eq!(told(&format!("0: training ...\n{FULL}\n")), oom(FailureAction::Stop));
        let attempt = |from: u32| format!("step {from}\nstep {}\nstep 19\n{FULL}\n", from + 1);
        assert_eq!(
            told(&format!("{}{}", attempt(8), attempt(10))),
            oom(FailureAction::Stop)
        );
        let later = format!("{}step 10\nstep 25\n{FULL}\n", attempt(8));
        assert_eq!(told(&later), oom(FailureAction::RelaunchOnce));
    }

    #[test]
    fn memory_that_another_process_holds_is_left_over() {
        let held =
            |who: &str| format!("{FULL} GPU 0 has a total capacity of 79.11 GiB of which 1.01 GiB is free. {who}");
        let other = "Process 40112 has 74.88 GiB memory in use. Including non-PyTorch memory, this process has 3.20 GiB memory in use.";
        assert_eq!(
            told(&held(other)),
            (Class::GpuBusyLeftover.into(), FailureAction::Relaunch)
        );
        // In a container, that is the pid of the process itself.
        let own = "Process 4013 has 78.01 GiB memory in use. Of the allocated memory 30.50 GiB is allocated by PyTorch, and 40.10 GiB is reserved by PyTorch but unallocated.";
        assert_eq!(told(&held(own)).0, Class::MemCudaOom);
        assert_eq!(told(&format!("step 3\nstep 4\n{}", held(other))).0, Class::MemCudaOom);
    }

    #[test]
    fn a_second_signal_changes_the_answer() {
        let gone = "aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected";
        let probe = "engine 3 http://10.0.0.9:15000/health_generate timed out (3/3)";
        assert_eq!(told(gone).1, FailureAction::RelaunchLater);
        assert_eq!(told(&format!("{probe}\n{gone}\n")).1, FailureAction::Relaunch);
        let shard = |n: u32| {
            format!("FileNotFoundError: [Errno 2] No such file or directory: '/c/optim_world_size_{n}_rank_3.pt'")
        };
        let raised = |n: u32| {
            format!(
                "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n{}\n",
                shard(n)
            )
        };
        assert_eq!(told(&raised(4)), (Class::CkptCorrupt.into(), FailureAction::FallBack));
        let first = raised(4).replace("optim_", "model_");
        assert_eq!(told(&first), (Class::CkptMismatch.into(), FailureAction::Stop));
        let others = format!(
            "{}extra_state_world_size_8_rank_0.pt  model_world_size_8_rank_0.pt\n",
            raised(4)
        );
        assert_eq!(told(&others), (Class::CkptMismatch.into(), FailureAction::Stop));
        let raised = |e: &str| format!("Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n{e}\n");
        let cancelled = raised("RuntimeError: cancelled");
        assert_eq!(told(&cancelled).0, Class::CodeException);
        let dead = format!("{cancelled}(EngineCore_DP0 pid=3011) ERROR EngineCore encountered a fatal error.\n");
        assert_eq!(
            told(&dead),
            (Class::EngineVllmDead.into(), FailureAction::RelaunchLater)
        );
        let above = format!("(EngineCore_DP0 pid=3011) ERROR EngineCore encountered a fatal error.\n{cancelled}");
        assert_eq!(told(&above).0, Class::EngineVllmDead);
        let driver = "Failed to initialize NVML: Driver/library version mismatch";
        assert_eq!(told(driver).1, FailureAction::Stop);
        assert_eq!(told(&format!("n4: {driver}")).1, FailureAction::Node);
        assert_eq!(told(&format!("gpu-c03: {driver}")).1, FailureAction::Node);
        let few = "ValueError: Total available GPUs 8 is less than total desired GPUs 16";
        assert_eq!(told(few).1, FailureAction::Stop);
        let dead = "(raylet) The node with node id: 0d9c has been marked dead because it missed too many heartbeats";
        assert_eq!(
            told(&format!("{dead}\n{few}\n")),
            (Class::RayResources.into(), FailureAction::Wait)
        );
        assert_eq!(told(dead), (Class::NodeLost.into(), FailureAction::Node));
        let taken = format!("sidecar: spot interruption notice received\n{dead}\n");
        assert_eq!(told(&taken), (Class::SchedPreempt.into(), FailureAction::Relaunch));
    }
}
