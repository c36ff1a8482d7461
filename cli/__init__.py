"""The command line: LightningCLI plus the commands that need no trainer."""
