"""Descriptions of the fields of hog functions and templates (spec: hog-functions-api 3-8, 11)."""

from __future__ import annotations

from hoglab.http.fields.notes import Note, Notes

_FILTERS = {"source": "events", "events": [{"id": "purchase", "type": "events", "name": "purchase"}]}

FUNCTION: Notes = {
    "id": Note("Identifies the function.", "018f6c1e-7b0a-7000-8000-3f0c9a5b1d22"),
    "type": Note("Type of the function; cannot be changed.", "destination"),
    "name": Note("Display name.", "Tell the shop"),
    "description": "Description of the function.",
    "enabled": "Whether it runs.",
    "hog": Note("The program, in Hog.", "print(event.event)"),
    "bytecode": "The program as the older virtual machines read it; null for what runs in browsers.",
    "transpiled": "The program as JavaScript, for what runs in browsers; else null.",
    "inputs_schema": Note("The inputs that it asks for.", []),
    "inputs": Note("The values of the inputs, by their keys. Secrets are never shown.", {}),
    "filters": Note("Filters that select the events.", _FILTERS),
    "masking": "Suppression of repeats; null for none.",
    "mappings": "Inputs and filters of several kinds of events; null for none.",
    "icon_url": "The picture shown beside it.",
    "template": "The template that it was made from; null for none.",
    "template_id": "The id of that template.",
    "execution_order": "Place of the function among the transformations, the lowest first.",
    "base_updated_at": "The `updated_at` that was read last: a change in between is answered with 409.",
    "status": "State of the function at run time.",
    "batch_export_id": "Always null here; there for clients that read it.",
    "version": "Goes up by one with each change.",
    "draft": "A draft of its next configuration; null for none.",
    "draft_updated_at": "Time of the last change of the draft.",
    "state": Note("1 healthy, 2 slowed down, 3 stopped, 11 and 12 the latter two by hand.", 1),
    "tokens": "Remaining budget of failures.",
    "x_tests": "Test cases that are run on every save; there when the function has some.",
    "x_delivery": Note(
        "Delivery options: retries, order, rate, batches; present when the function has some.",
        {"retry": {"attempts": 10}, "rate_limit": {"per_s": 10}},
    ),
    "force": "Save even when test cases fail.",
}

INPUT: Notes = {
    "type": Note("Type of the input.", "string"),
    "key": Note("Key by which the program reads the input.", "url"),
    "label": Note("Display name.", "Address"),
    "choices": Note("Choices, each with a `value` and a `label`.", []),
    "searchable": "Whether the choices can be searched.",
    "required": "Whether it must have a value.",
    "default": "The value that a form begins with.",
    "secret": "Whether the value is kept secret.",
    "hidden": "Whether forms leave it out.",
    "description": Note("Help for those who fill in the input.", "Where to send it."),
    "integration": "Kind of the integration.",
    "integration_key": "The key of the integration's input.",
    "requires_field": "The input that must be filled in first.",
    "integration_field": "The field of the integration that it is about.",
    "requiredScopes": "Scopes that the integration must have.",
    "templating": "Template language of text: `hog`, `liquid`, true for either, false for none.",
    "value": "The value, a text with placeholders for example; null for none.",
}

PARTS: Notes = {
    "source": "Source of the events.",
    "events": "Events by their names, each perhaps with properties of its own; any suffices.",
    "actions": "Actions by their ids; any suffices.",
    "properties": Note("Property filters that every event must match.", []),
    "data_warehouse": "Tables, for functions that are about rows.",
    "filter_test_accounts": "Whether to leave out what the project's filters of test accounts match.",
    "ttl": Note("Seconds for which repeats are suppressed.", 3600),
    "threshold": "With 100, the first of every 100 repeats passes; with null, none does.",
    "hash": Note("A template; events whose text is the same are repeats.", "{person.id}"),
    "name": "Display name.",
    "disabled": "Whether it is left out.",
    "inputs_schema": "The inputs that it asks for.",
    "inputs": "The values of the inputs.",
    "filters": "Filters that select the events.",
    "orders": Note("The new places, by function id.", {}),
}

