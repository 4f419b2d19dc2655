"""`python -m ringcast`: the command `ringcast` where its script is not on PATH."""

import sys

from ringcast.commands.cli import main

sys.exit(main())
