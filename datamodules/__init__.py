"""LightningDataModules, one file a data set."""
