"""CSV and its relatives: delimiter, header, comments and decimal commas are found out."""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path
from typing import TextIO

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.progress import Progress, silent
from isthmus.data.importers.columns import MAX_COLUMNS, MAX_VALUES, Column, Table

MAX_BYTES = 2 * 2**30
SPECIAL_VALUES = {"true": 1.0, "false": 0.0, "": np.nan, "na": np.nan, "null": np.nan, "none": np.nan}
SNIFFED_LINES = 50
"""Lines that the format is found out from."""
Line = tuple[int, str]


def load_csv(path: Path, progress: Progress = silent) -> Table:
    where = str(path)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise BadInput(f"{where} is larger than {MAX_BYTES // 2**30} GiB and is not read.")
        with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
            return _parse_table(_lines(file, size, progress), where)
    except (OSError, csv.Error) as error:
        raise BadInput(f"cannot read {where}: {error}.") from None


def _lines(file: TextIO, size: int, progress: Progress) -> Iterator[Line]:
    """(number, text) of the lines that are not blank; a zero byte marks a last line that does not end."""
    for number, text in enumerate(file, 1):
        if number % 4096 == 0:
            progress(file.buffer.tell() / size)
        if "\0" in text:
            raise BadInput(f"{file.name} is not a text file: line {number} has a zero byte.")
        if text.strip():
            yield number, text.rstrip("\r\n") if text.endswith("\n") else text + "\0"


def _parse_table(lines: Iterator[Line], where: str) -> Table:
    sample, comment = [], ""
    for number, text in lines:
        if text.lstrip()[0] in "#%" and not sample:
            comment = text.lstrip().lstrip("#% ").rstrip("\0")
        else:
            sample.append((number, text))
            if len(sample) == SNIFFED_LINES:
                break
    if not sample:
        raise BadInput(f"{where} has no lines of data.")
    delimiter = _guess_delimiter([t.rstrip("\0") for _, t in sample])
    first = _split_cells(sample[0][1].rstrip("\0"), delimiter)
    second = _split_cells(sample[1][1].rstrip("\0"), delimiter) if len(sample) > 1 else first
    comma = delimiter != "," and any(re.fullmatch(r"\s*[-+]?\d+,\d+([eE][-+]?\d+)?\s*", c) for c in second)
    names, rest = first, chain(sample[1:], lines)
    if all(_parse_number(c, comma) is not None for c in first):
        said = _split_cells(comment, delimiter)
        names = said if len(said) == len(first) else [str(i) for i in range(len(first))]
        rest = chain(sample, lines)
    return _read_rows(_unique_names(names, where), rest, delimiter, comma, where)


def _read_rows(names: list[str], lines: Iterator[Line], delimiter: str | None, decimal_comma: bool, where: str) -> Table:
    width, flat, numbers, notes = len(names), array("d"), array("q"), []
    text, filled, short = set(), set(), []
    for number, line in lines:
        whole = not line.endswith("\0")
        if line.lstrip()[0] in "#%":
            continue
        cells = _split_cells(line.rstrip("\0"), delimiter)
        if len(cells) > width and not any(c.strip() for c in cells[width:]):
            cells = cells[:width]
        if len(cells) > width:
            raise BadInput(f"{where} has {len(cells)} values in line {number}, but {width} columns.")
        if len(cells) < width:
            if not whole:
                notes.append(f"line {number} is cut off and was left out.")
                continue
            short.append(number)
            cells += [""] * (width - len(cells))
        row = [_parse_number(c, decimal_comma) for c in cells]
        for i, value in enumerate(row):
            if value is None:
                text.add(i)
            elif not math.isnan(value):
                filled.add(i)
        flat.extend(np.nan if v is None else v for v in row)
        numbers.append(number)
        if len(flat) > MAX_VALUES:
            raise BadInput(f"{where} has more than {MAX_VALUES} values and is not read.")
    if not numbers:
        raise BadInput(f"{where} has a header but no lines of data.")
    if short:
        notes.append(f"{len(short)} lines have too few values, first line {short[0]}; what they lack is missing.")
    grid = np.frombuffer(flat, np.float64).reshape(-1, width)
    for i in sorted(text & filled):
        notes.append(f"column {names[i]!r} has texts among its numbers; they count as missing.")
    columns = {
        name: Column(name, np.ascontiguousarray(grid[:, i]), kind="text" if i in text - filled else "number")
        for i, name in enumerate(names)
    }
    return Table(where, "csv", columns, lines=np.frombuffer(numbers, np.int64), notes=tuple(notes))


def _guess_delimiter(lines: list[str]) -> str | None:
    """The one that splits the lines into the most columns, and alike; None is any white space."""

    def score(delimiter: str | None) -> tuple[float, int]:
        counts = [len(_split_cells(line, delimiter)) for line in lines]
        usual = max(set(counts), key=counts.count)
        return (counts.count(usual) / len(counts) if usual > 1 else 0.0, usual)

    # A comma that separates nothing but decimals loses against a semicolon, because it is asked later.
    return max([";", "\t", "|", ",", None], key=score)


def _split_cells(line: str, delimiter: str | None) -> list[str]:
    if delimiter is None:
        return line.split()
    return [c.strip() for c in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])]


def _parse_number(cell: str, decimal_comma: bool) -> float | None:
    """NaN for what is missing, None for what is not a number."""
    try:
        return float(cell.replace(",", ".") if decimal_comma else cell) if "_" not in cell else None
    except ValueError:
        return SPECIAL_VALUES.get(cell.strip().lower())


def _unique_names(names: list[str], where: str) -> list[str]:
    if len(names) > MAX_COLUMNS:
        raise BadInput(f"{where} has more than {MAX_COLUMNS} columns.")
    found: list[str] = []
    seen: set[str] = set()
    for i, given in enumerate(names):
        base = given.strip() or str(i)
        name = base if base not in seen else next(n for k in count(2) if (n := f"{base}#{k}") not in seen)
        seen.add(name)
        found.append(name)
    return found
