"""One file an attack; each reads what its threat model grants and nothing else."""
