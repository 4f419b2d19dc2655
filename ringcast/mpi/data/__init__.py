"""Data of programs as bytes: memory of all kinds of exporters, layouts of datatypes, packed and pickled forms."""
