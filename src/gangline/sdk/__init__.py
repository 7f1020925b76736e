"""What programs that run jobs need: shipping a folder to where a job runs."""
