"""Queries of kind ``HogQLQuery``: one bounded ``SELECT`` over the events of a project."""

from hoglab.analysis.hogql.answer import check_hogql, hogql_answer
from hoglab.analysis.hogql.reading import read_hogql, unwrapped

__all__ = ["check_hogql", "hogql_answer", "read_hogql", "unwrapped"]
