"""The alias: `import torch` means gradwire."""
