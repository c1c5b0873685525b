"""A rule as the source of one numpy function that imports nothing of ours."""

from interp.unrolling.rule import GroupRule, Level, UpdateRule

HEADER = '''"""Update rule of a transformer of {depth} layers, at the level "{level}".

predict(tokens): tokens [batch, token, {d_model}], the last {n_query} rows the queries, to [batch, {n_query}, {width}].
"""

import numpy as np

N_QUERY = {n_query}
MACHINES = {machines}
DUAL = np.array({dual})  # block coordinates = rows of the residual stream @ DUAL


def moments(z, rule, rows):
    """Sum of z^T z over the rows that each of `rows` sees: [batch, row or 1, column, column]."""
    n = z.shape[1] - N_QUERY
    if rule.startswith("machine "):
        machine, size = int(rule.split()[1]), n // MACHINES
        served = z[:, machine * size : (machine + 1) * size]
        own = (served.swapaxes(1, 2) @ served)[:, None]
        return own if rows.start == n else own * (np.arange(n) // size == machine)[:, None, None]
    if rule == "all":
        return (z.swapaxes(1, 2) @ z)[:, None]
    if rule == "causal":
        return np.cumsum(z[..., :, None] * z[..., None, :], axis=1)[:, rows]
    if rule == "machine":
        own = z[:, :n].reshape(z.shape[0], MACHINES, n // MACHINES, z.shape[2])
        return np.repeat(own.swapaxes(2, 3) @ own, n // MACHINES, axis=1)
    total = (z[:, :n].swapaxes(1, 2) @ z[:, :n])[:, None]
    if rule == "context_and_self" and rows.start == n:
        own = z[:, rows]
        total = total + own[..., :, None] * own[..., None, :]
    return total


def times(row, matrix):
    """Each row times its own matrix."""
    return (row[:, :, None, :] @ matrix)[:, :, 0, :]


def predict(tokens):
    """The prediction, {sign} times the read-out columns of the query rows."""
    z = np.asarray(tokens, dtype=np.float64) @ DUAL
    n = z.shape[1] - N_QUERY
    context, query = slice(0, n), slice(n, z.shape[1])
'''


def to_python(rule: UpdateRule, level: Level) -> str:
    """Source of `predict(tokens)` at a level; at "exact", the canonical heads are constants in it."""
    rule._check_level(level)
    layout = rule.layout
    read = layout.slices[layout.readout]
    header = HEADER.format(
        depth=rule.depth,
        level=level,
        d_model=layout.d_model,
        n_query=layout.n_query,
        machines=layout.machines,
        width=read.stop - read.start,
        dual=layout.dual.tolist(),
        sign=repr(float(layout.sign)),
    )
    body = [line for index in range(rule.depth) for line in _layer(rule, index, level)]
    body.append(f"return {float(layout.sign)!r} * z[:, query, {read.start}:{read.stop}]")
    return header + "".join(f"    {line}\n" for line in body)


def _layer(rule: UpdateRule, index: int, level: Level) -> list[str]:
    lines = [f"# layer {index}", "delta = np.zeros_like(z)"]
    for item in rule.layers[index].groups:
        for role in item.group.roles:
            lines += [f"u, S = z[:, {role}], moments(z, {item.group.rule!r}, {role})"]
            lines += _exact(item, role) if level == "exact" else _words(rule, item, role, level)
    return [*lines, f"z = z + delta{' / n' if rule.per_n else ''}"]


def _exact(item: GroupRule, role: str) -> list[str]:
    return [
        f"delta[:, {role}] += times(u @ np.array({Q.tolist()}), S) @ np.array({V.tolist()})"
        for Q, V in zip(item.group.Q, item.group.V, strict=True)
    ]


def _words(rule: UpdateRule, item: GroupRule, role: str, level: Level) -> list[str]:
    def columns(name: str) -> str:
        return f"{rule.layout.slices[name].start}:{rule.layout.slices[name].stop}"

    lines = []
    for word, coefficient in item.coefficients(level).items():
        row, moment = f"u[..., {columns(word.row)}]", f"S[..., {columns(word.left)}, {columns(word.right)}]"
        value = f"np.trace({moment}, axis1=2, axis2=3)[..., None] * {row}" if word.trace else f"times({row}, {moment})"
        lines.append(f"delta[:, {role}, {columns(word.into)}] += {coefficient!r} * ({value})")
    return lines
