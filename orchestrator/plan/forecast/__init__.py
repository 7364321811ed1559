"""Forecasts for a plan: whether an experiment fits in memory, and how many GPU-hours it takes.

- `memory_fit`: the estimate of the peak memory on each GPU;
- `assumed_machine`: a machine that is described on the command line;
- `work`: the FLOPs of an experiment's steps;
- `gpu_hours`: the time that these FLOPs take;
- `earlier_runs`: the speed and start-up time of runs in a results folder;
- `states`: whether each experiment runs, may run or cannot run, and the totals;
- `outlook`: the parts of the plan's table, JSON document and last lines that show forecasts.
"""
