//! Machine evidence that overrides the diagnosis from the output.
//!
//! A worker killed by the kernel prints nothing, and a full disk hides behind odd errors.

use crate::event::ExitStatus;
use crate::observe::machine::{KernelKind, MachineFacts};
use crate::rulebook::taxonomy::{Class, FailureClass, Family, class_of_xid};
use crate::state::Attempt;

/// A disk with less free space, in bytes, is full: no save fits.
const FULL: u64 = 16 << 20;

/// A cause that the evidence shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvidenceCause {
    pub class: Class,
    pub text: String,
    /// The text without pids and sizes, for the fingerprint.
    pub shape: String,
}

/// The cause from the evidence of an attempt, if it overrides `told`, the class from the output.
#[must_use]
pub fn better(a: &Attempt, told: &FailureClass) -> Option<EvidenceCause> {
    let (class, text) = shown(a, a.end.evidence.as_ref()?, told)?;
    let shape = shape(&text);
    Some(EvidenceCause { class, text, shape })
}

fn shown(a: &Attempt, facts: &MachineFacts, told: &FailureClass) -> Option<(Class, String)> {
    let unknown = [Class::ExitUnexplained, Class::RayActorDied];
    let open = told.is_in(Family::Kill) || told.is_in(Family::Comm) || unknown.iter().any(|class| told == class);
    let of = |want: &dyn Fn(KernelKind) -> bool| facts.lines.iter().find(|l| want(l.kind));
    let oom = facts.lines.iter().rev().find(|l| l.kind == KernelKind::Oom && l.ours);
    if let Some(line) = oom.filter(|_| open) {
        return Some((Class::MemHostOom, format!("the kernel: {}", line.text)));
    }
    if let Some(line) = of(&|k| matches!(k, KernelKind::Xid(_)))
        && let KernelKind::Xid(number) = line.kind
        && let Some(class) =
            class_of_xid(number).filter(|_| open || told.is_in(Family::Gpu) || *told == Class::NativeCrash)
    {
        return Some((class, format!("the kernel: {}", line.text)));
    }
    let full = |room: Option<(u64, u64)>| room.is_some_and(|(free, size)| free < FULL && size > FULL);
    let bus = matches!(
        a.end.first_failure,
        Some((_, ExitStatus::Signal(7) | ExitStatus::Code(135)))
    );
    if (bus || *told == Class::MemShm)
        && facts
            .shm
            .is_some_and(|(free, size)| free < size / 100 || free < 1 << 20)
    {
        let who = a
            .end
            .first_failure
            .map_or_else(String::new, |(w, e)| format!("worker {w} {}: ", e.words()));
        return Some((Class::MemShm, format!("{who}/dev/shm is full")));
    }
    let odd = open && !told.is_in(Family::Kill) || told.is_in(Family::Code) || *told == Class::CkptSaveFailed;
    if odd && full(facts.disk) {
        let text = "the disk of the checkpoints is full; the error that was printed may only follow from that";
        return Some((Class::DiskFull, text.to_owned()));
    }
    None
}

/// The words of a message that are the same each time: no pids, no sizes.
fn shape(text: &str) -> String {
    let mut words = text.split(' ').filter(|w| !w.contains(|c: char| c.is_ascii_digit()));
    words.by_ref().take(12).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::diagnose;
    use crate::event::{Event, EventKind};
    use crate::id::{ActId, AttemptNo, Term, Tick, WallMs, WorkerId};
    use crate::journal::record::{Act, ActKind, Diagnosis, JournalRecord, LaunchOrder, StartPoint};
    use crate::observe::machine::facts;
    use crate::observe::machine::tests::LOG;
    use crate::state::RunState;

    fn ended(status: ExitStatus, facts: MachineFacts) -> Diagnosis {
        let mut s = RunState::default();
        let order = LaunchOrder {
            attempt: AttemptNo(1),
            from: StartPoint::Fresh,
            lost: Vec::new(),
            nodes: 1,
        };
        s.apply(&JournalRecord::Intended {
            at: Tick(1),
            act: Act {
                id: ActId(1),
                term: Term(1),
                attempt: Some(AttemptNo(1)),
                kind: ActKind::Launch(Box::new(order)),
            },
            reasons: Vec::new(),
        });
        let mut fact = |kind| {
            s.apply(&JournalRecord::Fact(Event {
                at: Tick(2),
                wall: WallMs(2),
                entropy: 0,
                kind,
            }));
        };
        fact(EventKind::WorkerExited {
            attempt: AttemptNo(1),
            worker: WorkerId(0),
            status,
            first: true,
            lines: Vec::new(),
        });
        fact(EventKind::Evidence {
            attempt: AttemptNo(1),
            facts,
        });
        diagnose(s.attempt.as_ref().unwrap())
    }

    #[test]
    fn a_kill_is_explained_by_the_kernel_and_only_where_it_names_ours() {
        let told = |ours| MachineFacts {
            lines: facts(LOG, |pid| ours && pid == 77),
            ..MachineFacts::default()
        };
        let d = ended(ExitStatus::Signal(9), told(true));
        assert_eq!(d.class, Class::MemHostOom);
        assert!(d.text.contains("Killed process 77"), "{}", d.text);
        // Then the lost GPU explains it.
        assert_eq!(ended(ExitStatus::Signal(9), told(false)).class, Class::GpuFallenOffBus);
        assert_eq!(
            ended(ExitStatus::Signal(9), MachineFacts::default()).class,
            Class::KillUnknown
        );
    }

    #[test]
    fn a_full_disk_and_a_full_shared_memory_are_named() {
        let full = MachineFacts {
            disk: Some((4096, 1 << 40)),
            shm: Some((0, 64 << 20)),
            ..MachineFacts::default()
        };
        assert_eq!(ended(ExitStatus::Code(1), full.clone()).class, Class::DiskFull);
        let bus = ended(ExitStatus::Signal(7), full.clone());
        assert_eq!(bus.class, Class::MemShm);
        assert!(bus.text.contains("/dev/shm is full"), "{}", bus.text);
        let room = MachineFacts {
            disk: Some((1 << 39, 1 << 40)),
            ..MachineFacts::default()
        };
        assert_eq!(ended(ExitStatus::Code(1), room).class, Class::ExitUnexplained);
        assert_eq!(ended(ExitStatus::Signal(9), full).class, Class::KillUnknown);
    }

    #[test]
    fn the_same_kill_of_another_process_is_the_same_failure() {
        let print = |pid: i32| {
            let log = format!("Memory cgroup out of memory: Killed process {pid} (python3) total-vm:{pid}kB");
            let lines = facts(&log, |_| true);
            let all = MachineFacts {
                lines,
                ..MachineFacts::default()
            };
            ended(ExitStatus::Signal(9), all).fingerprint
        };
        assert_eq!(print(7), print(91_234));
    }
}
