"""The variables and tables of a layer's columns."""

from collections.abc import Callable
from typing import Any, final


@final
class ColumnState:
    """The variables and tables of a layer's columns, as columns ask for them."""

    def __init__(self, make_variable: Callable[..., Any]) -> None:
        """Make variables by a function that takes a column, a name, a shape, an initializer and whether they are trained."""
        self._make_variable = make_variable
        self._variables: dict[Any, Any] = {}
        self._resources: dict[Any, Any] = {}

    def create_variable(
        self,
        feature_column: Any,
        name: str,
        shape: Any,
        dtype: Any = None,
        trainable: bool = True,
        use_resource: bool = True,
        initializer: Any = None,
    ) -> Any:
        """Make a variable of a column.

        Raises:
            ValueError: If it has one with this name.
        """
        if (feature_column, name) in self._variables:
            raise ValueError(f"{feature_column.name} has a variable {name!r} already.")
        variable = self._make_variable(feature_column, name, shape, initializer, trainable)
        self._variables[feature_column, name] = variable
        return variable

    def get_variable(self, feature_column: Any, name: str) -> Any:
        """Return a variable of a column.

        Raises:
            ValueError: If it has none with this name.
        """
        if (feature_column, name) not in self._variables:
            raise ValueError(f"{feature_column.name} has no variable {name!r}.")
        return self._variables[feature_column, name]

    def add_resource(self, feature_column: Any, name: str, resource: Any) -> None:
        """Keep a table of a column."""
        self._resources[feature_column, name] = resource

    def has_resource(self, feature_column: Any, name: str) -> bool:
        """Whether a table of a column is kept."""
        return (feature_column, name) in self._resources

    def get_resource(self, feature_column: Any, name: str) -> Any:
        """Return a table of a column."""
        return self._resources[feature_column, name]
