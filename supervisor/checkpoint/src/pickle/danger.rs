//! Classifies imported names as familiar, unfamiliar or dangerous.
//!
//! verl loads with `weights_only=False`, so loading a pickle imports every name in it and runs every call. Familiar are the names that
//! real writers use, in full spelling and with the usual arguments ([`known`], [`shape`]). Dangerous are the rest of Python's own
//! library, names on the danger list, and names that reach *through* another module (`torch.serialization` → `os.system`). Everything
//! else is unfamiliar. No list of bad functions is ever complete, so unfamiliar names are unsafe too, unless an operator accepts them by
//! name; names that the run wrote itself need no acceptance. Dangerous names are never accepted this way, and neither is a call of an
//! unfamiliar function whose name does not say that it rebuilds something.

mod known;
mod names;
mod shape;
mod storage;
mod words;

pub(super) use known::{GlobalRule, rule};
pub(super) use shape::{is_usual, is_usual_state, may_grow};
pub(super) use storage::is_storage;

use super::heap::GlobalUse;
use names::{DANGEROUS_MODULES, DANGEROUS_NAMES, FOREIGN_ROOTS, HARD_ROOTS, OLD_ROOTS, STANDARD_ROOTS};
use std::collections::HashSet;
use std::sync::LazyLock;
pub use words::is_library;

/// Class of an imported name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GlobalClass {
    /// Written by torch, numpy, a trainer or plain data.
    Familiar,
    /// Unknown: harmless or not.
    Unfamiliar,
    /// On the danger list, for this reason.
    Dangerous(&'static str),
}

/// Classifies `module.name` when it is used this way.
#[must_use]
pub fn class(module: &str, name: &str, usage: GlobalUse) -> GlobalClass {
    if rule(module, name).is_some() {
        return GlobalClass::Familiar;
    }
    if matches!(module, "builtins" | "__builtin__" | "__builtins__") {
        return builtin(name);
    }
    if !is_plain(module) || !is_plain(name) {
        return GlobalClass::Dangerous("this is no name that a trainer writes");
    }
    let internal = INTERNALS.contains(&module) && !is_rebuilder(name);
    internal
        .then_some("torch's own internals load and run code")
        .or_else(|| dangerous_module(module))
        .or_else(|| dangerous_name(name, usage))
        .or_else(|| words::loads_code(module, name).then_some("it finds, loads or runs code, called or not"))
        .map_or(GlobalClass::Unfamiliar, GlobalClass::Dangerous)
}

/// Whether this is Python's `getattr`, under either of its module's names.
pub(super) fn is_getattr(module: &str, name: &str) -> bool {
    matches!(module, "builtins" | "__builtin__") && name == "getattr"
}

/// Whether this is torch's loader for a storage that was pickled on its own.
pub(super) fn is_storage_loader(module: &str, name: &str) -> bool {
    module == "torch.storage" && name == "_load_from_bytes"
}

pub(super) fn is_class_name(name: &str) -> bool {
    is_plain(name) && name.split('.').all(is_capital)
}

pub(super) fn is_public(name: &str) -> bool {
    is_plain(name) && !name.starts_with('_') && !name.contains('.')
}

pub(super) fn makes_dict(module: &str, name: &str) -> bool {
    name == "dict" || module == "collections" && !matches!(name, "deque" | "Counter")
}

/// Whether a function's name says that it rebuilds an object from its parts.
pub(super) fn is_rebuilder(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    // Only as a whole word: `factory`, `vector` and `extractor` contain it too.
    let makes = name.split('_').any(|word| word == "ctor");
    makes
        || ["rebuild", "reconstruct", "unpickle", "reduce_ex", "restore"]
            .iter()
            .any(|w| name.contains(w))
}

/// Modules of which everything that a checkpoint may name is on the familiar list, or rebuilds something.
const INTERNALS: [&str; 2] = ["torch._C", "torch._utils"];

fn is_capital(word: &str) -> bool {
    word.trim_start_matches('_')
        .starts_with(|c: char| c.is_ascii_uppercase())
}

