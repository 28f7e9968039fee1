"""Damaged files of every kind: whatever they hold, there is an answer in words, soon, and in little memory.

    python benchmarks/fuzz.py [--count 50000] [--seed 0]

Every file of a small corpus (schedules of all dialects, a plan, a profile) is cut at every byte; then `--count` files
are damaged at random: pieces inserted, replaced, doubled or deleted, bytes made up, now and then repeated to 100 kB.
Fails when anything but debubble's own errors is raised, when a file takes more than a second of processor time per
100 kB, or when the process comes to hold more than a gibibyte.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import common  # noqa: F401 (finds the modules of the tests)
import corpus

from debubble.compiler.errors import DebubbleError
from debubble.compiler.interchange import DIALECTS, verify_file
from debubble.compiler.plan import Plan
from debubble.compiler.profile import Profile

LONG = 100_000
DIALECT_CHOICES = ("auto", "auto", *DIALECTS)


def damaged(rng: random.Random, content: bytes, pieces: tuple[str, ...]) -> bytes:
    """The content after one to six slips."""
    for _ in range(rng.randint(1, 6)):
        start = rng.randint(0, len(content))
        end = min(len(content), start + rng.choice((0, 0, 1, 3, 20)))
        what = rng.randrange(4)
        piece = rng.choice(pieces).encode()
        if what == 1:
            piece = content[start:end] * rng.choice((0, 2, 40))
        elif what == 2:
            piece = bytes(rng.randrange(rng.choice((128, 128, 128, 256))) for _ in range(end - start))
        elif what == 3:
            other = rng.randint(0, len(content))
            piece = content[other : other + 30]
        content = content[:start] + piece + content[end:]
    if content and rng.random() < 0.002:
        content = (content * (LONG // len(content) + 1))[:LONG]
    return content


def judge(path: Path, kind: str, dialect: str) -> str:
    """What the package says of a file, in one word."""
    if kind == "profile":
        try:
            Profile.load(path)
        except DebubbleError as error:
            return error.code
        return "valid"
    found = verify_file(path, dialect=dialect)
    json.dumps(found.as_json())
    str(found)
    if kind == "plan":
        try:
            Plan.load(path)
        except DebubbleError:
            assert not found.valid, "verify accepts a plan that does not load"
    return "valid" if found.valid else found.report.errors[0].code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    files = {name: (content.encode(), corpus.PIECES + corpus.SEPARATORS) for name, content in corpus.SCHEDULES.items()}
    for name, text in (("plan", corpus.plan_file()), ("profile", corpus.profile_file())):
        files[name] = text.encode(), corpus.WORDS_OF_JSON
    answers: Counter[str] = Counter()
    failures, slowest, began = 0, 0.0, time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"

        def attempt(name: str, content: bytes, dialect: str) -> None:
            nonlocal failures, slowest
            path.write_bytes(content)
            start = time.process_time()
            try:
                answers[judge(path, name, dialect)] += 1
            except Exception:
                failures += 1
                print(f"FAILED on {name}, {dialect}: {content[:2000]!r}\n{traceback.format_exc()}", flush=True)
            took = (time.process_time() - start) / max(1.0, len(content) / LONG)
            slowest = max(slowest, took)
            if took > 1:
                failures += 1
                print(f"SLOW ({took:.1f} s) on {name}, {dialect}: {content[:2000]!r}", flush=True)

        for name, (content, _) in files.items():
            for end in range(len(content)):
                attempt(name, content[:end], "auto")
        for _ in range(options.count):
            name = rng.choice(list(files))
            attempt(name, damaged(rng, *files[name]), rng.choice(DIALECT_CHOICES))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for code, number in answers.most_common():
        print(f"{code:26} {number}")
    print(
        f"{answers.total()} files in {time.process_time() - began:.0f} s of processor time, {failures} failures; "
        f"the slowest took {slowest:.2f} s per 100 kB; {memory:.0f} MiB at most"
    )
    return 1 if failures or memory > 1024 else 0


if __name__ == "__main__":
    sys.exit(main())
