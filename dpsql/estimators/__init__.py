"""Estimates from noisy numbers that were released already: post-processing, which costs no privacy.

A module here takes what a mechanism released and public numbers, never rows or exact counts.
"""
