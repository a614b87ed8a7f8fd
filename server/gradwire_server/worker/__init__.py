"""What runs in a worker: its sessions, their scheduler, and the processes and threads that compute."""
