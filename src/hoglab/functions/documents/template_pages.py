"""The pages of the function templates, one each and an index, as Markdown.

python -m hoglab.functions.documents.template_pages docs/templates

A page is the template's own README, the table of its inputs, and a request that makes a function from it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hoglab.functions.templates import UNUSABLE, Follows, Template, catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

KINDS: Final = {
    "destination": "Destinations",
    "transformation": "Transformations",
    "site_destination": "Destinations in the browser",
    "site_app": "Apps for your pages",
    "source_webhook": "Incoming webhooks",
}
"""The types of templates, in the order of the index."""

INTRODUCTION: Final = """\
# Function templates

Each of these becomes a working function by one request. A page says what the template does, what it needs, and how to
create a function of it."""

SHOWN_DEFAULT_CHARS: Final = 80
"""Maximum length of a default in the table; longer ones are left to the example below it."""


def pages() -> dict[str, str]:
    """Return the text of every page by the name of its file, the index as ``README.md``."""
    shown = [template for template in catalogue().values() if template.status not in UNUSABLE]
    pages_by_file = {f"{template.folder}.md": page(template) for template in shown}
    return {"README.md": _index(shown), **pages_by_file}


def page(template: Template) -> str:
    """Return the page of one template."""
    parts = [template.readme.rstrip()]
    if template.follows is not None:
        parts.append(_followed(template.follows))
    if template.inputs_schema:
        parts.append("## Inputs\n\n" + _table(template.inputs_schema))
    parts += [
        f"### Mapping: {mapping['name']}\n\n" + _table(mapping["inputs_schema"])
        for mapping in template.mapping_templates or ()
    ]
    body = json.dumps(example(template), indent=2, ensure_ascii=False)
    parts.append(
        "## Create it\n\nOptional inputs that are left out are empty, not at their defaults.\n\n"
        "```sh\n"
        'curl -X POST "$HOGLAB/api/projects/1/hog_functions/" \\\n'
        '  -H "Authorization: Bearer $HOGLAB_API_KEY" -H "Content-Type: application/json" \\\n'
        f"  --data-binary @- <<'JSON'\n{body}\nJSON\n```\n"
    )
    return "\n\n".join(parts)


def _followed(follows: Follows) -> str:
    """Return the sentence that names the document which a template follows."""
    read = "" if follows.read is None else f", as it was on {follows.read}"
    day = f"{follows.ends} on" + (" (estimated)" if follows.is_estimate else "")
    ends = "" if follows.ends is None else f", which the service may refuse from {day}"
    version = "" if follows.version is None else f" Version of the API: {follows.version}{ends}."
    return f"It follows <{follows.document}>{read}.{version}"


def example(template: Template) -> dict[str, Any]:
    """Return the body of a request that makes a function from the template, with placeholders for personal values."""
    body: dict[str, Any] = {
        "template_id": template.id,
        "type": template.type,
        "name": template.name,
        "enabled": True,
        "inputs": _values(template.inputs_schema),
    }
    if template.filters is not None:
        body["filters"] = template.filters
    if template.mapping_templates is not None:
        body["mappings"] = [
            {
                "name": mapping["name"],
                "filters": mapping["filters"],
                "inputs_schema": mapping["inputs_schema"],
                "inputs": _values(mapping["inputs_schema"]),
            }
            for mapping in template.mapping_templates
            if mapping["include_by_default"]
        ]
    return body


def _values(schema: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    values = {}
    for entry in schema:
        if "default" in entry:
            values[entry["key"]] = {"value": entry["default"]}
        elif entry["required"]:
            unknown = 0 if entry["type"] == "integration" else f"<{entry['label']}>"
            values[entry["key"]] = {"value": unknown}
    return values


def _table(schema: Sequence[Mapping[str, Any]]) -> str:
    lines = ["| Input | Type | Meaning |", "|---|---|---|"]
    for entry in schema:
        kind = entry["type"]
        if entry["required"]:
            kind += ", required"
        if entry["secret"]:
            kind += ", secret"
        meaning = " ".join(_meaning(entry)).replace("|", "\\|").replace("\n", " ")
        lines.append(f"| `{entry['key']}` | {kind} | {meaning} |")
    return "\n".join(lines)


def _meaning(entry: Mapping[str, Any]) -> Iterator[str]:
    yield f"{entry['label']}."
    if "description" in entry:
        yield entry["description"]
    if "choices" in entry:
        yield "; ".join(f"`{choice['value']}`: {choice['label']}" for choice in entry["choices"]) + "."
    if "default" in entry:
        default = json.dumps(entry["default"], ensure_ascii=False)
        if len(default) <= SHOWN_DEFAULT_CHARS:
            yield f"Default: `{default}`."


def _index(shown: Sequence[Template]) -> str:
    parts = [INTRODUCTION]
    for kind, title in KINDS.items():
        rows = [
            f"| [{template.name}]({template.folder}.md) | {template.description} |"
            for template in sorted(shown, key=lambda template: template.name.lower())
            if template.type == kind
        ]
        parts.append("\n".join([f"## {title}\n", "| Template | |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def main(folder: Path) -> None:
    """Write the pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
