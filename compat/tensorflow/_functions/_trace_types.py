"""`tf.types.experimental.TraceType`: objects that say themselves when a function has to be traced anew for them."""

import abc
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable


class TracingContext:
    """What a tracing type may be told about the trace: nothing."""


class TraceType(abc.ABC):
    """The type of an argument: calls whose arguments have equal types share a program, that of the first call.

    Differs from TensorFlow: only equality counts; types are no subtypes of each other.
    Ref: https://www.tensorflow.org/api_docs/python/tf/types/experimental/TraceType
    """

    @abc.abstractmethod
    def is_subtype_of(self, other: "TraceType") -> bool:
        """Whether a function for the other type could be used for this one; not asked."""

    @abc.abstractmethod
    def most_specific_common_supertype(self, others: Sequence["TraceType"]) -> "TraceType | None":
        """Return the type that fits all; not asked."""

    @abc.abstractmethod
    def placeholder_value(self, placeholder_context: Any) -> Any:
        """Return what the function is traced with; not asked: that is the argument itself."""

    @abc.abstractmethod
    def __hash__(self) -> int:
        """Return equal numbers for equal types."""

    @abc.abstractmethod
    def __eq__(self, other: object) -> bool:
        """Whether a program for one type can be used for the other."""


@runtime_checkable
class SupportsTracingProtocol(Protocol):
    """What has a tracing type of its own.

    Ref: https://www.tensorflow.org/api_docs/python/tf/types/experimental/SupportsTracingProtocol
    """

    def __tf_tracing_type__(self, context: TracingContext) -> TraceType:
        """Return the object's type."""
        ...
