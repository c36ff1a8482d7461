"""Models that read pages: Donut, Pix2Struct, PaliGemma."""
