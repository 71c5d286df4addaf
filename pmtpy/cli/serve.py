"""``pmtpy serve``: sensors as metrics, for Prometheus to scrape."""

from __future__ import annotations

import argparse
import logging

from pmtpy.cli.common import announce, chosen_targets, open_all, say
from pmtpy.cli.options import add_options, port
from pmtpy.cluster.prometheus import LOOPBACK, PORT, Server

_FOREVER_S = 1e9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="name[:device]; without any, all available")
    add_options(parser)
    parser.add_argument(
        "--port", type=port, default=PORT, metavar="N", help=f"listen here (default {PORT}; 0: a free one)"
    )
    parser.add_argument(
        "--address",
        default=LOOPBACK,
        metavar="IP",
        help="listen at this address instead of for this machine alone; whoever reaches it reads everything, so keep it"
        " behind the firewall of the nodes",
    )
    parser.epilog = (
        "examples:\n  pmtpy serve\n  pmtpy serve rapl nvml:0 --address 10.0.0.7\n  pmtpy serve rapl:virtual --port 0"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    targets = chosen_targets(args.targets, everything=True)
    with (
        args.stop.taken(),  # outermost: the end may be asked for as soon as the address is printed
        open_all(targets, args.option, strict=bool(args.targets)) as sensors,
        Server(sensors, args.address, args.port) as server,
    ):
        announce(server.url)
        if not server.address.startswith("127.") and server.address != "::1":
            say(f"warning: whoever reaches {server.address} can read the metrics; nothing is encrypted")
        logging.getLogger("pmtpy").info("serving %s", ", ".join(s.target for s in sensors))
        args.stop.rest(_FOREVER_S)
    return 0
