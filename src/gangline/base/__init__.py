"""Would fit any asyncio service: imports nothing of ours."""
