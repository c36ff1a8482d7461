"""Results turned into tables, figures and HTML."""
