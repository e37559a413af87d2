"""Minutes of abuse are for `make soak`, which says how many."""

import os

collect_ignore = [] if os.environ.get("HOGLAB_TEST_ABUSE_S") else ["test_abuse.py"]
