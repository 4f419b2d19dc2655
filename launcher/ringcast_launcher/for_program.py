"""`python -m ringcast_launcher.for_program FILE ...` is `ringcast-launch ...`, but tells in FILE how the job failed.

For a program that shows that itself, as an exception: on standard error as well, it would be shown twice.
"""

import sys

from ringcast_launcher.entry import main

main(last_words=sys.argv.pop(1))
