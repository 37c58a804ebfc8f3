//! The names that a checkpoint may use, and how: exact names only, never a module or a prefix.
//!
//! Each line was seen in files of real writers, by `tests/real/pickle_names.py` (which fails if a name is missing) or in this crate's and
//! the repository's fixtures: torch 1.6 to 2.11, numpy 1.24 to 2.4, transformers 5.9 and accelerate 1.15 (a Trainer's
//! `training_args.bin`), DeepSpeed 0.19 (all stages of ZeRO), megatron-core 0.16 (`common.pt`), OmegaConf 2.3, torchdata, verl and areal.
//! Older spellings of the same modules are listed next to the new ones.

use crate::dtype::Dtype;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Arguments in letters, alternatives divided by `/`: after `?` they may be missing, before `*` one may repeat.
///
/// `d` any value · `v` a number or text · `i` an integer · `b` a bool · `x` text · `y` a device's name · `n` None · `B` bytes · `l` the
/// word latin1 · `t` a tuple of numbers · `z` the tuple `(0,)` · `T` a tuple · `L` a list, tuple or set that is written out · `D` the
/// same or a dict · `q` a part of a fraction · `s` a storage · `o` an empty dict of hooks · `a` attributes · `f` a factory · `c` a class
/// of tensors · `g` a bit generator · `A` `numpy.ndarray` · `C` numpy's maker of bit generators · `S` `SeedSequence` · `O` `object` · `P`
/// a class that is made without arguments · `Q` and `W` all arguments of a quantized tensor, and of one of another class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Signature(pub(super) &'static str);

/// Allowed uses of a name on the list. Naming it is always allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::pickle) struct GlobalRule {
    /// Arguments of a call.
    pub(super) call: Option<Signature>,
    /// Arguments of its `__new__`.
    pub(super) new: Option<Signature>,
    /// The state that BUILD may give an object of it.
    pub(super) state: BuildState,
    /// Whether it may be appended to.
    pub(super) items: bool,
    /// Whether its items may be set.
    pub(super) pairs: bool,
    /// Whether a call without arguments makes an empty value, as a defaultdict needs.
    pub(super) factory: bool,
    /// Whether it is a class of tensors, as `_rebuild_from_type_v2` makes them.
    pub(super) tensor: bool,
    pub(super) bits: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum BuildState {
    #[default]
    Nothing,
    /// A dict of attributes, or a pair of that and a dict of slots.
    Attributes,
    /// Anything that its own `__setstate__` accepts.
    Data,
    /// The content of a numpy array, with all elements present.
    Array,
}

static LIST: LazyLock<HashMap<&'static str, HashMap<&'static str, GlobalRule>>> = LazyLock::new(|| {
    let mut out: HashMap<&str, HashMap<&str, GlobalRule>> = HashMap::new();
    for line in KNOWN
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
    {
        let mut parts = line.split('|').map(str::trim);
        let (modules, names, how) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
        let rule = GlobalRule::parse(how);
        for module in modules.unwrap_or_default().split_ascii_whitespace() {
            let names = names.unwrap_or_default().split_ascii_whitespace();
            out.entry(module).or_default().extend(names.map(|name| (name, rule)));
        }
    }
    out
});

static NAMED: GlobalRule = GlobalRule {
    call: None,
    new: None,
    state: BuildState::Nothing,
    items: false,
    pairs: false,
    factory: false,
    tensor: false,
    bits: false,
};

/// Returns the allowed uses of a name; `None` if it is not on the list.
pub(in crate::pickle) fn rule(module: &str, name: &str) -> Option<&'static GlobalRule> {
    let typed = || match module {
        "torch" => Dtype::from_torch(name).is_some() || is_storage(name),
        "torch.cuda" | "torch.storage" => is_storage(name),
        "numpy.dtypes" => name
            .strip_suffix("DType")
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_alphanumeric())),
        _ => false,
    };
    let listed = LIST.get(module).and_then(|names| names.get(name));
    listed.or_else(|| typed().then_some(&NAMED))
}

fn is_storage(name: &str) -> bool {
    Dtype::from_storage(name).is_some() || name == "TypedStorage"
}

impl GlobalRule {
    fn parse(how: &'static str) -> Self {
        let mut rule = Self::default();
        for word in how.split_ascii_whitespace() {
            match word.split_once(':') {
                Some(("call", shape)) => rule.call = Some(Signature(shape)),
                Some(("new", shape)) => rule.new = Some(Signature(shape)),
                _ => rule.set(word),
            }
        }
        rule
    }

    fn set(&mut self, word: &str) {
        match word {
            "attributes" => self.state = BuildState::Attributes,
            "data" => self.state = BuildState::Data,
            "array" => self.state = BuildState::Array,
            "items" => self.items = true,
            "pairs" => self.pairs = true,
            "factory" => self.factory = true,
            "tensor" => self.tensor = true,
            "bits" => self.bits = true,
            _ => {}
        }
    }
}

