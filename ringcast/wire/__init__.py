"""The formats of all that ranks and the control plane send to each other."""
