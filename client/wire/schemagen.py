#!/usr/bin/env python3
"""schemagen.py - turns schema/*.ks into kw_messages.h (structs) and kw_messages.c (descriptors for codec.c).

Called by cmake/kclient.cmake: schemagen.py -o DIR FILE.ks...   With --json it prints what it read (tests/interop/schema compares).

The schema language. A file states one API or one record type, each fact once; `#` starts a comment.

    api KEY Name versions MIN-MAX flexible VERSIONS     then blocks  request { FIELDS }  and  response { FIELDS }
    record TYPE Name versions MIN-MAX flexible VERSIONS { FIELDS }      a metadata record (KIP-631)
    message Name versions MIN-MAX flexible VERSIONS { FIELDS }          anything else (headers, control records)

A field is a line:  name  type  versions  [attributes]  [{ FIELDS }]
    versions    `3`, `3-7`, `3+`
    type        bool int8 int16 uint16 int32 uint32 int64 float64 uuid string bytes records, a struct's Name, or []type.
                A struct's fields follow in braces; one used twice is stated by `struct Name versions { FIELDS }` in the message.
    nullable [VERSIONS]     null is allowed (without VERSIONS: in all versions of the field)
    tag N                   a tagged field (KIP-482) in all its versions
    default X               what a version without the field reads as; without it 0, false, "", empty (records: null)
    ignorable               a version without the field may drop a value; without it, only the default may be dropped
    flexible none           keeps its classic form in flexible versions (the request header's client id)
    ours                    an addition of ours to Kafka's definition (also after `api`, `record`, `message` and their versions)

Names in C:
    api Fetch                   struct kw_fetch_request, kw_fetch_request_desc; struct kw_fetch_response, …; KW_API_FETCH
    record 2 TopicRecord        struct kw_topic_record, kw_topic_record_desc; KW_RECORD_TOPIC
    message RequestHeader       struct kw_request_header, kw_request_header_desc
    a nested struct             the message's name, then the struct's own in snake case: struct kw_fetch_request_fetch_topic. Where the
                                struct's name begins with the message's, that part is not repeated: struct kw_metadata_response_topic.
    a field                     in snake case: maxWaitMs -> max_wait_ms; a C keyword gets a `_` behind.
    types                       string kw_str, bytes kw_bytes, records kw_records, uuid kw_uuid, bool bool, integers intN_t, float64 double
    an array                    struct { T *v; int32_t n; }, laid out as struct kw_array; n -1 is null
    a struct                    by value; by pointer where it may be null
"""
import argparse
import json
import os
import re
import sys

OPEN = 32767  # a version range without an end
PRIMITIVES = {  # type: (C type, enum, smallest size classic, flexible)
    "bool": ("bool", "KW_T_BOOL", 1, 1), "int8": ("int8_t", "KW_T_I8", 1, 1), "int16": ("int16_t", "KW_T_I16", 2, 2),
    "uint16": ("uint16_t", "KW_T_U16", 2, 2), "int32": ("int32_t", "KW_T_I32", 4, 4), "uint32": ("uint32_t", "KW_T_U32", 4, 4),
    "int64": ("int64_t", "KW_T_I64", 8, 8), "float64": ("double", "KW_T_F64", 8, 8), "uuid": ("struct kw_uuid", "KW_T_UUID", 16, 16),
    "string": ("struct kw_str", "KW_T_STRING", 2, 1), "bytes": ("struct kw_bytes", "KW_T_BYTES", 4, 1),
    "records": ("struct kw_records", "KW_T_RECORDS", 4, 1)}
INT_RANGES = {"int8": (-2**7, 2**7 - 1), "int16": (-2**15, 2**15 - 1), "uint16": (0, 2**16 - 1), "int32": (-2**31, 2**31 - 1),
              "uint32": (0, 2**32 - 1), "int64": (-2**63, 2**63 - 1)}
NULLABLE = {"string", "bytes", "records"}
KEYWORDS = set("auto bool break case char const continue default do double else enum extern float for goto if inline int long register "
               "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while".split())
DEPTH_MAX = 8


class SchemaError(Exception):
    pass


