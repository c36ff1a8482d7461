"""Which visual tokens stay: utility, sensitivity, threshold, oracle and policies."""
