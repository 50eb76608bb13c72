"""A page on this machine: where it listens, and how it looks before anything is drawn."""

from __future__ import annotations

import contextlib
import io
import socket
from collections.abc import Callable
from typing import Protocol

import viser

from isthmus.core.errors import BadInput

LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
PORTS_TRIED = 20
"""Ports tried from the one asked for."""
BRAND_COLOUR = (38, 110, 140)


def free_port(port: int, host: str = "127.0.0.1") -> int:
    """The first free port from `port` on; 0 asks the system for any."""
    if host not in LOCAL_HOSTS:
        raise BadInput(
            f"the page has no password, so it only listens on this machine ({LOCAL_HOSTS[0]}), not on {host!r}; "
            "from elsewhere, use an SSH tunnel: ssh -L 8080:localhost:8080."
        )
    if not 0 <= port <= 65535:
        raise BadInput(f"port {port} is not between 0 and 65535.")
    last = min(port + PORTS_TRIED, 65536) if port else 1
    reason = ""
    for candidate in range(port, last):
        try:
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind((host, candidate))
                return int(s.getsockname()[1])
        except OSError as error:
            reason = error.strerror or str(error)
    raise BadInput(f"no port from {port} to {last - 1} on {host} can be used: {reason}; give another with --port.")


def open_server(port: int, host: str, title: str) -> viser.ViserServer:
    """Start a page at the first free port from `port` on."""
    port = free_port(port, host)
    with contextlib.redirect_stdout(io.StringIO()):
        server = viser.ViserServer(host=host, port=port, label=title, verbose=False)
    # Whoever reaches the page could otherwise ask for a public tunnel to it.
    server.request_share_url = lambda verbose=True: None
    server.gui.configure_theme(show_logo=False, show_share_button=False, brand_color=BRAND_COLOUR)
    return server


def close_server(server: viser.ViserServer) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        server.stop()


def server_url(server: viser.ViserServer) -> str:
    host = server.get_host()
    return f"http://{f'[{host}]' if ':' in host else host}:{server.get_port()}"


class Page(Protocol):
    """A page being shown: its server, its address, and the loop that keeps it alive."""

    server: viser.ViserServer
    url: str

    def run(self, seconds: float | None = None) -> None: ...


def run_page(page: Page, seconds: float | None, on_ready: Callable[[str], None] | None) -> None:
    """Run a page until Ctrl-C or for `seconds`, and close it; `on_ready` is given its address first."""
    try:
        if on_ready is not None:
            on_ready(page.url)
        page.run(seconds)
    except KeyboardInterrupt:
        pass
    finally:
        close_server(page.server)
