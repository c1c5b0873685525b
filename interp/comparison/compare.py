"""compare: which solver of the kernel system the layers of a model follow, and what the controls say of the answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from interp.comparison.candidates import CANDIDATES, check_solvers
from interp.comparison.control import Control, Controlled, run_control
from interp.comparison.judge import Floor, Judged, Rules, judge
from interp.comparison.measure import Measured, measure
from interp.comparison.metrics import A_LIN, A
from interp.comparison.problems import Draws, check_lam
from interp.comparison.readouts import OWN, TO_KRR, TO_TARGET, Read
from interp.comparison.result import Comparison
from interp.covariance import Covariance
from interp.hooks import Hooked, in_float64
from interp.probes import randomised
from interp.solvers import Solver

RANDOM_GROUPS = 3  # groups of prompts for the random networks, of which no interval is asked
RANDOM_NETWORKS = 2
VERDICTS_BY = (A_LIN, A)


def compare(
    model: Any,
    prompts: Any | Callable[[int, int], Any],
    covariance: Covariance,
    lam: float,
    *,
    solvers: Mapping[str, Solver] | None = None,
    steps: int = 128,
    seeds: int = 10,
    train: int = 512,
    test: int = 128,
    readout: str = TO_KRR,
    read: Read | None = None,
    control: Control | None = None,
    untrained: Sequence[Any] | None = None,
    rules: Rules | None = None,
) -> Comparison:
    """Compare the prediction at every depth of a model with every step of every solver (MATH §7), in float64.

    The verdict rests on one read-out and on the first of two metrics that accepts a solver: A-lin, which separates
    solvers best and counts only for networks of a fixed pace, then A, whose free assignment is fairer to trained
    networks and separates less. C is reported and names nothing by itself: a cosine does not see how large an error is.
    Layers that repeat one prediction, or scale that of KRR, follow no solver, however near to some step they are.
    A metric counts only where the controls behave by it: the built network's solver is named, and nothing is for the
    random networks; solvers that it ties in the built network are tied in the model too. Without a built network the
    result says that this was not checked.

    Args:
        model: any hooked model; it need not be in float64.
        prompts: a function (count, seed) of prompts with tokens, A, B, C, target (or `Problems`), or such prompts.
        covariance, lam: the kernel system (K + λI) α = y whose solvers are compared.
        solvers: by name, anything of `interp.solvers` that takes a kernel system; None for `CANDIDATES`.
        steps: of each solver, from 0 to this; at least as many as layers.
        seeds: groups of prompts, over which every spread is; train, test: prompts of a group (`Draws`).
        readout: on which the verdict rests: "probe to KRR", "probe to target" or "own read-out".
        read: residual stream [batch, token, d_model] → predictions [batch, query, out]; None for the model's own.
        control: the built network, the positive control.
        untrained: random networks of the model's architecture, two or more; None draws two (`randomised`).
        rules: when a solver is named.

    Raises:
        ValueError: λ ≤ 0; no hooked model; an unknown read-out or what is no solver; fewer steps than layers; too few
            prompts or groups; activations or predictions that are not finite; shapes that do not fit.
    """
    check_lam(lam)
    solvers, rules = check_solvers(CANDIDATES if solvers is None else solvers), rules or Rules()
    _check_settings(readout, seeds, steps, model)
    model, draws = in_float64(model), Draws(prompts, train, test, seeds)
    measured = measure(model, draws, covariance, lam, solvers, steps, read)
    if readout not in measured:
        raise ValueError(f"compare: the model has no read-out that is known here, so {readout!r} needs read=")
    fewer = Draws(prompts, train, test, min(seeds, RANDOM_GROUPS))
    fresh = _fresh(model, untrained, draws)
    found = [measure(each, fewer, covariance, lam, solvers, steps, read) for each in fresh]
    randoms = tuple(_random(found, index, rules) for index in range(len(found)))
    floors = {name: Floor.of([each[name] for each in found]) for name in measured}
    judged = {name: judge(each, floors[name], rules) for name, each in measured.items()}
    built = None if control is None else run_control(control, solvers, steps, rules)
    verdict, metric, notes = _conclude(judged[readout], readout, randoms, built)
    return Comparison(measured, judged, randoms, built, verdict, readout, metric, notes, seeds, test, lam, rules)


def _fresh(model: Any, untrained: Sequence[Any] | None, draws: Draws) -> list[Any]:
    """Random networks: those given, or drawn."""
    if untrained is not None:
        if len(untrained) < RANDOM_NETWORKS:
            raise ValueError(f"compare: {len(untrained)} untrained networks are too few; give {RANDOM_NETWORKS}")
        return [in_float64(each) for each in untrained]
    tokens = draws.group(0)[0].tokens
    return [randomised(model, tokens, seed) for seed in range(RANDOM_NETWORKS)]


def _random(found: list[dict[str, Measured]], index: int, rules: Rules) -> Controlled:
    """A random network, judged like the model with the others as its random networks."""
    mine, others = found[index], found[:index] + found[index + 1 :]
    judged = {name: judge(mine[name], Floor.of([each[name] for each in others]), rules) for name in mine}
    return Controlled(f"random network {index}", None, mine, judged)


def _conclude(
    judged: Mapping[str, Judged], readout: str, randoms: Sequence[Controlled], built: Controlled | None
) -> tuple[tuple[str, ...], str | None, tuple[str, ...]]:
    """The solvers named (none, one, or one and its ties), the metric that it rests on, and what is to be said."""
    notes = [] if built is not None else ["the positive control was not run: give control=, a network of known solver"]
    for metric in VERDICTS_BY:
        bad = [each.name for each in (*randoms, *([built] if built else [])) if not each.behaves(readout, metric)]
        if bad:
            notes.append(f"{metric} does not count: its verdict on the control ({', '.join(bad)}) is wrong")
        elif judged[metric].names:
            blurred = _blurred(judged[metric].names, () if built is None else built.named(readout, metric))
            if blurred:
                notes.append(f"{metric} does not tell {' and '.join(blurred)} apart in the built network either")
            return tuple(dict.fromkeys((*judged[metric].names, *blurred))), metric, tuple(notes)
    return (), None, tuple(notes)


def _blurred(names: tuple[str, ...], control: tuple[str, ...]) -> tuple[str, ...]:
    """The solvers that are tied in the built network, where the model's are among them."""
    return control if len(control) > 1 and set(control) & set(names) else ()


def _check_settings(readout: str, seeds: int, steps: int, model: Any) -> None:
    if not isinstance(model, Hooked):
        raise ValueError(
            f"compare: a {type(model).__name__} is no hooked model; it needs cfg, blocks, hook_dict, run_with_hooks "
            "and run_with_cache, as in interp.hooks.Hooked"
        )
    known = (TO_KRR, TO_TARGET, OWN)
    if readout not in known:
        raise ValueError(f"compare: unknown readout {readout!r}; known: {', '.join(known)}")
    if seeds < 2:
        raise ValueError(f"compare: seeds={seeds} gives no spread; give 2 or more, 10 for an interval worth having")
    if not isinstance(steps, int) or steps < model.cfg.n_layers:
        raise ValueError(
            f"compare: steps={steps} must be a whole number, at least the model's {model.cfg.n_layers} layers"
        )