TEMPLATE: Notes = {
    **FUNCTION,
    "id": Note("Identifies the template.", "template-webhook"),
    "code": Note("The program.", "fetch(inputs.url)"),
    "code_language": "Language of the program.",
    "status": Note("Maturity of the template: `stable`, `beta`, `alpha`, ….", "stable"),
    "category": Note("Category in catalogues.", ["Custom"]),
    "free": Note("Always true here.", True),
    "mapping_templates": "Mappings to begin with; null for none.",
}

LISTING: Notes = {
    "type": "Only those of this type; of several, joined by commas.",
    "types": "Only those of these types, joined by commas.",
    "enabled": "Only those that run (true), or do not (false).",
    "id": "Only this one.",
    "created_by": "Only those of the user with this id.",
    "created_at": "Only those made then.",
    "updated_at": "Only those changed then.",
    "search": "A part of the name or the description.",
    "filters": "Only those whose filters contain this JSON.",
    "filter_groups": "Only those that match one of these JSON filters.",
    "full": "Show every field.",
    "template_id": "Only this template.",
    "query": Note("A part of the icon's name.", "slack"),
    "name": "Display name.",
    "url": Note("URL of the picture.", "/api/projects/@current/hog_functions/icon/?id=slack.com"),
    "purpose": "Kind of the text: a program, a template of an input, or a filter.",
}

TEMPLATE_LISTING: Notes = {**LISTING, "type": "Only those of this type; destinations when it is not named."}

EDITING: Notes = {
    "globals": "Names that a text may read.",
    "functions": "Functions that a text may call.",
    "name": Note("Name as it is written.", "event"),
    "type": Note("Type of the value.", "object"),
    "description": Note("Kind of the object.", "The event that the function runs for."),
    "signature": Note("Signature of the function.", "lower(text)"),
    "returns": Note("Type of the result.", "string"),
    "category": Note("Category of the function.", "strings"),
    "is_async": "Whether it waits for something outside.",
    "examples": Note("Examples of calls.", ["lower('A') == 'a'"]),
    "diagnostics": "Every finding, in the order of the fields.",
    "attr": Note("The field at fault: its path, joined by two underscores.", "hog"),
    "severity": "Severity of the finding.",
    "code": Note("Code, for programs.", "unused_name"),
    "message": Note("Description for people.", "The name is never used."),
    "line": "The line it is in, from 1; null where no place can be told.",
    "column": "The column that it begins in.",
    "start": "Start of the place in the text.",
    "end": "End of the place in the text.",
    "hint": "Suggestion for a correction.",
    "refused": "Whether a function with it cannot be saved.",
    "path": Note("The field at fault, step by step.", ["hog"]),
}

VERSIONS: Notes = {
    **FUNCTION,
    "version": "The number of the version, from 1.",
    "content": Note("Configuration of the version, without secrets.", {"hog": "print(event.event)"}),
    "to": "Version to compare with; the present one when it is not named.",
    "from_version": "The version that the changes begin from; 0 for the present one.",
    "to_version": "The version that they lead to.",
    "changes": "Every field that differs.",
    "field": Note("The field.", "hog"),
    "before": "Value of the field in the first version.",
    "after": "Value of the field in the second version.",
    "diff": "The unified diff of the code; null for other fields.",
    "force": "Go back even when test cases fail.",
    "overwrite": "Let the draft go that is there already.",
    "confirm": "Publish; otherwise only say what that would change.",
    "confirm_token": "Token of a preview, valid for 15 minutes; needed to publish to an enabled function.",
    "published": "Whether the draft is the configuration now.",
    "changed_fields": Note("Fields that publishing would change; null once it is done.", ["hog"]),
    "function": "The function, once its draft is published; else null.",
}

TESTS: Notes = {
    "name": Note("Display name of the case.", "A purchase is told"),
    "globals": Note("Globals of the program.", {"event": {"event": "purchase"}}),
    "responses": Note("Responses to its requests, in turn.", []),
    "expect": "Expected outcome; a field that is left out is not checked.",
    "status": "Expected status of the run.",
    "result": "Expected return value of the program.",
    "requests": "The requests that it must send, in turn.",
    "logs": "Lines that it must print.",
    "url": Note("Expected address of the request.", "https://example.com/hook"),
    "method": Note("Expected method of the request.", "POST"),
    "headers": "Headers that it must have.",
    "body": "The body that it must have.",
}
