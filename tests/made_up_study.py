"""Runs for the study that nobody measured: times of rows by shape, with or without profiles."""

from made_up_profiles import cell, profile

HIDDEN, BATCH, STEPS = (128, 1024), (1, 16, 64, 256), (10, 1000)
SHAPES = [(h, b, t) for h in HIDDEN for b in BATCH for t in STEPS]


def either(shape):
    """Now three times longer, now three times shorter, along no axis."""
    h, b, t = shape
    return 3.0 if (HIDDEN.index(h) + BATCH.index(b) + STEPS.index(t)) % 2 else 1 / 3


def cells_of(factors, profiles=None):
    """A run's cells: times are 1 ms times a factor of the shape; pytorch has A/A controls."""
    found = []
    for place, shape in enumerate(SHAPES):
        for name, factor in {"pytorch": 1.0, **factors}.items():
            value = 1e-3 * (factor(shape) if callable(factor) else factor)
            rounds = [value * (1 + 0.002 * ((n + place) % 3 - 1)) for n in range(10)]
            record = cell(name, shape, value, round_latency_s=rounds)
            made = (profiles or {}).get(name)
            found.append((record, made(shape, value) if made else None))
            if name == "pytorch":
                again = [one * 1.004 for one in rounds]
                found.append(
                    (cell(name, shape, value * 1.004, round_latency_s=again, copy=2), None)
                )
    return found


def by_batch(small, large):
    return lambda shape: small if shape[1] <= 16 else large


def at(axis, low, high):
    """One factor at the smallest size of an axis, another at the largest."""
    sizes = (HIDDEN, BATCH, STEPS)[axis]
    return lambda shape: low if shape[axis] == sizes[0] else high


def busy(share):
    """A profile whose device is busy for a share of the latency."""
    return lambda shape, latency: profile(
        (share(shape) if callable(share) else share) * latency, latency
    )
