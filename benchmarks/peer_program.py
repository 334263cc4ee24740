"""What runs in the peers' environment: ``peer_program.py PEER TASK DOCUMENTS [options]``.

Uses nothing but the standard library and the peer. A task is ``fingerprint``, or ``decide``:
documents are taken one by one in order, fingerprinted and looked up, and inserted when nothing
near was found. Texts are cut into shingles of three lower-case words, or as ``--shingle`` says,
which most peers leave to their user. Prints one JSON object, ``benchmarks.peers.PeerFigure``.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

THRESHOLD = 0.8
PERMUTATIONS = 128
HAMMING = 3
#: Runs of which a fingerprint figure is the best.
REPEATS = 3

_WORDS = re.compile(r"\w+")

Fingerprint = Callable[[str], Any]
#: Takes the number of a document and its text, gives the number of its original, if it has one.
Decide = Callable[[int, str], int | None]


def shingler(shingle: str) -> Callable[[str], list[str]]:
    """Return what cuts a text into its shingles: ``word:3``, ``char:5`` and the like."""
    unit, size = shingle.split(":")
    count = int(size)

    def words(text: str) -> list[str]:
        tokens = _WORDS.findall(text.lower())
        return [" ".join(tokens[at : at + count]) for at in range(max(1, len(tokens) - count + 1))]

    def characters(text: str) -> list[str]:
        plain = " ".join(text.lower().split())
        return [plain[at : at + count] for at in range(max(1, len(plain) - count + 1))]

    return words if unit == "word" else characters


def fingerprinter(peer: str, shingle: str) -> Fingerprint:
    """Return what makes a peer's fingerprint of a text."""
    module: Any = import_module(peer)
    shingles = shingler(shingle)

    def datasketch(text: str) -> Any:
        signature = module.MinHash(num_perm=PERMUTATIONS)
        signature.update_batch([shingle.encode() for shingle in shingles(text)])
        return signature

    def rensa(text: str) -> Any:
        signature = module.RMinHash(num_perm=PERMUTATIONS, seed=42)
        signature.update(shingles(text))
        return signature

    def simhash(text: str) -> Any:
        return module.Simhash(shingles(text))

    return {"datasketch": datasketch, "rensa": rensa, "simhash": simhash}[peer]


def by_signatures(make: Fingerprint, index: Any) -> Decide:
    """Decide by a table of bands (datasketch, rensa); candidates are verified by signature."""
    kept: dict[int, Any] = {}

    def decide(number: int, text: str) -> int | None:
        signature = make(text)
        candidates = index.query(signature)
        near: list[int] = [key for key in candidates if kept[key].jaccard(signature) >= THRESHOLD]
        if near:
            return min(near)
        index.insert(number, signature)
        kept[number] = signature
        return None

    return decide


def by_gaoya() -> Decide:
    """Decide by gaoya, which cuts, fingerprints and verifies by itself."""
    index: Any = import_module("gaoya.minhash").MinHashStringIndex(
        hash_size=32,
        jaccard_threshold=THRESHOLD,
        num_bands=16,
        band_size=8,
        analyzer="word",
        lowercase=True,
        ngram_range=(3, 3),
    )

    def decide(number: int, text: str) -> int | None:
        near: list[int] = index.query(text)
        if near:
            return min(near)
        index.insert_document(number, text)
        return None

    return decide


def by_simhash(shingle: str) -> Decide:
    """Decide by fingerprints of 64 bits and their Hamming distance."""
    module: Any = import_module("simhash")
    make = fingerprinter("simhash", shingle)
    index = module.SimhashIndex([], k=HAMMING)

    def decide(number: int, text: str) -> int | None:
        fingerprint = make(text)
        near = [int(key) for key in index.get_near_dups(fingerprint)]
        if near:
            return min(near)
        index.add(str(number), fingerprint)
        return None

    return decide


def decider(peer: str, redis_port: int | None, shingle: str) -> Decide:
    """Return what decides by a peer; datasketch alone can keep its tables in Redis."""
    if peer == "gaoya":
        return by_gaoya()
    if peer == "simhash":
        return by_simhash(shingle)
    module: Any = import_module(peer)
    if peer == "rensa":
        index = module.RMinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS, num_bands=16)
    else:
        place = {"type": "redis", "redis": {"host": "127.0.0.1", "port": redis_port}}
        index = module.MinHashLSH(
            threshold=THRESHOLD,
            num_perm=PERMUTATIONS,
            storage_config={**place, "basename": b"peer"} if redis_port else None,
        )
    return by_signatures(fingerprinter(peer, shingle), index)


def fingerprint_all(make: Fingerprint, texts: list[str]) -> dict[str, Any]:
    """Fingerprint every text; the best of some runs, as for ours."""
    best = {"cpu": float("inf"), "seconds": float("inf")}
    for _ in range(REPEATS):
        cpu, clock = time.process_time(), time.perf_counter()
        for text in texts:
            make(text)
        best["cpu"] = min(best["cpu"], time.process_time() - cpu)
        best["seconds"] = min(best["seconds"], time.perf_counter() - clock)
    return best


def decide_all(decide: Decide, texts: list[str]) -> dict[str, Any]:
    """Decide every text, in order."""
    cpu, clock = time.process_time(), time.perf_counter()
    attached = [decide(number, text) for number, text in enumerate(texts)]
    cpu, seconds = time.process_time() - cpu, time.perf_counter() - clock
    return {"cpu": cpu, "seconds": seconds, "attached": attached}


def main() -> None:
    """Do the task and print its figure."""
    parser = argparse.ArgumentParser()
    for name in ("peer", "task"):
        parser.add_argument(name)
    parser.add_argument("documents", type=Path)
    parser.add_argument("--redis-port", type=int)
    parser.add_argument("--shingle", default="word:3")
    options = parser.parse_args()
    peer = options.peer
    with options.documents.open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    if options.task == "fingerprint":
        figures = fingerprint_all(fingerprinter(peer, options.shingle), texts)
    else:
        figures = decide_all(decider(peer, options.redis_port, options.shingle), texts)
    figure = {"version": version(peer), "documents": len(texts), **figures}
    print(json.dumps(figure))


if __name__ == "__main__":
    main()
