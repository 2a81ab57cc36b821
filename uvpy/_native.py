"""Native methods as the functions that a class has otherwise.

A method of C type is none to whoever looks at a class: the autospec of `unittest.mock`, `inspect.isfunction`,
`weakref.WeakMethod` and `pickle` want functions. So `uvpy.Loop` gets a function in the place of each native method,
with its name, parameters and documentation; `_core.native_function` makes the interpreter call the native method.
Knows nothing of what the methods do.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from . import _core

_ANY = "(self, *args, **kwargs)"


def _signature(text: str | None) -> str:
    """The parameters of a native method as source text, from its `__text_signature__`."""
    return _ANY if text is None else text.replace("$", "")


def _arguments(signature: str) -> str:
    """What passes the parameters of a signature on: `(self, a, *b, c=None)` gives `(self, a, *b, c=c)`."""
    passed = []
    keyword = False
    for parameter in signature[1:-1].split(", "):
        name = parameter.partition("=")[0]
        if name.startswith("*"):
            keyword = not name.startswith("**")
            if name != "*":
                passed.append(name)
        elif name != "/":
            passed.append(f"{name}={name}" if keyword else name)
    return f"({', '.join(passed)})"


def _sources(methods: dict[str, Any]) -> str:
    """One function `name(native)` a method, which makes the function that calls `native`."""
    lines = []
    for name, method in methods.items():
        signature = _signature(method.__text_signature__)
        lines += [
            f"def {name}(native):",
            f"    def {name}{signature}:",
            f"        return native{_arguments(signature)}",
            f"    return {name}",
        ]
    return "\n".join(lines)


def put_functions(kind: type, native: type) -> None:
    """Give a class a function for each method of a native base that it has not replaced."""
    methods = {
        name: method
        for name, method in vars(native).items()
        if isinstance(method, types.MethodDescriptorType) and name not in vars(kind) and not name.startswith("__")
    }
    # They belong to the class's module, but see nothing of it.
    space: dict[str, Any] = {"__name__": kind.__module__, "__builtins__": {}}
    exec(compile(_sources(methods), f"<{native.__module__}>", "exec"), space)
    for name, method in methods.items():
        make: Callable[[Any], types.FunctionType] = space[name]
        function = make(method)
        function.__qualname__ = f"{kind.__qualname__}.{name}"
        function.__doc__ = method.__doc__
        setattr(kind, name, _core.native_function(function, method))
