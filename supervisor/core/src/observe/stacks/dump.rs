//! Dumps of Python stacks: by faulthandler, which a process writes itself, and by py-spy.

use super::{FRAMES, PyFrame, WaitKind, waits};

const THREADS: usize = 128;
/// Longest name of a file or function, in bytes.
const NAME: usize = 400;

/// A thread of a dump.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Thread {
    /// Whether py-spy calls it the main thread. In a faulthandler dump it is the last one, whichever thread got the
    /// signal.
    pub is_main: bool,
    pub frames: Vec<PyFrame>,
}

/// Parses the threads of all dumps in a text, ignoring anything in between.
#[must_use]
pub fn read(text: &str) -> Vec<Thread> {
    let mut threads: Vec<Thread> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        if let Some(is_main) = head(line) {
            open = threads.len() < THREADS;
            if open {
                let frames = Vec::new();
                threads.push(Thread { is_main, frames });
            }
        } else if let Some(frame) = written(line).or_else(|| spied(line)) {
            let thread = threads.last_mut().filter(|t| open && t.frames.len() < FRAMES);
            if let Some(thread) = thread {
                thread.frames.push(frame);
            }
        } else if line.trim().is_empty() {
            open = false;
        }
    }
    threads
}

/// The relevant frames. If the main thread waits for one that computes gradients, that one's; if it serves requests,
/// those of the thread that is deepest in one.
#[must_use]
pub fn telling(threads: &[Thread]) -> Option<&[PyFrame]> {
    let at = threads.iter().position(|t| t.is_main);
    let at = at.or(threads.len().checked_sub(1))?;
    let main = threads.get(at)?;
    let in_backward = |t: &Thread| t.frames.first().is_some_and(|f| f.function == "_engine_run_backward");
    // Python threads start in `_bootstrap`; those of the autograd engine do not.
    let is_pythons = |t: &Thread| t.frames.last().is_some_and(|f| f.function == "_bootstrap");
    let mut others = (0..).zip(threads).filter(|(n, t)| *n != at && !t.frames.is_empty());
    let engine = others.find(|(_, t)| !is_pythons(t)).filter(|_| in_backward(main));
    let busy = threads.iter().filter(|t| waits(&t.frames) != WaitKind::Apart);
    let busy = busy.max_by_key(|t| t.frames.len()).filter(|_| serves(main));
    let other = engine.map(|(_, t)| t).or(busy);
    Some(other.unwrap_or(main).frames.as_slice())
}

/// Returns true if the main thread only dispatches requests, or runs an asyncio loop.
fn serves(main: &Thread) -> bool {
    let is_of = |f: &PyFrame| f.file.ends_with("/socketserver.py") || f.file.ends_with("/asyncio/runners.py");
    waits(&main.frames) == WaitKind::Apart && main.frames.iter().any(is_of)
}

/// Parses the header of a thread; true if it is called the main thread.
fn head(line: &str) -> Option<bool> {
    let line = line.trim_end();
    let written = line
        .strip_prefix("Current thread 0x")
        .or_else(|| line.strip_prefix("Thread 0x"));
    if let Some(rest) = written {
        return rest.ends_with("(most recent call first):").then_some(false);
    }
    // `Thread 4711 (idle): "MainThread"`
    let rest = line.strip_prefix("Thread ")?;
    let (number, rest) = rest.split_once(' ')?;
    let is_spied = number.bytes().all(|b| b.is_ascii_digit()) && rest.starts_with('(');
    is_spied.then(|| rest.ends_with("\"MainThread\""))
}

/// `  File "train.py", line 3 in step`
fn written(line: &str) -> Option<PyFrame> {
    let rest = line.strip_prefix("  File \"")?;
    let (file, rest) = rest.rsplit_once("\", line ")?;
    let (line, function) = rest.split_once(" in ")?;
    frame(file, line, function)
}

/// `    step (train.py:3)`
fn spied(line: &str) -> Option<PyFrame> {
    let (function, rest) = line.strip_prefix("    ")?.rsplit_once(" (")?;
    let (file, line) = rest.strip_suffix(')')?.rsplit_once(':')?;
    frame(file, line, function)
}