def snake(name):
    name = name.replace("KRaft", "Kraft")
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def parse_range(text):
    m = re.fullmatch(r"(\d+)(?:(\+)|-(\d+))?", text)
    if not m:
        raise SchemaError(f"not a version range: {text}")
    lo = int(m[1])
    hi = OPEN if m[2] else int(m[3]) if m[3] else lo
    if hi < lo:
        raise SchemaError(f"empty version range: {text}")
    return lo, hi


def overlap(a, b):
    r = max(a[0], b[0]), min(a[1], b[1])
    return r if r[0] <= r[1] else None


class Field:
    def __init__(self, name, type_, versions):
        self.name, self.versions = name, versions
        self.array = type_.startswith("[]")
        self.base = type_[2:] if self.array else type_
        self.nullable, self.tag, self.default = None, None, None
        self.ignorable = self.flexible_none = self.ours = False
        self.struct = None  # Struct, once resolved

    def pointer(self):
        return self.base not in PRIMITIVES and not self.array and self.nullable is not None

    def c_name(self):
        n = snake(self.name)
        return n + "_" if n in KEYWORDS else n

    def default_number(self):
        """int64 that kw_field.def carries."""
        d = self.default
        if self.array or self.base in NULLABLE:
            if d is None:
                return -1 if self.base == "records" and not self.array else 0
            return -1 if d == "null" else 0
        if self.base == "bool":
            return int(d == "true")
        if self.base in INT_RANGES:
            v = int(d or "0", 0)
            return v - 2**64 if v >= 2**63 else v
        return 0


class Struct:
    def __init__(self, name, versions):
        self.name, self.versions, self.fields = name, versions, []
        self.c = None


class Message:
    def __init__(self, name, kind, key, versions, flexible, ours, file):
        self.name, self.kind, self.key, self.versions, self.flexible, self.ours, self.file = name, kind, key, versions, flexible, ours, file
        self.root = Struct(name, versions)
        self.common, self.structs = {}, []  # structs: inner first, the root last


class Parser:
    """A file's lines; each is a statement, `}`, or opens a block with a `{` at its end."""

    def __init__(self, path):
        self.path, self.messages = path, []
        with open(path, encoding="utf-8") as f:
            self.lines = [(i + 1, s.split("#", 1)[0].split()) for i, s in enumerate(f)]
        self.lines = [(n, w) for n, w in self.lines if w]
        self.pos = 0

    def fail(self, why):
        n = self.lines[min(self.pos, len(self.lines)) - 1][0] if self.pos else 1
        raise SchemaError(f"{self.path}:{n}: {why}")

    def next(self):
        if self.pos == len(self.lines):
            self.fail("the file ends inside a block")
        self.pos += 1
        return self.lines[self.pos - 1][1]

    def parse(self):
        while self.pos < len(self.lines):
            w = self.next()
            try:
                self.statement(w)
            except IndexError:
                self.fail("incomplete line")
            except (SchemaError, ValueError) as e:
                if str(e).startswith(self.path):
                    raise
                self.fail(str(e))
        return self.messages

    def statement(self, w):
        kind = w[0]
        if kind not in ("api", "record", "message"):
            self.fail(f"expected api, record or message, not {kind}")
        key = int(w.pop(1)) if kind != "message" else -1
        name, rest = w[1], w[2:]
        block = bool(rest) and rest[-1] == "{"
        rest = rest[:-1] if block else rest
        if len(rest) < 4 or rest[0] != "versions" or rest[2] != "flexible" or rest[4:] not in ([], ["ours"]):
            self.fail("expected: versions MIN-MAX flexible VERSIONS [ours]")
        versions, ours = parse_range(rest[1]), rest[4:] == ["ours"]
        flexible = OPEN if rest[3] == "none" else parse_range(rest[3])[0]
        if versions[1] == OPEN or block != (kind != "api"):
            self.fail("a message has a last version, and fields in braces (an api: request and response)")
        if kind != "api":
            m = Message(name, kind, key, versions, flexible, ours, self.path)
            self.block(m, m.root)
            self.messages.append(m)
            return
        for part in ("request", "response"):
            if self.next() != [part, "{"]:
                self.fail(f"expected {part} {{")
            m = Message(name + part.capitalize(), part, key, versions, flexible, ours, self.path)
            self.block(m, m.root)
            self.messages.append(m)

    def block(self, m, s):
        while True:
            w = self.next()
            if w == ["}"]:
                return
            if w[0] == "struct":
                if s is not m.root or len(w) != 4 or w[3] != "{" or w[1] in m.common:
                    self.fail("expected, in the message itself: struct Name versions {")
                c = m.common[w[1]] = Struct(w[1], parse_range(w[2]))
                self.block(m, c)
                continue
            s.fields.append(self.field(m, w))

    def field(self, m, w):
        f = Field(w[0], w[1], parse_range(w[2]))
        rest = w[3:]
        if not re.fullmatch(r"[a-z][A-Za-z0-9]*", f.name):
            self.fail(f"not a field name: {f.name}")
        block = bool(rest) and rest[-1] == "{"
        rest = rest[:-1] if block else rest
        while rest:
            a = rest.pop(0)
            if a == "nullable":
                f.nullable = parse_range(rest.pop(0)) if rest and rest[0][0].isdigit() else f.versions
            elif a == "tag":
                f.tag = int(rest.pop(0))
            elif a == "default":
                f.default = rest.pop(0)
            elif a == "flexible" and rest and rest.pop(0) == "none":
                f.flexible_none = True
            elif a in ("ignorable", "ours"):
                setattr(f, a, True)
            else:
                self.fail(f"unknown attribute {a}")
        if block:
            if f.base in PRIMITIVES:
                self.fail(f"{f.base} takes no fields")
            f.struct = Struct(f.base, f.versions)
            self.block(m, f.struct)
        return f


