"""`python -m tinyedge` is the command line."""

from tinyedge.cli import main

if __name__ == "__main__":
    main()
