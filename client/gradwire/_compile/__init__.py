"""compile: functions that are recorded once and run as programs."""
