"""`python -m ringcast.control`: the server in a process of its own, with its settings on standard input."""

from ringcast.control import main

if __name__ == "__main__":
    main()
