import pytest

from docs import readme


@pytest.mark.parametrize("name", readme.DOCUMENTS)
def test_a_document_shows_what_it_prints(name: str):
    """`make readme` runs the blocks; here each that prints has an output beside it."""
    blocks = readme.BLOCK.findall((readme.ROOT / name).read_text(encoding="utf-8"))
    assert sum(language in ("python", "console") for language, _ in blocks) >= 2
    assert all(body.strip() for language, body in blocks if language == "text")
    assert all(len(body.splitlines()) > 1 for language, body in blocks if language == "console")


def test_a_changed_number_is_found():
    assert readme.differences("error 1.2e-3 of 10", "error 1.2001e-3 of 10") == []
    assert readme.differences("rounding 3e-15", "rounding 9e-16") == []
    for changed in ("error 1.3e-3 of 10", "error 1.2e-3 of 11", "errors 1.2e-3 of 10", "error 1.2e-3"):
        assert readme.differences("error 1.2e-3 of 10", changed)


def test_only_the_two_commands_are_not_run():
    blocks = [
        body
        for language, body in readme.BLOCK.findall((readme.ROOT / "README.md").read_text(encoding="utf-8"))
        if language == "sh"
    ]
    commands = [line.split("#")[0].strip() for body in blocks for line in body.splitlines()]
    assert commands == ["make demo", "make test"]