def resolve(m):
    """Links struct types, names them in C, and checks what the codec relies on."""
    prefix, seen = snake(m.name), {}

    def name_of(s):
        own = s.name[len(m.name):] if s.name.startswith(m.name) and len(s.name) > len(m.name) else s.name
        return f"{prefix}_{snake(own)}"

    def visit(s, depth):
        if depth > DEPTH_MAX:
            raise SchemaError(f"{m.file}: {s.name} nests too deep")
        names, tags = set(), set()
        for f in s.fields:
            where = f"{m.file}: {m.name} {s.name}.{f.name}"
            if f.c_name() in names:
                raise SchemaError(f"{where} is stated twice")
            names.add(f.c_name())
            check_field(m, f, tags, where)
            if f.base not in PRIMITIVES:
                if f.struct is None:
                    f.struct = m.common.get(f.base)
                if f.struct is None:
                    raise SchemaError(f"{where}: no struct {f.base}")
                if f.struct.c is None or f.struct not in m.structs:
                    visit(f.struct, depth + 1)
        s.fields_coded = [f for f in s.fields if f.tag is None] + sorted((f for f in s.fields if f.tag is not None), key=lambda f: f.tag)
        if s not in m.structs:
            s.c = prefix if s is m.root else name_of(s)
            if seen.setdefault(s.c, s) is not s:
                raise SchemaError(f"{m.file}: two structs are named {s.name}")
            m.structs.append(s)

    visit(m.root, 0)
    for s in m.structs:
        s.size_min = [size_min(m, s, v) for v in range(m.versions[0], m.versions[1] + 1)]
        for f in s.fields:
            for v in range(m.versions[0], m.versions[1] + 1):
                if f.array and f.struct and f.versions[0] <= v <= f.versions[1] and size_min(m, f.struct, v) == 0:
                    raise SchemaError(f"{m.file}: elements of {f.name} have no bytes in version {v}: their count could not be checked")