fn frame(file: &str, line: &str, function: &str) -> Option<PyFrame> {
    let cut = |text: &str| text[..text.floor_char_boundary(NAME)].to_owned();
    Some(PyFrame {
        file: cut(file),
        line: line.trim().parse().ok()?,
        function: cut(function.trim()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = "step 4 loss 0.1\nFatal Python error: Aborted\n\n\
        Thread 0x00007f4babbdc6c0 (most recent call first):\n  File \"/lib/threading.py\", line 982 in run\n\
        \x20 File \"/lib/threading.py\", line 1002 in _bootstrap\n\n\
        Current thread 0x00007f4bac63ab80 (most recent call first):\n  File \"/a \", line 1 in b.py\", line 6 in <genexpr>\n\
        \x20 File \"/tmp/t.py\", line 8 in <module>\n\nExtension modules: numpy.core._multiarray_umath (total: 1)\n";

    #[test]
    fn a_dump_of_faulthandler_is_read() {
        let threads = read(WRITTEN);
        assert_eq!(threads.len(), 2);
        assert_eq!(threads[1].frames.len(), 2, "{threads:?}");
        let first = &telling(&threads).unwrap()[0];
        assert_eq!(
            (first.file.as_str(), first.line, first.function.as_str()),
            ("/a \", line 1 in b.py", 6, "<genexpr>")
        );
    }

    #[test]
    fn the_main_thread_is_the_last_one_whichever_thread_the_signal_came_to() {
        let text = "Current thread 0x1 (most recent call first):\n  File \"/lib/threading.py\", line 9 in _bootstrap\n\n\
            Thread 0x2 (most recent call first):\n  File \"/t.py\", line 3 in step\n";
        assert_eq!(telling(&read(text)).unwrap()[0].function, "step");
    }

    #[test]
    fn a_dump_of_py_spy_is_read() {
        let text = "Process 77: python t.py\nPython v3.11.7 (/usr/bin/python3.11)\n\nThread 77 (idle): \"MainThread\"\n    \
            f (t.py:7)\n    <module> (t.py:8)\nThread 78 (idle): \"Thread-1 (idle)\"\n    idle (t.py:3)\n";
        let threads = read(text);
        assert_eq!(threads.len(), 2);
        assert_eq!(telling(&threads).unwrap()[0].function, "f");
    }

    #[test]
    fn a_thread_that_computes_gradients_stands_for_the_one_that_waits_for_it() {
        let text = "Thread 0x1 (most recent call first):\n  File \"/hooks.py\", line 3 in reduce\n\n\
            Thread 0x2 (most recent call first):\n  File \"/t.py\", line 3 in wait\n  File \"/threading.py\", line 1002 in _bootstrap\n\n\
            Current thread 0x3 (most recent call first):\n  File \"/torch/autograd/graph.py\", line 9 in _engine_run_backward\n";
        assert_eq!(telling(&read(text)).unwrap()[0].function, "reduce");
    }

    #[test]
    fn where_the_main_thread_serves_the_one_that_works_on_a_request_counts() {
        let text = |busy: &str| {
            format!(
                "Thread 0x1 (most recent call first):\n  File \"/queue.py\", line 180 in get\n  File \"/x.py\", line 1 in loop\n\n\
                Thread 0x2 (most recent call first):\n  File \"{busy}\", line 3 in step\n  File \"/engine.py\", line 9 in run\n\n\
                Thread 0x3 (most recent call first):\n  File \"/lib/selectors.py\", line 415 in select\n  File \"/lib/socketserver.py\", line 233 in serve_forever\n"
            )
        };
        assert_eq!(telling(&read(&text("/t.py"))).unwrap()[0].function, "step");
        assert_eq!(
            telling(&read(&text("/lib/threading.py"))).unwrap()[0].function,
            "select"
        );
    }

    #[test]
    fn what_is_no_dump_costs_nothing_and_breaks_nothing() {
        for text in [
            "",
            "Thread 0x",
            "  File \"",
            "Current thread 0x (most recent call first):",
            "    a (b:c)",
            "Thread 1 (é",
        ] {
            assert!(read(text).iter().all(|t| t.frames.is_empty()), "{text}");
        }
        assert_eq!(telling(&[]), None);
        let long = format!(
            "Current thread 0x1 (most recent call first):\n{}",
            "  File \"é\", line 1 in f\n".repeat(10_000)
        );
        assert_eq!(read(&long)[0].frames.len(), FRAMES);
        assert_eq!(
            read(&"Thread 0x1 (most recent call first):\n".repeat(10_000)).len(),
            THREADS
        );
    }
}
