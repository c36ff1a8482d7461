"""LightningModules: the teacher, the student and the models under attack."""
