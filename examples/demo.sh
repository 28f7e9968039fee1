#!/usr/bin/env bash
# The whole path once: compile under two memory caps, look, verify, run on four processes.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p demo

step() {
    printf '\n$ %s\n' "$*"
    "$@"
}

# The 6.2B model of the zero-bubble paper on eight devices, measured per stage. 1F1B holds at most 16
# half-activations on a device: the first plan may hold as much, the second twice that.
echo "Each search ends with its proof, or after 30 seconds."
step debubble compile examples/zero-bubble-6.2b.json --microbatches 24 --memory-cap 16 -o demo/1x.json
step debubble compile examples/zero-bubble-6.2b.json --microbatches 24 --memory-cap 32 -o demo/2x.json
step debubble show demo/1x.json
step debubble show demo/2x.json
step debubble verify demo/1x.json
step debubble verify demo/2x.json

# A plan for four processes, and a small transformer trained by it; --check compares with a single process. Its loss is
# noisy and needs a few steps to fall.
step debubble compile --devices 4 --forward 10 --backward-input 11 --backward-weight 8 --comm 1 \
    --microbatches 8 --memory-cap 4 -o demo/small.json
step debubble run demo/small.json --model examples/transformer.py:workload --steps 16 --check
