"""Descriptions of the fields of hog functions and templates (spec: hog-functions-api 3-8, 11)."""

from __future__ import annotations

from hoglab.http.fields.notes import Note, Notes

_FILTERS = {"source": "events", "events": [{"id": "purchase", "type": "events", "name": "purchase"}]}

FUNCTION: Notes = {
    "id": Note("Identifies the function.", "018f6c1e-7b0a-7000-8000-3f0c9a5b1d22"),
    "type": Note("What it is for; cannot be changed.", "destination"),
    "name": Note("What people call it.", "Tell the shop"),
    "description": "What it does.",
    "enabled": "Whether it runs.",
    "hog": Note("The program, in Hog.", "print(event.event)"),
    "bytecode": "The program as the older virtual machines read it; null for what runs in browsers.",
    "transpiled": "The program as JavaScript, for what runs in browsers; else null.",
    "inputs_schema": Note("The inputs that it asks for.", []),
    "inputs": Note("The values of the inputs, by their keys. Secrets are never shown.", {}),
    "filters": Note("Which events it is for.", _FILTERS),
    "masking": "How repeats are suppressed; null for not at all.",
    "mappings": "Inputs and filters of several kinds of events; null for none.",
    "icon_url": "The picture shown beside it.",
    "template": "The template that it was made from; null for none.",
    "template_id": "The id of that template.",
    "execution_order": "Its place among the transformations, the lowest first.",
    "base_updated_at": "The `updated_at` that was read last: a change in between is answered with 409.",
    "status": "Its state at run time.",
    "batch_export_id": "Always null here; there for clients that read it.",
    "version": "Goes up by one with each change.",
    "draft": "A draft of its next configuration; null for none.",
    "draft_updated_at": "When the draft was changed last.",
    "state": Note("1 healthy, 2 slowed down, 3 stopped, 11 and 12 the latter two by hand.", 1),
    "tokens": "What is left of its budget of failures.",
    "x_tests": "Test cases that are run on every save; there when the function has some.",
    "x_delivery": Note(
        "How it is delivered: retries, order, rate, batches; there when the function says so.",
        {"retry": {"attempts": 10}, "rate_limit": {"per_s": 10}},
    ),
    "force": "Save even when test cases fail.",
}

INPUT: Notes = {
    "type": Note("What kind of input it is.", "string"),
    "key": Note("What the program reads it by.", "url"),
    "label": Note("What people call it.", "Address"),
    "choices": Note("What may be chosen: each has a `value` and a `label`.", []),
    "searchable": "Whether the choices can be searched.",
    "required": "Whether it must have a value.",
    "default": "The value that a form begins with.",
    "secret": "Whether the value is kept secret.",
    "hidden": "Whether forms leave it out.",
    "description": Note("What to enter, for people.", "Where to send it."),
    "integration": "Of what kind the integration must be.",
    "integration_key": "The key of the integration's input.",
    "requires_field": "The input that must be filled in first.",
    "integration_field": "The field of the integration that it is about.",
    "requiredScopes": "What the integration must be allowed to do.",
    "templating": "How text is filled in: `hog`, `liquid`, true for either, false for not at all.",
    "value": "The value, a text with placeholders for example; null for none.",
}

PARTS: Notes = {
    "source": "Where the events come from.",
    "events": "Events by their names, each perhaps with properties of its own; any suffices.",
    "actions": "Actions by their ids; any suffices.",
    "properties": Note("What every event must be like.", []),
    "data_warehouse": "Tables, for functions that are about rows.",
    "filter_test_accounts": "Whether to leave out what the project's filters of test accounts match.",
    "ttl": Note("For how many seconds repeats are suppressed.", 3600),
    "threshold": "Every so many repeats one passes; null for none.",
    "hash": Note("A template; events whose text is the same are repeats.", "{person.id}"),
    "name": "What people call it.",
    "disabled": "Whether it is left out.",
    "inputs_schema": "The inputs that it asks for.",
    "inputs": "The values of the inputs.",
    "filters": "Which events it is for.",
    "orders": Note("The new places, by function id.", {}),
}

TEMPLATE: Notes = {
    **FUNCTION,
    "id": Note("Identifies the template.", "template-webhook"),
    "code": Note("The program.", "fetch(inputs.url)"),
    "code_language": "What the program is written in.",
    "status": Note("How mature it is: `stable`, `beta`, `alpha`, ….", "stable"),
    "category": Note("Where catalogues show it.", ["Custom"]),
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
    "name": "What people call it.",
    "url": Note("Where its picture is.", "/api/projects/@current/hog_functions/icon/?id=slack.com"),
    "purpose": "What the text is: a program, a template of an input, or a filter.",
}

TEMPLATE_LISTING: Notes = {**LISTING, "type": "Only those of this type; destinations when it is not named."}

EDITING: Notes = {
    "globals": "Names that a text may read.",
    "functions": "Functions that a text may call.",
    "name": Note("How it is written.", "event"),
    "type": Note("What kind of value it is.", "object"),
    "description": Note("What it is.", "The event that the function runs for."),
    "signature": Note("How it is called.", "lower(text)"),
    "returns": Note("What kind of value comes back.", "string"),
    "category": Note("What it has to do with.", "strings"),
    "is_async": "Whether it waits for something outside.",
    "examples": Note("How it is used.", ["lower('A') == 'a'"]),
    "diagnostics": "Every finding, in the order of the fields.",
    "attr": Note("The field at fault: its path, joined by two underscores.", "hog"),
    "severity": "How bad it is.",
    "code": Note("What it is, for programs.", "unused_name"),
    "message": Note("What it is, for people.", "The name is never used."),
    "line": "The line it is in, from 1; null where no place can be told.",
    "column": "The column that it begins in.",
    "start": "Where it begins in the text.",
    "end": "Where it ends in the text.",
    "hint": "What was meant, perhaps.",
    "refused": "Whether a function with it cannot be saved.",
    "path": Note("The field at fault, step by step.", ["hog"]),
}

VERSIONS: Notes = {
    **FUNCTION,
    "version": "The number of the version, from 1.",
    "content": Note("What it held, without secrets.", {"hog": "print(event.event)"}),
    "to": "The other version; the present one when it is not named.",
    "from_version": "The version that the changes begin from; 0 for the present one.",
    "to_version": "The version that they lead to.",
    "changes": "Every field that differs.",
    "field": Note("The field.", "hog"),
    "before": "Its value in the first.",
    "after": "Its value in the second.",
    "diff": "The unified diff of the code; null for other fields.",
    "force": "Go back even when test cases fail.",
    "overwrite": "Let the draft go that is there already.",
    "confirm": "Publish; otherwise only say what that would change.",
    "confirm_token": "What a preview gave, for 15 minutes; needed to publish to an enabled function.",
    "published": "Whether the draft is the configuration now.",
    "changed_fields": Note("What publishing would change; null once it is done.", ["hog"]),
    "function": "The function, once its draft is published; else null.",
}

TESTS: Notes = {
    "name": Note("What people call the case.", "A purchase is told"),
    "globals": Note("What the program sees.", {"event": {"event": "purchase"}}),
    "responses": Note("What its requests are answered with, in turn.", []),
    "expect": "What must come out; what is not named may be anything.",
    "status": "How the run must end.",
    "result": "What the program must return.",
    "requests": "The requests that it must send, in turn.",
    "logs": "Lines that it must print.",
    "url": Note("Where the request must go.", "https://example.com/hook"),
    "method": Note("Its method.", "POST"),
    "headers": "Headers that it must have.",
    "body": "The body that it must have.",
}
