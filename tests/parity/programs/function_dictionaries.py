"""Dictionaries keep the order of their keys through functions, strategies, datasets, gradients and control flow."""

import tensorflow as tf
from _facts import show

features = {"x": tf.constant(1.0), "b": {"z": tf.constant(2.0), "a": tf.constant(3.0)}}
seen = []


@tf.function
def swap(d):
    seen.append([list(d), list(d["b"])])
    joined = tf.stack([*d["b"].values(), d["x"]])
    return {"q": joined, "c": [{"z": d["x"], "a": (d["x"], {"k": d["x"], "j": 1})}]}


result = swap(features)
show("inside", seen)
show("result", [list(result), list(result["c"][0]), list(result["c"][0]["a"][1]), result["q"]])
again = swap({"b": {"a": tf.constant(3.0), "z": tf.constant(2.0)}, "x": tf.constant(1.0)})
show("another order is no new trace", [len(seen), again["q"]])
show("keywords", list(tf.function(lambda **named: dict(named))(x=tf.constant(1.0), a=tf.constant(2.0))))
concrete = swap.get_concrete_function({"x": tf.TensorSpec([]), "b": {"z": tf.TensorSpec([]), "a": tf.TensorSpec([])}})
show("concrete", [list(concrete(features)), list(concrete.structured_outputs)])

strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(2)])


def step(d):
    seen.append([list(d), list(d["b"])])
    return {"q": tf.stack(list(d["b"].values())), "c": {"z": d["x"] + 1, "a": d["x"] * 2}}


for run in (strategy.run, tf.function(strategy.run)):
    seen.clear()
    result = run(step, args=(features,))
    show("replica", [seen[0], list(result), list(result["c"])])
    show("reduced", list(strategy.reduce("SUM", result, axis=None)))
one = tf.distribute.OneDeviceStrategy("/cpu:0").run(step, args=(features,))
show("one device", [list(one), list(one["c"])])

rows = tf.data.Dataset.from_tensor_slices({"x": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0], "a": [3.0, 4.0, 5.0]})
show("dataset", [list(element) for element in rows.take(1)])
show("mapped", [list(element) for element in rows.map(lambda e: {"y": e["x"], "b": e["b"]}).take(1)])
show("batched", [list(element) for element in rows.batch(2)])
distributed = strategy.experimental_distribute_dataset(rows.batch(2))
show("distributed", [list(batch) for batch in distributed])
show("spec", list(distributed.element_spec))
made = strategy.distribute_datasets_from_function(lambda _: rows.batch(1))
show("made per replica", [list(batch) for batch in made])


@tf.function
def loop(dataset):
    for batch in dataset:
        seen.append(list(batch))


seen.clear()
loop(distributed)
show("in a loop", seen[0])

variables = {"x": tf.Variable(1.0), "a": tf.Variable(2.0)}
with tf.GradientTape(persistent=True) as tape:
    product = variables["x"] * variables["a"]
show("gradients", [list(tape.gradient(product, variables)), list(tape.jacobian(product, variables))])
show("nest", [list(tf.nest.map_structure(lambda x: x, {"x": 1, "a": 2})), tf.nest.flatten({"x": 1, "a": 2})])
show("packed", list(tf.nest.pack_sequence_as({"x": 1, "a": 2}, [3, 4]).items()))


@tf.function
def branches(x):
    if x > 0:
        r = {"x": x, "a": x + 1}
    else:
        r = {"x": -x, "a": x}
    for _ in tf.range(3):
        r = {"x": r["x"] + 1.0, "a": r["a"]}
    while r["x"] < 10.0:
        r = {"x": r["x"] * 2.0, "a": r["a"]}
    return r


show("control flow", [list(branches(tf.constant(1.0)).items())])
conditional = tf.function(lambda c: tf.cond(c, lambda: {"x": 1.0, "a": 2.0}, lambda: {"x": 3.0, "a": 4.0}))
show("tf.cond", list(conditional(tf.constant(True)).items()))
