"""Schedules of pipelines: what they cost is what was published, and a wrong table is refused with its tick."""

import pytest
from hypothesis import given, settings, strategies as st

import tfdist_jax as td
from tfdist_jax._pipeline import make_schedule
from tfdist_jax._pipeline._slots import IDLE, make_slot_table

NAMES = ("gpipe", "1f1b", "interleaved", "zb-h1")
SIZES = [(1, 1), (1, 3), (2, 1), (2, 5), (3, 5), (4, 8), (4, 32), (8, 32)]


def make(name, devices, microbatches):
    return make_schedule(name, devices, microbatches, 2 if name == "interleaved" else 1)


@pytest.mark.parametrize(("devices", "microbatches"), SIZES)
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_time_that_devices_wait_is_that_of_filling_and_emptying_the_pipeline(name, devices, microbatches):
    waiting = make(name, devices, microbatches).bubble()
    assert waiting == pytest.approx((devices - 1) / (microbatches + devices - 1), abs=1e-12)


@pytest.mark.parametrize(("devices", "microbatches"), [(2, 4), (4, 8), (4, 32), (8, 32)])
@pytest.mark.parametrize("chunks", [2, 4])
def test_several_stages_on_a_device_divide_the_time_that_it_waits(devices, microbatches, chunks):
    waiting = make_schedule("interleaved", devices, microbatches, chunks).bubble()
    assert waiting == pytest.approx((devices - 1) / (chunks * microbatches + devices - 1), abs=1e-12)


@pytest.mark.parametrize(("devices", "microbatches"), [(2, 5), (3, 5), (4, 8), (4, 32), (8, 32)])
def test_weight_gradients_fill_all_but_two_ticks_of_the_time(devices, microbatches):
    schedule = make("zb-h1", devices, microbatches)
    assert schedule.num_ticks - 3 * microbatches <= devices - 1 + 2
    assert schedule.peak_in_flight() <= devices + 1


@pytest.mark.parametrize(("devices", "microbatches"), SIZES)
def test_one_forward_one_backward_keeps_as_much_for_any_number_of_microbatches(devices, microbatches):
    schedule = make("1f1b", devices, microbatches)
    assert schedule.peak_in_flight() == min(microbatches, 2 * devices - 1)
    assert make("gpipe", devices, microbatches).peak_in_flight() == microbatches


@pytest.mark.parametrize("name", NAMES)
def test_a_table_is_read_as_it_was_written(name):
    schedule = make(name, 4, 8)
    again = td.Schedule.from_csv(schedule.to_csv(), name=name)
    assert again == schedule


def test_a_table_of_torch_is_read_by_the_order_of_each_line():
    # As torch.distributed.pipelining writes 1F1B for two ranks and three microbatches, with blanks where a rank waits.
    schedule = td.Schedule.from_csv("0F0,0F1,,0B0,0F2,0B1,,0B2\n,1F0,1B0,1F1,1B1,1F2,1B2,")
    assert str(schedule) == "0  F0 F1 .  B0 F2 B1 .  B2\n1  .  F0 B0 F1 B1 F2 B2 ."
    assert (schedule.num_microbatches, schedule.num_chunks, schedule.is_split) == (3, 1, False)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("0F0,0F1,0B0,0B1\n1F0,1B1,1F1,1B0", "At tick 2 all devices wait: .*device 1 cannot do 1B1 before 1F1"),
        ("0F0,0B0\n1F0", "At tick 2 all devices wait: device 0 cannot do 0B0 before 1B0"),
        ("0F0,0F0,0B0\n1F0,1B0", "At tick 1, device 0 does 0F0, which was done at tick 0 already"),
        ("0F0,0F1,0B0\n1F0,1B0,1F1,1B1", "the backward pass of stage 0 for microbatch 1 has not been done"),
        ("0F0,0I0\n1F0,1B0", "the weight gradient of stage 0 for microbatch 0 has not been done"),
        ("0F0,0I0,0W0,0B0\n1F0,1B0", "stage 0 for microbatch 0 is done twice, whole and in parts, at ticks"),
        ("1F0,0B0\n0F0,1B0", "At tick 0, device 1 does 0F0, but has the stages \\[1\\]"),
        (
            "0F0,0F1,,0I0,0B1;0W0\n1F0,1B0,1F1,1B1",
            "At tick 5, device 0 does 0B1, 0W0: a tick has at most .* one in parts",
        ),
        ("0F0;0F1,0B0,0B1\n1F0,1B0,1F1,1B1", "At tick 0, device 0 does 0F0, 0F1: a tick has at most one forward"),
        ("0F0,0B0\n1F0,1B0\n2F0,2B0,3F0,3B0", "3 lines, one for each device, but 4 stages"),
        ("0F0,0X0", "Line 1 has '0X0', where an operation is expected"),
        ("0F0,0SEND_F1", "Of torch's forms, write the one with computations alone"),
        ("", "The table is empty"),
    ],
)
def test_a_wrong_table_is_refused_with_where_it_is_wrong(table, message):
    with pytest.raises(td.ScheduleError, match=message):
        td.Schedule.from_csv(table)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (" 1F0", "1F0", "At tick 0, device 1 does 1F0, which needs 0F0 of tick 0: that is handed on after its tick"),
        ("1B0,1F1", "1F1,1B0", "At tick 2, device 0 does 0B0, .* needs 1B0 of tick 3: that comes later"),
    ],
)
def test_what_comes_before_what_it_needs_is_refused_with_its_tick(old, new, message):
    ticks = td.Schedule.from_csv("0F0,0F1,,0B0,0B1,\n,1F0,1B0,1F1,1B1,").ticks
    ticks = [list(row) for row in ticks]
    if new == "1F0":
        ticks[0][1], ticks[1][1] = ticks[1][1], ()
    else:
        ticks[2][0], ticks[3][0] = ticks[3][0], ()
        ticks[2][1], ticks[3][1] = (), ticks[2][1]
    with pytest.raises(td.ScheduleError, match=message):
        td.Schedule("mine", tuple(map(tuple, ticks)))


