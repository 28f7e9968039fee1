"""Certificates: a lower bound on the objective of a problem, and the witness that lets it be checked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from . import bound
from .errors import CertificateError
from .operation import Operation, parse_operation
from .problem import Problem
from .propagation import contradicted
from .refutation import refuted
from .relaxation import Kept, most_kept
from .route import prepared

MAX_STEPS = 1_000_000
"""How many partial orders the checking of one certificate may make."""
MAX_LOOKS = 400_000
"""How often the checking of one certificate may look at an operation to narrow its window."""


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """No schedule of the problem has a smaller objective than `lower_bound`.

    `name` is the kind of bound. `proof` is "checked" when code in this package recomputed it from the problem and the
    `witness`, "solver" when it rests on the word of `backend` (its name and version).
    """

    lower_bound: float
    name: str
    proof: str
    witness: dict[str, Any] = {}
    backend: str | None = None

    def gap(self, value: float) -> float:
        """(value - bound) / bound, 0 when they meet up to rounding."""
        if value <= self.lower_bound * (1 + 1e-9):
            return 0.0
        return (value - self.lower_bound) / self.lower_bound if self.lower_bound > 0 else float("inf")

    @property
    def reason(self) -> str:
        """What binds, in words. Only `check` says whether it is true."""
        if self.backend is not None:
            return f"{self.backend} found that nothing is below"
        device, devices, passing = map(self.witness.get, ("device", "devices", "passing"))
        kept = (devices if isinstance(devices, list) else [devices]) + (passing if isinstance(passing, list) else [])
        named = f"device{'s' if len(kept) > 1 else ''} {' and '.join(map(str, kept))}"
        return {
            "critical path": "one micro-batch alone takes this long",
            "load": f"device {device} is busy from its first possible start to what has to follow on others",
            "work": f"device {device} has this much to compute",
            "memory": f"what device {device} has to hold, and for how long, fits its cap in no less time",
            "turnaround": f"the cap of device {device} makes it wait for its first gradient, and for its last",
            "crossing": f"device {device}, or one further down, waits for its first gradient with its cap full",
            "relaxation": f"in no order can {named} be done sooner, even if all other devices were as fast as can be",
            "propagation": "for anything less, some device would have to start an operation before its inputs, the "
            "work before it and its cap allow",
        }.get(self.name, self.name)


def check(problem: Problem, certificate: Certificate, *, deadline: float | None = None) -> float:
    """Recompute the bound of a certificate from the problem and the witness, and return it.

    The witness of "critical path" is empty, that of "load", "work", "memory", "turnaround" and "crossing" is
    {"device": d}, that of "propagation" {"orders": [["0F1", "0B0"], ...]} (the first runs before the second), that of
    "relaxation" {"devices": [d, ...], "passing": [d, ...]}: those kept whole, and in passing. Witnesses may come from
    strangers: their types are checked, the work is bounded.
    Raises CertificateError when the claim does not hold, or cannot be checked in that work or by the `deadline`
    (time.monotonic).
    """
    claim, name = certificate.lower_bound, certificate.name
    if not math.isfinite(claim):
        raise CertificateError(f"the claimed bound {claim} is not a finite number")
    if name == "relaxation":
        kept = _kept(problem, certificate.witness)
        if not refuted(problem, kept, prepared(problem)[0].ticks(claim), MAX_STEPS, deadline):
            devices = [*kept[0], *kept[1]]
            raise CertificateError(f"an order of devices {devices} alone has a value below the claimed {claim:g}")
        return claim
    if name == "propagation":
        _keys(certificate.witness, ("orders",))
        if not contradicted(problem, claim, _orders(certificate.witness["orders"]), MAX_LOOKS, deadline):
            raise CertificateError(f"propagation leaves a value below the claimed {claim:g}")
        return claim
    if name == "critical path":
        _keys(certificate.witness, ())
        found = bound.critical_path(problem)
    elif name in bound.OF_A_DEVICE:
        _keys(certificate.witness, ("device",))
        found = bound.OF_A_DEVICE[name](problem, _device(problem, certificate.witness["device"]))
    else:
        raise CertificateError(f"no way is known to check a bound of the kind {name!r}")
    if claim > found * (1 + 1e-9):
        raise CertificateError(f"the certificate claims {claim:g}, but its witness ({name}) gives {found:g}")
    return found


def _keys(witness: dict[str, Any], expected: tuple[str, ...]) -> None:
    if set(witness) != set(expected):
        raise CertificateError(f"the witness has the keys {sorted(witness)}, not {sorted(expected)}")


def _device(problem: Problem, value: object) -> int:
    if type(value) is not int or not 0 <= value < problem.devices:
        raise CertificateError(f"the witness names {value!r}, which is no device")
    return value


def _kept(problem: Problem, witness: dict[str, Any]) -> Kept:
    """The devices that a relaxation keeps whole, at least one, and in passing."""
    _keys(witness, ("devices", "passing"))
    values = [witness["devices"], witness["passing"]]
    if not all(isinstance(value, list) for value in values):
        raise CertificateError(f"the witness keeps {values!r}, which are not two lists of devices")
    whole, passing = (tuple(_device(problem, value) for value in devices) for devices in values)
    kept, most = {*whole, *passing}, most_kept(problem)
    if len(kept) != len(whole) + len(passing):
        raise CertificateError(f"the witness keeps a device twice: {values}")
    if not whole or len(kept) > most:
        raise CertificateError(f"the witness keeps {values}, not 1 to {most} devices of which the first is whole")
    return whole, passing


def _orders(values: object) -> Iterator[tuple[Operation, Operation]]:
    """The orders of a propagation, (first, second), one after the other."""
    if not isinstance(values, list):
        raise CertificateError(f"the witness orders {values!r}, which is no list")
    for value in values:
        try:
            first, second = map(parse_operation, value)
        except (TypeError, ValueError) as error:
            raise CertificateError(f"the witness orders {value!r}, which are not two operations") from error
        yield first, second
