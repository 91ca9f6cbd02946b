"""`tf.train.CheckpointView`: the objects in a checkpoint, and which of a program's objects they belong to."""

import logging
from typing import Any, final

from tfdist_jax.compat.tensorflow.train._objects import graph_of, is_trackable
from tfdist_jax.compat.tensorflow.train._reader import checked_path
from tfdist_jax.compat.tensorflow.train._saved import open_saved

_log = logging.getLogger(__name__)


@final
class CheckpointView:
    """Drop-in for `tf.train.CheckpointView`: the objects in a checkpoint, by number; the root is 0.

    Ref: https://www.tensorflow.org/api_docs/python/tf/train/CheckpointView
    """

    def __init__(self, save_path: Any) -> None:
        """Look into a checkpoint.

        Raises:
            NotFoundError: If there is no such checkpoint.
        """
        graph = open_saved(checked_path(save_path)).graph(None)
        self._children, self._graph = graph.children, graph

    def children(self, node_id: int) -> dict[str, int]:
        """Return the numbers of the objects that hang on one, by name."""
        return dict(self._children[node_id])

    def descendants(self) -> list[int]:
        """Return the numbers of all objects, those near the root first."""
        found = [0]
        for node in found:
            found += [child for child in dict.fromkeys(self._children[node].values()) if child not in found]
        return found

    def match(self, obj: Any) -> dict[int, Any]:
        """Return the objects below `obj` that are where objects of the checkpoint have been, by these' numbers.

        Raises:
            ValueError: If `obj` can hold no variables.
        """
        if not is_trackable(obj):
            raise ValueError(f"Expected a Trackable (an object that holds variables), got {obj} of type {type(obj)}.")
        matched = {0: obj}
        for node, owner in (waiting := [(0, obj)]):
            there = dict(self._graph.children_of(owner))
            for name, child in self._children[node].items():
                if child == 0 or name not in there:
                    continue
                if child not in matched:
                    matched[child] = there[name]
                    waiting.append((child, there[name]))
                elif matched[child] is not there[name]:
                    _log.warning(
                        "Inconsistent references: %s and %s stand for one object.", matched[child], there[name]
                    )
        return matched

    def diff(self, obj: Any) -> tuple[dict[int, Any], list[int], list[Any]]:
        """Return what `match` does, the numbers that it lacks, and the objects below `obj` that it lacks."""
        matched = self.match(obj)
        found = set(map(id, matched.values()))
        only_saved = [node for node in self.descendants() if node not in matched]
        return (
            matched,
            only_saved,
            [node.owner for node in graph_of(obj, self._graph.saved_of) if id(node.owner) not in found],
        )
