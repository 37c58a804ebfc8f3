//! The table of familiar names: one module a line.

/// Names that torch, numpy and plain data use, by module.
pub(super) const FAMILIAR: &str = "
builtins: set frozenset dict list tuple int long float complex bool str unicode bytes bytearray slice range
builtins: xrange object Ellipsis NotImplemented
__builtin__: set frozenset dict list tuple int long float complex bool str unicode bytes bytearray slice range
__builtin__: xrange object Ellipsis NotImplemented
collections: OrderedDict defaultdict deque Counter
datetime: datetime date time timedelta timezone
decimal: Decimal
fractions: Fraction
uuid: UUID SafeUUID
pathlib: Path PosixPath WindowsPath PurePath PurePosixPath PureWindowsPath
pathlib._local: Path PosixPath WindowsPath PurePath PurePosixPath PureWindowsPath
argparse: Namespace
types: SimpleNamespace
copyreg: _reconstructor
copy_reg: _reconstructor
array: array _array_reconstructor
re: _compile
time: struct_time
logging: getLogger
zoneinfo: ZoneInfo
signal: Signals Handlers
_codecs: encode
_io: BytesIO StringIO
io: BytesIO StringIO
numpy: ndarray dtype bool bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64
numpy: longdouble complex64 complex128 str_ bytes_ object_ void datetime64 timedelta64
numpy.core.multiarray: _reconstruct scalar
numpy._core.multiarray: _reconstruct scalar
numpy.core.numeric: _frombuffer
numpy._core.numeric: _frombuffer
numpy.random: RandomState Generator
numpy.random._pickle: __randomstate_ctor __generator_ctor __bit_generator_ctor
numpy.random._mt19937: MT19937
numpy.random._pcg64: PCG64 PCG64DXSM
numpy.random._philox: Philox
numpy.random._sfc64: SFC64
numpy.random.bit_generator: SeedSequence __pyx_unpickle_SeedSequence
torch: Size device dtype layout Tensor strided sparse_coo contiguous_format preserve_format Generator
torch: per_tensor_affine per_channel_affine
torch.nn.parameter: Parameter Buffer UninitializedParameter
torch._tensor: _rebuild_from_type_v2 Tensor
torch.serialization: _get_layout
torch.torch_version: TorchVersion
torch._C: Size device dtype Generator _TensorBase
torch.distributed.tensor: DTensor DeviceMesh DTensorSpec TensorMeta Shard Replicate Partial _StridedShard
torch.distributed.tensor: _Partial Placement
torch.distributed._tensor: DTensor DeviceMesh DTensorSpec TensorMeta Shard Replicate Partial _StridedShard
torch.distributed._tensor: _Partial Placement
torch.distributed.tensor._dtensor_spec: DTensorSpec TensorMeta ShardOrderEntry
torch.distributed._tensor._dtensor_spec: DTensorSpec TensorMeta
torch.distributed._tensor.api: DTensor
torch.distributed.tensor._api: DTensor
torch.distributed.tensor.placement_types: DTensor DeviceMesh DTensorSpec TensorMeta Shard Replicate Partial
torch.distributed.tensor.placement_types: _StridedShard _Partial Placement
torch.distributed._tensor.placement_types: DTensor DeviceMesh DTensorSpec TensorMeta Shard Replicate Partial
torch.distributed._tensor.placement_types: _StridedShard _Partial Placement
torch.distributed._tensor.device_mesh: DeviceMesh
torch.distributed.device_mesh: DeviceMesh _MeshEnv
torch.distributed._mesh_layout: _MeshLayout
torch.distributed.remote_device: _remote_device
torch.distributed._shard.sharded_tensor.api: ShardedTensor ShardedTensor.ProcessGroupState
torch.distributed._shard.sharded_tensor.metadata: ShardedTensorMetadata TensorProperties MEM_FORMAT_ENCODING
torch.distributed._shard.sharded_tensor.shard: Shard
torch.distributed._shard.metadata: ShardMetadata
torch.distributed._shard.sharding_spec.api: EnumerableShardingSpec
torch.distributed._shard.sharding_spec.chunk_sharding_spec: ChunkShardingSpec
torch.distributed._shard.sharding_spec: EnumerableShardingSpec ChunkShardingSpec ShardMetadata
torch.distributed.checkpoint.metadata: Metadata TensorStorageMetadata TensorProperties ChunkStorageMetadata
torch.distributed.checkpoint.metadata: BytesStorageMetadata MetadataIndex StorageMeta _MEM_FORMAT_ENCODING
torch.distributed.checkpoint.filesystem: _StorageInfo _StoragePrefix
megatron.core.dist_checkpointing.strategies.torch: MCoreMetadata
torch.optim.lr_scheduler: LambdaLR CosineAnnealingLR LinearLR ConstantLR SequentialLR
";
