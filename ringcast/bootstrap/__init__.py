"""Bootstrap of a rank: it finds its job, binds its inbox, joins the other ranks, checks its connections."""
