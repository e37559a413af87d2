"""Records of experiments: plan, amendments, alarms and decisions. Nothing is rewritten in them."""
