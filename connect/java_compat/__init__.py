"""Behaviour of Java's libraries: regular expressions, ISO dates and times, numeric narrowing."""
