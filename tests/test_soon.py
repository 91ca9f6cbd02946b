"""What finalizers ask for is done by a thread of its own, as long as the program runs."""

import threading

from waiting import wait_until

from tfdist_jax._servers._soon import call_soon, start_calls


def test_calls_are_made_one_after_another_also_after_one_that_fails(caplog):
    start_calls()
    made = []
    for call in (lambda: made.append(threading.current_thread().name), lambda: 1 / 0, lambda: made.append(2)):
        call_soon(call)
    wait_until(lambda: len(made) == 2)
    assert made == ["tfdist_jax soon", 2]
    assert "could not be told" in caplog.text and "ZeroDivisionError" in caplog.text


def test_the_programs_end_is_in_the_middle_of_no_call(run_script):
    ran = run_script("""
        import atexit, time
        from tfdist_jax._servers._soon import call_soon, start_calls

        steps = []
        atexit.register(lambda: print(steps[-1], len(steps) < 1000))

        def call():
            steps.append("begun")
            time.sleep(0.2)
            steps.append("made")

        start_calls()
        for _ in range(1000):
            call_soon(call)
        while not steps:
            time.sleep(0.001)
    """)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("made True\n", "", 0)
