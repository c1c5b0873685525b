from docs import readme


def test_the_readme_prints_what_it_says():
    text = readme.README.read_text(encoding="utf-8")
    assert text.count("```python") >= 3
    assert readme.differences(text, readme.rendered(text)) == []


def test_a_changed_number_is_found():
    assert readme.differences("error 1.2e-3 of 10", "error 1.2001e-3 of 10") == []
    assert readme.differences("rounding 3e-15", "rounding 9e-16") == []
    for changed in ("error 1.3e-3 of 10", "error 1.2e-3 of 11", "errors 1.2e-3 of 10", "error 1.2e-3"):
        assert readme.differences("error 1.2e-3 of 10", changed)


def test_only_the_two_commands_are_not_run():
    blocks = [
        body for language, body in readme.BLOCK.findall(readme.README.read_text(encoding="utf-8")) if language == "sh"
    ]
    commands = [line.split("#")[0].strip() for body in blocks for line in body.splitlines()]
    assert commands == ["make demo", "make test"]
