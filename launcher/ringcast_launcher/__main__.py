"""`python -m ringcast_launcher` is `ringcast-launch`."""

from ringcast_launcher.entry import main

main()
