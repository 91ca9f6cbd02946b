"""`tf.errors`: exceptions and their codes.

See https://www.tensorflow.org/api_docs/python/tf/errors.
"""

from tfdist_jax.compat.tensorflow._names._lazy_names import LazyNames

__getattr__ = LazyNames(
    __name__,
    {
        "_platform._errors": (
            "ABORTED ALREADY_EXISTS AbortedError AlreadyExistsError CANCELLED CancelledError DATA_LOSS "
            "DEADLINE_EXCEEDED DataLossError DeadlineExceededError FAILED_PRECONDITION FailedPreconditionError "
            "INTERNAL INVALID_ARGUMENT InternalError InvalidArgumentError NOT_FOUND NotFoundError OK OUT_OF_RANGE "
            "OpError OperatorNotAllowedInGraphError OutOfRangeError PERMISSION_DENIED PermissionDeniedError "
            "RESOURCE_EXHAUSTED ResourceExhaustedError UNAUTHENTICATED UNAVAILABLE UNIMPLEMENTED UNKNOWN "
            "UnauthenticatedError UnavailableError UnimplementedError UnknownError"
        )
    },
)
__dir__ = __getattr__.names
