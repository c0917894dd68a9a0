"""Rows of the engine guide: what of the engine we rely on, and the failures that must be survived."""

ROWS = """
G-ENG-16.1 engine.md#16.1 closed
  The public calls to list, resume and cancel workflows do what we rely on.
G-ENG-16.2 engine.md#16.2 closed
  A planted pickle row ends in an error and its payload does not run.
G-ENG-16.3 engine.md#16.3 closed
  No row of ours is serialised as anything but portable JSON.
G-ENG-16.4 engine.md#16.4 closed
  Enqueuing inside our transaction commits, rolls back and refuses duplicates with it.
G-ENG-16.5 engine.md#16.5 closed
  A row without a version is claimed only by the newest version.
G-ENG-16.6 engine.md#16.6 closed
  A row without priority runs before priority 1.
G-ENG-16.7 engine.md#16.7 closed
  A process that listens to no queue still serves the internal one, so interfaces never launch the engine.
G-ENG-16.8 engine.md#16.8 closed
  A flow runs on the loop that launched the engine.
G-ENG-16.9 engine.md#16.9 closed
  Cancelling a preemptible step ends its child within 3 s.
G-ENG-16.10 engine.md#16.10 closed
  A step's result from a former owner is refused.
G-ENG-16.11 engine.md#16.11 closed
  An unknown flow name leaves its row, and the audit cleans it up.
G-ENG-16.12 engine.md#16.12 closed
  The columns and status words that we read exist.
G-ENG-16.13 engine.md#16.13 closed
  A shutdown leaves running rows to their executor.
G-ENG-16.14 engine.md#16.14 closed
  A changed order of steps ends in the error that names it.

G-ENG-17.segments engine.md#17 open #6
  SIGKILL of one of two workers among 200 segments: all finish, no finished step runs again, nothing is written twice.
G-ENG-17.trials engine.md#17 closed
  SIGKILL of one of two workers with Trials in every phase: each ends once, sealed ones run no second agent.
G-ENG-17.only_worker engine.md#17 closed
  SIGKILL of the only worker and a restart: the same.
G-ENG-17.zombie engine.md#17 closed
  A worker that was stopped and continues after its work was taken over writes nothing and ends.
G-ENG-17.reapers engine.md#17 closed
  Two reapers, a killed one and a stopped one do nothing twice and lose nothing.
G-ENG-17.killer_segment engine.md#17 open #6
  A segment that kills its worker every time fails after 20 dispatches.
G-ENG-17.branch engine.md#17 open #6
  A branch whose worker dies is resumed while its parent lives on.
G-ENG-17.cancel_tree engine.md#17 closed
  Cancel ends a Trial's child that ignores TERM and its setsid grandchild within 5 s.
G-ENG-17.cancel_dead engine.md#17 closed
  Cancel of work whose worker is dead ends within 60 s.
G-ENG-17.stop_thousand engine.md#17 closed
  Stopping a Job of 1,000 pending and 8 running Trials: running ones gone within 10 s, nothing starts afterwards.
G-ENG-17.lost_answer engine.md#17 closed
  A kill between commit and answer and the same request_id again give one Job.
G-ENG-17.rollback engine.md#17 closed
  A submission that rolls back leaves no row of the engine.
G-ENG-17.decisions engine.md#17 open #6
  50 decisions of one gate at once from two processes have one winner and one next segment.
G-ENG-17.paused_restart engine.md#17 open #6
  A restart while 100 runs are paused changes nothing.
G-ENG-17.postgres_restart engine.md#17 closed
  A restart of PostgreSQL during recovery and claims loses nothing.
G-ENG-17.cut_off engine.md#17 closed
  A worker that is cut off kills its sandboxes before others can start the same Trial.
G-ENG-17.pump engine.md#17 closed
  Limits hold, the urgent Job is first, small Jobs are not starved, each Trial runs once.
G-ENG-17.pump_killed engine.md#17 closed
  A pump that is killed in its transaction loses no Trial and admits none without its row.
G-ENG-17.emptied engine.md#17 closed
  With the engine's tables emptied while stopped, every Job still ends.
G-ENG-17.pickle engine.md#17 closed
  A planted pickle row is refused, nothing runs, the worker lives.
G-ENG-17.sigterm engine.md#17 closed
  SIGTERM with running Trials, four times in a row, ends within 10 s each, and the last start finishes them.
G-ENG-17.ticks engine.md#17 open #6
  Two servers with one schedule make one run for each tick.
G-ENG-17.upgrade engine.md#17 closed
  Work that an older version left is finished by the newer one.
G-ENG-17.clock engine.md#17 closed
  A clock that steps by one hour causes no false death and no early deadline.
"""
