"""Whose face is it? Matchers that look at nothing but what crossed, and what they find."""
