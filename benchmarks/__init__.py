"""What gradwire costs, each figure beside PyTorch in process in the same run: `make bench`."""
