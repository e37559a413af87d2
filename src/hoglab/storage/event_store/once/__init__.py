"""Events stored once: which are stored already, and the treatment of events that are sent again."""
