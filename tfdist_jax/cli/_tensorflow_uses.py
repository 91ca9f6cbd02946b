"""Which of TensorFlow's and Keras's names a program uses, read from its source."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, final

# How dotted names begin here, by the module that a program imports.
_ROOTS = {"tensorflow": "tf", "keras": "keras"}
# Who catches these goes on where a name is not there.
_CAUGHT = {"AttributeError", "ImportError", "ModuleNotFoundError", "NotImplementedError", "Exception", "BaseException"}
# An `if` that asks one of these decides by what is there, or by the version.
_ASKING = {"hasattr", "getattr", "dir", "__version__", "VERSION", "__git_version__"}
# Statements behind which a block does not go on.
_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)
CALL = "()"
FIRST_IS_TEXT = '"..."'


class Use(NamedTuple):
    """A use of a name.

    Attributes:
        line: Its line in the file, from 1.
        name: What is used, such as `tf.nn.relu`; `tf.data.Dataset.range().map` is a method of what a call returns, `.map` one of
            an object that the text does not tell, or that a class of the program's has.
        keywords: Names of the arguments, if it is called; FIRST_IS_TEXT for a first one that is a text.
        is_handled: Whether the program asks first, or catches the error, if it is not there.
    """

    line: int
    name: str
    keywords: tuple[str, ...]
    is_handled: bool


def uses_of_program(source: str, file: str) -> list[Use]:
    r"""Return the uses of TensorFlow's and Keras's names, in the order of lines.

    Args:
        source: The program's text.
        file: Its name, for messages.

    Raises:
        SyntaxError: If it is no Python.

    Example:
        >>> uses_of_program("import tensorflow as tf\nx = tf.ones(2, dtype='int32')", "a.py")[1:]
        [Use(line=2, name='tf.ones', keywords=('dtype',), is_handled=False)]
    """
    reader = _Reader()
    reader.read(ast.parse(source, file))
    return sorted(reader.uses)


class _ClassNames(dict[str, str | None]):
    """The names of a class's body, which its methods do not see."""


