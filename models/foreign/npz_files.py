""".npz archives: plain arrays, whose claimed shapes are checked before any of them is made."""

import io
import math
import zipfile

import numpy as np

from models.foreign.value import Array, ForeignError

LARGEST = 2 << 30
"""Bytes; an archive may be compressed, so its own size is no bound."""


def read_npz(data: bytes, where: str) -> dict[str, Array]:
    """The arrays of an archive by name.

    Raises:
        ForeignError: the archive is truncated, an array claims more than its entry holds or holds objects, or all
            together are larger than any model this is for.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            claimed = sum(_claimed(archive, entry, where) for entry in archive.infolist())
        if claimed > LARGEST:
            raise ForeignError(f"{where} claims {claimed:,} bytes of arrays; at most {LARGEST:,} are read")
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except ForeignError:
        raise
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, KeyError, NotImplementedError, RuntimeError) as error:
        raise ForeignError(f"{where} is no whole .npz archive: {' '.join(str(error).split())[:200]}") from error
    except zipfile.zlib.error as error:  # pyright: ignore[reportAttributeAccessIssue]
        raise ForeignError(f"{where} is damaged: {error}") from error


def _claimed(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, where: str) -> int:
    """The bytes of one array by its header, which must be those of its entry."""
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ForeignError(f"{where}: the array {entry.filename} is of the unknown version {version}")
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(file)
        start = file.tell()
    if dtype.hasobject:
        raise ForeignError(f"{where}: the array {entry.filename} holds objects; weights are float arrays")
    size = math.prod(shape) * dtype.itemsize
    if start + size != entry.file_size:
        raise ForeignError(
            f"{where}: the array {entry.filename} claims the shape {list(shape)}, {size:,} bytes, and its entry holds "
            f"{entry.file_size - start:,}"
        )
    return size
