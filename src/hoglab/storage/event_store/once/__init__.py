"""Events stored once: which are stored already, and what becomes of one that is sent again."""