/// Modules | names | allowed uses. Argument letters are those of [`Signature`].
const KNOWN: &str = "
# Plain Python, as arguments, counters and configurations hold it.
builtins __builtin__ | list dict int long float str unicode bool tuple | factory
builtins __builtin__ | set frozenset | call:/L factory
builtins __builtin__ | bytes | call:
builtins __builtin__ | bytearray | call:/B/xl
builtins __builtin__ | complex | call:vv
builtins __builtin__ | range xrange | call:iii
builtins __builtin__ | slice | call:ddd
builtins __builtin__ | object Ellipsis NotImplemented |
collections | OrderedDict | call:/L pairs attributes factory
collections | defaultdict | call:/f pairs attributes
collections | Counter | call:/D pairs attributes factory
collections | deque | call:/L?i items factory
datetime | datetime date time | call:B?d
datetime | timedelta | call:iii
datetime | timezone | call:d?x
decimal | Decimal | call:x
fractions | Fraction | call:q?q
uuid | UUID | new: attributes
uuid | SafeUUID | call:v
pathlib pathlib._local | Path PosixPath WindowsPath PurePath PurePosixPath PureWindowsPath | call:x*
argparse | Namespace | new: attributes
types | SimpleNamespace | call: attributes
typing | Any |
logging | getLogger | call:x
copyreg copy_reg | _reconstructor | call:POn
_codecs | encode | call:xl
_io io | BytesIO StringIO | call: new: data

# numpy: arrays, scalars, random states.
numpy | ndarray |
numpy | bool bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 longdouble |
numpy | complex64 complex128 str_ bytes_ object_ void datetime64 timedelta64 |
numpy | dtype | call:x?bb data
numpy.core.multiarray numpy._core.multiarray | _reconstruct | call:AzB/Azx array
numpy.core.multiarray numpy._core.multiarray | scalar | call:d?d
numpy.core.numeric numpy._core.numeric | _frombuffer | call:Bdtx
numpy.random._pickle | __randomstate_ctor __generator_ctor | call:g?C data
numpy.random._pickle | __bit_generator_ctor | call:g data
numpy.random._mt19937 | MT19937 | bits
numpy.random._pcg64 | PCG64 PCG64DXSM | bits
numpy.random._philox | Philox | bits
numpy.random._sfc64 | SFC64 | bits
numpy.random.bit_generator | SeedSequence |
numpy.random.bit_generator | __pyx_unpickle_SeedSequence | call:Sid data

# torch: tensors of every kind.
torch torch._C | Size | call:t
torch torch._C | device | call:y?i
torch torch._C | Generator | call:d data
torch torch._C | dtype layout |
torch | strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc |
torch | contiguous_format preserve_format channels_last channels_last_3d |
torch | per_tensor_affine per_channel_affine per_channel_affine_float_qparams |
torch torch._tensor | Tensor | tensor
torch._C | _TensorBase |
torch.nn.parameter | Parameter Buffer UninitializedParameter | tensor
torch.serialization | _get_layout | call:x
torch.torch_version | TorchVersion | new:x
torch._utils | _rebuild_tensor | call:sitt
torch._utils | _rebuild_tensor_v2 | call:sittbo?d
torch._utils | _rebuild_tensor_v3 | call:sittbod?d
torch._utils | _rebuild_parameter | call:dbo
torch._utils | _rebuild_parameter_with_state | call:dboa
torch._utils | _rebuild_sparse_tensor _rebuild_sparse_csr_tensor | call:dT
torch._utils | _rebuild_nested_tensor | call:dddd
torch._utils | _rebuild_qtensor | call:Q
torch._utils | _rebuild_meta_tensor_no_storage | call:dttb
torch._utils | _rebuild_wrapper_subclass | call:cdttiddb
torch._utils | _rebuild_device_tensor_from_numpy _rebuild_device_tensor_from_cpu_tensor _rebuild_xla_tensor | call:ddxb
torch._tensor torch.tensor | _rebuild_from_type_v2 _rebuild_from_type | call:W

# TransferQueue 0.1.11: the state of its controller.
transfer_queue.controller | DataPartitionStatus FieldMeta | new: attributes

