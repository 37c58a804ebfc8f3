//! Recognizes lines that mention a failure but report none: Python warnings, advice, model text.

/// Prefixes of advice and debugging hints.
const ADVICE: &[&str] = &[
    "CUDA kernel errors might be asynchronously reported",
    "For debugging consider passing",
    "Compile with `TORCH_USE_CUDA_DSA`",
    "Device-side assertion tracking was not enabled",
    "See documentation for Memory Management",
    "If reserved but unallocated memory is large",
    "To find out more about the cause of this error",
    "Refer to the documentation on how to address the out of memory issue",
    "set TUNE_",
    "Set the environment variable",
    "set the environment variable",
    "To disable worker killing",
    "To adjust the kill threshold",
    "Consider provisioning more memory",
    "There are some potential root causes",
    "Hint:",
    "hint:",
    "Tip:",
    "Note:",
    "NOTE:",
    "Try ",
    "Please try ",
    "Example:",
];

/// Prefixes of quoted source code, of metric help, and of a test's output for an expected failure.
const SHOWN: &[&str] = &[
    "# HELP ", "# TYPE ", "raise ", "except ", "print(", "logger.", "logging.", "echo ", "assert ", "E   ", "> ", "//",
    "$ ",
];

/// Words that start a condition: what follows did not happen.
const CONDITIONS: &[&[u8]] = &[
    b" if ",
    b"If ",
    b" in case ",
    b"In case ",
    b"When ",
    b" unless ",
    b" to avoid ",
    b" to prevent ",
    b"--help",
];

/// Prefixes of lines that show a prompt or an answer.
pub(crate) const SAMPLES: &[&str] = &[
    "[prompt]",
    "[response]",
    "[ground_truth]",
    "[sample]",
    "[completion]",
    "[generation]",
    "prompt:",
    "Prompt:",
    "response:",
    "Response:",
    "completion:",
    "Completion:",
    "generation:",
    "Generation:",
    "<|im_start|>",
    "user:",
    "assistant:",
    "User:",
    "Assistant:",
    "Human:",
    "[question]",
    "[answer]",
    "question:",
    "answer:",
    "Question:",
    "Answer:",
    "prompt is:",
    "sequence is:",
];

/// Chat turn markers, and JSON keys of a record of a prompt and its answer.
const TURN: &[u8] = b"<|im_";
const KEYS: &[&[u8]] = &[
    b"\"prompt\":",
    b"\"response\":",
    b"\"completion\":",
    b"\"messages\":",
    b"\"content\":",
    b"\"score\":",
    b"\"reward\":",
    b"'prompt':",
    b"'response':",
    b"'completion':",
    b"'messages':",
    b"'content':",
    b"'score':",
    b"'reward':",
];

/// Ray reports an unexpected error for a worker that exited on request, and says so at the end of the line.
const AS_ASKED: &[u8] = b"Worker exit type: INTENDED_";

/// Returns true if the line never counts as a failure.
pub(super) fn is_remark(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    let opens = |with: &[&str]| with.iter().any(|w| text.starts_with(w.as_bytes()));
    let holds = |what: &[u8]| memchr::memmem::find(text, what).is_some();
    // Lightning reports the reason of its exit as a warning.
    if holds(b"Detected KeyboardInterrupt") {
        return false;
    }
    let dumped = text.starts_with(b"{") && KEYS.iter().any(|key| holds(key));
    opens(ADVICE) || opens(SHOWN) || opens(SAMPLES) || warns(text) || dumped || holds(TURN) || holds(AS_ASKED)
}

/// The text before the first condition of a line; `None` if it has none.
pub(super) fn before_a_condition(text: &[u8]) -> Option<&[u8]> {
    let opens = text.starts_with(b"if ").then_some(0);
    let places = CONDITIONS.iter().filter_map(|words| memchr::memmem::find(text, words));
    let at = places.chain(opens).min()?;
    text.get(..at)
}

pub(crate) fn opens_sample(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    SAMPLES.iter().any(|w| text.starts_with(w.as_bytes()))
}

/// Returns true for a Python warning (`UserWarning: …`); log levels are weaker evidence.
fn warns(text: &[u8]) -> bool {
    const WORD: &[u8] = b"Warning: ";
    if text.starts_with(b"warning: ") || text.starts_with(b"warnings.warn(") {
        return true;
    }
    memchr::memmem::find_iter(text, WORD).any(|at| {
        let kind = text[..at].iter().rev().take_while(|b| b.is_ascii_alphabetic()).count();
        kind == at || text[at - kind..at].first().is_some_and(u8::is_ascii_uppercase)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_advice_and_samples_are_remarks() {
        for line in [
            "Warning: Failed to set NUMA affinity: libnuma.so: cannot open shared object file: No such file or directory",
            "/x/torch/cuda/__init__.py:1: UserWarning: CUDA initialization: Found no NVIDIA driver",
            "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
            "[response] the program prints KeyError and is killed",
            r#"{"step": 5, "prompt": "Why?", "response": "CUDA out of memory. Tried to allocate 2 GiB"}"#,
            "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.<|im_end|>",
            "{'messages': [{'role': 'user', 'content': 'Why No space left on device?'}], 'score': 1.0}",
            "Question: why does it print CUDA out of memory. Tried to allocate 2 GiB?",
            "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker exit type: INTENDED_SYSTEM_EXIT",
            "# HELP DCGM_FI_DEV_ROW_REMAP_FAILURE Whether remapping of rows has failed",
            "raise RuntimeError('CUDA out of memory')",
            "E   RuntimeError: CUDA out of memory",
        ] {
            assert!(is_remark(line.as_bytes()), "{line}");
        }
        for line in [
            "OSError: [Errno 28] No space left on device",
            "NCCL WARN Call to recv failed",
            r#"{"level": "error", "msg": "CUDA out of memory. Tried to allocate 2 GiB"}"#,
        ] {
            assert!(!is_remark(line.as_bytes()), "{line}");
        }
    }
}
