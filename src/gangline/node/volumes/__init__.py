"""Volumes of pods as folders."""
