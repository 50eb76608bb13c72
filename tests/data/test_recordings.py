"""Recordings as files: read back whole, described, exported, never written over unasked."""

from __future__ import annotations

import json
import math

import pytest

from isthmus.core.errors import BadInput
from isthmus.data.exporters.export import DataExportResult, export_recordings
from isthmus.data.recordings import RecordingInfo, TableInfo, contract_of, describe, read_any, write_recording
from isthmus.data.store import Store
from isthmus.data.store.labels import LabelsResult, label, withdraw
from support.episodes import regular_episode


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "a.mcap"
    write_recording(path, regular_episode())
    return path


def test_an_export_is_read_back_bit_for_bit(recording, tmp_path):
    out = tmp_path / "a.parquet"
    made = export_recordings([recording], out)
    assert read_any(out).hash == read_any(recording).hash == made.parents[0]
    assert (made.format, made.episodes, made.ticks) == ("parquet", 1, len(regular_episode()))
    assert DataExportResult.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    assert contract_of(str(out)) == contract_of(str(recording)) == regular_episode().contract


def test_nothing_is_written_over_unasked_and_a_source_never(recording, tmp_path):
    out = tmp_path / "b.mcap"
    export_recordings([recording], out)
    with pytest.raises(BadInput, match="exists"):
        export_recordings([recording], out)
    export_recordings([recording], out, overwrite=True)
    with pytest.raises(BadInput, match="while it is read"):
        export_recordings([recording], recording, overwrite=True)
    with pytest.raises(BadInput, match="could be anything"):
        export_recordings([recording], tmp_path / "c")


def test_a_recording_and_a_table_are_described(recording, tmp_path):
    info = describe(recording)
    assert isinstance(info, RecordingInfo)
    episode = regular_episode()
    assert (info.hash, info.ticks, info.complete) == (read_any(recording).hash, len(episode), True)
    assert set(info.signals) == {*(s.name for s in (*episode.contract.signals, *episode.operator)), "target", "wanted"}
    assert RecordingInfo.from_dict(json.loads(json.dumps(info.to_dict()))).to_dict() == info.to_dict()
    table = tmp_path / "a.csv"
    table.write_text("time,x\n0.0,1.5\n0.1,\n0.2,-2.5\n")
    found = describe(table)
    assert isinstance(found, TableInfo)
    assert (found.columns["x"].low, found.columns["x"].high, found.columns["x"].missing) == (-2.5, 1.5, 1)


def test_a_label_is_there_until_it_is_withdrawn(recording, tmp_path):
    store = Store(tmp_path / "store")
    store.add([recording])
    made = label(store, str(recording), text="slipped", start=0.0, tags=("slip",), success=False, who="me")
    assert [(one.text, one.tag, one.success) for one in made.labels if one.hash in made.made].count((None, "slip", None)) == 1
    assert len(made.made) == len(made.labels) == 3
    assert LabelsResult.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    after = withdraw(store, made.episode, made.made[0], who="me")
    assert {one.hash for one in after.labels} == set(made.made[1:])
    with pytest.raises(BadInput, match="withdrawn before"):
        withdraw(store, made.episode, made.made[0])
    with pytest.raises(BadInput, match="follow each other"):
        label(store, made.episode, text="late", start=math.inf)
