"""What AutoGraph makes of Python's syntax: each function has a condition on a tensor beside it."""

import contextlib

import tensorflow as tf


def f_string(x):
    s = f"{x.shape} {1:>3}"
    if x > 2:
        return x
    else:
        return x + 1


def starred(x):
    a, *b = [x, x + 1, x + 2]
    if x > 2:
        return b[0]
    else:
        return a


def starred_call(x):
    f = lambda *a, **k: a[0] + k["b"]
    if x > 2:
        return f(*[x], **dict(b=1))
    else:
        return x


def dict_comprehension(x):
    d = {k: x + k for k in range(3)}
    if x > 2:
        return d[1]
    else:
        return d[2]


def set_comprehension(x):
    d = {k for k in range(3)}
    if x > 2:
        return x + len(d)
    else:
        return x


def generator_expression(x):
    d = sum(k for k in range(3))
    if x > 2:
        return x + d
    else:
        return x


def matching(x):
    match 1:
        case 1:
            y = 2
        case _:
            y = 3
    if x > 2:
        return x + y
    else:
        return x


def with_as(x):
    with contextlib.nullcontext(3) as n:
        if x > 2:
            z = x + n
        else:
            z = x
    return z


def with_two(x):
    with contextlib.nullcontext(3) as n, contextlib.nullcontext(4) as m:
        if x > 2:
            z = x + n + m
        else:
            z = x
    return z


def function_inside(x):
    def g(y):
        if y > 2:
            return y
        return y + 1

    return g(x)


def nonlocal_name(x):
    c = 0

    def g():
        nonlocal c
        c = c + 1

    g()
    if x > 2:
        return x + c
    else:
        return x


def global_name(x):
    global GG
    GG = 3
    if x > 2:
        return x + GG
    else:
        return x


def class_inside(x):
    class A:
        b = 3

    if x > 2:
        return x + A.b
    else:
        return x


def lambda_inside(x):
    f = lambda y: y if y > 2 else y + 1
    return f(x)


def assertion(x):
    assert x is not None, "a"
    if x > 2:
        return x
    else:
        return x + 1


def import_inside(x):
    from math import pi as p

    if x > 2:
        return x + p
    else:
        return x


def chained(x):
    if 0 < x < 10:
        return x
    else:
        return x + 1


def augmented(x):
    y = [1, 2]
    y[0] += 3
    x += y[0]
    if x > 2:
        return x
    else:
        return x + 1


def slices(x):
    y = [1, 2, 3][1:]
    if x > 2:
        return x + y[0]
    else:
        return x + 1


def ternary(x):
    return x if x > 2 else x + 1


def boolean(x):
    if x > 2 and not x > 5 or x == 7:
        return x
    else:
        return x + 1


def try_finally(x):
    try:
        y = 1
    finally:
        y = 2
    if x > 2:
        return x + y
    else:
        return x


def while_break(x):
    while x < 100:
        x = x * 2
        if x > 50:
            break
    return x


def in_place_matmul(x):
    y = tf.reshape(x, [1, 1])
    y @= y
    if x > 2:
        return y
    else:
        return y + 1


def attribute(x):
    class A:
        pass

    a = A()
    a.v = x
    if x > 2:
        a.v = x + 1
    else:
        a.v = x + 2
    return a.v


def subscript(x):
    d = {"k": x}
    if x > 2:
        d["k"] = x + 1
    else:
        d["k"] = x + 2
    return d["k"]


def ellipsis_index(x):
    y = tf.reshape(x, [1, 1])[..., 0]
    if x > 2:
        return y
    else:
        return y + 1


def keyword_only(x):
    def g(y, *, z=1):
        if y > 2:
            return y + z
        return y

    return g(x, z=2)


def positional_only(x):
    def g(y, /, z=1):
        if y > 2:
            return y + z
        return y

    return g(x, z=2)


def decorated_inside(x):
    @tf.function
    def g(y):
        if y > 2:
            return y
        return y + 1

    return g(x)


def raise_inside(x):
    if x is None:
        raise ValueError("a") from None
    if x > 2:
        return x
    else:
        return x + 1


def returns_none(x):
    if x > 2:
        y = x
    else:
        y = x + 1
    tf.identity(y)
    return


def except_types(x):
    try:
        y = 1
    except (KeyError, ValueError):
        y = 2
    if x > 2:
        return x + y
    else:
        return x


def try_in_try(x):
    try:
        try:
            raise KeyError("a")
        except KeyError as e:
            raise ValueError("b") from e
    except ValueError as f:
        y = len(f.args)
    if x > 2:
        return x + y
    else:
        return x


def enumerated(x):
    for i, y in enumerate([1, 2]):
        x = x + i * y
    if x > 2:
        return x
    else:
        return x + 1


def list_comprehension(x):
    return tf.stack([x if x > 2 else x + i for i in range(3)])


def except_named(x):
    try:
        {}["a"]
    except KeyError as error:
        y = len(error.args)
    if x > 2:
        return x + y
    else:
        return x


def except_finally(x):
    try:
        if x > 2:
            z = x
        else:
            z = x + 1
        raise ValueError("a")
    except (KeyError, ValueError) as error:
        z = z * 2
    finally:
        z = z + 100
    return z


def except_in_loop(x):
    for i in range(3):
        try:
            if i == 1:
                raise ValueError(i)
            x = x + 1
        except ValueError as error:
            x = x + 10 * error.args[0]
            continue
        else:
            x = x + 100
    while x < 500:
        x = x * 2
    return x


def raise_from(x):
    try:
        y = 1
    except AttributeError as error:
        raise ValueError() from error
    if x > 2:
        return x + y
    else:
        return x


for function in (
    f_string,
    starred,
    starred_call,
    dict_comprehension,
    set_comprehension,
    generator_expression,
    matching,
    with_as,
    with_two,
    function_inside,
    nonlocal_name,
    global_name,
    class_inside,
    lambda_inside,
    assertion,
    import_inside,
    chained,
    augmented,
    slices,
    ternary,
    boolean,
    try_finally,
    while_break,
    in_place_matmul,
    attribute,
    subscript,
    ellipsis_index,
    keyword_only,
    positional_only,
    decorated_inside,
    raise_inside,
    returns_none,
    except_types,
    try_in_try,
    enumerated,
    list_comprehension,
    except_named,
    except_finally,
    except_in_loop,
    raise_from,
):
    compiled = tf.function(function)
    results = [compiled(tf.constant(3.0)), compiled(tf.constant(1.0))]
    print(function.__name__, [None if result is None else result.numpy().tolist() for result in results])
