"""`python -m ringcast_launcher` is `ringcast-launch`."""

from ringcast_launcher.cli import main

main()
