"""Certificate: how far a rule can be trusted on given prompts, as values and as text."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from interp.stats import ErrorSummary
from interp.unrolling.rule import Level
from interp.unrolling.tables import by_layer, line


@dataclass(frozen=True)
class LayerCertificate:
    """One layer's update from the model's own input to it, on the rows and columns that reach the output.

    `fidelity` is the literature's measure, ‖Z_rule − Z_model‖² / number of entries of Z, median over prompts; it is
    absolute, so `fidelity_no_update` is that of the rule "no update".
    """

    median_relative_error: float
    function_explained: float
    fidelity: float
    fidelity_no_update: float


@dataclass(frozen=True)
class LevelCertificate:
    """Rule against model at one level: at the output, and layer by layer."""

    output: ErrorSummary
    layers: tuple[LayerCertificate, ...]

    def to_dict(self, dtype: str) -> dict[str, Any]:
        return {**self.output.to_dict(), "dtype": dtype, "layers": [asdict(layer) for layer in self.layers]}


@dataclass(frozen=True)
class TaskError:
    """The model's own error against the targets: squared error of a prompt (mean over entries), and relative."""

    median_squared_error: float
    mean_squared_error: float
    central_mean_squared_error: float
    squared_error_quantiles: Mapping[str, float]
    rms_relative_error: float
    blown_up: int


@dataclass(frozen=True)
class Certificate:
    """How far a rule can be trusted, on these prompts.

    Args:
        levels: by level, the rule against the model.
        task: the model against the targets, or None where the prompts have none.
        conserved: median over prompts, by depth, of the relative change of D − B A⁺ C along the layers of the *model*.
    """

    prompts: int
    dtype: str
    levels: Mapping[Level, LevelCertificate]
    task: TaskError | None
    conserved: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        task = asdict(self.task) if self.task else None
        levels = {name: level.to_dict(self.dtype) for name, level in self.levels.items()}
        return {**levels, "prompts": self.prompts, "dtype": self.dtype, "task": task, "conserved": list(self.conserved)}

    def __str__(self) -> str:
        return "\n".join([*_output_lines(self), *_layer_lines(self), *_model_lines(self)])

    def summary(self) -> str:
        """Errors at the output, by level."""
        return "\n".join(_output_lines(self))


def _output_lines(certificate: Certificate) -> list[str]:
    lines = [f"certificate on {certificate.prompts} prompts, {certificate.dtype}; relative error of rule against model"]
    lines.append(line("level", ["max", "rms", "rms 99 %", "median"]))
    for name, level in certificate.levels.items():
        values = asdict(level.output)
        keys = ("max", "rms", "central_rms", "median")
        lines.append(line(name, [f"{values[f'{key}_relative_error']:.3g}" for key in keys]))
    return lines


def _layer_lines(certificate: Certificate) -> list[str]:
    lines = []
    for name, level in certificate.levels.items():
        if name != "exact":
            rows = {
                "median relative error": [layer.median_relative_error for layer in level.layers],
                "function explained": [layer.function_explained for layer in level.layers],
                "fidelity, ×1e-4": [layer.fidelity * 1e4 for layer in level.layers],
                "fidelity of no update, ×1e-4": [layer.fidelity_no_update * 1e4 for layer in level.layers],
            }
            lines += [f"layer by layer, {name}", *by_layer(rows, lambda value: f"{value:.6g}")]
    return lines


def _model_lines(certificate: Certificate) -> list[str]:
    lines, task = [], certificate.task
    if certificate.conserved:
        lines.append("change of D − B A⁺C along the model's layers (median, relative, by depth)")
        lines.append("  " + "  ".join(f"{value:.2g}" for value in certificate.conserved))
    if task:
        lines.append(
            f"the model's own error: squared, median {task.median_squared_error:.3g}, mean of the central 99 % "
            f"{task.central_mean_squared_error:.3g};\n  relative, rms {task.rms_relative_error:.3g}; "
            f"worse than the answer 0 on {task.blown_up} of {certificate.prompts} prompts"
        )
    return lines
