"""Names of modules as their source declares them, without the import of what the modules need: torch takes seconds."""

import ast
import copy
import functools
import importlib
from pathlib import Path
from typing import Any

_PACKAGE = __name__.split(".")[0]
_ROOT = Path(__file__).parents[1]


@functools.cache
def declared(module: str, name: str) -> Any:
    """Return what a module of the package, or one outside that is imported, has under a name, made from its source.

    A class comes with its docstring, its fields and the signature of its constructor, and can do nothing. A constant
    is worth what its expression says of other names.
    """
    if module.split(".")[0] != _PACKAGE:
        return getattr(importlib.import_module(module), name)
    match statements(module).get(name):
        case ast.ClassDef() as statement:
            return _record_or_signature(statement, module)
        case ast.Assign(value=expression) | ast.AnnAssign(value=ast.expr() as expression):
            return eval(compile(ast.Expression(expression), module, "eval"), _names_in(expression, module))
        case ast.ImportFrom(module=str(home), names=names):
            there = next(alias.name for alias in names if name in (alias.name, alias.asname))
            return declared(home, there)
        case ast.Import():
            return importlib.import_module(name)
    raise LookupError(f"expected {module} to declare {name} by a class, an assignment or an import")


@functools.cache
def statements(module: str) -> dict[str, ast.stmt]:
    """Return the statements at the top of a module by the names that they bind."""
    path = _ROOT.joinpath(*module.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    found: dict[str, ast.stmt] = {}
    for statement in ast.parse(path.read_text(encoding="utf-8"), path).body:
        match statement:
            case ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = statement
            case ast.Assign(targets=targets):
                found |= {target.id: statement for target in targets if isinstance(target, ast.Name)}
            case ast.ImportFrom(names=names) | ast.Import(names=names):
                found |= {alias.asname or alias.name: statement for alias in names}
    return found


def _record_or_signature(declaration: ast.ClassDef, module: str) -> type:
    """Return a dataclass with its fields, or a class with the signature of its constructor alone."""
    reduced = copy.deepcopy(declaration)
    made = [part for part in reduced.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
    for constructor in made:
        constructor.body, constructor.decorator_list, constructor.args.kwarg = [ast.Pass()], [], None
    fields = [part for part in reduced.body if isinstance(part, ast.AnnAssign)]
    reduced.bases = []
    reduced.decorator_list = [by for by in reduced.decorator_list if "dataclass" in ast.unparse(by)]
    reduced.body = [ast.Expr(ast.Constant(ast.get_docstring(declaration))), *(made or fields)]
    # jsonargparse imports the module that a class says it is of: this is none.
    namespace: dict[str, Any] = _names_in(reduced, module) | {"__name__": "declared"}
    exec(compile(ast.fix_missing_locations(ast.Module([reduced], [])), module, "exec"), namespace)
    return namespace[declaration.name]


def _names_in(code: ast.AST, module: str) -> dict[str, Any]:
    """Return what the names in an expression or a class stand for, where the module declares them."""
    names = {part.id for part in ast.walk(code) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
    return {name: declared(module, name) for name in names & {*statements(module)}}
