"""The typed records that stages hand to each other: immutable, versioned, JSON in and out."""
