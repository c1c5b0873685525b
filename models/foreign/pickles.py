"""Pickled trees of numpy arrays, read without running anything that the pickle names.

The pickle is scanned first: only the opcodes that numbers, text, containers and arrays need, and no size that the file
cannot hold. Then it is unpickled with stand-ins for numpy's constructors, which check an array's shape against its
bytes before they make it. Every other name that a pickle asks for is refused, and nothing is imported or called.
"""

import io
import math
import pickle
import pickletools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import numpy as np

from models.foreign.value import Array, ForeignError

_OPCODES = frozenset(
    {
        *("PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "NONE", "NEWTRUE", "NEWFALSE"),
        *("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET"),
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("EMPTY_LIST", "APPEND", "APPENDS", "LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
        *("EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD"),
    }
)
_InPython: Any = vars(pickle)["_Unpickler"]
_MEMO = ("PUT", "BINPUT", "LONG_BINPUT")
_FAILURES = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    MemoryError,
    RecursionError,
)


def read_pickle(data: bytes, where: str) -> Any:
    """The tree of a pickle: dicts, lists, tuples, text, numbers and numpy arrays.

    Raises:
        ForeignError: the pickle is truncated or malformed, asks for anything else, or claims an array that it does not
            hold. Nothing has been run.
    """
    try:
        _scan(data, where)
        return _arrays(_Unpickler(io.BytesIO(data), where).load(), iter(range(len(data))))
    except ForeignError:
        raise
    except _FAILURES as error:
        raise ForeignError(f"{where} is no pickle of arrays, or it is truncated: {error}") from error


def _scan(data: bytes, where: str) -> None:
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name not in _OPCODES:
            raise ForeignError(f"{where} is refused: its pickle uses {opcode.name}, which no tree of arrays needs")
        if opcode.name in _MEMO and int(argument or 0) > len(data):
            raise ForeignError(f"{where} is refused: its pickle numbers more objects than it has bytes")


class _Unpickler(_InPython):
    """The one in Python, where keys are seen before they are hashed: the hash of nested tuples can take for ever."""

    dispatch: ClassVar[dict[int, Any]] = dict(_InPython.dispatch)

    def __init__(self, file: io.BytesIO, where: str) -> None:
        super().__init__(file)
        self.where = where

    def load_setitem(self) -> None:
        _check_keys(self.stack[-2:-1])
        super().load_setitem()

    def load_setitems(self) -> None:
        _check_keys(self.stack[::2])
        super().load_setitems()

    def load_dict(self) -> None:
        _check_keys(self.stack[::2])
        super().load_dict()

    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.DICT[0]] = load_dict

    def find_class(self, module: str, name: str) -> Any:
        own = _STAND_INS.get((module.replace("numpy._core", "numpy.core"), name))
        if own is not None:
            return own
        if module.partition(".")[0] in ("jax", "jaxlib"):
            raise ForeignError(
                f"{self.where} holds jax arrays, which only jax can read; store numpy arrays instead, made with "
                "jax.tree_util.tree_map(numpy.asarray, params)"
            )
        raise ForeignError(
            f"{self.where} is refused, and nothing in it was run: its pickle asks for {module}.{name}, where only "
            "numpy arrays in dicts and lists are read"
        )


def _check_keys(keys: Iterable[Any]) -> None:
    """Only text and numbers are keys."""
    for key in keys:
        if not isinstance(key, str | bytes | int | float | None):
            raise ForeignError(f"the pickle has a {type(key).__name__} as the key of a dict; keys are text or numbers")


def _ordered(items: Any = ()) -> dict[Any, Any]:
    pairs = [tuple(item) for item in (items.items() if isinstance(items, dict) else items)]
    _check_keys(pair[0] for pair in pairs)
    return dict(pairs)


class _StandIn:
    """A callable without attributes that a pickle could set."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        object.__setattr__(self, "function", function)

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def __setattr__(self, name: str, value: Any) -> None:
        raise pickle.UnpicklingError(f"the pickle sets the attribute {name} of a constructor")

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("the pickle sets the state of a constructor")


class _Dtype:
    """numpy.dtype("f4", False, True), and then its byte order."""

    __slots__ = ("code", "order")

    def __init__(self, code: Any, align: Any = False, copy: Any = True) -> None:
        if not isinstance(code, str) or code[:1] not in "fiubc" or not code[1:].isdigit() or int(code[1:]) > 16:
            named = repr(code) if isinstance(code, str) else type(code).__name__
            raise ForeignError(f"the pickle holds an array of type {named}; weights are float arrays")
        self.code, self.order = code, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1]
        if not isinstance(order, str) or order not in ("<", ">", "|", "="):
            raise ForeignError("the pickle holds an array whose byte order is not known")
        self.order = "=" if order == "|" else order

    def numpy(self) -> Any:
        return np.dtype(self.order + self.code)


class _PickledArray:
    """What numpy's _reconstruct makes, empty until its state is given."""

    __slots__ = ("array",)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, data = state
        self.array = _array(shape, dtype, fortran, data)


def _array(shape: Any, dtype: Any, fortran: Any, data: Any) -> Array:
    """An array from its bytes, whose number must be that of its shape."""
    if not isinstance(dtype, _Dtype) or not isinstance(data, bytes | bytearray | str):
        raise ForeignError("the pickle holds an array of objects; weights are float arrays")
    data = data.encode("latin1") if isinstance(data, str) else data
    shape = tuple(shape)
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ForeignError("the pickle holds an array whose shape is not of sizes")
    claimed = math.prod(shape) * dtype.numpy().itemsize
    if claimed != len(data):
        raise ForeignError(f"the pickle claims an array {list(shape)} of {claimed:,} bytes and holds {len(data):,}")
    return np.frombuffer(data, dtype.numpy()).reshape(shape, order="F" if fortran else "C")


def _reconstruct(kind: Any, shape: Any, code: Any) -> _PickledArray:
    if kind is not _NDARRAY or shape not in ((0,), [0]):
        raise ForeignError("the pickle asks for an array of a stated shape without its contents")
    return _PickledArray()


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> _PickledArray:
    made = _PickledArray()
    made.array = _array(shape, dtype, order == "F", data)
    return made


def _scalar(dtype: Any, data: Any) -> Any:
    return _array((), dtype, False, data).item()


def _encode(text: str, encoding: str) -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise ForeignError("the pickle encodes text in another way than latin1")
    return text.encode("latin1")


def _refuse(*args: Any) -> Any:
    raise ForeignError("the pickle asks for an array without its contents")


_NDARRAY = _StandIn(_refuse)
_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _StandIn(_Dtype),
    ("numpy.core.multiarray", "_reconstruct"): _StandIn(_reconstruct),
    ("numpy.core.multiarray", "scalar"): _StandIn(_scalar),
    ("numpy.core.numeric", "_frombuffer"): _StandIn(_from_buffer),
    ("collections", "OrderedDict"): _StandIn(_ordered),
    ("_codecs", "encode"): _StandIn(_encode),
}


def _arrays(value: Any, left: Iterator[int]) -> Any:
    """The tree with arrays in place of the stand-ins; `left` runs out where entries shared many times unfold."""
    if next(left, None) is None:
        raise ForeignError("the pickle unfolds to more entries than it has bytes")
    if isinstance(value, dict):
        return {key: _arrays(entry, left) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_arrays(entry, left) for entry in value)
    if isinstance(value, _PickledArray):
        return value.array
    if value is None or isinstance(value, str | bytes | int | float):
        return value
    raise ForeignError(f"the pickle holds a {type(value).__name__}, where only arrays, text and numbers are read")
