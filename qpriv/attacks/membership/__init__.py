"""Membership inference: was this sample, or this document, trained on?"""
