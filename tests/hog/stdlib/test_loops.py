"""Programs that call the library for ever with awkward data: each ends at its time or memory limit, or
fails.
"""

import time

import pytest

from hoglab import hog

pytestmark = pytest.mark.usefixtures("no_collector")

LONG_TEXT = "let s := '{}' for (let k := 0; k < {}; k := k + 1) {{ s := s || s }} "
BOMB = "let a := [1] for (let i := 0; i < {}; i := i + 1) {{ a := [a, a] }} "
NEARLY_EQUAL = LONG_TEXT.format("ab", 20) + "let t := concat(s, 'x') let u := concat(s, 'y') "

PROGRAMS = {
    "text that doubles": "let s := 'ab' while (true) { s := replaceAll(s, 'a', 'aab') }",
    "array in itself": "let a := [] while (true) { a := arrayPushBack(a, a) }",
    "JSON to and fro": "let a := range(100000) while (true) { let b := jsonParse(jsonStringify(a)) }",
    "container as key": BOMB.format(50) + "let d := {} while (true) { d[a] := 1 }",
    "printed bomb": BOMB.format(50) + "print(a)",
    "text of a bomb": BOMB.format(18) + "while (true) { let t := toString(a) }",
    "equal arrays": "let a := range(500000) let b := range(500000) while (true) { let c := a = b }",
    "new patterns": "let i := 0 while (true) { i := i + 1 let m := 'a' =~ concat('(a{1,', i % 900 + 1, '}b?)*') }",
    "new like patterns": "let i := 0 while (true) { i := i + 1 let m := 'a' like f'_a%{i}' }",
    "awkward pattern": LONG_TEXT.format("ab", 15) + "while (true) { let m := s =~ '(?:[ab]{1,100}a){9}c' }",
    "dates": "let i := 0 while (true) { i := i + 1 let m := formatDateTime(toDateTime(i), '%F') }",
    "growing array": "let a := [] let i := 0 while (true) { i := i + 1 a[i] := upper(f'x{i}') }",
    "growing object": "let a := {} let i := 0 while (true) { i := i + 1 a[toString(i)] := {} }",
    "split and join": "let s := 'a,b' while (true) { s := arrayStringConcat(splitByString(',', s), ',,') }",
    "maps in maps": "let f := x -> arrayMap(y -> arrayMap(z -> z, range(1000)), range(1000)) arrayMap(f, range(1000))",
    "sorting": "let a := range(300000) while (true) { a := arrayReverseSort(a) }",
    "sorting texts": NEARLY_EQUAL
    + "let a := arrayMap(x -> x % 2 = 0 ? t : u, range(100000)) while (true) { let m := arraySort(a) }",
    "membership": NEARLY_EQUAL
    + "let a := arrayMap(x -> t, range(100000)) while (true) { let m := has(a, u) }",
    "position in array": NEARLY_EQUAL
    + "let a := arrayMap(x -> t, range(100000)) while (true) { let m := indexOf(a, u) }",
    "text order": NEARLY_EQUAL + "while (true) { let m := t < u }",
    "wide range": "while (true) { let a := range(7000000) }",
    "hash chain": "let a := arrayMap(x -> 'k', range(100000)) while (true) { let m := sha256HmacChainHex(a) }",
    "encoding of encoding": "let s := 'é' while (true) { s := encodeURLComponent(s) }",
    "array as number": "let a := range(300000) while (true) { let m := a + 1 }",
    "long number": LONG_TEXT.format("9", 22) + "while (true) { let m := s * 1 }",
    "nearly a number": LONG_TEXT.format("9", 22) + "s := s || 'x' while (true) { let m := s + 1 }",
    "long integer": LONG_TEXT.format("1", 22) + "while (true) { let m := toInt(s) }",
    "long version": LONG_TEXT.format("9", 22) + "while (true) { let m := sortableSemver(s) }",
    "wide characters": LONG_TEXT.format("😀", 18) + "while (true) { let m := substring(s, 1000, 5) }",
    "length": LONG_TEXT.format("😀", 18) + "while (true) { let m := length(s) }",
    "reversed": LONG_TEXT.format("😀", 18) + "while (true) { let m := reverse(s) }",
    "position": LONG_TEXT.format("😀", 18) + "while (true) { let m := position(s, 'x') }",
    "characters": LONG_TEXT.format("😀", 16) + "while (true) { let m := splitByString('', s) }",
    "spaces as date": LONG_TEXT.format(" ", 20) + "while (true) { let m := toDateTime(s) }",
    "many searches": LONG_TEXT.format("ab", 18)
    + "let b := arrayMap(x -> 'x', range(10000)) while (true) { let m := multiSearchAnyCaseInsensitive(s, b) }",
    "brackets": LONG_TEXT.format("[", 20) + "while (true) { let m := isValidJSON(s) }",
    "closures": "let a := [] let i := 0 while (true) { i := i + 1 let s := f'a text of "
    "some length {i}' a[i] := () -> s }",
    "escapes": LONG_TEXT.format("%41", 17) + "while (true) { let m := decodeURLComponent(s) }",
    "base64 of base64": "let s := 'a' while (true) { s := base64Encode(s) }",
    "joined with itself": "let s := 'a' while (true) { s := arrayStringConcat([s, s], s) }",
    "replaced by itself": "let s := 'aa' while (true) { s := replaceAll(s, 'a', s) }",
    "JSON of JSON": "let s := '\"' while (true) { s := jsonStringify(s) }",
    "format of a format": "let f := '%M' while (true) { f := concat(f, f, formatDateTime(toDateTime(0), f)) }",
    "pushed to the front": "let a := range(100000) while (true) { a := arrayPushFront(a, 1) }",
    "taken from the front": "let a := range(100000) while (true) { let b := arrayPopFront(a) }",
    "turned around": "let a := range(100000) while (true) { a := arrayReverse(a) }",
    "keys and values": "let a := range(100000) while (true) { let b := keys(a) let c := values(a) }",
    "many needles": "let a := range(300000) while (true) { let m := multiSearchAnyCaseInsensitive('x', a) }",
    "cohorts": "let a := range(300000) while (true) { let m := inCohort('x', a) }",
    "paths into text": LONG_TEXT.format("[[", 10) + "while (true) { let m := JSONExtractString(s, 1, 1, 1) }",
    "addresses": "while (true) { let m := isIPAddressInRange('10.0.0.1', '10.0.0.0/8') }",
    "hashes": LONG_TEXT.format("ab", 20) + "while (true) { let m := sha256Hex(s) }",
    "errors": LONG_TEXT.format("ab", 20) + "while (true) { let m := Error(s, [s]) let t := toString(m) }",
    "large JSON": LONG_TEXT.format("ab", 20)
    + "let a := arrayMap(x -> s, range(100000)) return jsonStringify(a)",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_ends_in_time(name: str) -> None:
    started = time.thread_time()
    result = hog.run(PROGRAMS[name], limits=hog.Limits(time_s=0.1))
    spent_s = time.thread_time() - started
    assert result.error is not None
    assert result.error.kind in ("limit", "runtime")
    assert spent_s < 1.0
