"""The command line: exit code, output and errors."""

from __future__ import annotations

from isthmus.cli.main import main


def call(capsys, *argv: object) -> tuple[int, str, str]:
    code = main([str(a) for a in argv])
    got = capsys.readouterr()
    return code, got.out, got.err
