"""The static files, read once: no path of a request is ever opened."""

from __future__ import annotations

import hashlib
import mimetypes
from importlib.resources import files
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

_TYPES = (".css", ".js", ".svg", ".png", ".ico")


class _File(NamedTuple):
    content: bytes
    media_type: str
    version: str


class Shipped:
    """The files of ``static``, by name."""

    def __init__(self) -> None:
        self._files = {
            found.name: _load(found.name, found.read_bytes())
            for found in files("stream_dedup.review").joinpath("static").iterdir()
            if found.name.endswith(_TYPES)
        }

    def url(self, name: str) -> str:
        """Return the address of a file, which is another one when the file is."""
        return f"/static/{name}?v={self._files[name].version}"

    def respond(self, request: Request, name: str) -> Response:
        """Answer with a file; 404 if there is none of the name."""
        file = self._files.get(name)
        if file is None:
            return Response(status_code=404)
        current = request.query_params.get("v") == file.version
        kept = "public, max-age=31536000, immutable" if current else "no-cache"
        return Response(file.content, media_type=file.media_type, headers={"Cache-Control": kept})


def _load(name: str, content: bytes) -> _File:
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return _File(content, media_type, hashlib.sha256(content).hexdigest()[:16])
