"""Data: record files, iterators, images and text."""
