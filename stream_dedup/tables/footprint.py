"""Bytes that Redis takes for the sorted sets and hashes of an index.

Counted from the structures of Redis 7.0 on a 64-bit machine and rounded up as its allocator does.
It is what ``used_memory`` counts and ``maxmemory`` limits. Redis 7.4 and 8 and Valkey 8 take a
little less for each key, a member of a cluster 16 bytes more.

    key        entry of the keyspace 32, its place in the hash table about 12, name, object 16
    listpack   head and end 7; an 8-byte member 10; a score 2 to 10 as an integer of its size
    skiplist   above 128 members: entry 32, place 8 to 16, name, node about 51
    hash       a listpack while every value has at most 64 bytes, else a table as above
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, exp, lgamma, log, sqrt

#: Where Redis gives up the compact forms (zset-max-listpack-entries, hash-max-listpack-value and
#: hash-max-listpack-entries at their defaults).
LISTPACK_MEMBERS = 128
LISTPACK_VALUE = 64
LISTPACK_FIELDS = 512

_ENTRY, _OBJECT, _PLACE = 32, 16, 12
_MEMBER = 8
_LISTPACK = 7
_LISTPACK_MEMBER = 10
#: An integer of so many bits takes so many bytes in a listpack.
_LISTPACK_INTEGERS = ((7, 2), (12, 3), (15, 4), (23, 5), (31, 6))
_LISTPACK_LONGEST = 10
#: A skiplist's node has one more level with a probability of 1/4.
_NODE_LEVELS = 8
_SKIPLIST, _DICTIONARY = 700, 56

#: A mean from which a Poisson distribution is as good as one number.
_NARROW = 1000.0


def allocated(size: int) -> int:
    """Return the bytes that jemalloc gives: multiples of 16, above 128 four steps a doubling.

    As Debian builds it; the jemalloc inside Redis has multiples of 8 below 64, a few percent less.
    """
    if size <= 128:
        return 8 if size <= 8 else -(-size // 16) * 16
    step = 1 << ((size - 1).bit_length() - 3)
    return -(-size // step) * step


def string_bytes(length: int) -> int:
    """Return the bytes of a string of this length: its head grows with it, and it ends in a 0."""
    head = 1 if length < 32 else 3 if length < 256 else 5
    return allocated(head + length + 1)


def key_bytes(name: str) -> int:
    """Return the bytes of a key, without its value."""
    return _ENTRY + _PLACE + _OBJECT + string_bytes(len(name))


def set_bytes(name: str, members: float, score_bits: int) -> float:
    """Return the expected bytes of the sorted set of random scores that has this mean of members.

    The number of members is Poisson distributed; a set without members has no key either.
    """
    entry = _LISTPACK_MEMBER + score_bytes(score_bits)

    def value(count: int) -> float:
        if count <= LISTPACK_MEMBERS:
            return allocated(ceil(_LISTPACK + count * entry))
        return _SKIPLIST + _table(count) + count * (string_bytes(_MEMBER) + _node_bytes())

    return _expected(members, name, value)


def hash_bytes(name: str, fields: float, value_bytes: int) -> float:
    """Return the expected bytes of a hash with this mean of 8-byte fields and values of one size.

    The number of fields is Poisson distributed.
    """
    entry = _LISTPACK_MEMBER + value_bytes + (2 if value_bytes < 64 else 3)
    pair = string_bytes(_MEMBER) + string_bytes(value_bytes)

    def value(count: int) -> float:
        if value_bytes <= LISTPACK_VALUE and count <= LISTPACK_FIELDS:
            return allocated(_LISTPACK + count * entry)
        return _DICTIONARY + _table(count) + count * pair

    return _expected(fields, name, value)


def score_bytes(bits: int) -> float:
    """Return the mean bytes in a listpack of a random score of so many bits."""
    mean, below = 0.0, 0.0
    for limit, size in _LISTPACK_INTEGERS:
        share = min(1.0, 2.0 ** (limit - bits))
        mean += (share - below) * size
        below = share
    return mean + (1.0 - below) * _LISTPACK_LONGEST


def _table(count: int) -> int:
    """Return the bytes of a hash table: its entries, and places to the next power of two."""
    return count * _ENTRY + 8 * (1 << (count - 1).bit_length())


def _node_bytes() -> float:
    return sum(0.75 * 0.25**level * allocated(40 + 16 * level) for level in range(_NODE_LEVELS))


def _expected(mean: float, name: str, value: Callable[[int], float]) -> float:
    """Return the expectation of a key with its value, over a Poisson distributed count."""
    key = key_bytes(name)
    if mean > _NARROW:
        return key + value(round(mean))
    spread = 8 * sqrt(mean) + 8
    counts = range(max(1, int(mean - spread)), int(mean + spread) + 1)
    return sum(
        exp(count * log(mean) - mean - lgamma(count + 1)) * (key + value(count)) for count in counts
    )
