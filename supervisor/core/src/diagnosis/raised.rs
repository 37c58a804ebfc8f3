//! Exception names in log lines.

/// The exception class at the start of a line, without its module: `KeyError` in `ray.exceptions.RayTaskError(KeyError): …`.
#[must_use]
pub fn exception_name(line: &str) -> Option<&str> {
    const ENDS: [&str; 7] = [
        "Error",
        "Exception",
        "Interrupt",
        "Exit",
        "Warning",
        "Timeout",
        "StopIteration",
    ];
    let head = line.trim().split(": ").next()?.trim_end_matches(':');
    let (name, inner) = match head.strip_suffix(')').and_then(|h| h.split_once('(')) {
        Some((name, inner)) => (name, Some(inner)),
        None => (head, None),
    };
    let is_name = |text: &str| {
        let word = |w: &str| {
            w.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && w.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        text.split('.').all(word)
    };
    let class = inner.filter(|i| is_name(i)).unwrap_or(name).rsplit('.').next()?;
    let raised = is_name(name) && class.starts_with(|c: char| c.is_ascii_uppercase());
    (raised && (name.contains('.') || ENDS.iter().any(|e| class.ends_with(e)))).then_some(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_is_named_without_its_module() {
        for (line, name) in [
            ("AssertionError", Some("AssertionError")),
            ("torch.OutOfMemoryError: CUDA out of memory.", Some("OutOfMemoryError")),
            (
                "ray.exceptions.RayTaskError(KeyError): ray::f() (pid=1)",
                Some("KeyError"),
            ),
            ("app.errors.Unreachable: no answer", Some("Unreachable")),
            ("slurmstepd: error: *** JOB 1 ON n1 CANCELLED", None),
            ("Killed", None),
            ("train.py: error: unrecognized arguments: --x", None),
        ] {
            assert_eq!(exception_name(line), name, "{line}");
        }
    }
}
