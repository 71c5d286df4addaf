"""Who is let in: each line of what a page must refuse."""

from __future__ import annotations

import pytest

pytest.importorskip("tornado", reason="needs the extra live: pip install 'pmtpy[live]'")

import tornado.httputil as httputil  # noqa: PLR0402

from pmtpy.live._guard import Door

HOST = "127.0.0.1:5006"


@pytest.fixture
def door() -> Door:
    return Door(("127.0.0.1", "localhost", "::1"), 5006)


def _ask(door: Door, path: str = "/", method: str = "GET", **headers: str) -> int:
    status, _ = door.judge(method, path, httputil.HTTPHeaders({"Host": HOST, **headers}))
    return int(status)


def _cookie(door: Door) -> str:
    status, extra = door.judge("GET", f"/?token={door.token}", httputil.HTTPHeaders({"Host": HOST}))
    assert status == 303
    assert extra["Location"] == "/"
    assert "HttpOnly; SameSite=Strict" in extra["Set-Cookie"]
    return extra["Set-Cookie"].partition(";")[0]


def test_the_token_is_handed_in_for_a_cookie_that_opens(door: Door) -> None:
    cookie = _cookie(door)
    assert _ask(door, Cookie=cookie) == 200
    assert _ask(door, "/ws", Cookie=cookie, Origin=f"http://{HOST}") == 200
    assert door.token not in cookie
    assert len(door.token) >= 32


def test_without_session_nothing_is_shown(door: Door) -> None:
    assert _ask(door) == 403
    assert _ask(door, "/static/js/bokeh.min.js") == 403
    assert _ask(door, Cookie="pmtpy-5006=guess") == 403
    assert _ask(door, Cookie='pmtpy-5006="') == 403
    assert _ask(door, "/?token=guess") == 403
    assert _ask(door, Cookie=_cookie(Door(("127.0.0.1",), 5006))) == 403


@pytest.mark.parametrize("host", ["evil.example:5006", "127.0.0.1:80", "127.0.0.1", "", "evil.example"])
def test_another_host_is_misdirected(door: Door, host: str) -> None:
    headers = httputil.HTTPHeaders({"Host": host, "Cookie": _cookie(door)})
    assert door.judge("GET", "/", headers)[0] == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:8888", "null", "http://localhost:5006"])
def test_another_origin_is_refused(door: Door, origin: str) -> None:
    assert _ask(door, "/ws", Cookie=_cookie(door), Origin=origin) == 403


def test_nothing_is_changed_by_requests(door: Door) -> None:
    assert _ask(door, method="POST", Cookie=_cookie(door)) == 405


def test_the_address_of_ipv6_is_known(door: Door) -> None:
    headers = httputil.HTTPHeaders({"Host": "[::1]:5006", "Cookie": _cookie(door)})
    assert door.judge("GET", "/", headers)[0] == 200
