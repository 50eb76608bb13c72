"""The measured tasks stay what they are: every setting, and the values of every term on random states.

`data/` was written once, before skills were separated from robots (support/task_values.py).
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from isthmus.tasks.catalogue import get_task
from support.task_values import task_settings, term_values

DATA = Path(__file__).parent / "data"
SETTINGS = json.loads((DATA / "task_settings.json").read_text())


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_settings_are_those_that_were_measured(name):
    assert json.loads(json.dumps(task_settings(get_task(name)))) == SETTINGS[name]


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_terms_have_the_same_values_on_random_states(name):
    with np.load(DATA / "task_terms.npz") as frozen:
        expected = {key.partition("|")[2]: frozen[key] for key in frozen.files if key.startswith(f"{name}|")}
    found = term_values(get_task(name))
    assert list(found) == list(expected)
    for term, value in found.items():
        np.testing.assert_array_equal(value, expected[term], err_msg=term)
