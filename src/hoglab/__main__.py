"""``python -m hoglab`` is the `hoglab` command."""

from hoglab.cli import main

if __name__ == "__main__":
    main()
