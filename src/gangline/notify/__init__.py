"""Notifications: webhooks and commands that are called when jobs change their state (docs/notifications.md, ADR 0038)."""
