"""Write the table of docs/understand/algorithms.md again, from the registry: python docs/scripts/make_algorithms.py."""

from pathlib import Path

from ringcast.algorithms import catalogue

PAGE = Path(__file__).parents[1] / "understand/algorithms.md"

text, _, _ = PAGE.read_text(encoding="utf-8").partition("| paper | where |")
PAGE.write_text(text + catalogue.markdown() + "\n", encoding="utf-8")
