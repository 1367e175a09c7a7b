"""`steadyscore study`: one table of studies, whose results print, have a JSON form, and end with the right exit code."""

from __future__ import annotations

import json

import pytest

from steadyscore.cli import MOVED, VERBS, main
from steadyscore.commands import study
from steadyscore.results.render import Printed
from steadyscore.results.table import table_of
from steadyscore.terms import Failure


class Ages(Printed):
    """What a study of ages gives."""

    def tables(self):
        return [table_of(["name", "age"], [["Ada", 36]], notes=["Of one person."])]

    def to_json(self):
        return {"Ada": 36}


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (study.StudyOutput(Ages()), 0, ""),
        (study.StudyOutput(Ages(), code=3), 3, ""),
        (study.StudyOutput(Ages(), [Failure("q1", "down")], "mine"), 4, "the queries of mine"),
    ],
)
def test_a_new_study_is_one_line_in_the_table(answer, code, said, monkeypatch, capsys):
    line = study.Study("say how old people are", lambda parser: None, lambda args: answer, ("", "--json"))
    monkeypatch.setitem(study.STUDIES, "ages", line)
    assert main(["study", "ages"]) == code
    printed = capsys.readouterr()
    assert printed.out == "name  age\nAda    36\n\nOf one person.\n"
    assert said in printed.err
    assert main(["study", "ages", "--json"]) == code
    assert json.loads(capsys.readouterr().out) == {"Ada": 36}
    with pytest.raises(SystemExit, match="0"):
        main(["study", "ages", "--help"])
    assert "Say how old people are." in (text := capsys.readouterr().out)
    assert text.endswith("examples:\n  steadyscore study ages\n  steadyscore study ages --json\n")


def test_the_words_of_before_say_where_their_study_is(capsys):
    for word in study.STUDIES:
        assert word not in VERBS
        with pytest.raises(SystemExit, match="2"):
            main([word, "--help"])
        assert f"`steadyscore {word}` is now `steadyscore study {word}`" in capsys.readouterr().err
    assert MOVED.keys() >= study.STUDIES.keys()
