"""Inside one worker: the sessions that it holds, their turns, and what it computes."""
