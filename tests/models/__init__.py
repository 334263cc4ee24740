"""What tests compare the program with: slow, obvious implementations of the same promises."""
