"""Site functions: functions that run in browsers."""
