"""Kills one rank of a K-Means call at a random time, many times: no run may hang or end with wrong bits.

Usage: mpi_lost_test.py go-on|end RUNS PROGRAM MPIRUN [OPTION…]
go-on: the MPI says which processes have ended. All ranks that are left must end with the bits of one rank, or name the lost one if it was lost
before all knew whose rows are whose. end: the MPI ends the job; it must do so.
"""

import random
import re
import subprocess
import sys
import time

RANKS = 4
LIMIT = 120  # seconds of a run


def start(command, ranks, victim, microseconds):
    begin = time.monotonic()
    try:
        done = subprocess.run([*command[1:], "-n", str(ranks), command[0], str(victim), str(microseconds)], capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired as late:
        sys.exit(f"victim {victim} at {microseconds} µs: no end within {LIMIT} s\n{late.stdout}\n{late.stderr}")
    return done, time.monotonic() - begin


def main():
    mode, runs, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    clean, _ = start(command, RANKS, -1, 0)
    assert clean.returncode == 0 and clean.stdout.count(f"the bits of one rank, {RANKS} left") == RANKS, clean
    longest = max(int(each) for each in re.findall(r"(\d+) µs", clean.stdout))
    draw = random.Random(7)
    went_on = named = ended = 0
    slowest = 0.0
    for number in range(runs):
        victim, microseconds = draw.randrange(RANKS), draw.randrange(longest)
        done, seconds = start(command, RANKS, victim, microseconds)
        slowest = max(slowest, seconds)
        told = f"run {number}, victim {victim} at {microseconds} µs: status {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "other bits" not in done.stdout, told
        right, errors = done.stdout.count("the bits of one rank"), done.stdout.count("error: ")
        if mode == "end":
            assert done.returncode != 0, told
            ended += 1
        elif errors == 0:
            assert right == RANKS - 1, told
            went_on += 1
        else:
            assert right + errors == RANKS - 1 and done.stdout.count("before all ranks knew") == errors, told
            named += 1
    print(f"{runs} of {runs} runs ended rightly: {went_on} with the bits of one rank, {named} with an error that names the rank, {ended} by the MPI; the slowest took {slowest:.1f} s")


if __name__ == "__main__":
    main()