@final
class _Reader(ast.NodeVisitor):
    """Walks through a program in the order in which it runs: functions after what is around them."""

    def __init__(self) -> None:
        self.uses: set[Use] = set()
        # What names stand for, the innermost scope last; None for something else than TensorFlow's.
        self._scopes: list[dict[str, str | None]] = [{}]
        self._is_handled = False
        self._methods: set[Use] = set()
        self._waiting: list[tuple[Sequence[ast.AST], list[dict[str, str | None]], bool]] = []

    def read(self, tree: ast.Module) -> None:
        """Collect the uses of a module."""
        self._visit_all(tree.body)
        while self._waiting:
            nodes, self._scopes, self._is_handled = self._waiting.pop(0)
            self._visit_all(nodes)
        if self.uses:  # Otherwise they are those of other libraries.
            self.uses |= self._methods

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            top, _, rest = alias.name.partition(".")
            root = _ROOTS.get(top)
            name = root and ".".join([root, *filter(None, [rest])])
            if name:
                self._use(node, name)
            self._bind(alias.asname or top, name if alias.asname else root)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        top, _, rest = (node.module or "").partition(".")
        root = None if node.level else _ROOTS.get(top)
        for alias in node.names:
            name = root and ".".join([root, *filter(None, [rest]), alias.name])
            if name and alias.name != "*":
                self._use(alias, name)
            self._bind(alias.asname or alias.name, name)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._resolve(node)
        if name:
            self._use(node, name)
        else:
            self._note_method(node, node.attr)
        if not name or not isinstance(node.value, ast.Attribute | ast.Name):
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        name = self._resolve(node.func)
        if name and not name.endswith(CALL):
            self._use(node.func, name, _argument_names(node))
            if isinstance(node.func, ast.Attribute) and not isinstance(node.func.value, ast.Attribute | ast.Name):
                self.visit(node.func.value)
        elif not name and isinstance(node.func, ast.Attribute):
            self._note_method(node.func, node.func.attr, _argument_names(node))
            self.visit(node.func.value)
        else:
            self.visit(node.func)
        self._visit_all([*node.args, *node.keywords])

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._assign(target, node.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._bind(target.id, self._resolve(value))
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                self._assign(one, its)
        else:
            self.visit(target)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store | ast.Del):
            self._bind(node.id, None)

    def visit_Try(self, node: ast.Try) -> None:
        with self._handling(any(map(_catches_what_is_missing, node.handlers))):
            self._visit_all(node.body)
        found = {name: value for name, value in self._scopes[-1].items() if value in _ROOTS.values()}
        self._visit_all(node.handlers)
        self._scopes[-1].update(found)  # `tf = None` is for where there is no TensorFlow at all.
        self._visit_all([*node.orelse, *node.finalbody])

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        self.visit(node.test)
        with self._handling(_asks_what_is_there(node.test)):
            self._visit_all([node.body, node.orelse] if isinstance(node, ast.IfExp) else [*node.body, *node.orelse])

    visit_IfExp = visit_If

    def _visit_named(self, node: ast.ExceptHandler | ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self._bind(node.name, None)
        self.generic_visit(node)

    visit_ExceptHandler = visit_MatchAs = visit_MatchStar = _visit_named

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        with ExitStack() as later:
            for value in node.values:
                self.visit(value)
                later.enter_context(self._handling(_asks_what_is_there(value)))

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        self._visit_all(node.items)
        with self._handling(any(_suppresses_what_is_missing(item.context_expr) for item in node.items)):
            self._visit_all(node.body)

    visit_AsyncWith = visit_With

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = node.args
        self._visit_all([*node.decorator_list, arguments, *filter(None, [node.returns])])
        if isinstance(self._scopes[-1], _ClassNames):
            self._note_method(node, node.name)
        self._bind(node.name, None)
        seen = [scope for scope in self._scopes if not isinstance(scope, _ClassNames)]
        self._waiting.append((node.body, [*seen, _parameters(arguments)], self._is_handled))

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)
        with self._scope(_parameters(node.args)):
            self.visit(node.body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_all([*node.decorator_list, *node.bases, *node.keywords])
        self._bind(node.name, None)
        with self._scope(_ClassNames()):
            self._visit_all(node.body)

    def _visit_comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        with self._scope({}):
            self._visit_all(node.generators)
            self._visit_all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._visit_all([node.iter, node.target, *node.ifs])

    def generic_visit(self, node: ast.AST) -> None:
        for _, value in ast.iter_fields(node):
            parts = value if isinstance(value, list) else [value]
            self._visit_all(part for part in parts if isinstance(part, ast.AST))

    def _visit_all(self, nodes: Iterable[ast.AST]) -> None:
        with ExitStack() as rest:
            for node in nodes:
                self.visit(node)
                rest.enter_context(self._handling(_leaves_without_what_is_missing(node)))

    def _use(self, node: ast.expr | ast.alias | ast.stmt, name: str, keywords: tuple[str, ...] = ()) -> None:
        self.uses.add(Use(node.end_lineno or node.lineno, name, keywords, self._is_handled))

    def _note_method(self, node: ast.Attribute | ast.stmt, name: str, keywords: tuple[str, ...] = ()) -> None:
        line = node.end_lineno if isinstance(node, ast.Attribute) else None
        self._methods.add(Use(line or node.lineno, f".{name}", keywords, self._is_handled))

    def _bind(self, name: str, value: str | None) -> None:
        self._scopes[-1][name] = value

    def _resolve(self, node: ast.expr) -> str | None:
        """Return the dotted name that an expression stands for, if it is one of TensorFlow's."""
        if isinstance(node, ast.Name):
            return next((scope[node.id] for scope in reversed(self._scopes) if node.id in scope), None)
        if isinstance(node, ast.Attribute):
            inner = self._resolve(node.value)
            return inner and f"{inner}.{node.attr}"
        if isinstance(node, ast.Call):
            inner = self._resolve(node.func)
            return inner and inner + CALL
        return None

    @contextmanager
    def _scope(self, names: dict[str, str | None]) -> Iterator[None]:
        outer = self._scopes
        self._scopes = [*outer, names]
        try:
            yield
        finally:
            self._scopes = outer

    @contextmanager
    def _handling(self, is_handled: bool) -> Iterator[None]:
        before = self._is_handled
        self._is_handled = before or is_handled
        try:
            yield
        finally:
            self._is_handled = before


def _argument_names(node: ast.Call) -> tuple[str, ...]:
    is_text = node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    return (*([FIRST_IS_TEXT] if is_text else []), *(keyword.arg for keyword in node.keywords if keyword.arg))


def _parameters(arguments: ast.arguments) -> dict[str, str | None]:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return {argument.arg: None for argument in named if argument is not None}


def _catches_what_is_missing(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    return _are_caught(handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type])


def _suppresses_what_is_missing(context: ast.expr) -> bool:
    if not isinstance(context, ast.Call):
        return False
    function = context.func
    return getattr(function, "id", getattr(function, "attr", None)) == "suppress" and _are_caught(context.args)


def _are_caught(kinds: Iterable[ast.expr]) -> bool:
    return any(isinstance(kind, ast.Name) and kind.id in _CAUGHT for kind in kinds)


def _leaves_without_what_is_missing(node: ast.AST) -> bool:
    """Whether what comes after a statement is reached only if what it asks for is there."""
    return isinstance(node, ast.If) and isinstance(node.body[-1], _LEAVING) and _asks_what_is_there(node.test)


def _asks_what_is_there(test: ast.expr) -> bool:
    names = (getattr(node, "id", getattr(node, "attr", None)) for node in ast.walk(test))
    return any(name in _ASKING for name in names)
