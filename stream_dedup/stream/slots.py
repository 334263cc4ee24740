"""Memory that two processes share, to hand over batches without sending them through a pipe."""

from __future__ import annotations

import mmap
import os
import pickle
import sys
import tempfile
from multiprocessing import reduction
from typing import Any

#: Arrays begin at multiples of this, as numpy likes them best.
_ALIGNMENT = 64


class Slots:
    """Some slots, each for one value at a time.

    Given to a process that is being started, it is the same memory there. It has no name, so a
    process that is killed leaves nothing behind; and a page takes no room before it is used. Nor
    can anybody else write to it: values are pickled, which is safe between these two only.
    """

    def __init__(self, slots: int, size: int, handle: int | None = None) -> None:
        """Make room for ``slots`` values of ``size`` bytes, or map that of a file descriptor."""
        self._size = size
        self._slots = slots
        self._handle = _nameless_file(slots * size) if handle is None else handle
        self._view = memoryview(mmap.mmap(self._handle, slots * size))

    def __reduce__(self) -> tuple[Any, ...]:
        """Hand the memory over to a process that is being started."""
        handle: Any = reduction.DupFd(self._handle)
        return _attach, (self._slots, self._size, handle)

    def close_handle(self) -> None:
        """Say that the other process has been started; from here on the memory is only mapped."""
        os.close(self._handle)

    def put(self, slot: int, value: object) -> list[int] | None:
        """Write a value; return what ``get`` needs to know, or None if there is not room enough.

        Arrays are copied as they are, the rest is pickled.
        """
        buffers: list[pickle.PickleBuffer] = []
        stream = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        parts = [memoryview(stream), *(buffer.raw() for buffer in buffers)]
        sizes = [part.nbytes for part in parts]
        if sum(map(_aligned, sizes)) > self._size:
            return None
        at = slot * self._size
        for part in parts:
            self._view[at : at + part.nbytes] = part
            at += _aligned(part.nbytes)
        return sizes

    def get(self, slot: int, sizes: list[int]) -> Any:
        """Read a value that the other process has put; its arrays are views into the slot."""
        parts = []
        at = slot * self._size
        for size in sizes:
            parts.append(self._view[at : at + size])
            at += _aligned(size)
        return pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301 - from our own process


def uncopied(content: bytes | memoryview) -> Any:
    """Return bytes such that ``put`` copies them once, as it does arrays."""
    return pickle.PickleBuffer(content)


def _attach(slots: int, size: int, handle: Any) -> Slots:
    attached = Slots(slots, size, handle.detach())
    attached.close_handle()
    return attached


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _nameless_file(size: int) -> int:
    if sys.platform == "linux":  # not bounded by the size of /dev/shm, which is small in containers
        handle = os.memfd_create("stream-dedup")
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    os.ftruncate(handle, size)
    return handle
