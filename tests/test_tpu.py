"""What the steps become on TPU, seen without one: compiled ahead of time for the chips of several hosts."""

import pytest


@pytest.mark.slow("compiles for three TPU slices")
def test_steps_compile_for_tpu_slices(run_for_tpu):
    """Eight chips of two hosts, a slice of eight hosts, and two slices of four hosts each."""
    chips_of_a_slice = {"v5e:2x4": 8, "v5e:4x8": 32, "v5e:4x4*2": 16}
    found = run_for_tpu("tpu_steps.py", *chips_of_a_slice)
    for topology, steps in found.items():
        # One fused reduction; under FSDP two kernels and a bias are gathered, and their gradients scattered.
        assert {name: step["asked"] for name, step in steps.items()} == {
            "keras": [1, 0, 0],
            "custom loop": [1, 0, 0],
            "fsdp": [1, 3, 3],
        }
        # Every collective is over all chips of a slice.
        assert [step["group_sizes"] for step in steps.values()] == [[chips_of_a_slice[topology]]] * 3
        # Weights and optimizer slots are updated in place.
        assert steps["keras"]["alias_bytes"] > 0.95 * steps["keras"]["argument_bytes"]
        assert max(step["temp_bytes"] for step in steps.values()) < 2_000_000
    for steps in (found["v5e:2x4"], found["v5e:4x8"]):
        # XLA leaves that so, but for gathers that it takes apart to compute meanwhile, and scatters that it joins.
        assert [steps[name]["compiled"] for name in ("keras", "custom loop")] == [[1, 0, 0]] * 2
        all_reduces, all_gathers, reduce_scatters = steps["fsdp"]["compiled"]
        assert all_reduces == 1
        assert all_gathers >= 2
        assert reduce_scatters == 2
    # Three arrays of each parameter; the share of a chip, in padded tiles.
    state_bytes = 3 * 4 * (64 * 4096 + 4096 + 4096 * 512 + 512)
    assert found["v5e:2x4"]["fsdp"]["alias_bytes"] < 1.05 * state_bytes / 8
    assert found["v5e:4x8"]["fsdp"]["alias_bytes"] < 1.05 * state_bytes / 32
    # Between slices each chip sends its part of what the slice has reduced: a sixteenth, in padded tiles.
    (kind, size), *rest = found["v5e:4x4*2"]["keras"]["between_slices"]
    assert (kind, rest) == ("ALL_REDUCE", [])
    assert 85_067 / 16 <= size < 1.2 * 85_067 / 16
    kinds = [kind for kind, _ in found["v5e:4x4*2"]["fsdp"]["between_slices"]]
    assert sorted(kinds) == ["ALL_GATHER"] * 3 + ["ALL_REDUCE"] + ["REDUCE_SCATTER"] * 3


# Each strategy's reductions, gathers and scatters: of two matrices, in a loop forward and in one backward.
ASKED = {
    "Mirrored": [3, 0, 0],
    "FSDP": [1, 4, 2],
    "ZeRO1": [1, 0, 2],
    "HSDP": [3, 4, 2],
    "TensorParallel": [3, 0, 0],
    "data x FSDP x tensor": [3, 4, 2],
    "FSDP, 12 layers": [1, 4, 2],
    "FSDP, list of layers": [1, 16, 8],
    "a step": [1, 4, 2],
    "a step, offloaded": [1, 4, 2],
    "experts": [3, 0, 0],
    "ring": [2, 0, 0],
    "all_to_all": [2, 0, 0],
}
# All-to-alls and permutations: tokens go to experts and back, and their gradients; query, keys, values and results; keys and values.
SENT = {"experts": [3, 0], "ring": [0, 10], "all_to_all": [8, 0]}
# Of how many parts a chip has one.
SHARES = {"Mirrored": 1, "FSDP": 8, "ZeRO1": 1, "HSDP": 4, "TensorParallel": 4, "data x FSDP x tensor": 4}
LAYER_BYTES = 2 * 1024 * 4096 * 4


def costs_of_strategies(run_for_tpu, topology):
    """Return what the strategies cost on eight chips, of which some is the same wherever these are."""
    costs = run_for_tpu("tpu_strategies.py", topology)[topology]
    assert {name: cost["asked"] for name, cost in costs.items()} == ASKED
    assert {name: cost["sent"] for name, cost in costs.items() if any(cost["sent"])} == SENT
    for name, share in SHARES.items():
        assert costs[name]["argument_bytes"] < 1.05 * 4 * LAYER_BYTES / share + 2**18
    # Two products forward, one of them again, and four backward.
    product = 2 * 64 * 1024 * 4096
    assert {tuple(costs[name]["flops"][:2]) for name in SHARES} == {(7 * 4 * product // 8, True)}
    assert costs["FSDP, 12 layers"]["flops"][:2] == [7 * 12 * product // 8, True]
    # TPU has kernels for indices, into which nobody looks.
    assert {name for name, cost in costs.items() if cost["flops"][2]} <= {"experts", "ring"}
    return costs


@pytest.mark.exhaustive
@pytest.mark.slow("compiles thirteen programs for a TPU slice")
def test_every_strategy_compiles_for_a_tpu_slice_of_two_hosts(run_for_tpu):
    costs = costs_of_strategies(run_for_tpu, "v5e:2x4")
    # What is whole at a time is a part of a layer, whatever their number, and nearly so without a loop.
    assert costs["FSDP, 12 layers"]["temp_bytes"] < 1.05 * costs["FSDP"]["temp_bytes"] < LAYER_BYTES
    assert costs["FSDP, list of layers"]["temp_bytes"] < LAYER_BYTES
    # Of what a chip has of parameters and of Adam's two arrays each, these lie in the memory of its host.
    on_chip, offloaded = (costs[name]["argument_bytes"] for name in ("a step", "a step, offloaded"))
    on_host = costs["a step, offloaded"]["host_argument_bytes"]
    assert (on_host, on_chip - offloaded) == (2 * 4 * LAYER_BYTES / 8,) * 2
    # Tensor parallelism asks XLA alone for the sums inside of layers.
    assert costs["TensorParallel"]["compiled"][1:] == [0, 0]
    assert costs["TensorParallel"]["temp_bytes"] < LAYER_BYTES
    # Gathered in bfloat16, twice a step; scattered in float32. XLA says of no loop how often it runs, and prints gathers that go on beside
    # other operations in each of these.
    gathered, scattered = 2 * 4 * LAYER_BYTES // 2, 4 * LAYER_BYTES // 8
    for name, times in {"FSDP": 1, "FSDP, 12 layers": 3}.items():
        assert sorted(costs[name]["per step"]) == [
            ["all-gather", "data", 8, 16 * times, gathered * times],
            ["all-reduce", "data", 8, 1, 4],
            ["reduce-scatter", "data", 8, 8 * times, scattered * times],
        ]
    assert costs["TensorParallel"]["per step"] == [
        ["all-reduce", "tensor", 4, 8, 8 * 32 * 1024 * 4],
        ["all-reduce", "data", 2, 1, 4 * LAYER_BYTES // 4 + 4],
    ]


@pytest.mark.exhaustive
def test_every_strategy_compiles_for_two_tpu_slices(run_for_tpu):
    costs = costs_of_strategies(run_for_tpu, "v5e:2x2*2")
    # Between slices, each chip sends its part of what its slice has reduced.
    between = [one for one in costs["Mirrored"]["per step"] if one[2] == 2]
    assert between == [["all-reduce", "data", 2, 3, 4 * LAYER_BYTES // 4 + 128 * 4]]
