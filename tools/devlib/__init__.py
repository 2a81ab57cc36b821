"""The parts of tools/dev. Standard library only; runs on the python3 of a bare Debian bookworm."""
