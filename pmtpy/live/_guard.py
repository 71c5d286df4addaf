"""Who may talk to the page: checked before a request reaches the server that draws.

A request must name this machine (``Host``: no other name leads here, so that no foreign page can rebind one), must come
from this page if it says where it comes from (``Origin``, which every WebSocket and every foreign script sends), and
must bear the session's cookie, which is given once for the token in the address that was printed. Tornado's server;
facts of its interfaces: tornado 6, ``httputil.HTTPServerConnectionDelegate``.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

import tornado.httputil as httputil  # noqa: PLR0402  (mypy: the package itself exports nothing)

# What the page may do in the browser. Its own figures are started by scripts inside the page.
_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Door:
    """What is asked of every request. Pure but for the token, which is drawn once.

    Parameters
    ----------
    hosts : sequence of str
        Names of this server, without port.
    """

    def __init__(self, hosts: tuple[str, ...], port: int) -> None:
        self._places = {f"[{h}]:{port}" if ":" in h else f"{h}:{port}" for h in hosts}
        self.token = secrets.token_urlsafe(24)
        self._session = secrets.token_urlsafe(24)
        self._cookie = f"pmtpy-{port}"  # cookies know no ports: the name does

    def judge(self, method: str, path: str, headers: httputil.HTTPHeaders) -> tuple[int, dict[str, str]]:
        """Return the status and the headers of a refusal, 303 to hand the cookie out; 200: let it in."""
        if headers.get("Host", "").lower() not in self._places:
            return 421, {}
        if method not in {"GET", "HEAD"}:
            return 405, {}
        origin = headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc.lower() not in self._places:
            return 403, {}
        if origin is not None and urlsplit(origin).netloc.lower() != headers.get("Host", "").lower():
            return 403, {}
        given = parse_qs(urlsplit(path).query).get("token", [""])[0]
        if given and hmac.compare_digest(given.encode(), self.token.encode()):
            cookie = f"{self._cookie}={self._session}; HttpOnly; SameSite=Strict; Path=/"
            return 303, {"Location": "/", "Set-Cookie": cookie}
        return (200, {}) if self._known(headers) else (403, {})

    def _known(self, headers: httputil.HTTPHeaders) -> bool:
        try:
            kept = SimpleCookie(headers.get("Cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return kept is not None and hmac.compare_digest(kept.value.encode(), self._session.encode())


_REASONS = {303: "See Other", 403: "Forbidden", 405: "Method Not Allowed", 421: "Misdirected Request"}


class Guard(httputil.HTTPServerConnectionDelegate):
    """Stands before an application of Tornado."""

    def __init__(self, application: httputil.HTTPServerConnectionDelegate, judge: Callable[..., Any]) -> None:
        self._application, self._judge = application, judge

    def start_request(self, server_conn: object, request_conn: httputil.HTTPConnection) -> httputil.HTTPMessageDelegate:
        """Begin a request."""
        inner = self._application.start_request(server_conn, _Dressed(request_conn))
        return _Checked(inner, request_conn, self._judge)

    def on_close(self, server_conn: object) -> None:
        """Pass the end of a connection on."""
        self._application.on_close(server_conn)


class _Dressed:
    """A connection whose answers bear our headers too."""

    def __init__(self, connection: httputil.HTTPConnection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def write_headers(self, start_line: Any, headers: httputil.HTTPHeaders, chunk: bytes | None = None) -> Any:
        """Add our headers."""
        for name, value in _HEADERS.items():
            headers[name] = value
        return self._connection.write_headers(start_line, headers, chunk)


class _Checked(httputil.HTTPMessageDelegate):
    """One request: handed on, or answered here."""

    def __init__(
        self, inner: httputil.HTTPMessageDelegate, connection: httputil.HTTPConnection, judge: Callable[..., Any]
    ) -> None:
        self._inner, self._connection, self._judge = inner, connection, judge
        self._refused = False

    def headers_received(self, start_line: Any, headers: httputil.HTTPHeaders) -> Any:
        """Judge the request by its first line and its headers."""
        status, extra = self._judge(start_line.method, start_line.path, headers)
        if status == 200:
            return self._inner.headers_received(start_line, headers)
        self._refused = True
        text = b"" if status == 303 else b"pmtpy view: open the address that was printed when it started\n"
        answer = httputil.HTTPHeaders(
            {**_HEADERS, **extra, "Content-Length": str(len(text)), "Cache-Control": "no-store"}
        )
        answer["Content-Type"] = "text/plain; charset=utf-8"
        answer["Connection"] = "close"
        self._connection.write_headers(httputil.ResponseStartLine("HTTP/1.1", status, _REASONS[status]), answer, text)
        self._connection.finish()
        return None

    def data_received(self, chunk: bytes) -> Any:
        """Pass the body on."""
        return None if self._refused else self._inner.data_received(chunk)

    def finish(self) -> None:
        """Pass the end on."""
        if not self._refused:
            self._inner.finish()

    def on_connection_close(self) -> None:
        """Pass a break on."""
        if not self._refused:
            self._inner.on_connection_close()
