"""Clusters of parameter servers, all in this process."""

import socket

import tensorflow as tf

_KEPT = []


def make_cluster(workers, servers):
    """Start a cluster's servers and return the resolver that knows them."""
    jobs = {"worker": workers, "ps": servers}
    spec = tf.train.ClusterSpec({job: [f"localhost:{_free_port()}" for _ in range(n)] for job, n in jobs.items()})
    config = tf.compat.v1.ConfigProto()
    config.inter_op_parallelism_threads = workers + 2
    for job, count in jobs.items():
        for i in range(count):
            _KEPT.append(tf.distribute.Server(spec, job_name=job, task_index=i, config=config, protocol="grpc"))
    return tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")


def _free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
