"""The replicas of a job, and the bodies of their pods and services. Pure."""
