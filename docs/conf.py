"""The documentation site: `make docs` builds it into .site.

The source is the whole repository, so that pages stand where they are read beside the code, and a
link works in both places.
"""

from stream_dedup import __version__

project = "stream-dedup"
release = __version__
copyright = "the stream-dedup authors, Apache License 2.0"  # noqa: A001 - as Sphinx calls it
root_doc = "docs/index"
include_patterns = ["*.md", "**.md"]
exclude_patterns = [".*", "**/.*", "build", "dist", "stream_dedup/review/static"]
# Results are written by programs, whose tables stand under headings of their own.
suppress_warnings = ["myst.header"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
copybutton_exclude = ".linenos, .gp, .go"
# Types are in the signatures; the docstrings say what they mean.
autodoc_typehints = "signature"
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = f"stream-dedup {release}"
html_show_sourcelink = False
html_copy_source = False
