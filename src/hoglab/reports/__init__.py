"""Results for people: read from the API's JSON, drawn in a terminal, written as a page or as files."""