fn is_plain(name: &str) -> bool {
    name.split('.')
        .all(|s| !s.is_empty() && s.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_'))
}

type WordSet = LazyLock<HashSet<&'static str>>;

static ROOTS: WordSet = LazyLock::new(|| words(&[STANDARD_ROOTS, OLD_ROOTS, FOREIGN_ROOTS]));
static HARD: WordSet = LazyLock::new(|| words(&[HARD_ROOTS]));
static MODULES: WordSet = LazyLock::new(|| words(&[DANGEROUS_MODULES]));
static NAMES: WordSet = LazyLock::new(|| words(&[DANGEROUS_NAMES]));
fn words(tables: &[&'static str]) -> HashSet<&'static str> {
    tables.iter().flat_map(|t| t.split_ascii_whitespace()).collect()
}

fn builtin(name: &str) -> GlobalClass {
    if ["Error", "Exception", "Warning"].iter().any(|end| name.ends_with(end)) && is_class_name(name) {
        GlobalClass::Unfamiliar
    } else {
        GlobalClass::Dangerous("a Python built-in that runs, finds or changes things")
    }
}

fn dangerous_module(module: &str) -> Option<&'static str> {
    let (root, below) = module.split_once('.').unwrap_or((module, ""));
    if ROOTS.contains(root) || is_hard(root) {
        return Some("the module runs programs or code, reaches files, the network or the interpreter");
    }
    let ends = module.match_indices('.').map(|(at, _)| at).chain([module.len()]);
    if ends.into_iter().any(|end| MODULES.contains(&module[..end])) {
        return Some("the module loads or runs code");
    }
    if below.split('.').any(|part| part.starts_with("__")) {
        return Some("importing the module runs a program");
    }
    // `six.moves.os`: a module named as part of another.
    module
        .split('.')
        .any(is_hard)
        .then_some("it reaches through one module into another")
}

/// Matches `os`, and its name in modules that import it for themselves (`_os`).
fn is_hard(word: &str) -> bool {
    HARD.contains(word.trim_start_matches('_'))
}

/// Modules are reached through lower-case or private names; a nested class is neither.
fn dangerous_name(name: &str, usage: GlobalUse) -> Option<&'static str> {
    if name.split('.').any(|s| NAMES.contains(s)) {
        return Some("it runs code, or finds code to run");
    }
    if name.split('.').any(is_hard) {
        return Some("it names another module through this one");
    }
    let Some((owners, last)) = name.rsplit_once('.') else {
        let strange = usage == GlobalUse::Called && !is_capital(name) && !is_rebuilder(name);
        return strange.then_some("it is a function, and not one that rebuilds data");
    };
    if last.starts_with("__") || !owners.split('.').all(is_capital) {
        return Some("it reaches through one thing into another");
    }
    (usage != GlobalUse::Named && !is_capital(last)).then_some("it calls a method by its name")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_dangerous(module: &str, name: &str) -> bool {
        matches!(class(module, name, GlobalUse::Called), GlobalClass::Dangerous(_))
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
            ("anything", "function"),
            ("__main__", "function"),
            ("package.__main__", "Class"),
            ("größe", "Class"),
            ("torch._C", "PyTorchFileWriter"),
            ("torch._utils", "_import_dotted_name"),
            ("torch.utils.data", "_import_dotted_name"),
        ] {
            assert!(is_dangerous(module, name), "{module} {name}");
        }
    }

    #[test]
    fn what_resolves_or_loads_code_is_dangerous_even_if_it_is_only_named() {
        for (module, name) in [
            ("torch._utils", "_import_dotted_name"),
            ("torch._utils", "try_import"),
            ("torch._utils", "render_call"),
            ("torch._utils", "_type"),
            ("areal.utils.dynamic_import", "import_from_string"),
            ("verl.utils.anything", "load_extern_type"),
            ("numpy._core.function_base", "add_newdoc"),
            ("torch.cuda.memory", "CUDAPluggableAllocator"),
            ("torch.cuda", "CUDAPluggableAllocator"),
            ("torch.xpu.memory", "XPUPluggableAllocator"),
            ("torch._C._aoti", "AOTIModelContainerRunnerCpu"),
            ("torch._C._aoti", "AOTIModelContainerRunnerCuda"),
            ("torch._C._aoti", "AOTIModelPackageLoader"),
            ("torch._C", "import_ir_module"),
            ("torch._C", "_jit_get_operation"),
            ("torch._C", "anything_new"),
            ("torch", "ops.load_library"),
            ("torch", "classes.load_library"),
            ("torch._ops", "_Ops"),
            ("torch._classes", "_Classes.load_library"),
            ("torch.utils.data", "DataLoader"),
            ("torch.utils.data.dataloader", "DataLoader"),
            ("torch.utils.data.dataloader", "_SingleProcessDataLoaderIter"),
            ("torchdata.stateful_dataloader", "StatefulDataLoader"),
            ("torch.utils._pytree", "_defaultdict_deserialize"),
            ("torch.utils._pytree", "enum_object_hook"),
            ("torch.utils.cpp_extension", "load_inline"),
            ("torch.hub", "load"),
            ("torch.jit", "load"),
            ("torch.export", "load"),
            ("torch.package", "PackageImporter"),
            ("torch._inductor", "aoti_load_package"),
            ("torch.nn.attention._fa3", "_fa3_import_module"),
            ("torch.nn.utils._deprecation_utils", "lazy_deprecated_import"),
            ("torch.cuda._utils", "_get_cuda_library"),
            ("torch", "_preload_cuda_lib"),
            ("torch", "_import_device_backends"),
            ("torch", "set_default_tensor_type"),
            ("torch.serialization", "_legacy_load"),
            ("torch.distributed.nn.api.remote_module", "_RemoteModule"),
            ("torch.distributed.distributed_c10d", "_object_to_tensor"),
            (
                "torch.distributed.tensor.experimental._context_parallel._attention",
                "_restore_function",
            ),
            ("importlib", "import_module"),
            ("importlib.util", "find_spec"),
            ("pkgutil", "resolve_name"),
            ("operator", "methodcaller"),
            ("operator", "attrgetter"),
            ("functools", "partial"),
            ("numpy", "load"),
            ("numpy.core", "_ufunc_reconstruct"),
            ("numpy._core", "_ufunc_reconstruct"),
            ("numpy.lib.npyio", "NpzFile"),
            ("transformers.dynamic_module_utils", "get_class_from_dynamic_module"),
            (
                "transformers.models.auto.feature_extraction_auto",
                "feature_extractor_class_from_name",
            ),
            ("transformers.models.auto.auto_factory", "getattribute_from_module"),
            ("transformers.models.auto.configuration_auto", "_LazyConfigMapping"),
            ("transformers.utils.generic", "maybe_replace_from_package.__call__"),
            ("transformers", "AutoModel.from_pretrained"),
            ("torch", "Tensor.module_load"),
            ("huggingface_hub", "hf_hub_download"),
            ("deepspeed.ops.op_builder.builder", "OpBuilder.jit_load"),
            ("ray.train", "load_checkpoint"),
        ] {
            let found = class(module, name, GlobalUse::Named);
            assert!(matches!(found, GlobalClass::Dangerous(_)), "{module} {name}: {found:?}");
        }
    }

    #[test]
    fn a_function_that_only_sounds_like_one_that_rebuilds_does_not() {
        for name in ["make_factory", "feature_extractor", "to_vector"] {
            assert!(is_dangerous("anything", name), "{name}");
        }
        assert!(is_rebuilder("__randomstate_ctor") && is_rebuilder("ctor"));
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
            ("torch._utils", "_rebuild_wrapper_subclass"),
            ("_codecs", "encode"),
            ("pathlib", "PosixPath"),
        ] {
            assert_eq!(
                class(module, name, GlobalUse::Called),
                GlobalClass::Familiar,
                "{module} {name}"
            );
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
            ("transformers.trainer_utils", "EvalPrediction"),
            ("torch.utils.data", "TensorDataset"),
            ("transformers", "LlamaForCausalLM"),
            ("transformers.models.dpr.modeling_dpr", "DPRReader"),
            ("my_project.data", "Loader"),
            ("deepspeed.compile.config", "CompileConfig"),
            ("pandas._libs.internals", "_unpickle_block"),
            ("torch._utils", "_rebuild_of_a_later_release"),
        ] {
            assert_eq!(
                class(module, name, GlobalUse::Called),
                GlobalClass::Unfamiliar,
                "{module} {name}"
            );
        }
        assert_eq!(
            class("deepspeed.utils.tensor_fragment", "tensor_fragment", GlobalUse::Made),
            GlobalClass::Unfamiliar
        );
        for (module, name) in [
            ("torch.nn.functional", "gelu"),
            ("torch._C._nn", "gelu"),
            ("transformers.data.data_collator", "default_data_collator"),
            ("torch.utils.data._utils.collate", "default_collate"),
            ("megatron.core.fusions.fused_bias_swiglu", "bias_swiglu_impl"),
            ("my_project.data", "load_image"),
        ] {
            assert_eq!(
                class(module, name, GlobalUse::Named),
                GlobalClass::Unfamiliar,
                "{module} {name}"
            );
        }
        assert_eq!(
            class(
                "transformer_engine.pytorch.tensor.float8_tensor",
                "_make_float8_tensor_in_reduce_ex",
                GlobalUse::Called
            ),
            GlobalClass::Unfamiliar
        );
        assert_eq!(
            class("megatron.core.enums", "Kind.flash", GlobalUse::Named),
            GlobalClass::Unfamiliar
        );
    }
}
