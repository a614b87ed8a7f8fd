"""Trainings: the event files below the gateway's --logdir, read and sampled for Studio's page."""
