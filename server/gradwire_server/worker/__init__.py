"""Inside one worker: its sessions, their scheduler, and the processes and threads that compute."""
