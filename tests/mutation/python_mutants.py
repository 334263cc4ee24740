"""Mistakes in Python: where they can be made is told by ``ast``, and made in the text.

Left alone is what no test should hold: what is said in logs and errors, annotations, and the
``strict`` of ``zip``, which only guards against mistakes elsewhere.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from tests.mutation.mutant import Mutant

_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
}
#: Comparisons whose mutant is their negation.
_NEGATED = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "+"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
#: Start, end, replacement.
_Change = tuple[int, int, str]
_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def python_mutants(path: str, source: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of their places."""
    found = _Finder(path, source)
    found.visit(ast.parse(source))
    return sorted(found.mutants, key=lambda one: (one.start, one.end, one.replacement))


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: str) -> None:
        self.mutants: list[Mutant] = []
        self._path = path
        self._source = source
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self._within: list[str] = []
        #: How often the innermost function gives a value to which name.
        self._stored: Counter[str] = Counter()

    def visit(self, node: ast.AST) -> None:
        """Look at a node, then at those in it."""
        if isinstance(node, _Scope):
            self._enter(node)
            return
        if self._is_passed_over(node):
            return
        for operator, change in self._changes(node):
            self._add(operator, change)
        for field, value in ast.iter_fields(node):
            if field in {"annotation", "returns", "decorator_list"}:
                continue
            if isinstance(node, ast.Raise):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self.visit(child)

    def _enter(self, node: _Scope) -> None:
        self._within.append(node.name)
        before = self._stored
        if not isinstance(node, ast.ClassDef):
            names = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
            self._stored = Counter(n.id for n in names if isinstance(n.ctx, ast.Store))
            self._stored.update(one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg))
            for default in [*node.args.defaults, *node.args.kw_defaults]:
                if default is not None:
                    self.visit(default)
        for child in node.body:
            self.visit(child)
        self._stored = before
        self._within.pop()

    def _is_passed_over(self, node: ast.AST) -> bool:
        match node:
            case ast.JoinedStr() | ast.keyword(arg="strict"):
                return True
            case ast.Expr(value=ast.Constant()):
                return True
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="log")))):
                return True
            case ast.Assign(targets=[ast.Name(id="msg")]):
                return True
            case ast.Assign(value=ast.BinOp(op=ast.BitOr())) if not self._within:  # a type
                return True
        return False

    def _changes(self, node: ast.AST) -> Iterator[tuple[str, _Change]]:
        yield from self._operators(node)
        match node:
            case ast.Constant():
                yield from self._constants(node)
            case ast.ExceptHandler(type=ast.expr() as caught):
                yield "handler", (*self._span(caught), "()")
            case ast.stmt():
                yield from self._statements(node)
        for test in _conditions(node):
            start, end = self._span(test)
            yield "negation", (start, end, f"not ({self._source[start:end]})")

    def _operators(self, node: ast.AST) -> Iterator[tuple[str, _Change]]:
        match node:
            case ast.Compare():
                sides = [node.left, *node.comparators]
                for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
                    old, new = _COMPARISONS[type(op)]
                    yield "comparison", self._between(left, right, old, new)
            case ast.BoolOp():
                old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield "and/or", self._between(left, right, old, new)
            case ast.BinOp(left, op, right) | ast.AugAssign(left, op, right):
                if type(op) in _ARITHMETIC:
                    old, new = _ARITHMETIC[type(op)]
                    yield "arithmetic", self._between(left, right, re.escape(old), new)
            case ast.UnaryOp(op=ast.Not() | ast.Invert()):
                start, end = self._span(node)
                mark = re.match(r"not\s*|~", self._source[start:end])
                assert mark is not None
                yield "negation", (start, start + mark.end(), "")

    def _constants(self, node: ast.Constant) -> Iterator[tuple[str, _Change]]:
        start, end = self._span(node)
        if isinstance(node.value, bool):
            yield "constant", (start, end, str(not node.value))
        elif isinstance(node.value, int):
            yield "constant", (start, end, str(node.value + 1))
            yield "constant", (start, end, str(node.value - 1))
        elif isinstance(node.value, float):
            yield "constant", (start, end, repr(node.value + 1))

    def _statements(self, node: ast.stmt) -> Iterator[tuple[str, _Change]]:
        start, end = self._span(node)
        match node:
            case ast.Continue():
                yield "statement", (start, end, "break")
            case ast.Break():
                yield "statement", (start, end, "continue")
            case ast.Return(value=ast.expr() as value):
                if not (isinstance(value, ast.Constant) and value.value in {None, True, False}):
                    yield "statement", (start, end, "return None")
            case ast.Return() | ast.Expr() | ast.AugAssign() | ast.Delete() | ast.Raise():
                yield "statement", (start, end, "pass")
            case ast.Assign(targets=[target]) if self._can_go(target):
                yield "statement", (start, end, "pass")

    def _can_go(self, target: ast.expr) -> bool:
        """Whether an assignment can be left out without a name being missing."""
        if isinstance(target, ast.Name):
            return self._stored[target.id] > 1
        return isinstance(target, ast.Attribute | ast.Subscript)

    def _add(self, operator: str, change: _Change) -> None:
        self.mutants.append(Mutant(self._path, ".".join(self._within), operator, *change))

    def _between(self, left: ast.AST, right: ast.AST, old: str, new: str) -> _Change:
        """Replace an operator, which stands between two nodes, maybe with parentheses."""
        start, end = self._span(left)[1], self._span(right)[0]
        found = re.search(old, self._source[start:end])
        assert found is not None
        return start + found.start(), start + found.end(), new

    def _span(self, node: ast.AST) -> tuple[int, int]:
        place = [
            getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")
        ]
        return self._offset(*place[:2]), self._offset(*place[2:])

    def _offset(self, line: int, column: int) -> int:
        # Columns are bytes.
        before = self._lines[line - 1].encode()[:column].decode()
        return self._starts[line - 1] + len(before)


def _conditions(node: ast.AST) -> list[ast.expr]:
    """Return the conditions of a node, but for those whose negation is another mutant already."""
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            tests = [test]
        case ast.comprehension(ifs=ifs):
            tests = ifs
        case _:
            return []
    return [one for one in tests if not _is_negated_elsewhere(one)]


def _is_negated_elsewhere(test: ast.expr) -> bool:
    match test:
        case ast.UnaryOp(op=ast.Not()) | ast.Constant():
            return True
        case ast.Compare(ops=[op]):
            return isinstance(op, _NEGATED)
    return False
