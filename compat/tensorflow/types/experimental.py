"""`tf.types.experimental`: the classes that programs ask for with `isinstance`."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "_functions._concrete_function": "ConcreteFunction",
        "_functions._function": "Callable=Function GenericFunction=Function PolymorphicFunction=Function",
        "_tensors._tensor": "TensorLike=Tensor",
        "_functions._trace_types": "SupportsTracingProtocol TraceType",
    },
)
__dir__ = __getattr__.names