def check_field(m, f, tags, where):
    if overlap(f.versions, m.versions) is None:
        raise SchemaError(f"{where}: no version of the message has it")
    if f.tag is not None:
        if f.tag in tags or f.versions[0] < m.flexible:
            raise SchemaError(f"{where}: a tag must be unique and its versions flexible")
        if f.base == "records":
            raise SchemaError(f"{where}: records cannot be tagged")
        tags.add(f.tag)
    if f.base == "records" and f.array:
        raise SchemaError(f"{where}: no arrays of records")
    if f.nullable and not f.array and f.base in PRIMITIVES and f.base not in NULLABLE:
        raise SchemaError(f"{where}: {f.base} cannot be null")
    d = f.default
    if d == "null" and (not f.nullable):
        raise SchemaError(f"{where}: default null, but not nullable")
    if f.base not in PRIMITIVES and not f.array and f.nullable and d != "null":
        raise SchemaError(f"{where}: a nullable struct defaults to null")
    if d is None or d == "null":
        return
    if f.array or f.base not in INT_RANGES and f.base not in ("bool", "string"):
        raise SchemaError(f"{where}: this type's default is null or none")
    if f.base == "bool" and d not in ("true", "false"):
        raise SchemaError(f"{where}: default true or false")
    if f.base in INT_RANGES and not INT_RANGES[f.base][0] <= int(d, 0) <= INT_RANGES[f.base][1]:
        raise SchemaError(f"{where}: default out of range")


def size_min(m, s, v):
    """The smallest encoding of a struct in a version, by which the decoder checks an array's count."""
    flex = v >= m.flexible
    n = 1 if flex else 0
    for f in s.fields:
        if not f.versions[0] <= v <= f.versions[1] or f.tag is not None:
            continue
        if f.array:
            n += 1 if flex and not f.flexible_none else 4
        elif f.base in PRIMITIVES:
            n += PRIMITIVES[f.base][3 if flex and not f.flexible_none else 2]
        elif f.nullable and f.nullable[0] <= v <= f.nullable[1]:
            n += 1
        else:
            n += size_min(m, f.struct, v)
    return n


def c_type(f):
    base = PRIMITIVES[f.base][0] if f.base in PRIMITIVES else f"struct kw_{f.struct.c}"
    if f.array:
        return f"struct {{ {base} *v; int32_t n; }} {f.c_name()}"
    return f"{base} {'*' if f.pointer() else ''}{f.c_name()}"


def range_text(r):
    return f"{r[0]}+" if r[1] == OPEN else f"{r[0]}" if r[0] == r[1] else f"{r[0]}-{r[1]}"


def field_comment(f):
    t = range_text(f.versions)
    if f.tag is not None:
        t += f", tag {f.tag}"
    if f.nullable:
        t += ", nullable" if f.nullable == f.versions else f", nullable {range_text(f.nullable)}"
    if f.default is not None:
        t += f", default {f.default}"
    return t


def enum_name(m):
    if m.kind == "record":
        return "KW_RECORD_" + snake(m.name.removesuffix("Record")).upper()
    return "KW_API_" + snake(m.name.removesuffix("Request").removesuffix("Response")).upper()


HEADER = """/* kw_messages.h - made by client/wire/schemagen.py from client/wire/schema; do not edit.
 *
 * A struct for every message and the structs inside it; the comments name the versions that carry a field. Names:
 *   api Fetch: struct kw_fetch_request and kw_fetch_response; record TopicRecord: struct kw_topic_record; a nested struct: the
 *   message's name, then its own (struct kw_fetch_request_fetch_topic), without repeating the message's name where its own begins
 *   with it (struct kw_metadata_response_topic); fields in snake case, a C keyword with `_` behind.
 * Descriptors carry the struct's name and _desc. Arrays are laid out as struct kw_array, n -1 is null. Structs that may be null
 * are pointers. kw_msg_init() sets the defaults, which are not all zero: use it before filling a message.
 */
#ifndef KW_MESSAGES_H
#define KW_MESSAGES_H

#include "wire/codec.h"
"""


def emit_header(messages):
    out = [HEADER]
    apis = sorted((m for m in messages if m.kind == "request"), key=lambda m: m.key)
    records = sorted((m for m in messages if m.kind == "record"), key=lambda m: m.key)
    out.append("enum kw_api_key {\n" + "".join(f"    {enum_name(m)} = {m.key},\n" for m in apis) + "};\n")
    out.append("enum kw_record_type {\n" + "".join(f"    {enum_name(m)} = {m.key},\n" for m in records) + "};\n")
    for m in messages:
        flex = "never flexible" if m.flexible == OPEN else f"flexible {m.flexible}+"
        out.append(f"/* {m.name}, versions {range_text(m.versions)}, {flex} */")
        for s in m.structs:
            out.append(f"struct kw_{s.c} {{")
            if not s.fields:
                out.append("    uint8_t empty; /* C wants a member */")
            out += [f"    {c_type(f)}; /* {field_comment(f)} */" for f in s.fields]
            out.append("};")
        out.append(f"extern const struct kw_desc kw_{m.root.c}_desc;\n")
    out.append("#endif\n")
    return "\n".join(out)


