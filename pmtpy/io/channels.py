"""Channels as the metadata of a file describe them, and back. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from inspect import signature
from typing import Any

from pmtpy.core.channel import Channel, Derivation, EnergyMethod, Quantity
from pmtpy.core.response import UNKNOWN
from pmtpy.core.rows import Layout

# What the fields of a channel are called in files.
_KEYS = {"derivation": "form", "operands": "of", "method": "rule"}


def described(channel: Channel, *, in_total: bool) -> dict[str, object]:
    """Return a channel ready for JSON; what is not known has no key."""
    facts = asdict(channel)
    del facts["energy_method"], facts["response"]  # the one as "rule" below
    facts |= {"refresh_s": channel.refresh_s, "window_s": channel.window_s, "lag_s": channel.lag_s}
    known = {_KEYS.get(k, k): v for k, v in facts.items() if v not in {None, "", (), math.inf}}
    # A boxcar of a stated width and age is told by these three; of any other response all that is known.
    if channel.response != UNKNOWN.but(channel.refresh_s, channel.window_s, channel.lag_s):
        known["response"] = {k: v for k, v in asdict(channel.response).items() if v != getattr(UNKNOWN, k)}
    return known | {
        "quantity": channel.quantity.name.lower(),
        "unit": channel.unit,
        "form": channel.derivation.value,
        "rule": channel.energy_method.value if channel.measures_energy else None,
        "in_total": in_total,
    }


def described_layout(facts: Mapping[str, Any]) -> Layout:
    """Return the layout of the file that metadata belong to.

    Raises KeyError, TypeError, ValueError: they describe no channels.
    """
    return Layout(tuple(channel_of(c) for c in facts["channels"]), total_apart=facts.get("total_apart") is True)


def channel_of(facts: Mapping[str, Any]) -> Channel:
    """Return the channel that :func:`described` described.

    Raises KeyError, TypeError, ValueError: the facts are not those of a channel.
    """
    arguments = signature(Channel).parameters
    known = {name: facts[_KEYS.get(name, name)] for name in arguments if _KEYS.get(name, name) in facts}
    if wrong := [name for name, value in known.items() if isinstance(value, bool)]:
        msg = f"of a channel neither true nor false can be {', '.join(wrong)}"
        raise ValueError(msg)
    known["quantity"] = Quantity[str(known["quantity"]).upper()]
    known["derivation"] = Derivation(known.get("derivation", "direct"))
    known["operands"] = tuple(known.get("operands", ()))
    known["method"] = EnergyMethod(known["method"]) if known.get("method") else None
    if "response" in known:
        known["response"] = replace(UNKNOWN, **known["response"])
        known = {name: value for name, value in known.items() if name not in {"refresh_s", "window_s", "lag_s"}}
    return Channel(**known)
