"""What crosses between parties: cuts, transcripts, codecs."""
