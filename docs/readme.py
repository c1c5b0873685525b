"""Run every block of the documents: `python docs/readme.py` writes their outputs, `--check` compares them.

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

ROOT = Path(__file__).parent.parent
DOCUMENTS = ("README.md", "docs/kernel-solvers.md", "docs/your-own-model.md")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[-−]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?")


def rendered(text: str) -> str:
    """A document with the outputs that its blocks give today."""
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
        exec(compile(source, "a block of the document", "exec"), namespace)
    return output.getvalue()


def _run_shell(line: str) -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        line[2:], shell=True, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    return f"{line}\n{done.stdout}"


def differences(old: str, new: str) -> list[str]:
    """The lines that differ by more than the last digits of a number."""
    before, after = old.splitlines(), new.splitlines()
    if len(before) != len(after):
        return [f"{len(before)} lines in the document, {len(after)} today"]
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
    wrong = [line for name in DOCUMENTS for line in _update(ROOT / name, options.check)]
    print("\n".join(wrong) if wrong else f"{' and '.join(DOCUMENTS)} print what they say")
    return 1 if wrong else 0


def _update(path: Path, check: bool) -> list[str]:
    """Write a document's outputs, or find the lines in which they differ from what stands there."""
    old = path.read_text(encoding="utf-8")
    new = rendered(old)
    if not check:
        path.write_text(new, encoding="utf-8")
        return []
    return [f"{path.name}: {line}" for line in differences(old, new)]


if __name__ == "__main__":
    sys.exit(main())
