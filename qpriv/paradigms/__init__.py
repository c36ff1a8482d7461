"""Who owns which layers, and who steps when."""
