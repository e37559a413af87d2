"""Fields of bodies and answers: what the wire accepts, and what the documents say of it."""
