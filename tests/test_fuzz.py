"""A few seconds of `python tests/fuzz.py`; minutes of it are run by hand."""

import fuzz
import pytest


@pytest.mark.parametrize("target", list(fuzz.FEED))
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_bad_input_ends_in_a_word_not_in_a_traceback(target):
    inputs, kept, lines = fuzz.fuzz(target, seconds=3)
    assert inputs > len(fuzz.SEEDS[target])
    assert kept > len(fuzz.SEEDS[target])  # it found its way further in
    assert lines > 50