def init_value(f):
    d = f.default_number()
    if f.array:
        return f"{{NULL, {d}}}" if d else None
    if f.base in NULLABLE:
        if f.default not in (None, "null"):
            return f'{{"{f.default}", {len(f.default.encode())}}}'
        return ("{NULL, -1, NULL}" if f.base == "records" else "{NULL, -1}") if d else None
    if f.base == "bool":
        return "true" if d else None
    if f.base in INT_RANGES:
        return int_literal(d) if d else None
    if f.struct and not f.pointer():
        inner = init_struct(f.struct)
        return inner if inner != "{0}" else None
    return None


def int_literal(v):
    if v == -2**63:
        return "INT64_MIN"
    return f"{v}" if -2**31 < v < 2**31 else "INT32_MIN" if v == -2**31 else f"INT64_C({v})"


def init_struct(s):
    parts = [f".{f.c_name()} = {v}" for f in s.fields for v in [init_value(f)] if v is not None]
    return "{" + ", ".join(parts) + "}" if parts else "{0}"


def emit_field(s, f):
    kind = "KW_T_ARRAY" if f.array else PRIMITIVES[f.base][1] if f.base in PRIMITIVES else "KW_T_STRUCT"
    p = [f'.name = "{f.name}"', f".type = {kind}"]
    if f.array:
        p.append(f".elem = {PRIMITIVES[f.base][1] if f.base in PRIMITIVES else 'KW_T_STRUCT'}")
    p.append(f".min = {f.versions[0]}, .max = {'INT16_MAX' if f.versions[1] == OPEN else f.versions[1]}")
    n = f.nullable and overlap(f.nullable, f.versions)
    p.append(f".null_min = {n[0]}, .null_max = {'INT16_MAX' if n[1] == OPEN else n[1]}" if n else ".null_min = -1, .null_max = -1")
    p.append(f".tag = {-1 if f.tag is None else f.tag}")
    p.append(f".offset = offsetof(struct kw_{s.c}, {f.c_name()})")
    if f.ignorable:
        p.append(".ignorable = 1")
    if f.flexible_none:
        p.append(".flexible_none = 1")
    if f.default_number():
        p.append(f".def = {int_literal(f.default_number())}")
    if f.base == "string" and not f.array and f.default not in (None, "null"):
        p.append(f'.def_str = "{f.default}"')
    if f.struct:
        p.append(f".desc = &kw_{f.struct.c}_desc")
    return "    {" + ", ".join(p) + "},"


def emit_struct(m, s, out):
    root = s is m.root
    empty = not s.fields
    out.append(f"static const struct kw_{s.c} kw_{s.c}_init = {init_struct(s)};")
    if not empty:
        out.append(f"static const struct kw_field kw_{s.c}_fields[] = {{")
        out += [emit_field(s, f) for f in s.fields_coded]
        out.append("};")
    out.append(f"static const uint16_t kw_{s.c}_size_min[] = {{{', '.join(map(str, s.size_min))}}};")
    out.append(f"{'' if root else 'static '}const struct kw_desc kw_{s.c}_desc = {{")
    out.append(f'    .name = "{s.name}", .api_key = {m.key if root else -1}, .min = {m.versions[0]}, .max = {m.versions[1]},')
    out.append(f"    .flexible_min = {'INT16_MAX' if m.flexible == OPEN else m.flexible}, .field_count = {len(s.fields)}, "
               f".tagged_from = {sum(f.tag is None for f in s.fields)},")
    fields = "kw_no_fields" if empty else f"kw_{s.c}_fields"
    out.append(f"    .size = sizeof(struct kw_{s.c}), .fields = {fields}, .init = &kw_{s.c}_init, .size_min = kw_{s.c}_size_min}};\n")


