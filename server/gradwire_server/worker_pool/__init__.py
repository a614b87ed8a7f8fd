"""Workers as the front sees them: threads or processes that hold sessions."""
