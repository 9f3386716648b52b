"""What Java's libraries do with texts and numbers: regular expressions, dates, narrowing."""
