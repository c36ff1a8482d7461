"""Membership inference: was the model trained on this sample, or this document?"""
