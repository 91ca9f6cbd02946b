"""tf.train.ClusterSpec and the cluster resolvers that need no network."""

import json
import os

for name in ("TF_CONFIG", "CUDA_VISIBLE_DEVICES"):
    os.environ.pop(name, None)

import tensorflow as tf
from _facts import error, show

resolvers = tf.distribute.cluster_resolver
Spec = tf.train.ClusterSpec

spec = Spec({"worker": ["a:1", "b:2"], "ps": {1: "c:3"}})
show("jobs", sorted(spec.jobs))
show("dict", spec.as_dict())
show("repr", repr(spec))
show("tasks", [spec.num_tasks("worker"), spec.task_indices("ps"), spec.job_tasks("ps"), spec.task_address("ps", 1)])
show("empty", [bool(Spec({})), bool(spec), Spec({}).as_dict(), Spec({"worker": []}).as_dict()])
show("equal", [spec == Spec(spec), spec != Spec({}), Spec({"w": ["a:1"]}) == Spec({"w": {0: "a:1"}})])
show("order", Spec({"w": {2: "c", 0: "a", 1: "b"}}).as_dict())
error("no job", lambda: spec.num_tasks("chief"))
error("no task", lambda: spec.task_address("worker", 2))
error("left out", lambda: spec.task_address("ps", 0))
error("no dictionary", lambda: Spec(["a:1"]))
error("text for a list", lambda: Spec({"worker": "a:1"}))
error("number for an address", lambda: Spec({"worker": [1]}))
error("tasks of an empty job", lambda: Spec({"worker": []}).job_tasks("worker"))

none = resolvers.TFConfigClusterResolver()
show("no TF_CONFIG", [none.task_type, none.task_id, none.rpc_layer, none.cluster_spec().as_dict(), none.master()])

config = {"cluster": {"chief": ["c:1"], "worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": "1"}}
os.environ["TF_CONFIG"] = json.dumps(config)
found = resolvers.TFConfigClusterResolver()
show("task", [found.task_type, found.task_id])
show("addresses", found.cluster_spec().as_dict())
show("master", [found.master(), found.master("chief", 0), found.master(task_id=0), found.master(rpc_layer="grpc")])
show("environment", [found.environment, found.rpc_layer])
show("no accelerators", dict(found.num_accelerators()))
given = resolvers.TFConfigClusterResolver(task_type="worker", task_id=0, rpc_layer="grpc")
show("given", [given.task_type, given.task_id, given.rpc_layer, given.master()])
found.task_id = 0
show("set", [found.task_id, found.master()])
os.environ["TF_CONFIG"] = json.dumps(
    {"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}, "rpc_layer": "x"}
)
show("read again", [found.cluster_spec().as_dict(), found.master(), found.rpc_layer])
os.environ["TF_CONFIG"] = "{'cluster'"
error("no JSON", lambda: resolvers.TFConfigClusterResolver().cluster_spec())
del os.environ["TF_CONFIG"]

one = resolvers.SimpleClusterResolver(Spec({"worker": ["a:1"]}), "m", "worker", 0, "e", {"GPU": 2}, "grpc")
show(
    "simple",
    [one.task_type, one.task_id, one.environment, one.num_accelerators(), one.master(), one.master("worker", 0)],
)
show("simple, nothing else", resolvers.SimpleClusterResolver(Spec({})).num_accelerators())
error("simple, no spec", lambda: resolvers.SimpleClusterResolver({"worker": ["a:1"]}))
error("simple, no text", lambda: resolvers.SimpleClusterResolver(Spec({}), master=1))

two = resolvers.SimpleClusterResolver(Spec({"worker": ["b:1"], "ps": ["p:1"]}), task_type="ps", task_id=0)
union = resolvers.UnionResolver(one, two)
show("union", [union.cluster_spec().as_dict(), union.task_type, union.task_id, union.rpc_layer, union.environment])
show("union's master", [union.master(), union.master("ps", 0), union.num_accelerators()])
changed = resolvers.UnionResolver(one, two, task_type="ps", task_id=1, rpc_layer="x")
show("union, changed", [changed.task_type, changed.task_id, changed.rpc_layer])
sparse = resolvers.SimpleClusterResolver(Spec({"worker": {1: "d:1"}}))
show("union, sparse", resolvers.UnionResolver(one, sparse).cluster_spec().as_dict())
error("union, twice", lambda: resolvers.UnionResolver(two, sparse, sparse).cluster_spec())
error("union of none", lambda: resolvers.UnionResolver())
error("union of others", lambda: resolvers.UnionResolver(Spec({})))
error("union, another keyword", lambda: resolvers.UnionResolver(one, port=1))

error("Slurm, not there", lambda: resolvers.SlurmClusterResolver())
values = {"PROCID": "3", "STEP_NUM_TASKS": "5", "STEP_NODELIST": "t02n[13,41-42],u1", "STEP_TASKS_PER_NODE": "2,1(x3)"}
os.environ |= {f"SLURM_{name}": value for name, value in values.items()}
slurm = resolvers.SlurmClusterResolver(gpus_per_node=2, gpus_per_task=1)
show("Slurm, before", [slurm.get_task_info(), slurm.master()])
show("Slurm", slurm.cluster_spec().as_dict())
show("Slurm's task", [slurm.get_task_info(), slurm.num_accelerators(), slurm.master(), slurm.rpc_layer])
show("Slurm's GPU", os.environ.pop("CUDA_VISIBLE_DEVICES", None))
slurm = resolvers.SlurmClusterResolver({"ps": 1, "worker": 4}, 100, 3, 1, {"a": 3, "b": 2}, auto_set_gpu=False)
show("Slurm, given", [slurm.cluster_spec().as_dict(), slurm.get_task_info()])
error("Slurm, GPUs", lambda: resolvers.SlurmClusterResolver(gpus_per_node=1, gpus_per_task=1))
error("Slurm, tasks", lambda: resolvers.SlurmClusterResolver({"worker": 3}, gpus_per_node=2))
os.environ["SLURM_STEP_NODELIST"] = "n[1-"
error("Slurm, hosts", lambda: resolvers.SlurmClusterResolver(gpus_per_node=2))

error("Kubernetes", lambda: resolvers.KubernetesClusterResolver())
error("GCE", lambda: resolvers.GCEClusterResolver("project", "zone", "group", 8470))
