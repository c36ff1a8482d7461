"""D_priv: the image sets whose image-level labels teach what is sensitive."""
