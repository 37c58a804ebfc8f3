//! Which imported names are familiar, strange or dangerous.
//!
//! verl loads with `weights_only=False`, so whatever a pickle names is imported and what it calls is run. Three answers:
//! names that torch, numpy and plain Python data use are familiar; names on the danger list, and names that reach
//! *through* another module (`torch.serialization` → `os.system`), are dangerous; the rest is strange and shown. A
//! familiar name is decided first and by its full spelling, so no rule below can be talked out of the danger list.

mod names;

use crate::dtype::Dtype;
use names::{DANGEROUS_MODULES, DANGEROUS_NAMES, DANGEROUS_ROOTS, FAMILIAR, HARD_ROOTS};

/// What an imported name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Written by torch, numpy or plain data.
    Familiar,
    /// Unknown: harmless or not.
    Unfamiliar,
    /// On the danger list; why.
    Dangerous(&'static str),
}

/// What `module.name` is; `called` where it is also called, by the pickle or by torch on its behalf.
#[must_use]
pub fn class(module: &str, name: &str, called: bool) -> Class {
    if is_familiar(module, name) {
        return Class::Familiar;
    }
    if matches!(module, "builtins" | "__builtin__" | "__builtins__") {
        return builtin(name);
    }
    if !is_plain(module) || !is_plain(name) {
        return Class::Dangerous("this is no name that a trainer writes");
    }
    dangerous_module(module)
        .or_else(|| dangerous_name(name, called))
        .map_or(Class::Unfamiliar, Class::Dangerous)
}

/// Whether this is Python's `getattr`, under either of its module's names.
pub(super) fn is_getattr(module: &str, name: &str) -> bool {
    matches!(module, "builtins" | "__builtin__") && name == "getattr"
}

/// Whether a name looks like that of a class, or of a class inside a class.
pub(super) fn is_class_name(name: &str) -> bool {
    is_plain(name) && name.split('.').all(is_capital)
}

/// Whether a name is one public identifier.
pub(super) fn is_public(name: &str) -> bool {
    is_plain(name) && !name.starts_with('_') && !name.contains('.')
}

fn is_capital(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase())
}

fn is_plain(name: &str) -> bool {
    name.split('.')
        .all(|s| !s.is_empty() && s.chars().all(|c| c.is_alphanumeric() || c == '_'))
}

fn has(table: &str, word: &str) -> bool {
    table.split_ascii_whitespace().any(|w| w == word)
}

fn builtin(name: &str) -> Class {
    if name.ends_with("Error") || name.ends_with("Exception") || name.ends_with("Warning") {
        Class::Unfamiliar
    } else {
        Class::Dangerous("a Python built-in that runs, finds or changes things")
    }
}

fn dangerous_module(module: &str) -> Option<&'static str> {
    let root = module.split('.').next().unwrap_or_default();
    if has(DANGEROUS_ROOTS, root) || is_hard(root) {
        return Some("the module runs programs or code, reaches files, the network or the interpreter");
    }
    let inside = |m: &str| {
        module
            .strip_prefix(m)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    if DANGEROUS_MODULES.split_ascii_whitespace().any(inside) {
        return Some("the module loads or runs code");
    }
    // `six.moves.os`: a module named as part of another.
    module
        .split('.')
        .any(is_hard)
        .then_some("it reaches through one module into another")
}

/// `os`, and what other modules call it when they import it for themselves (`_os`).
fn is_hard(word: &str) -> bool {
    has(HARD_ROOTS, word.trim_start_matches('_'))
}

/// Modules are reached through lower-case or private names; a class inside a class is neither.
fn dangerous_name(name: &str, called: bool) -> Option<&'static str> {
    if name.split('.').any(|s| has(DANGEROUS_NAMES, s)) {
        return Some("it runs code, or finds code to run");
    }
    if name.split('.').any(is_hard) {
        return Some("it names another module through this one");
    }
    let (owners, last) = name.rsplit_once('.')?;
    if last.starts_with("__") || !owners.split('.').all(is_capital) {
        return Some("it reaches through one thing into another");
    }
    (called && !is_capital(last)).then_some("it calls a method by its name")
}

