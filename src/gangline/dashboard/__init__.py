"""The dashboard: one aiohttp application that shows a viewer, live, what the viewer may see. It has no rights of its own."""
