"""TypeScript without its types, checked by the parser of a browser's language that we did not write."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from hoglab.functions.site.source import MAX_DEPTH, SiteSourceError, javascript_of

TYPED = """\
import_ = 1 as number
interface Options { title: string; count?: number }
type Callback<T> = (value: T) => void
declare const posthog: any
export interface Shown { yes: boolean }
export type Name = string
abstract class Base<T extends object> implements Shown {
  private readonly a: number = 1
  public yes!: boolean
  static b?: string
  abstract run(): void
  protected go<U>(this: Base<T>, x?: U, ...rest: Array<string>): x is any { return (x as any)!.y }
}
function over(a: string): void
function over(a: number): void
function over(a: any): void { return a! }
const list: Array<Options> = [{ title: 'a: string', count: 1 }]
const pick = <T,>(value: T, other?: T): T | undefined => value satisfies T
let late!: string, n = list[0]!.title as string as any
export function onLoad({ inputs, posthog }: { inputs: any; posthog: any }): Promise<void> {
  const made = new Map<string, number>()
  if (n < 1 && n > 2) { const a = f<string>(1) }
  return `x${n as any}` as any
}
"""

PLAIN = """\
const a = b ? c : d, e = {f: g, h(i) { return i }}, j = k < l, m = n > o
export const onEvent = async ({ inputs, posthog }) => { for (const x of y) { label: while (1) break label } }
class Q { static #r = 1; get s() { return this.#r } async *t() { yield* [1, 2] } }
const u = `v${`w`}`, x1 = /as any: string/.test('é'), y1 = a?.b ?? c?.[1]
"""

MODULE_CHECK = """
import { createRequire } from 'node:module'
const { parse } = createRequire(process.argv[1])('acorn')
const source = await new Response(process.stdin).text()
parse(source, { ecmaVersion: 'latest', sourceType: 'module' })
process.stdout.write(JSON.stringify(source.length))
"""


@pytest.mark.parametrize("source", [TYPED, PLAIN])
def test_what_is_left_is_javascript(node_modules: Path, source: str) -> None:
    code = javascript_of(source)
    done = subprocess.run(
        ["node", "--input-type=module", "-e", MODULE_CHECK, str(node_modules / "x.js")],
        input=code,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{code}"
    assert json.loads(done.stdout) == len(code)
    assert len(code.splitlines()) == len(source.splitlines())


def test_javascript_is_left_alone() -> None:
    assert javascript_of(PLAIN) == PLAIN


@pytest.mark.parametrize(
    ("source", "line", "part"),
    [
        ("export function (", 1, ""),
        ("let a = 1\nlet b = {", 2, "unexpected"),
        ("ok()\nenum Colour { Red }", 2, "enums"),
        ("namespace A { export const b = 1 }", 1, "namespaces"),
        ("class A { constructor(private b: string) {} }", 1, "parameter properties"),
        ("(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1), 1, "nested"),
    ],
)
def test_what_is_refused(source: str, line: int, part: str) -> None:
    with pytest.raises(SiteSourceError) as caught:
        javascript_of(source)
    assert caught.value.line == line
    assert part in caught.value.message