def emit_expansion_checks(m, out):
    """What the decoder allocates for an element must be justified by the element's smallest encoding."""
    for s in m.structs:
        for f in s.fields:
            if f.struct and (f.array or f.pointer()):
                n = min(size_min(m, f.struct, v) for v in range(m.versions[0], m.versions[1] + 1) if f.versions[0] <= v <= f.versions[1])
                out.append(f'_Static_assert(sizeof(struct kw_{f.struct.c}) <= KW_DECODE_EXPANSION_MAX * {n}, "{f.struct.name}: expansion");')


def emit_source(messages):
    out = ["/* kw_messages.c - made by client/wire/schemagen.py from client/wire/schema; do not edit. */", '#include "kw_messages.h"\n',
           "static const struct kw_field kw_no_fields[1]; /* an empty table that can be pointed into */\n"]
    for m in messages:
        out.append(f"/* {m.name} */")
        for s in m.structs:
            emit_struct(m, s, out)
        emit_expansion_checks(m, out)
    apis = sorted((m for m in messages if m.kind == "request"), key=lambda m: m.key)
    out.append("const struct kw_api kw_apis[] = {")
    for m in apis:
        name = m.name.removesuffix("Request")
        flex = "INT16_MAX" if m.flexible == OPEN else m.flexible
        out.append(f'    {{{m.key}, {m.versions[0]}, {m.versions[1]}, {flex}, "{name}", &kw_{snake(name)}_request_desc, '
                   f"&kw_{snake(name)}_response_desc}},")
    out.append(f"}};\nconst size_t kw_api_count = {len(apis)};\n")
    records = sorted((m for m in messages if m.kind == "record"), key=lambda m: m.key)
    for name, ms in (("kw_metadata_records", records), ("kw_messages", messages)):
        out.append(f"const struct kw_desc *const {name}[] = {{")
        out += [f"    &kw_{m.root.c}_desc," for m in ms]
        out.append("};")
    out.append(f"const size_t kw_metadata_record_count = {len(records)};\nconst size_t kw_message_count = {len(messages)};\n")
    return "\n".join(out)


def to_json(messages):
    def fields(s):
        return [{"name": f.name, "type": ("[]" if f.array else "") + f.base, "versions": f.versions, "nullable": f.nullable, "tag": f.tag,
                 "default": f.default, "ignorable": f.ignorable, "flexible_none": f.flexible_none, "ours": f.ours,
                 "fields": fields(f.struct) if f.struct else None} for f in s.fields]
    return [{"name": m.name, "kind": m.kind, "key": m.key, "versions": m.versions, "flexible": m.flexible, "ours": m.ours,
             "fields": fields(m.root)} for m in messages]


def load(paths):
    messages = []
    for p in sorted(paths, key=os.path.basename):
        messages += Parser(p).parse()
    seen = {}
    for m in messages:
        resolve(m)
        for key in [("name", snake(m.name))] + ([(m.kind, m.key)] if m.key >= 0 else []):
            if key in seen:
                raise SchemaError(f"{m.file}: {m.name} and {seen[key]} share {key[0]} {key[1]}")
            seen[key] = m.name
    return messages


def write(path, text):
    try:
        with open(path, encoding="utf-8") as f:
            if f.read() == text:
                os.utime(path)
                return
    except FileNotFoundError:
        pass
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def main():
    ap = argparse.ArgumentParser(description="Makes kw_messages.h and kw_messages.c from schema files.")
    ap.add_argument("-o", metavar="DIR", help="where to write")
    ap.add_argument("--json", action="store_true", help="print the schemas as JSON")
    ap.add_argument("files", nargs="+")
    args = ap.parse_args()
    try:
        messages = load(args.files)
    except SchemaError as e:
        sys.exit(f"schemagen: {e}")
    if args.json:
        json.dump(to_json(messages), sys.stdout, indent=1)
    if args.o:
        os.makedirs(args.o, exist_ok=True)
        write(os.path.join(args.o, "kw_messages.h"), emit_header(messages))
        write(os.path.join(args.o, "kw_messages.c"), emit_source(messages))


if __name__ == "__main__":
    main()
