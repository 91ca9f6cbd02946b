"""Why TensorFlow's names are not there, and what to use in their place."""

_GRAPHS = (
    "it is about TensorFlow's graphs, which are not there: functions become XLA's programs. Write a `tf.function`."
)
_RAGGED = (
    "XLA's arrays have fixed sizes. Use tensors that are filled up, and a mask: `tf.sequence_mask`, `tf.pad`, "
    "`tf.keras.utils.pad_sequences`."
)
_MESSAGES = (
    "messages of other kinds than examples and tensors are read and written by the `protobuf` package: use the class that "
    "`protoc` makes of them."
)
_SAVED = "a SavedModel here holds variables and programs. Keep other files beside its folder, and read them with `tf.io.gfile.GFile`."
_QUANTIZED = "XLA's arrays have no quantized types. Use `tf.int8` and a scale, or `model.quantize('int8')`."
_RNN = "these wrappers are for cells of TensorFlow 1. Use arguments of `tf.keras.layers.RNN` and its cells."

# Names, and namespaces with all their names, by reason.
_NAMES: dict[str, str] = {
    _GRAPHS: (
        "tf.Graph tf.Operation tf.import_graph_def tf.graph_util "
        "tf.make_ndarray tf.make_tensor_proto tf.io.write_graph tf.test.assert_equal_graph_def "
        "tf.types.experimental.AtomicFunction tf.types.experimental.FunctionType tf.resource tf.variant "
        "tf.dtypes.resource tf.dtypes.variant tf.mlir"
    ),
    _RAGGED: (
        "tf.ragged_fill_empty_rows tf.ragged_fill_empty_rows_grad tf.experimental.DynamicRaggedShape tf.experimental.RowPartition "
        "tf.experimental.StructuredTensor"
    ),
    _MESSAGES: "tf.io.decode_proto tf.io.encode_proto",
    _SAVED: "tf.saved_model.Asset tf.saved_model.experimental",
    "a session's settings belong to TensorFlow 1. Leave them and `set_session` out; let a GPU's memory grow with "
    "`tf.config.experimental.set_memory_growth(gpu, True)`.": (
        "tf.compat.v1.Session tf.compat.v1.InteractiveSession "
        "tf.compat.v1.keras.backend.set_session tf.ConfigProto tf.GPUOptions tf.InteractiveSession"
    ),
    "TensorFlow has dropped its own mixed precision. Use `tf.keras.mixed_precision.set_global_policy('mixed_float16')`, whose "
    "`compile` scales losses, or `tf.keras.mixed_precision.LossScaleOptimizer(optimizer)`.": (
        "tf.train.experimental.DynamicLossScale tf.train.experimental.FixedLossScale tf.train.experimental.LossScale "
        "tf.train.experimental.enable_mixed_precision_graph_rewrite tf.train.experimental.disable_mixed_precision_graph_rewrite "
        "tf.mixed_precision"
    ),
    _QUANTIZED: (
        "tf.quantization tf.qint8 tf.qint16 tf.qint32 tf.quint8 tf.quint16 tf.dtypes.qint8 tf.dtypes.qint16 "
        "tf.dtypes.qint32 tf.dtypes.quint8 tf.dtypes.quint16 tf.dtypes.QUANTIZED_DTYPES"
    ),
    _RNN: "tf.nn.RNNCellDeviceWrapper tf.nn.RNNCellDropoutWrapper tf.nn.RNNCellResidualWrapper",
    "TensorFlow 1's graphs and sessions are not there. Port the program to TensorFlow 2: "
    "https://www.tensorflow.org/guide/migrate.": (
        "tf.compat.v1 tf.Session tf.placeholder tf.get_variable tf.variable_scope tf.layers tf.contrib tf.app tf.flags tf.logging "
        "tf.global_variables_initializer tf.enable_eager_execution tf.disable_v2_behavior tf.train.MonitoredSession "
        "tf.train.Saver tf.train.AdamOptimizer tf.train.GradientDescentOptimizer tf.train.MomentumOptimizer "
        "tf.train.Coordinator"
    ),
    "estimators have gone from TensorFlow. Use `tf.keras`, whose `fit` works under every strategy.": "tf.estimator",
    "in TensorFlow 1's graphs it makes variables of its own. Use `tf.keras.layers.DenseFeatures(columns)`, and a Dense layer behind it "
    "for a linear model.": (
        "tf.compat.v1.feature_column.input_layer tf.compat.v1.feature_column.linear_model "
        "tf.compat.v1.feature_column.shared_embedding_columns"
    ),
    "TensorFlow Lite converts TensorFlow's graphs. `jax.export` writes a program to a file; the `ai-edge` packages "
    "convert Keras and JAX models for small devices.": "tf.lite",
    "they are TensorFlow's own operations. Use the function with a public name, such as `tf.add` for "
    "`tf.raw_ops.AddV2`.": "tf.raw_ops",
    "queues fed TensorFlow 1's graphs. Use `tf.data`, or Python's `queue` in front of "
    "`tf.data.Dataset.from_generator`.": "tf.queue",
    "results have sizes that depend on values. Use Python's or NumPy's sets, before the data become tensors.": "tf.sets",
    "embeddings are variables here: use `tf.nn.embedding_lookup` or `tf.keras.layers.Embedding`.": (
        "tf.tpu.experimental.embedding"
    ),
    "`tf.keras.callbacks.BackupAndRestore` and `tf.distribute.experimental.PreemptionCheckpointHandler` save when a job is stopped.": (
        "tf.distribute.experimental.PreemptionWatcher"
    ),
    "datasets are made in the process that trains. Share the work out with `dataset.shard`.": "tf.data.experimental.service",
    "TensorFlow's own profiling server is not there. Use `tf.profiler.experimental.start` or `jax.profiler`.": (
        "tf.profiler.experimental.client tf.profiler.experimental.server"
    ),
    "it tells how to compile C++ operations for TensorFlow. Write operations with `jax.ffi`, or in Pallas.": (
        "tf.sysconfig.CXX11_ABI_FLAG tf.sysconfig.CXX_VERSION tf.sysconfig.MONOLITHIC_BUILD "
        "tf.sysconfig.get_compile_flags tf.sysconfig.get_include tf.sysconfig.get_lib tf.sysconfig.get_link_flags"
    ),
    "XLA's arrays of such numbers are made with `jax.numpy` and `ml_dtypes`; operations here have not been checked on "
    "them.": (
        "tf.dtypes.experimental tf.experimental.float4_e2m1fn tf.experimental.float8_e4m3b11fnuz "
        "tf.experimental.float8_e4m3fn tf.experimental.float8_e4m3fnuz tf.experimental.float8_e5m2 "
        "tf.experimental.float8_e5m2fnuz tf.experimental.int2 tf.experimental.int4 tf.experimental.uint2 "
        "tf.experimental.uint4"
    ),
    "it changes how TensorFlow's own runtime works, and JAX has its own. Leave it out.": (
        "tf.config.experimental.get_device_policy tf.config.experimental.set_device_policy "
        "tf.config.experimental.get_synchronous_execution tf.config.experimental.set_synchronous_execution "
        "tf.debugging.experimental "
        "tf.nondifferentiable_batch_function "
        "tf.experimental.enable_strict_mode "
        "tf.experimental.function_executor_type tf.experimental.register_filesystem_plugin"
    ),
}
_NAMES |= {
    "TensorFlow's servers are not there. Processes are started by `tfdist-jax launch`, in tests by the pytest plugin "
    "`tfdist_jax.testing`.": "tf.test.create_local_cluster",
    "it reports to TensorFlow's own runner. Measure with `time.perf_counter` around `jax.block_until_ready`, or pytest-benchmark.": (
        "tf.test.Benchmark tf.test.benchmark_config"
    ),
    "classes of one's own become JAX's: `jax.tree_util.register_dataclass`, or `flax.struct.dataclass`.": (
        "tf.experimental.ExtensionType tf.experimental.BatchableExtensionType tf.experimental.ExtensionTypeBatchEncoder "
        "tf.experimental.ExtensionTypeSpec tf.experimental.extension_type tf.experimental.dispatch_for_api "
        "tf.experimental.dispatch_for_binary_elementwise_apis tf.experimental.dispatch_for_binary_elementwise_assert_apis "
        "tf.experimental.dispatch_for_unary_elementwise_apis tf.experimental.unregister_dispatch_for"
    ),
    "layouts over a mesh of devices are JAX's: see `tfdist_jax.FSDP` and `jax.sharding`.": "tf.experimental.dtensor",
    "XLA compiles for GPU; there is nothing to convert.": "tf.experimental.tensorrt",
    "tensors are JAX's arrays: `jax.dlpack.from_dlpack(x)`, and any library's `from_dlpack(tensor)`.": (
        "tf.experimental.dlpack"
    ),
    "boxes that depend on random numbers have sizes that XLA does not know. Use `tf.image.random_crop` or "
    "`tf.image.stateless_random_crop`, or `tf.image.crop_and_resize`.": (
        "tf.image.sample_distorted_bounding_box tf.image.stateless_sample_distorted_bounding_box "
        "tf.image.extract_glimpse tf.image.generate_bounding_box_proposals"
    ),
    "operators of other structures are not there. Use `tf.linalg.LinearOperatorFullMatrix`.": (
        "tf.linalg.LinearOperatorAdjoint tf.linalg.LinearOperatorBlockDiag tf.linalg.LinearOperatorBlockLowerTriangular "
        "tf.linalg.LinearOperatorCirculant tf.linalg.LinearOperatorCirculant2D tf.linalg.LinearOperatorCirculant3D "
        "tf.linalg.LinearOperatorComposition tf.linalg.LinearOperatorHouseholder tf.linalg.LinearOperatorInversion "
        "tf.linalg.LinearOperatorKronecker tf.linalg.LinearOperatorLowRankUpdate tf.linalg.LinearOperatorPermutation "
        "tf.linalg.LinearOperatorToeplitz tf.linalg.LinearOperatorTridiag tf.linalg.LinearOperatorZeros"
    ),
    "beams are searched on the host: use `keras.ops.ctc_decode(..., strategy='beam_search')`, or "
    "`tf.nn.ctc_greedy_decoder`.": "tf.nn.ctc_beam_search_decoder",
}
_REASONS = {name: reason for reason, names in _NAMES.items() for name in names.split()}


def reason(name: str) -> str | None:
    """Return why a dotted name such as `tf.strings.join` is not there, if more is to be said than that."""
    while name:
        if name in _REASONS:
            return _REASONS[name]
        name = name.rpartition(".")[0]
    return None
