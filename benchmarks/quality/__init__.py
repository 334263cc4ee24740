"""How good the decisions are on files of real text, beside other libraries on the same files."""
