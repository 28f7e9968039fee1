"""The command line: one group of commands, and what every one of them does about errors.

Exit status: 0 fine; 1 the schedule is invalid, the problem infeasible, or a run failed; 2 the request or a file could
not be understood. Results go to standard output, everything else to standard error; with `--json` exactly one JSON
object is printed, in case of an error too.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from .commands import balance, compare, compile, explain, export, lower, profile, run, show, tune, verify
from .commands.output import print_json
from .compiler.errors import DebubbleError, InfeasibleError, InputError, InvalidScheduleError

_FAILED = {"verify": {"valid": False}, "run": {"ok": False}}
"""What the JSON object of a command that could not do its work says besides the errors."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=False)
@click.version_option(package_name="debubble")
def group() -> None:
    """Compile, verify and run pipeline-parallel training schedules."""


for module in (compile, verify, lower, export, show, compare, tune, balance, explain, profile, run):
    group.add_command(module.command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; no error leaves it as a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    gc.disable()  # a plan is millions of small values without cycles: to look for some takes longer than all the rest
    try:
        status = _run(words)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever read the output has left
        for stream in (sys.stdout, sys.stderr):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return 1
    finally:
        gc.enable()


def _run(words: list[str]) -> int:
    try:
        return group.main(words, prog_name="debubble", standalone_mode=False) or 0
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        if context is not None:
            sys.stderr.write(f"{context.get_usage()}\n(try {context.command_path} --help)\n")
        return _fail(words, 2, "usage", " ".join(error.format_message().split()))  # choices have a line each
    except InvalidScheduleError as error:
        found = error.report.shortened().errors
        return _fail(words, 1, error.code, "\n".join(map(str, found)), [each.as_json() for each in found])
    except InputError as error:
        keys = ("code", "message", "source", "line", "column", "hint")
        entry = {key: value for key in keys if (value := getattr(error, key)) is not None}
        return _fail(words, 2, error.code, str(error), [entry])
    except InfeasibleError as error:
        more = {"status": "infeasible", "reason": error.reason, "least_cap": error.least_cap}
        return _fail(words, 1, error.code, f"infeasible: {error}", more=more)
    except DebubbleError as error:
        return _fail(words, error.exit_status, error.code, str(error))
    except (KeyboardInterrupt, click.Abort):
        return _fail(words, 1, "interrupted", "interrupted")
    except BrokenPipeError:
        raise
    except Exception as error:
        if os.environ.get("DEBUBBLE_DEBUG"):
            raise
        message = f"unexpected {type(error).__name__}: {error}"
        return _fail(words, 1, "internal", f"{message} (DEBUBBLE_DEBUG=1 shows where)")


def _fail(
    words: list[str],
    status: int,
    code: str,
    message: str,
    errors: list[dict[str, Any]] | None = None,
    *,
    more: dict[str, Any] | None = None,
) -> int:
    """Say what went wrong: on standard error, and with --json as the object on standard output, where the `errors`
    are by default the one message."""
    sys.stderr.write("".join(f"error: {line}\n" for line in message.splitlines()))
    if "--json" in words:
        command = next((word for word in words if not word.startswith("-")), "")
        entries = [{"code": code, "message": message}] if errors is None else errors
        print_json(_FAILED.get(command, {}) | (more or {}) | {"errors": entries, "warnings": []})
    return status