# torch: tensors spread over ranks.
torch.distributed.tensor torch.distributed._tensor torch.distributed._tensor.api torch.distributed.tensor._api | DTensor | tensor
torch.distributed.tensor.placement_types torch.distributed._tensor.placement_types | DTensor | tensor
torch.distributed.tensor._dtensor_spec torch.distributed._tensor._dtensor_spec | DTensorSpec TensorMeta ShardOrderEntry | new:d* attributes
torch.distributed.tensor torch.distributed._tensor | DTensorSpec TensorMeta | new:d* attributes
torch.distributed.tensor.placement_types torch.distributed._tensor.placement_types | DTensorSpec TensorMeta | new:d* attributes
torch.distributed.tensor.placement_types torch.distributed._tensor.placement_types | Shard Replicate Partial _Partial _StridedShard Placement | new: call:v* attributes
torch.distributed.tensor torch.distributed._tensor | Shard Replicate Partial _Partial _StridedShard Placement | new: call:v* attributes
torch.distributed.device_mesh torch.distributed._tensor.device_mesh torch.distributed.tensor | DeviceMesh | new: attributes
torch.distributed._tensor torch.distributed.tensor.placement_types torch.distributed._tensor.placement_types | DeviceMesh | new: attributes
torch.distributed._mesh_layout | _MeshLayout | new: attributes
torch.distributed.remote_device | _remote_device | new: attributes
torch.distributed._shard.sharded_tensor.api | ShardedTensor | tensor
torch.distributed._shard.sharded_tensor.api | ShardedTensor.ProcessGroupState | new: attributes
torch.distributed._shard.sharded_tensor.metadata | ShardedTensorMetadata TensorProperties | new: data
torch.distributed._shard.sharded_tensor.metadata | MEM_FORMAT_ENCODING | call:v
torch.distributed._shard.sharded_tensor.shard | Shard | new: attributes
torch.distributed._shard.metadata | ShardMetadata | new: attributes
torch.distributed._shard.sharding_spec.api | EnumerableShardingSpec | new: attributes
torch.distributed._shard.sharding_spec.chunk_sharding_spec | ChunkShardingSpec | new: attributes
torch.distributed._shard.sharding_spec | EnumerableShardingSpec ChunkShardingSpec ShardMetadata | new: attributes

# torch: the table of a distributed checkpoint, and Megatron's.
torch.distributed.checkpoint.metadata | Metadata TensorStorageMetadata TensorProperties ChunkStorageMetadata | new: data
torch.distributed.checkpoint.metadata | BytesStorageMetadata MetadataIndex StorageMeta | new: data
torch.distributed.checkpoint.metadata | _MEM_FORMAT_ENCODING | call:v
torch.distributed.checkpoint.filesystem | _StorageInfo _StoragePrefix | new: call:v* data
megatron.core.dist_checkpointing.strategies.torch | MCoreMetadata | new: data
megatron.core.enums | Fp4Recipe Fp8Recipe ModelType | call:v
megatron.core.transformer.enums | AttnBackend AttnMaskType AttnType CudaGraphScope LayerType ModelType | call:v

# transformers and accelerate: the arguments of a Trainer.
transformers.training_args | TrainingArguments | new: attributes
transformers.training_args | OptimizerNames | call:v
transformers.trainer_utils | HubStrategy IntervalStrategy SaveStrategy SchedulerType EvaluationStrategy FSDPOption | call:v
transformers.debug_utils | DebugOption | call:v
transformers.trainer_pt_utils | AcceleratorConfig | new: attributes
accelerate.state | PartialState | new: attributes
accelerate.utils.dataclasses | DistributedType | call:v

# DeepSpeed: optimizer and model states of all stages of ZeRO.
deepspeed.runtime.zero.config | ZeroStageEnum | call:v
deepspeed.runtime.fp16.loss_scaler | LossScaler DynamicLossScaler | new: attributes
deepspeed.utils.tensor_fragment | fragment_address | new: attributes

# OmegaConf: a configuration kept beside the weights.
omegaconf.dictconfig | DictConfig | new: attributes
omegaconf.listconfig | ListConfig | new: attributes
omegaconf.base | Metadata ContainerMetadata | new: attributes
omegaconf.nodes | AnyNode StringNode IntegerNode FloatNode BooleanNode BytesNode PathNode | new: attributes
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_no_loader_and_every_line_is_read() {
        for (module, name) in [
            ("torch._utils", "_import_dotted_name"),
            ("torch._utils", "_rebuild_anything"),
            ("torch.utils.data", "DataLoader"),
            ("torch.cuda.memory", "CUDAPluggableAllocator"),
            ("torch._C._aoti", "AOTIModelContainerRunnerCpu"),
            ("torch.storage", "_load_from_bytes"),
            ("builtins", "getattr"),
            ("collections", "namedtuple"),
            ("numpy", "load"),
        ] {
            assert_eq!(rule(module, name), None, "{module}.{name}");
        }
        let tensor = rule("torch._utils", "_rebuild_tensor_v2").map(|r| (r.call.is_some(), r.new.is_some(), r.state));
        assert_eq!(tensor, Some((true, false, BuildState::Nothing)));
        assert_eq!(rule("torch", "bfloat16"), Some(&NAMED));
        let lines = KNOWN.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
        assert!(lines.into_iter().all(|l| l.matches('|').count() == 2));
    }
}
