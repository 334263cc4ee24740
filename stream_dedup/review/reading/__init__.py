"""Where the documents of the window come from: annotated files, a state file, the topic."""
