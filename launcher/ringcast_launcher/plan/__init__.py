"""What is to be started where, before anything is started."""
