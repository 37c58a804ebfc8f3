//! Limits of a user and of the machine, as they appear in system errors.

/// Error numbers, each with a hint.
const LIMITS: [(i32, &str); 5] = [
    (
        11,
        "no more processes or threads may be made: see `ulimit -u`, a unit's TasksMax, a cgroup's pids.max",
    ),
    (24, "one process may not open more files: see `ulimit -n`"),
    (
        23,
        "no more files may be open on this machine: see /proc/sys/fs/file-max",
    ),
    (
        12,
        "no more memory is given: see `ulimit -v`, a cgroup's memory.max, vm.overcommit_memory",
    ),
    (27, "a file may not grow any more: see `ulimit -f`"),
];

/// A hint if the text of a system error mentions a limit.
#[must_use]
pub fn limit_hint(text: &str) -> Option<&'static str> {
    let speaks_of = |number: i32| text.contains(&format!("(os error {number})"));
    LIMITS
        .into_iter()
        .find(|(number, _)| speaks_of(*number))
        .map(|(_, hint)| hint)
}

/// Returns true if the text of a system error says that a disk or a quota is full.
#[must_use]
pub fn says_full(text: &str) -> bool {
    ["(os error 28)", "(os error 122)"]
        .iter()
        .any(|words| text.contains(words))
}
