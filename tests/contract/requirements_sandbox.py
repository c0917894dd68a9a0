"""Rows of the sandbox guide's list of tests."""

ROWS = """
G-SBX-14.memory sandbox.md#14 closed
  Allocation above the limit marks that command and leaves the sandbox usable.
G-SBX-14.memory_whole sandbox.md#14 closed
  A sandbox that is ended as a whole for memory gives SANDBOX_OOM.
G-SBX-14.processes sandbox.md#14 closed
  A limit on processes refuses forks, and a fork bomb is gone within 1 s of the kill.
G-SBX-14.cpu sandbox.md#14 closed
  Half a CPU makes one CPU second take about twice as long.
G-SBX-14.disk sandbox.md#14 closed
  Writing above the disk limit fails, and the host grows by no more than the limit and a tenth.
G-SBX-14.tree_kill sandbox.md#14 closed
  setsid, nohup, double fork and ignored TERM leave no process 1 s after the kill, and the files stay.
G-SBX-14.exec_timeout sandbox.md#14 closed
  A time-out returns within 2 s of its limit and leaves no process.
G-SBX-14.host_files sandbox.md#14 closed
  Files of the server's home and data folder can be neither read nor listed inside.
G-SBX-14.host_environment sandbox.md#14 closed
  Nothing of the server's environment is inside.
G-SBX-14.host_processes sandbox.md#14 closed
  The process list inside shows only the sandbox.
G-SBX-14.identity sandbox.md#14 closed
  Uid 0 inside is the unprivileged sandbox uid on the host, under a server that runs as root too.
G-SBX-14.escape sandbox.md#14 closed
  mount, new user namespaces, mknod, chroot, ptrace of pid 1 and writes to /proc/sys and /sys are refused.
G-SBX-14.network-none sandbox.md#14 closed
  With network none a connection to any address, the host and the database included, is refused at once.
G-SBX-14.gateway sandbox.md#14 closed
  A request through the listener belongs to the sandbox's own Trial whatever key it carries.
G-SBX-14.two sandbox.md#14 closed
  Two sandboxes see nothing of each other.
G-SBX-14.allow_list sandbox.md#14 closed
  An allow-list passes the named host and refuses literals, private answers, rebinding, redirects and wrong names.
G-SBX-14.secret_key sandbox.md#14 closed
  The virtual key stands in no command line of the host.
G-SBX-14.preload sandbox.md#14 closed
  A task's LD_PRELOAD loads nothing on the host.
G-SBX-14.worker_killed sandbox.md#14 closed
  SIGKILL of the worker leaves no process of a sandbox.
G-SBX-14.worker_killed_docker sandbox.md#14 closed
  Containers of a killed worker are gone within 90 s.
G-SBX-14.thread sandbox.md#14 closed
  Sandboxes are started from the event loop's thread only.
G-SBX-14.cgroup_leaf sandbox.md#14 closed
  A command entered later is in the sandbox's control group.
G-SBX-14.early sandbox.md#14 closed
  No command can enter before the sandbox is ready.
G-SBX-14.listener sandbox.md#14 closed
  A helper that is killed costs no running sandbox its listener, and 100 starts leave no child or descriptor.
G-SBX-14.form sandbox.md#14 closed
  The form is chosen by a table, shown on the Trial, and both forms seal the same tree to the same manifest.
G-SBX-14.hundred sandbox.md#14 closed
  100 sandboxes one after another leave no process, mount, control group, folder, socket or descriptor.
G-SBX-14.overlay sandbox.md#14 closed
  Destroy removes files and folders of mode 000 and names with newlines or of 255 bytes.
G-SBX-14.build_equal sandbox.md#14 closed
  Every honoured form of a Dockerfile instruction gives what Docker gives.
G-SBX-14.build_refused sandbox.md#14 closed
  Every refused instruction is refused by name and line.
G-SBX-14.build_inert sandbox.md#14 closed
  Every inert instruction is recorded and has no effect.
G-SBX-14.build_syntax sandbox.md#14 closed
  Heredocs, substitutions with a default, open quotes, paths out of the context and a second FROM are refused.
G-SBX-14.build_once sandbox.md#14 closed
  Two builds of one digest at the same time run once.
G-SBX-14.build_key sandbox.md#14 closed
  A changed file, mode or earlier line changes a layer's key; an unrelated file does not.
G-SBX-14.build_failed sandbox.md#14 closed
  A RUN that fails leaves no layer, and a deletion in a layer stays deleted.
G-SBX-14.seal_hostile sandbox.md#14 closed
  A hostile tree is sealed with each refusal recorded once and no byte of the host in it.
G-SBX-14.seal_fifo sandbox.md#14 closed
  A FIFO does not block the sealing.
G-SBX-14.seal_sparse sandbox.md#14 closed
  A sparse file of 1 GiB takes no memory.
G-SBX-14.seal_tar sandbox.md#14 closed
  An archive with hostile members is read member by member within bounds.
G-SBX-14.seal_same sandbox.md#14 closed
  The same tree always has the same manifest.
G-SBX-14.seal_docker sandbox.md#14 closed
  The seal of a killed container equals that of bwrap for the same files.
G-SBX-14.seal_regrade sandbox.md#14 open #5
  A regrade from the seal gives the same reward twice.
G-SBX-14.refusals sandbox.md#14 closed
  Each capability that a backend lacks is refused with reason and key, and nothing was started.
G-SBX-14.substitution_refused sandbox.md#14 closed
  A substitution of the base image without permission is refused.
G-SBX-14.substitution_recorded sandbox.md#14 closed
  A permitted substitution of the base image stands on the Trial.
G-SBX-14.compose_keys sandbox.md#14 closed
  Each forbidden key of a compose file is refused by name, and the written file has the forced keys.
G-SBX-14.compose_labels sandbox.md#14 closed
  Containers, networks and volumes carry labels, and two installations do not reap each other.
G-SBX-14.accounting_lease sandbox.md#14 closed
  Sandbox time is leased ahead, and the rest returns.
G-SBX-14.accounting_lost sandbox.md#14 closed
  A lost sandbox is charged to the end of its lease.
G-SBX-14.accounting_verifier sandbox.md#14 closed
  The verifier's sandbox time stands in its own column.
G-SBX-14.preflight sandbox.md#14 closed
  Each failure of the preflight has a code and says how to mend it.
"""
