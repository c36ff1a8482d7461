"""The time of training steps: wall clock and CPU time, counted anew after every look."""

import time

from lightning_modules.clock import StepClock


def test_waiting_costs_wall_clock_and_no_cpu_time():
    clock = StepClock()
    for _ in range(2):
        clock.start()
        time.sleep(0.05)
        clock.stop()
    wall, cpu = clock.results()
    assert (wall.name, cpu.name) == ("train_seconds", "train_cpu_seconds")
    assert wall.n == cpu.n == 2
    assert wall.value >= 0.1 > 2 * cpu.value
    assert clock.results() == []
