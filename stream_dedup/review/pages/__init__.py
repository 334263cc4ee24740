"""The pages, each with the routes that it has."""
