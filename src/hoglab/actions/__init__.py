"""Actions: named sets of event matchers that metrics and hog functions refer to."""
