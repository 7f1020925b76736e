"""The replicas of a job, their pods, and the labels of these. Pure."""
