"""What every command shares: exit codes, errors in a sentence, JSON on standard output, files whole or absent."""

import json
import math
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

BAD_INPUT = 2
MAX_SEED = 2**31 - 1
# typer brings a click of its own since 0.16 and the installed one before: its base error, whichever that is
USAGE_ERROR: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def run_app(app: typer.Typer, argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 the answer is no, 2 bad input, said in one sentence."""
    try:
        return app(args=None if argv is None else list(argv), standalone_mode=False) or 0
    except typer.Exit as stop:
        return stop.exit_code
    except (KeyboardInterrupt, typer.Abort):
        note("interrupted")
        return 130
    except USAGE_ERROR as error:
        is_help = type(error).__name__ == "NoArgsIsHelpError"
        note(error.format_message() if is_help else f"error: {error.format_message()}")
    except (ValueError, OSError, ArithmeticError, RuntimeError) as error:
        note(f"error: {' '.join(str(error).split())}")
    return BAD_INPUT


def run_command(command: Callable[..., Any], argv: Sequence[str] | None = None) -> int:
    """A single command as a program of its own."""
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return run_app(app, argv)


def to_json(values: Any) -> str:
    """One JSON document; numbers that are not finite become null, since JSON has none."""
    return json.dumps(_finite(values), indent=1, ensure_ascii=False, allow_nan=False)


def _finite(values: Any) -> Any:
    if isinstance(values, dict):
        return {str(key): _finite(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [_finite(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values


def write_or_print(text: str, out: Path | None) -> None:
    """To standard output, or to a file that is replaced only once the new one is whole."""
    if out is None:
        typer.echo(text)
        return
    if not out.name or out.is_dir():
        raise ValueError(f"cannot write {out}: it is a directory; give the name of a file")
    new = out.with_name(f".{out.name}.{secrets.token_hex(4)}")
    try:
        new.write_text(text + "\n", encoding="utf-8")
        os.replace(new, out)
    except OSError as error:
        raise ValueError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        new.unlink(missing_ok=True)


def note(text: str) -> None:
    """Progress and remarks: standard error, so that standard output holds the answer alone."""
    print(text, file=sys.stderr)
