"""How a process becomes a rank: it finds its job, binds its inbox, meets the other ranks, checks its connections."""
