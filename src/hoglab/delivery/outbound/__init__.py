"""Requests and e-mails that functions send, behind the guard of addresses."""
