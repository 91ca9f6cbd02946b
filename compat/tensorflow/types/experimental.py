"""`tf.types.experimental`: the classes that programs ask for with `isinstance`."""

from tfdist_jax.compat.tensorflow._names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "_concrete_function": "ConcreteFunction",
        "_function": "Callable=Function GenericFunction=Function PolymorphicFunction=Function",
        "_tensor": "TensorLike=Tensor",
        "_trace_types": "SupportsTracingProtocol TraceType",
    },
)
__dir__ = __getattr__.names