def test_a_table_that_needs_more_memory_than_it_may_is_refused():
    table = make("gpipe", 2, 4).to_csv()
    assert td.Schedule.from_csv(table, max_in_flight=4).peak_in_flight() == 4
    with pytest.raises(td.ScheduleError, match=r"At tick 3, device 0 holds .* 4 microbatches need, but may for 3"):
        td.Schedule.from_csv(table, max_in_flight=3)


def test_what_is_no_operation_or_letter_is_refused():
    with pytest.raises(TypeError, match=r"An entry of a schedule is a tuple of operations, got '0F0'"):
        td.Schedule("mine", ((("0F0",),),))
    with pytest.raises(ValueError, match=r"got costs of \['b'\]"):
        make("1f1b", 2, 2).bubble({"b": 3})


def test_microbatches_that_cannot_be_interleaved_are_refused():
    with pytest.raises(ValueError, match=r"4, which does not divide microbatches=6. Take 8, or schedule='1f1b'"):
        make_schedule("interleaved", 4, 6, 2)
    with pytest.raises(ValueError, match="one stage on each device, got chunks=2"):
        make_schedule("1f1b", 4, 6, 2)
    with pytest.raises(ValueError, match=r"A schedule is one of 'gpipe', .*, got '2f2b'"):
        make_schedule("2f2b", 4, 6, 1)


class Slots:
    """What the slots of all devices hold as a table is run, by its columns."""

    def __init__(self, schedule, saves):
        self.schedule, self.saves = schedule, saves
        self.table = make_slot_table(schedule, saves=saves)
        self.held, self.done = {}, set()

    def run(self):
        for tick in range(self.schedule.num_ticks):
            sent = [each for device in range(self.schedule.num_devices) for each in self.work(tick, device)]
            for device, kind, key in sent:
                self.held[device, kind, self.read(f"arriving_{kind}", tick, device)] = key

    def read(self, name, tick, device):
        return int(self.table.columns[name][tick, device])

    def work(self, tick, device):
        """Do what is due, in the order of a program, and return what is sent: to whom, what, and for which stage and microbatch."""
        sent, last = [], self.schedule.num_stages - 1
        for name in ("forward", "backward", "weight"):
            m = self.read(name, tick, device)
            if m == IDLE:
                continue
            k = self.read(f"{name}_chunk", tick, device) * self.schedule.num_devices + device
            self.done.add((name, k, m))
            needed, made = self.needed_and_made(name, k)
            for kind in needed:
                assert self.held[device, kind, self.read(f"{name}_{kind}", tick, device)] == (k, m)
            for kind in made:
                self.held[device, kind, self.read(f"{name}_{kind}", tick, device)] = k, m
            if name == "forward" and k < last:
                sent.append(((device + 1) % self.schedule.num_devices, "input", (k + 1, m)))
            if name == "backward" and k:
                sent.append(((device - 1) % self.schedule.num_devices, "cotangent", (k - 1, m)))
        return sent

    def needed_and_made(self, name, k):
        takes_input = ["input"] * (k > 0)
        saved, is_last = ["saved"] * self.saves, k == self.schedule.num_stages - 1
        return {
            "forward": (takes_input, saved + ["cotangent"] * is_last),
            "backward": (["cotangent", *(saved or takes_input)], ["kept"] * self.schedule.is_split),
            "weight": (["kept"], []),
        }[name]


@settings(deadline=None)
@given(name=st.sampled_from(NAMES), devices=st.integers(1, 6), groups=st.integers(1, 3), saves=st.booleans())
def test_no_slot_is_written_while_what_it_holds_is_needed(name, devices, groups, saves):
    schedule = make(name, devices, groups * devices)
    slots = Slots(schedule, saves)
    slots.run()
    kinds = ("forward", "backward", "weight") if schedule.is_split else ("forward", "backward")
    pairs = [(k, m) for k in range(schedule.num_stages) for m in range(groups * devices)]
    assert slots.done == {(kind, *pair) for kind in kinds for pair in pairs}
