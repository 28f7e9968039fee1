"""debubble compiles pipeline-parallel training schedules, proves them safe and runs them.

    profile = debubble.Profile.uniform(stages=4, forward=10, backward_input=11, backward_weight=8, comm=1)
    plan = debubble.compile(profile, microbatches=8, memory_cap=4)
    print(plan)
    plan.save("plan.json")
    report = debubble.verify("schedule.csv")

Every name is loaded when it is first used, so that `import debubble` costs next to nothing. The runtime lives in
`debubble.runtime` and needs the extra `debubble[torch]`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import compile, lower, verify
    from .balancing import Balance, balance
    from .compiler.certificate import Certificate
    from .compiler.diagnostic import Diagnostic
    from .compiler.errors import (
        CertificateError,
        DebubbleError,
        InfeasibleError,
        InputError,
        InvalidScheduleError,
        RunError,
    )
    from .compiler.interchange import Judgement
    from .compiler.interchange.layer_files import read_layers
    from .compiler.layers import Layer, Layers
    from .compiler.operation import Operation, Pair
    from .compiler.placement import Placement
    from .compiler.plan import Plan
    from .compiler.problem import Problem
    from .compiler.profile import Link, Memory, Profile, Stage
    from .compiler.schedule import Schedule
    from .compiler.simulation import Timeline
    from .explanation import Explanation, explain, robust
    from .front import Front
    from .tuning import tune

    __version__: str

__all__ = [
    "Balance",
    "Certificate",
    "CertificateError",
    "DebubbleError",
    "Diagnostic",
    "Explanation",
    "Front",
    "InfeasibleError",
    "InputError",
    "InvalidScheduleError",
    "Judgement",
    "Layer",
    "Layers",
    "Link",
    "Memory",
    "Operation",
    "Pair",
    "Placement",
    "Plan",
    "Problem",
    "Profile",
    "RunError",
    "Schedule",
    "Stage",
    "Timeline",
    "__version__",
    "balance",
    "compile",
    "explain",
    "lower",
    "read_layers",
    "robust",
    "tune",
    "verify",
]

_HOMES = {
    "api": ("compile", "lower", "verify"),
    "balancing": ("Balance", "balance"),
    "compiler.certificate": ("Certificate",),
    "compiler.diagnostic": ("Diagnostic",),
    "compiler.errors": (
        "CertificateError",
        "DebubbleError",
        "InfeasibleError",
        "InputError",
        "InvalidScheduleError",
        "RunError",
    ),
    "compiler.interchange": ("Judgement",),
    "compiler.interchange.layer_files": ("read_layers",),
    "compiler.operation": ("Operation", "Pair"),
    "compiler.layers": ("Layer", "Layers"),
    "compiler.placement": ("Placement",),
    "compiler.plan": ("Plan",),
    "compiler.problem": ("Problem",),
    "compiler.profile": ("Link", "Memory", "Profile", "Stage"),
    "compiler.schedule": ("Schedule",),
    "compiler.simulation": ("Timeline",),
    "explanation": ("Explanation", "explain", "robust"),
    "front": ("Front",),
    "tuning": ("tune",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("debubble")
    elif name in _HOME:
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    else:
        raise AttributeError(f"module 'debubble' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
