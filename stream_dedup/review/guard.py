"""What stands between a browser and the pages: hosts, headers, log-in, and whence writes come.

Documents are hostile text, and so is every other site that is open in the same browser. Nothing
inline is run or styled (``POLICY``); a page of another site can neither read, frame nor write; a
name that somebody else's DNS points here is refused (DNS rebinding).
"""

from __future__ import annotations

import hmac
import secrets
import time

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stream_dedup.http_limits import Hosts
from stream_dedup.tokens import admits

#: What a page may load and do.
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
#: Header and form field of the token that a write must have.
CSRF_HEADER, CSRF_FIELD = "X-CSRF-Token", "csrf"

_SESSION, _LOGIN = "review-session", "review-login"
_SAFE = ("GET", "HEAD", "OPTIONS")
#: Paths that need no log-in.
_OPEN = ("/login", "/healthz", "/static/")
#: Seconds that a log-in lasts.
_LOGIN_SECONDS = 12 * 3600


class Guard:
    """Signs and checks the cookies and tokens of one server process.

    Attributes:
        hosts: the names that requests may be for.
    """

    def __init__(self, token: str, names: str) -> None:
        """Set up.

        Args:
            token: what people log in with; empty when nobody has to.
            names: host names by which the page may be reached, comma-separated, beside localhost.
        """
        self._token = token
        self.hosts = Hosts(names)
        self._secret = secrets.token_bytes(32)

    def is_in(self, request: Request) -> bool:
        """Return whether a request may be answered: nobody has to log in, or its sender has."""
        if not self._token or request.url.path.startswith(_OPEN):
            return True
        header = request.headers.get("authorization", "")
        if header and admits(self._token, header):
            return True
        until, _, signature = request.cookies.get(_LOGIN, "").partition(".")
        right = hmac.compare_digest(signature.encode(), self._sign("login", until).encode())
        return right and until.isdigit() and time.time() < int(until[:20])

    def log_in(self, request: Request, response: Response, given: str) -> bool:
        """Log somebody in who gives the token; return whether it was right."""
        if not admits(self._token, "Bearer " + given.encode().decode("latin-1")):
            return False
        until = str(int(time.time()) + _LOGIN_SECONDS)
        value = f"{until}.{self._sign('login', until)}"
        self._set(request, response, _LOGIN, value, _LOGIN_SECONDS)
        return True

    def log_out(self, response: Response) -> None:
        """Have a browser forget that it was logged in."""
        response.delete_cookie(_LOGIN)

    @property
    def has_token(self) -> bool:
        """Whether people have to log in."""
        return bool(self._token)

    def csrf(self, request: Request) -> str:
        """Return the token of a browser's session, which begins here if it has none."""
        session = request.cookies.get(_SESSION) or getattr(request.state, "session", "")
        if not session:
            session = request.state.session = secrets.token_urlsafe(24)
        return self._sign("csrf", session)

    def keep(self, request: Request, response: Response) -> None:
        """Have a browser keep the session that began with this request, if one did."""
        if session := getattr(request.state, "session", ""):
            self._set(request, response, _SESSION, session, None)

    async def came_from_here(self, request: Request) -> bool:
        """Return whether a request that may write was sent by a page of ours."""
        if request.method in _SAFE:
            return True
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return False
        if _SESSION not in request.cookies:
            return False
        given = request.headers.get(CSRF_HEADER)
        if given is None:
            field = (await request.form()).get(CSRF_FIELD)
            given = field if isinstance(field, str) else ""
        return hmac.compare_digest(given.encode(), self.csrf(request).encode())

    def _sign(self, purpose: str, value: str) -> str:
        message = f"{purpose}\0{value}".encode()
        return hmac.digest(self._secret, message, "sha256").hex()

    @staticmethod
    def _set(
        request: Request, response: Response, name: str, value: str, seconds: int | None
    ) -> None:
        response.set_cookie(
            name,
            value,
            max_age=seconds,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )


class Headers:
    """Puts the headers that keep a browser safe on every response, errors too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, guarded)
