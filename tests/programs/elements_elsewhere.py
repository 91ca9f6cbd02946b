"""Makes the elements of plans, which it reads from standard input, in a process of its own, as a worker's does."""

import pickle
import sys


def main() -> None:
    """Read, and write for each plan, by name, the seeds that it has, and for each element its arrays and what is told."""
    made = {}
    for name, (load, arguments, seeds) in pickle.load(sys.stdin.buffer).items():
        taken, elements = load(*arguments)(seeds)
        made[name] = taken, list(elements)
    pickle.dump(made, sys.stdout.buffer)


if __name__ == "__main__":
    main()
