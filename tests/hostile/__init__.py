"""Input that means harm or was damaged: records, requests, settings and files."""
