"""`tf.test.TestCase`: which assertions hold, and as what they fail."""

import numpy as np
import tensorflow as tf
from _facts import show


class Case(tf.test.TestCase):
    def runTest(self):
        """Nothing: assertions are called one by one."""


case = Case()
case.setUp()
t = tf.constant([1.0, 2.0])


def check(label, call):
    try:
        call()
    except Exception as raised:
        show(label, type(raised).__name__)
    else:
        show(label, "holds")


for label, a, b in [
    ("equal", t, [1.0, 2.0]),
    ("near", t, [1.0, 2.0 + 1e-7]),
    ("far", t, [1.0, 2.1]),
    ("other shape", t, [[1.0, 2.0]]),
    ("dictionaries", {"a": t, "b": 1}, {"a": np.array([1.0, 2.0]), "b": 1}),
    ("other keys", {"a": t}, {"b": t}),
    ("lists", [t, tf.constant(3.0)], [[1.0, 2.0], 3.0]),
    ("other lengths", [t, tf.constant(3.0)], [[1.0, 2.0]]),
    ("not a number", [float("nan")], [float("nan")]),
]:
    check(f"close, {label}", lambda: case.assertAllClose(a, b))
    check(f"not close, {label}", lambda: case.assertNotAllClose(a, b))
    if not isinstance(a, dict) and "l" not in label.split()[0][:1]:
        check(f"equal, {label}", lambda: case.assertAllEqual(a, b))
check("close to half", lambda: case.assertAllCloseAccordingToType(tf.cast(t, tf.float16), [1.0005, 2.0]))
check("equal integers", lambda: case.assertAllEqual(tf.range(3), [0, 1, 2]))
check("not equal", lambda: case.assertNotAllEqual(tf.range(3), [0, 1, 2]))
check("equal texts", lambda: case.assertAllEqual(tf.constant(["a", "b"]), [b"a", b"b"]))
for name in ("Greater", "GreaterEqual", "Less", "LessEqual"):
    for target in (0.5, 1.0, 2.0, 3.0):
        check(f"all {name} {target}", lambda: getattr(case, f"assertAll{name}")(t, target))
check("in range", lambda: case.assertAllInRange(t, 1.0, 2.0))
check("in an open range", lambda: case.assertAllInRange(t, 1.0, 2.0, open_upper_bound=True))
check("in set", lambda: case.assertAllInSet(t, {1.0, 2.0, 3.0}))
check("not in set", lambda: case.assertAllInSet(t, {1.0}))
check("dtype", lambda: case.assertDTypeEqual(t, np.float32))
check("other dtype", lambda: case.assertDTypeEqual(t, np.float64))
check("shape", lambda: case.assertShapeEqual(np.zeros(2), t))
check("other shape", lambda: case.assertShapeEqual(np.zeros(3), t))
check("shape of a list", lambda: case.assertShapeEqual([1, 2], t))
check("near", lambda: case.assertNear(1.0, 1.1, 0.2))
check("not near", lambda: case.assertNear(1.0, 1.1, 0.01))
check("arrays near", lambda: case.assertArrayNear([1.0], [1.1], 0.2))
check("arrays not near", lambda: case.assertNDArrayNear(np.array([1.0]), np.array([2.0]), 0.5))
check("starts", lambda: case.assertStartsWith("abc", "ab"))
check("between", lambda: case.assertBetween(3, 4, 5))
check("length", lambda: case.assertLen([1], 1))


def refuse(error):
    raise error


def expect(context, error):
    with context:
        if error is not None:
            refuse(error)


matches = case.assertRaisesWithPredicateMatch
check("predicate", lambda: expect(matches(ValueError, "b+"), ValueError("abc")))
check("other message", lambda: expect(matches(ValueError, "x"), ValueError("abc")))
check("other class", lambda: expect(matches(ValueError, "b"), TypeError("abc")))
check("nothing raised", lambda: expect(matches(ValueError, "b"), None))
check("function", lambda: expect(matches(ValueError, lambda error: len(str(error)) == 3), ValueError("abc")))
check("op error", lambda: expect(case.assertRaisesOpError("a"), tf.errors.NotFoundError(None, None, "abc")))

show("evaluate", case.evaluate({"a": t, "b": [tf.constant(1), lambda: None]}["a"]))
show("evaluate structures", case.evaluate([t, {"x": tf.Variable(2)}, None]))
show("evaluate a function", case.evaluate(lambda: t + 1.0))
with case.cached_session() as session:
    show("session", session.run(t))
thread = case.checkedThread(target=lambda: refuse(ValueError("in a thread")))
thread.start()
check("thread", thread.join)
show("folder", case.get_temp_dir() == case.get_temp_dir())
show("seeded", [np.random.rand() == np.random.RandomState(87654321).rand()])
