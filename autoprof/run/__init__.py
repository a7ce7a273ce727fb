"""The run directory on disk. The only thing that the agent and the offline rooms share.

::

    <output dir>/<run id>/
      run.json                          rank 0: settings, versions, command line
      step_00000100/                    one directory per capture, named by its first recorded step
        rank00000.<host>_<pid>.<time_ns>.pt.trace.json.gz
      ranks/rank00000.json              where that rank is
      steps/rank00000.<host>_<pid>.<time_ns>.steps    what each of its steps cost
      report.html, report.log           with ACCELPROF_REPORT=1: the report, and how it went
"""
