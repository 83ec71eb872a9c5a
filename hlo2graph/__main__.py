"""`python -m hlo2graph`."""

from hlo2graph.cli import main

if __name__ == "__main__":
    main()
