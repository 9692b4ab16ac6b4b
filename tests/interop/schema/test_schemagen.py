#!/usr/bin/env python3
"""test_schemagen.py - the generator refuses what the codec could not handle, and says where. Run by ctest."""
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../client/wire"))
import schemagen  # noqa: E402

HEAD = "message M versions 0-3 flexible 2+ {\n"
DEEP = "".join(f"a{i} []S{i} 0+ {{\n" for i in range(9)) + "x int8 0+\n" + "}\n" * 9
BAD = [  # a schema, what the error says
    ("table M {\n}", "expected api, record or message"),
    ("message M versions 0+ flexible none {\n}", "last version"),
    ("message M versions 3-1 flexible none {\n}", "empty version range"),
    ("message M versions 0 flexible 0+", "in braces"),
    ("api 1 A versions 0 flexible none\nresponse {\n}", "expected request {"),
    (HEAD + "a int32 0+\n", "ends inside a block"),
    (HEAD + "a int32\n}", "incomplete line"),
    (HEAD + "A int32 0+\n}", "not a field name"),
    (HEAD + "a int32 0+\na int8 0+\n}", "stated twice"),
    (HEAD + "a int32 0+ fast\n}", "unknown attribute fast"),
    (HEAD + "a int32 0+ nullable\n}", "int32 cannot be null"),
    (HEAD + "a int8 0+ default 128\n}", "out of range"),
    (HEAD + "a bool 0+ default 1\n}", "true or false"),
    (HEAD + "a string 0+ default null\n}", "not nullable"),
    (HEAD + "a int32 7+\n}", "no version of the message"),
    (HEAD + "a int32 1+ tag 0\n}", "its versions flexible"),
    (HEAD + "a int32 2+ tag 0\nb int32 2+ tag 0\n}", "unique"),
    (HEAD + "a records 2+ nullable tag 0\n}", "cannot be tagged"),
    (HEAD + "a []records 0+\n}", "no arrays of records"),
    (HEAD + "a Missing 0+\n}", "no struct Missing"),
    (HEAD + "a int32 0+ {\n}\n}", "takes no fields"),
    (HEAD + "a S 0+ nullable {\nx int8 0+\n}\n}", "defaults to null"),
    (HEAD + "a []S 0+ {\nx int8 1+\n}\n}", "no bytes in version 0"),
    (HEAD + "a []S 0+\nstruct S 0+ {\nb []S 0+\n}\n}", "nests too deep"),
    (HEAD + DEEP + "}", "nests too deep"),
    (HEAD + "a []S 0+ {\nx int8 0+\n}\nb []S 0+ {\nx int8 0+\n}\n}", "two structs are named S"),
    (HEAD + "}\n" + HEAD + "}", "share name"),
    ("record 1 A versions 0 flexible 0+ {\n}\nrecord 1 B versions 0 flexible 0+ {\n}", "share record 1"),
]


def load(text):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.ks")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return schemagen.load([path])


class Refusals(unittest.TestCase):
    def test_bad_schemas_are_refused(self):
        for text, why in BAD:
            with self.subTest(text), self.assertRaises(schemagen.SchemaError) as e:
                load(text)
            self.assertIn(why, str(e.exception))
            self.assertIn("x.ks" if "share" not in why else "share", str(e.exception))

    def test_names(self):
        for camel, snake in [("maxWaitMs", "max_wait_ms"), ("KRaftVersionRecord", "kraft_version_record"), ("isr", "isr"), ("lastKnownElr", "last_known_elr")]:
            self.assertEqual(schemagen.snake(camel), snake)

    def test_ours_and_tags_are_read(self):
        (m,) = load(HEAD + "b int32 3+ tag 7 ours # comment\na int8 0-1\n}")
        self.assertEqual([(f.name, f.ours, f.tag) for f in m.root.fields_coded], [("a", False, None), ("b", True, 7)])
        self.assertEqual(m.root.size_min, [1, 1, 1, 1])


if __name__ == "__main__":
    unittest.main()
