"""Resolvers that ask a service, with the service's answers made up; and what a resolver means for the processes."""

from types import SimpleNamespace as Made

import pytest

import tfdist_jax.compat.tensorflow as tf
from tfdist_jax.compat.tensorflow.distribute._configured_resolvers import cluster_of

resolvers = tf.distribute.cluster_resolver


class Kubernetes:
    """Pods by label."""

    def __init__(self, phase="Running"):
        pod = lambda name, ip: Made(metadata=Made(name=name), status=Made(phase=phase, host_ip=ip))
        self._pods = {
            "job-name=w": [pod("w-1", "10.0.0.2"), pod("w-0", "10.0.0.1")],
            "job-name=p": [pod("p", "10.0.0.9")],
        }

    def list_pod_for_all_namespaces(self, label_selector):
        return Made(items=self._pods[label_selector])


def test_kubernetes_pods_are_in_the_order_of_their_names():
    jobs = {"worker": ["job-name=w", "job-name=p"]}
    resolver = resolvers.KubernetesClusterResolver(jobs, override_client=Kubernetes())
    assert resolver.cluster_spec().as_dict() == {"worker": ["10.0.0.1:8470", "10.0.0.2:8470", "10.0.0.9:8470"]}
    assert resolver.master() == ""
    assert resolver.master("worker", 1) == "grpc://10.0.0.2:8470"


def test_a_kubernetes_pod_that_does_not_run_is_named():
    resolver = resolvers.KubernetesClusterResolver({"worker": ["job-name=p"]}, override_client=Kubernetes("Pending"))
    with pytest.raises(RuntimeError, match='Pod "p" does not run: its phase is "Pending"'):
        resolver.cluster_spec()


class ComputeEngine:
    """Two pages with a machine each."""

    def instanceGroups(self):
        return self

    instances = instanceGroups

    def listInstances(self, **request):
        assert request == {
            "project": "p",
            "zone": "z",
            "instanceGroup": "g",
            "body": {"instanceState": "RUNNING"},
            "orderBy": "name",
        }
        return Made(execute=lambda: {"items": [{"instance": "https://x/b"}], "next": True})

    def listInstances_next(self, previous_request, previous_response):
        following = {"items": [{"instance": "https://x/a"}]}
        return Made(execute=lambda: following) if "next" in previous_response else None

    def get(self, *, project, zone, instance):
        return Made(execute=lambda: {"networkInterfaces": [{"networkIP": f"10.0.0.{instance}"}]})


def test_machines_of_a_compute_engine_group_are_found_on_all_pages():
    resolver = resolvers.GCEClusterResolver("p", "z", "g", 80, service=ComputeEngine())
    assert resolver.cluster_spec().as_dict() == {"worker": ["10.0.0.a:80", "10.0.0.b:80"]}
    assert resolver.master() == "grpc://10.0.0.a:80"
    with pytest.raises(RuntimeError, match="cannot be changed"):
        resolver.task_type = "ps"


def test_a_resolver_says_which_process_this_is():
    spec = tf.train.ClusterSpec({"worker": ["a", "b:2"], "chief": ["c:1"]})
    found = cluster_of(resolvers.SimpleClusterResolver(spec, task_type="worker", task_id=1))
    assert found is not None
    assert (found.process_id, found.num_processes, found.coordinator) == (2, 3, "c:1")
    assert cluster_of(resolvers.SimpleClusterResolver(tf.train.ClusterSpec({}))) is None


@pytest.mark.parametrize(
    ("cluster", "task", "message"),
    [
        ({"worker": ["a"]}, (None, None), "does not say which process this is"),
        ({"worker": {1: "a"}}, ("worker", 1), "leaves out tasks of the job 'worker'"),
        ({"worker": ["a"]}, ("worker", 1), r"this process is worker 1, but its cluster has 1 task\(s\)"),
    ],
)
def test_a_resolver_that_does_not_fit_says_why(cluster, task, message):
    resolver = resolvers.SimpleClusterResolver(tf.train.ClusterSpec(cluster), task_type=task[0], task_id=task[1])
    with pytest.raises(ValueError, match=f"SimpleClusterResolver.*{message}"):
        cluster_of(resolver)


def test_there_is_no_protocol_buffer_of_a_cluster():
    with pytest.raises(NotImplementedError, match="as_dict"):
        tf.train.ClusterSpec({}).as_cluster_def()


def test_without_a_tpu_the_error_is_the_one_that_programs_catch():
    for find in (resolvers.TPUClusterResolver, resolvers.TPUClusterResolver.connect):
        with pytest.raises(ValueError, match="No TPU was found") as caught:
            find()
        assert isinstance(caught.value, tf.errors.NotFoundError)


def test_a_tpu_in_the_processor_has_this_machines_address(monkeypatch):
    monkeypatch.setenv("TFDIST_EMULATED_TPU_CORES", "2")
    spec = resolvers.TPUClusterResolver().cluster_spec()
    assert spec.as_dict() == {"worker": ["localhost:8470"]}
    assert resolvers.TPUClusterResolver(job_name="tpu").cluster_spec().jobs == ["tpu"]
