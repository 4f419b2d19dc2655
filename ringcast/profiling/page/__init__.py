"""The page of a profile: one HTML file that needs nothing else, for any browser, with the profile as data in it.

`document` puts the file together, `compact` makes the data small enough, `matrices` sums up bytes and rates by ranks,
hosts or blocks of ranks. `sources` has the page itself: its frame, its styles, and its scripts as modules.
"""

from ringcast.profiling.page.document import render, write

__all__ = ["render", "write"]
