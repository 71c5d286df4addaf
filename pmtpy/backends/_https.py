"""JSON over HTTPS for meters behind a web service: one connection that is kept, trust, time-outs, plain errors."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any

from pmtpy._handlers import of_a_handler
from pmtpy.backends._descriptor import marked, ours
from pmtpy.core.clock import NS_PER_S, Clock
from pmtpy.errors import ReadError

_MAX_REPLY_BYTES = 1 << 22
_CERTIFICATE = (
    "if it signs its own, see that this shows the right one, and give it as fingerprint=: $ openssl s_client -connect"
    " {} </dev/null | openssl x509 -noout -fingerprint -sha256"
)


class Https:
    """GETs of one service, over one connection that is kept. Used by one thread at a time."""

    def __init__(
        self, host: str, user: str, secret: str, *, context: ssl.SSLContext, pin: str, timeout_s: float, clock: Clock
    ) -> None:
        self._host, self._pin = host, pin.replace(":", "").lower()
        self._connection = http.client.HTTPSConnection(host, timeout=timeout_s, context=context)
        self._clock, self._timeout_ns = clock, round(timeout_s * NS_PER_S)
        self._mark = 0  # of its descriptor
        token = base64.b64encode(f"{user}:{secret}".encode()).decode()
        self._headers = {"Accept": "application/json", **({"Authorization": f"Basic {token}"} if user else {})}

    def __call__(self, path: str) -> Mapping[str, Any]:
        """Return the resource at a path."""
        self._let_go()
        try:
            if self._connection.sock is None:
                self._connect()
            due_ns = self._clock.now_ns() + self._timeout_ns
            self._connection.request("GET", path, headers=self._headers)
            body = self._body(answer := self._connection.getresponse(), due_ns)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            if of_a_handler(error):
                raise
            msg = f"{self._host}: {_why(error)}"
            raise ReadError(msg) from error
        if answer.status != http.HTTPStatus.OK:
            why = {401: "user or password is wrong", 403: "the user may not read it"}.get(answer.status, answer.reason)
            msg = f"{self._host}{path}: status {answer.status}, {why}"
            raise ReadError(msg)
        try:
            found = json.loads(body)
        except ValueError as error:
            msg = f"{self._host}{path}: the answer is not JSON"
            raise ReadError(msg) from error
        return found if isinstance(found, dict) else {}

    def _body(self, answer: http.client.HTTPResponse, due_ns: int) -> bytes:
        """Return what is answered; of one that comes byte by byte each byte is in time, and all of it never there."""
        parts: list[bytes] = []
        room = _MAX_REPLY_BYTES
        while room and (part := answer.read1(room)):
            parts.append(part)
            room -= len(part)
            if answer.length and self._clock.now_ns() > due_ns:
                raise TimeoutError
        if answer.length:  # of it has not come
            raise http.client.IncompleteRead(b"".join(parts), answer.length)
        answer.close()  # the connection stays
        return b"".join(parts)

    def _connect(self) -> None:
        self._connection.connect()
        self._mark = marked(self._connection.sock.fileno())
        self._check_pin()

    def _check_pin(self) -> None:
        """Refuse another certificate than the one that is pinned, before anything secret is sent."""
        if not self._pin:
            return
        shown = hashlib.sha256(self._connection.sock.getpeercert(binary_form=True) or b"").hexdigest()
        if not hmac.compare_digest(shown, self._pin):
            self._connection.close()
            msg = f"its certificate has the fingerprint {shown}, not the one given"
            raise ssl.SSLError(msg)

    def close(self) -> None:
        """End the connection."""
        self._let_go()
        self._connection.close()

    def _let_go(self) -> None:
        """Let a connection go whose descriptor the program has closed: its number is nobody's, or another's."""
        known = self._connection.sock
        if known is not None and not ours(known.fileno(), self._mark):
            known.detach()
            self._connection.close()


def _why(error: Exception) -> str:
    if isinstance(error, http.client.IncompleteRead):
        return "its answer was cut off"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def trust(ca_file: str, pin: str) -> ssl.SSLContext:
    """Return whom to trust: the system's certificates and those of a file; with a ``pin``, that one alone."""
    context = ssl.create_default_context(cafile=ca_file or None)
    if pin:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def cure_of(error: Exception, host: str) -> str:
    """Say what to do about a service that cannot be asked."""
    if "certificate" not in str(error):
        return "see that the host is right and that the user may log in"
    return _CERTIFICATE.format(host if ":" in host else f"{host}:443")
