"""The `interp` command."""

import sys
from collections.abc import Sequence

import typer

from analyses import (
    ablate_model,
    analyse_model,
    compare_model,
    decode_model,
    heads_model,
    identify_model,
    import_model,
    inspect_model,
    list_models,
    probe_model,
    reproduce,
    train_model,
    unroll_model,
)
from analyses.terminal import run_app

app = typer.Typer(
    help="Read the numerical algorithm out of a transformer's forward pass.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("models")(list_models.command)
app.command("inspect")(inspect_model.command)
app.command("import")(import_model.command)
app.command("analyse")(analyse_model.command)
app.command("unroll")(unroll_model.command)
app.command("identify")(identify_model.command)
app.command("decode")(decode_model.command)
app.command("probe")(probe_model.command)
app.command("heads")(heads_model.command)
app.command("ablate")(ablate_model.command)
app.command("compare")(compare_model.command)
app.command("train")(train_model.command)
app.command("reproduce")(reproduce.command)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point: exits with 0 (done), 1 (the answer is no) or 2 (bad input)."""
    sys.exit(run_app(app, argv))


if __name__ == "__main__":
    main()
