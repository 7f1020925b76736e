"""The strategy of pods and of pod templates."""
