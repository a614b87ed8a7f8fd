"""Sessions: commands out in batches, answers back in order."""
