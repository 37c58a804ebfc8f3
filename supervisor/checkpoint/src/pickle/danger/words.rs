//! Recognizes code-loading names of public libraries by the words in them.
//!
//! A list of such names is never complete: each release of torch and transformers adds loaders. But their authors name them for what they
//! do (`_import_dotted_name`, `CUDAPluggableAllocator`, `feature_extractor_class_from_name`). Naming one is enough to be dangerous: a
//! pickle can pass it to something harmless that calls it. Only libraries are judged by words, because in a project's own code
//! `load_image` may be an ordinary collate function.

use super::names::{CLASS_WORDS, DANGEROUS_MODULES, FUNCTION_WORDS, LIBRARY_ROOTS};
use super::{WordSet, is_capital, is_rebuilder, words};
use std::sync::LazyLock;

static LIBRARIES: WordSet = LazyLock::new(|| {
    let both = words(&[LIBRARY_ROOTS, DANGEROUS_MODULES]).into_iter();
    both.map(root).collect()
});
static FUNCTIONS: WordSet = LazyLock::new(|| words(&[FUNCTION_WORDS]));
static CLASSES: WordSet = LazyLock::new(|| words(&[CLASS_WORDS]));

/// Whether a top-level module belongs to a public library or to Python itself, not to a project.
#[must_use]
pub fn is_library(top: &str) -> bool {
    LIBRARIES.contains(top) || super::ROOTS.contains(top)
}

/// Words that a function that rebuilds objects may contain.
const REBUILDS: [&str; 4] = ["class", "object", "pickle", "unpickle"];

/// Whether a library's name says that it finds, loads or runs code.
pub(super) fn loads_code(module: &str, name: &str) -> bool {
    if !LIBRARIES.contains(root(module)) {
        return false;
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    let spelled = spell(last);
    let mut spelled = spelled.split_ascii_whitespace();
    if is_capital(last) {
        return spelled.any(|word| CLASSES.contains(word));
    }
    let rebuilds = is_rebuilder(last);
    spelled.any(|word| FUNCTIONS.contains(word) && !(rebuilds && REBUILDS.contains(&word)))
}

fn root(module: &str) -> &str {
    module.split('.').next().unwrap_or_default()
}

/// Splits an identifier into lower-case words: `XPUPluggableAllocator` becomes `xpu pluggable allocator`.
fn spell(name: &str) -> String {
    let bytes = name.as_bytes();
    let mut out = String::with_capacity(name.len() + 8);
    for (at, c) in name.char_indices() {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        let after = bytes.get(at + 1);
        // A hump begins after a small letter, and before the last of several capitals.
        let hump = c.is_ascii_uppercase()
            && before.is_some_and(|b| !b.is_ascii_uppercase() || after.is_some_and(u8::is_ascii_lowercase));
        if hump {
            out.push(' ');
        }
        out.push(if c == '_' { ' ' } else { c.to_ascii_lowercase() });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_spelled_out() {
        for (name, expected) in [
            ("_import_dotted_name", "import dotted name"),
            ("XPUPluggableAllocator", "xpu pluggable allocator"),
            ("DataLoader", "data loader"),
            ("_BaseDataLoaderIter", "base data loader iter"),
            ("AOTIModelContainerRunnerCpu", "aoti model container runner cpu"),
            ("gelu", "gelu"),
            ("", ""),
        ] {
            let words: Vec<String> = spell(name).split_ascii_whitespace().map(str::to_owned).collect();
            assert_eq!(words.join(" "), expected);
        }
    }

    #[test]
    fn a_projects_own_words_are_its_own() {
        assert!(loads_code("torch.utils.data", "DataLoader"));
        assert!(!loads_code("my_project.data", "DataLoader"));
        assert!(!loads_code("my_project.data", "load_image"));
        assert!(!loads_code("torchlike.data", "DataLoader"));
    }

    #[test]
    fn libraries_rebuild_plain_things() {
        assert!(!loads_code("pandas._libs.internals", "_unpickle_block"));
        assert!(!loads_code("torch._utils", "_rebuild_class"));
        assert!(loads_code("torch.anything", "_rebuild_module"));
    }
}
