"""Run `ringcast-launch` as `python -m ringcast_launcher`."""

from ringcast_launcher.entry import main

main()