fn is_familiar(module: &str, name: &str) -> bool {
    let listed = FAMILIAR
        .lines()
        .filter_map(|line| line.split_once(": "))
        .any(|(m, names)| m == module && has(names, name));
    let dotless = !name.contains('.') && is_plain(name);
    listed
        || match module {
            "torch" => Dtype::from_torch(name).is_some() || is_storage(name),
            "torch.cuda" | "torch.storage" => is_storage(name),
            "torch._utils" => name.starts_with("_rebuild_") && dotless,
            "numpy.dtypes" => name.ends_with("DType") && dotless,
            _ => false,
        }
}

fn is_storage(name: &str) -> bool {
    Dtype::from_storage(name).is_some() || name == "TypedStorage"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_dangerous(module: &str, name: &str) -> bool {
        matches!(class(module, name, true), Class::Dangerous(_))
    }

    #[test]
    fn names_that_run_things_are_dangerous() {
        for (module, name) in [
            ("os", "system"),
            ("posix", "system"),
            ("nt", "system"),
            ("subprocess", "Popen"),
            ("sys", "modules"),
            ("builtins", "eval"),
            ("__builtin__", "eval"),
            ("builtins", "getattr"),
            ("builtins", "__import__"),
            ("builtins", "map"),
            ("builtins", "eval.__call__"),
            ("builtins", "list.__class__"),
            ("runpy", "run_path"),
            ("importlib", "import_module"),
            ("importlib.util", "spec_from_loader"),
            ("operator", "attrgetter"),
            ("_operator", "methodcaller"),
            ("functools", "partial"),
            ("torch.hub", "load"),
            ("torch", "hub.load"),
            ("torch", "serialization.os.system"),
            ("torch.serialization", "os"),
            ("torch.storage", "_load_from_bytes"),
            ("torch._dynamo.guards", "GuardBuilder.get"),
            ("numpy.f2py.crackfortran", "myeval"),
            ("numpy", "load"),
            ("six.moves.os", "system"),
            ("collections", "_sys.modules"),
            ("collections", "abc.sys.modules"),
            ("collections", "OrderedDict.__init__.__globals__"),
            ("pathlib", "Path.write_text"),
            ("datetime", "datetime.strptime"),
            ("argparse", "FileType"),
            ("idlelib.pyshell", "ModifiedInterpreter.runcode"),
            ("", "system"),
            ("torch", ""),
            ("o s", "system"),
            ("torch", "Tensor.__reduce_ex__"),
            ("anything", "Owner.method"),
        ] {
            assert!(is_dangerous(module, name), "{module} {name}");
        }
    }

    #[test]
    fn names_that_torch_and_numpy_write_are_familiar() {
        for (module, name) in [
            ("collections", "OrderedDict"),
            ("torch", "FloatStorage"),
            ("torch", "bfloat16"),
            ("torch._utils", "_rebuild_tensor_v2"),
            ("torch.distributed.tensor", "DTensor"),
            (
                "torch.distributed._shard.sharded_tensor.api",
                "ShardedTensor.ProcessGroupState",
            ),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "float64"),
            ("builtins", "set"),
            ("_codecs", "encode"),
            ("pathlib", "PosixPath"),
        ] {
            assert_eq!(class(module, name, true), Class::Familiar, "{module} {name}");
        }
    }

    #[test]
    fn classes_nobody_knows_are_strange_and_no_more() {
        for (module, name) in [
            ("my_project.state", "Sampler"),
            ("my_project.state", "Outer.Inner"),
            ("torch.nn.modules.linear", "Linear"),
            ("__main__", "State"),
            ("builtins", "ValueError"),
            ("transformers.trainer_utils", "IntervalStrategy"),
        ] {
            assert_eq!(class(module, name, true), Class::Unfamiliar, "{module} {name}");
        }
        assert_eq!(class("megatron.core.enums", "Kind.flash", false), Class::Unfamiliar);
    }
}
