"""`tf.compat.v1.gfile`: files, by the names that TensorFlow 1 had."""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "io._gfile": (
            "Copy=copy DeleteRecursively=rmtree Exists=exists FastGFile=GFile GFile Glob=glob IsDirectory=isdir "
            "ListDirectory=listdir MakeDirs=makedirs MkDir=mkdir Open=GFile Remove=remove Rename=rename Stat=stat Walk=walk"
        ),
    },
)
__dir__ = __getattr__.names
