"""Libraries are built once, rebuilt when a source changes, and never loaded from a folder that others can write to."""

from __future__ import annotations

import ctypes

import pytest

from isthmus.core import native_build
from isthmus.core.native_build import NativeLibrary, build_library, c_compiler

pytestmark = pytest.mark.skipif(c_compiler() is None, reason="no C compiler")


@pytest.fixture
def library(tmp_path, monkeypatch) -> NativeLibrary:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    header = tmp_path / "answer.h"
    header.write_text("#define ANSWER 41\n")
    source = tmp_path / "answer.c"
    source.write_text('#include "answer.h"\nint answer(void) { return ANSWER; }\n')
    return NativeLibrary("answer", source, headers=(header,))


def answer(path) -> int:
    return ctypes.CDLL(str(path)).answer()


def test_a_library_is_built_once_and_again_when_a_header_changes(library):
    first = build_library(library)
    assert answer(first) == 41
    built = first.stat().st_mtime_ns
    assert build_library(library) == first
    assert first.stat().st_mtime_ns == built
    library.headers[0].write_text("#define ANSWER 42\n")
    second = build_library(library)
    assert second != first
    assert answer(second) == 42


def test_code_that_does_not_compile_gives_none(library):
    library.source.write_text("not C\n")
    assert build_library(library) is None


def test_a_cache_that_others_can_write_to_is_not_used(library, tmp_path, monkeypatch):
    monkeypatch.setattr(native_build.tempfile, "gettempdir", lambda: str(tmp_path / "other"))
    first = build_library(library)
    first.parent.chmod(0o777)
    second = build_library(library)
    assert second is not None
    assert second.parent != first.parent
