"""Run every block of the README: `python docs/readme.py` writes its outputs, `--check` compares them.

A `python` block is run after those before it; the `text` block that follows is what it prints. In a `console` block the
lines that start with "$ " are run by the shell and the others are their output. `sh` blocks are the commands that set
everything up and are not run here. Numbers are compared up to a relative 1e-3, and what is below 1e-12 is rounding.
"""

import argparse
import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[-−]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")


def rendered(text: str) -> str:
    """The README with the outputs that its blocks give today."""
    namespace: dict[str, Any] = {"__name__": "__readme__"}
    printed: list[str] = []

    def replace(match: re.Match[str]) -> str:
        language, body = match.groups()
        if language == "python":
            printed.append(_run_python(body, namespace))
        elif language == "text" and printed:
            body = printed.pop()
        elif language == "console":
            body = "".join(_run_shell(line) for line in body.splitlines() if line.startswith("$ "))
        return f"```{language}\n{body}```"

    return BLOCK.sub(replace, text)


def _run_python(source: str, namespace: dict[str, Any]) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(source, "README.md", "exec"), namespace)
    return output.getvalue()


def _run_shell(line: str) -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        line[2:], shell=True, cwd=README.parent, env=environment, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    return f"{line}\n{done.stdout}"


def differences(old: str, new: str) -> list[str]:
    """The lines that differ by more than the last digits of a number."""
    before, after = old.splitlines(), new.splitlines()
    if len(before) != len(after):
        return [f"{len(before)} lines in the README, {len(after)} today"]
    return [f"- {a}\n+ {b}" for a, b in zip(before, after, strict=True) if not _same(a, b)]


def _same(old: str, new: str) -> bool:
    if re.sub(r"\s+", " ", NUMBER.sub("#", old)) != re.sub(r"\s+", " ", NUMBER.sub("#", new)):
        return False
    pairs = zip(NUMBER.findall(old), NUMBER.findall(new), strict=True)
    return all(_close(*(float(n.replace(",", "").replace("−", "-")) for n in pair)) for pair in pairs)


def _close(old: float, new: float) -> bool:
    return abs(old - new) <= 1e-3 * abs(old) or max(abs(old), abs(new)) < 1e-12


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args(argv)
    old = README.read_text(encoding="utf-8")
    new = rendered(old)
    if not options.check:
        README.write_text(new, encoding="utf-8")
        return 0
    wrong = differences(old, new)
    print("\n".join(wrong) if wrong else "the README prints what it says")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
