"""Run `ringcast-launch ...` as `python -m ringcast_launcher.for_program FILE ...`: FILE gets the cause of a failure.

A program that starts a job raises the cause as an exception itself; on standard error it would be shown twice.
"""

import sys

from ringcast_launcher.entry import main

main(last_words=sys.argv.pop(1))
