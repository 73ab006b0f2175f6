"""JSON that every reader takes."""

import json
import math

import numpy as np
import pytest

from mytorch.models import GPT2Config, Llama, LlamaConfig
from mytorch.utils.reading import read_json_lines
from mytorch.utils.writing import finite_json_text, json_text, with_numbers

NAN, INF = math.nan, math.inf


def strict(text):
    """The content, as a reader that knows RFC 8259 alone sees it."""

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


CASES = {  # what is written: what other readers see
    "finite": ({"a": 1.5, "b": [1, None, "NaN"]}, {"a": 1.5, "b": [1, None, "NaN"]}),
    "numbers": (
        {"loss": NAN, "up": INF, "down": -INF, "lr": 0.1},
        {"loss": None, "loss_nonfinite": "NaN", "up": None, "up_nonfinite": "Infinity", "down": None,
         "down_nonfinite": "-Infinity", "lr": 0.1},
    ),
    "numpy": ({"loss": np.float64("nan")}, {"loss": None, "loss_nonfinite": "NaN"}),
    "a list": ({"x": [1.0, NAN, INF]}, {"x": [1.0, None, None], "x_nonfinite": [None, "NaN", "Infinity"]}),
    "nested lists": ({"x": [[1.0], [NAN]]}, {"x": [[1.0], [None]], "x_nonfinite": [None, ["NaN"]]}),
    "a dict in a list": ({"x": [{"y": NAN}]}, {"x": [{"y": None, "y_nonfinite": "NaN"}]}),
    "a dict in a dict": ({"x": {"y": -INF}}, {"x": {"y": None, "y_nonfinite": "-Infinity"}}),
    "a null": ({"x": None, "y": NAN}, {"x": None, "y": None, "y_nonfinite": "NaN"}),
    "a list at the top": ([NAN, {"y": NAN}], [None, {"y": None, "y_nonfinite": "NaN"}]),
    "the field is taken": ({"x": NAN, "x_nonfinite": 3}, {"x": None, "x_nonfinite": 3}),
    "a key": ({NAN: 1, 2: NAN}, {"NaN": 1, "2": None, "2_nonfinite": "NaN"}),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_that_are_not_finite(name, tmp_path):
    content, seen = CASES[name]
    text = json_text(content)
    assert strict(text) == seen
    if name in ("a list at the top", "the field is taken", "a key"):  # which have lost the word, or the key
        return
    assert repr(with_numbers(json.loads(text))) == repr(content).replace("np.float64(nan)", "nan")
    (tmp_path / "x.jsonl").write_text(text + "\n")
    ((_, read),) = read_json_lines(tmp_path / "x.jsonl")
    assert repr(read) == repr(with_numbers(json.loads(text)))


@pytest.mark.parametrize(
    "content", [{"x": 1, "x_nonfinite": "NaN"}, {"x": None, "x_nonfinite": "nan"}, {"x_nonfinite": "NaN"},
                {"x": [None], "x_nonfinite": ["NaN", None]}, {"x": None, "x_nonfinite": ["NaN"]}]
)
def test_what_no_writer_writes_stays(content):
    assert with_numbers(content) == content


def test_options_are_those_of_json():
    assert json_text({"é": [NAN, object]}, default=str, ensure_ascii=False, indent=1) == (
        '{\n "é": [\n  null,\n  "<class \'object\'>"\n ],\n "é_nonfinite": [\n  "NaN",\n  null\n ]\n}'
    )


def test_a_configuration_is_refused(tmp_path):
    assert finite_json_text({"eps": 1e-5}) == '{"eps": 1e-05}'
    with pytest.raises(ValueError, match="can't write eps=nan as JSON"):
        finite_json_text({"eps": NAN})
    config = LlamaConfig(8, 4, 4, 1, 1)
    model = Llama(config)
    config.rope_theta = INF
    for write in (lambda: config.save(tmp_path / "c.json"), lambda: model.save_pretrained(tmp_path)):
        with pytest.raises(ValueError, match="can't write rope_.*inf.* as JSON"):
            write()
    assert list(tmp_path.iterdir()) == []
    GPT2Config().save(tmp_path / "c.json")
