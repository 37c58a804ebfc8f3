use super::*;

fn run(lines: &[(u64, &str)]) -> Vec<usize> {
    let mut t = Tracebacks::new().unwrap();
    let ends = lines.iter().enumerate().filter_map(|(n, (source, text))| {
        matches!(t.line(0, *source, text.as_bytes()), TracebackLine::Exception { .. }).then_some(n)
    });
    ends.collect()
}

#[test]
fn an_exception_may_carry_the_text_of_another_traceback() {
    let mut t = Tracebacks::new().unwrap();
    for line in [
        "Traceback (most recent call last):",
        "  File \"a.py\", line 9, in main",
        "KeyError: Traceback (most recent call last):",
        "  File \"b.py\", line 3, in __getitem__",
    ] {
        t.line(0, 0, line.as_bytes());
    }
    let seen = t.line(0, 0, b"KeyError: 'x'");
    assert!(matches!(seen, TracebackLine::Exception { .. }), "{seen:?}");
    // A logger's name looks like an exception and precedes each line.
    for line in [
        "app.Launcher: Traceback (most recent call last):",
        "app.Launcher:   File \"a.py\", line 9, in main",
    ] {
        t.line(0, 0, line.as_bytes());
    }
    let seen = t.line(0, 0, b"app.Launcher: KeyError: 'x'");
    assert!(matches!(seen, TracebackLine::Exception { .. }), "{seen:?}");
}

#[test]
fn tracebacks_of_two_ranks_may_be_printed_into_each_other() {
    let ends = run(&[
        (1, "Traceback (most recent call last):"),
        (2, "Traceback (most recent call last):"),
        (1, "  File \"a.py\", line 1, in f"),
        (2, "  File \"b.py\", line 1, in g"),
        (2, "KeyError: 'b'"),
        (1, "ValueError: a"),
        (1, "ValueError: not in a traceback"),
    ]);
    assert_eq!(ends, [4, 5]);
}

#[test]
fn the_exception_inside_rays_wrapper_counts_too() {
    let ends = run(&[
        (0, "Traceback (most recent call last):"),
        (0, "  File \"a.py\", line 1, in f"),
        (0, "ray.exceptions.RayTaskError(ValueError): ray::f() (pid=1)"),
        (0, "  File \"b.py\", line 1, in g"),
        (0, "ValueError: b"),
    ]);
    assert_eq!(ends, [2, 4]);
}

#[test]
fn what_python_ignores_ends_nothing() {
    let ends = run(&[
        (
            0,
            "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f3b>",
        ),
        (0, "Traceback (most recent call last):"),
        (0, "  File \"a.py\", line 1, in f"),
        (0, "AssertionError: can only test a child process"),
        (1, "Traceback (most recent call last):"),
        (
            1,
            "  File \"/usr/lib/python3.11/multiprocessing/resource_tracker.py\", line 239, in main",
        ),
        (1, "KeyError: '/psm_4fa5'"),
        (0, "Traceback (most recent call last):"),
        (0, "  File \"a.py\", line 1, in f"),
        (0, "ValueError: a"),
    ]);
    assert_eq!(ends, [9]);
}

#[test]
fn a_launcher_may_put_what_it_likes_before_each_line() {
    let mut t = Tracebacks::new().unwrap();
    let mut seen = |text: &str| t.line(0, 0, text.as_bytes());
    seen("trainer-1  | Traceback (most recent call last):");
    assert_eq!(seen("trainer-1  |   File \"a.py\", line 1, in f"), TracebackLine::Code);
    assert_eq!(seen("trainer-1  |     raise ValueError(x)"), TracebackLine::Code);
    assert!(matches!(
        seen("trainer-1  | Exception: boom"),
        TracebackLine::Exception { .. }
    ));
    // An exception class of the script itself; output between the lines is not one.
    seen("Traceback (most recent call last):");
    seen("  File \"a.py\", line 1, in f");
    assert!(matches!(
        seen("RewardModelDown: no answer"),
        TracebackLine::Exception { .. }
    ));
    seen("Traceback (most recent call last):");
    assert_eq!(seen("RewardModel: loaded"), TracebackLine::Other);
    assert!(matches!(seen("KeyError: 'x'"), TracebackLine::Exception { .. }));
    // Timestamps differ between lines; a progress bar precedes only the header.
    seen("Jun 03 11:42:07 n1 python[88]: Traceback (most recent call last):");
    assert_eq!(
        seen("Jun 03 11:42:08 n1 python[88]:   File \"a.py\", line 1, in f"),
        TracebackLine::Code
    );
    assert!(matches!(
        seen("Jun 03 11:42:08 n1 python[88]: KeyError: 'x'"),
        TracebackLine::Exception { .. }
    ));
    seen(" 12%|#  | 3/9 [00:01<00:02]Traceback (most recent call last):");
    assert_eq!(seen("  File \"a.py\", line 1, in f"), TracebackLine::Code);
    assert!(matches!(seen("KeyError: 'x'"), TracebackLine::Exception { .. }));
}

#[test]
fn a_summary_of_a_launcher_is_indented() {
    let ends = run(&[
        (0, "  traceback : Traceback (most recent call last):"),
        (0, "    File \"a.py\", line 1, in f"),
        (0, "      x = y[1]"),
        (0, "  IndexError: list index out of range"),
    ]);
    assert_eq!(ends, [3]);
}

#[test]
fn a_traceback_may_begin_above_the_log() {
    let ends = run(&[
        (0, "  File \"a.py\", line 1, in f"),
        (0, "    x = y[1]"),
        (0, "IndexError: list index out of range"),
        (0, "ValueError: not in a traceback"),
        // A printed stack does not end in an exception.
        (0, "  File \"a.py\", line 1, in f"),
        (0, "step 3"),
        (0, "ValueError: not in a traceback"),
        (0, "  File \"a.py\", line 1 in f"),
        (0, "ValueError: below a dump of stacks"),
    ]);
    assert_eq!(ends, [2]);
}

#[test]
fn the_way_through_a_save_is_told() {
    let mut t = Tracebacks::new().unwrap();
    t.line(0, 0, b"Traceback (most recent call last):");
    t.line(0, 0, b"  File \"x.py\", line 3, in save_checkpoint");
    let end = |chained| TracebackLine::Exception {
        through: TracebackScope::Save,
        chained,
    };
    assert_eq!(t.line(0, 0, b"RuntimeError: x"), end(false));
    assert!(!t.any());
    t.line(
        0,
        0,
        b"During handling of the above exception, another exception occurred:",
    );
    t.line(0, 0, b"Traceback (most recent call last):");
    t.line(0, 0, b"  File \"x.py\", line 3, in save_checkpoint");
    assert_eq!(t.line(0, 0, b"ValueError: y"), end(true));
    t.line(
        0,
        0,
        b"The above exception was the direct cause of the following exception:",
    );
    assert_eq!(t.line(0, 0, b""), TracebackLine::Other);
    assert!(matches!(
        t.line(0, 0, b"ValueError: alone"),
        TracebackLine::Exception { chained: true, .. }
    ));
    assert_eq!(t.line(0, 0, b"ValueError: not in a chain"), TracebackLine::Other);
}
