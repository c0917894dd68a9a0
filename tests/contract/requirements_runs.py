"""Rows of the team contract: loss, resume, decisions, money, cancel, secrets, webhooks, sign-in, egress."""

ROWS = """
G-TEAM-L1 envelope.md#9.L1 open #6
  Five kills in a row leave exactly one process of a run.
G-TEAM-L2 envelope.md#9.L2 open #6
  Queued runs survive a restart and start.
G-TEAM-L3 envelope.md#9.L3 open #6
  Finished steps never run again, and an unknown outcome goes to a person.
G-TEAM-L4 envelope.md#9.L4 open #6
  Lease and beat are written before work begins.
G-TEAM-L5 envelope.md#9.L5 open #6
  A silent child is ended by a watchdog, and its run fails.
G-TEAM-L6 envelope.md#9.L6 open #6
  A terminal state never changes after a restart.
G-TEAM-L7 envelope.md#9.L7 open #6
  Recovery changes only rows that are still in the state that it read.
G-TEAM-L8 envelope.md#9.L8 open #6
  A start takes up every state that is not terminal.
G-TEAM-L9 envelope.md#9.L9 open #6
  A 2xx is given only after the commit; such a run is executed or fails visibly.
G-TEAM-L10 envelope.md#9.L10 open #6
  A lease lives by beats, not by age.
G-TEAM-L11 envelope.md#9.L11 open #6
  Slots follow from living leases.
G-TEAM-L12 envelope.md#9.L12 open #6
  A restart between gate and decision resumes at the gate.

G-TEAM-H1 envelope.md#9.H1 open #6
  A side effect happens once across pause and resume, in nested delegations too.
G-TEAM-H2 envelope.md#9.H2 open #6
  An answer names its gate; a foreign one is not found.
G-TEAM-H3 envelope.md#9.H3 open #6
  A second, different answer is refused and the first stands.
G-TEAM-H4 envelope.md#9.H4 open #6
  One approval releases the call and is never asked for again.
G-TEAM-H5 envelope.md#9.H5 open #6
  A resume in a fresh process works by ids, never by names.
G-TEAM-H6 envelope.md#9.H6 open #6
  A completed run shows the effect that was approved.
G-TEAM-H7 envelope.md#9.H7 open #6
  Members that finished are not asked again.
G-TEAM-H8 envelope.md#9.H8 open #6
  An agent goes on when all its gates are decided; other branches are free.
G-TEAM-H9 envelope.md#9.H9 open #6
  Every gate can be listed and decided by REST and MCP.
G-TEAM-H10 envelope.md#9.H10 open #6
  A pause is rows; no process waits.
G-TEAM-H11 envelope.md#9.H11 open #6
  Every agent adapter passes one contract test of gates.
G-TEAM-H12 envelope.md#9.H12 open #6
  A lost stream after the pause starts nothing.
G-TEAM-H13 envelope.md#9.H13 open #6
  Output with a gate equals output with automatic approval.
G-TEAM-H14 envelope.md#9.H14 open #6
  A resume takes exactly one branch.
G-TEAM-H15 envelope.md#9.H15 open #6
  A person has no hidden time limit.
G-TEAM-H16 envelope.md#9.H16 open #6
  Pending gates come from the database.
G-TEAM-H17 envelope.md#9.H17 open #6
  Three parallel gates can be decided in any order.
G-TEAM-H18 envelope.md#9.H18 open #6
  One pending gate is shown once.
G-TEAM-H19 envelope.md#9.H19 open #6
  Every decision ends in a visible state and a notification.
G-TEAM-H20 envelope.md#9.H20 open #6
  A resume link works and continues at the gate.

G-TEAM-R1 envelope.md#9.R1 open #6
  50 equal decisions from two processes give one resume and 49 answers without effect.
G-TEAM-R2 envelope.md#9.R2 open #6
  A different decision gets 409 with the winner's name and time.
G-TEAM-R3 envelope.md#9.R3 open #6
  Overlapping decisions run a tool once, across processes.
G-TEAM-R4 envelope.md#9.R4 open #6
  A caller's stale copy cannot undo a cancel.
G-TEAM-R5 envelope.md#9.R5 open #6
  Two answers to two gates at once are both recorded.
G-TEAM-R6 envelope.md#9.R6 open #6
  A repeated decision causes no second audit row or notice.
G-TEAM-R7 envelope.md#9.R7 open #6
  One question has one pending gate.
G-TEAM-R8 envelope.md#9.R8 open #6
  What was decided is what is executed.

G-TEAM-C1 envelope.md#9.C1 closed
  Parallel calls settle at or under the cap.
G-TEAM-C2 envelope.md#9.C2 open #6
  A cap holds in each way that it can be attached.
G-TEAM-C3 envelope.md#9.C3 open #6
  A warning comes at its percentage, and nothing runs after the cap.
G-TEAM-C4 envelope.md#9.C4 open #6
  A run has its own cap and a guard against loops.
G-TEAM-C5 envelope.md#9.C5 open #6
  A run that the cap ended says BUDGET_EXCEEDED.
G-TEAM-C6 envelope.md#9.C6 closed
  Money is reserved before a call is sent.
G-TEAM-C7 envelope.md#9.C7 open #6
  A repeated call is a row of its own under the same cap.

G-TEAM-X1 envelope.md#9.X1 open #6
  Depth, delegations and equal calls are bounded for a whole run.
G-TEAM-X2 envelope.md#9.X2 open #6
  A cancel reaches every worker.
G-TEAM-X3 envelope.md#9.X3 open #6
  After a cancel no new model or tool call is made, and processes are gone within 5 s.
G-TEAM-X4 envelope.md#9.X4 open #6
  A late end does not overwrite cancelled.
G-TEAM-X5 envelope.md#9.X5 open #6
  Effects that happened show on the cancelled run.

G-TEAM-S1 envelope.md#9.S1 open #6
  A canary secret in every run stands in no table, log, trace or artifact.
G-TEAM-S2 envelope.md#9.S2 closed
  Redaction goes by value.
G-TEAM-S3 envelope.md#9.S3 closed
  One redactor stands before every sink.
G-TEAM-S4 envelope.md#9.S4 closed
  No secret stands in a command line.
G-TEAM-S5 envelope.md#9.S5 closed
  No endpoint returns a secret's value.
G-TEAM-S6 envelope.md#9.S6 open #6
  Webhook tokens and keys in queries are masked in logs.
G-TEAM-S7 envelope.md#9.S7 closed
  Header, query, JSON and URL are redacted alike.
G-TEAM-S8 envelope.md#9.S8 closed
  No part and no length of a secret is shown.

G-TEAM-W1 envelope.md#9.W1 open #6
  A webhook is answered 202 within 1 s.
G-TEAM-W2 envelope.md#9.W2 open #6
  A valid replay is 200 with the first run.
G-TEAM-W3 envelope.md#9.W3 open #6
  A delivery is known by signed material or by its body.
G-TEAM-W4 envelope.md#9.W4 open #6
  The same Idempotency-Key gives the same run.
G-TEAM-W5 envelope.md#9.W5 open #6
  Deliveries are recorded and dispatched at most once.
G-TEAM-W6 envelope.md#9.W6 open #6
  Two servers fire one tick once.
G-TEAM-W7 envelope.md#9.W7 open #6
  An edited schedule fires in its new form only.
G-TEAM-W8 envelope.md#9.W8 open #6
  A missed tick follows its catch-up policy.
G-TEAM-W9 envelope.md#9.W9 open #6
  One key starts one run, and overlap has a policy.
G-TEAM-W10 envelope.md#9.W10 open #6
  A test delivery starts no run, and a sender's own Authorization is ignored.

G-TEAM-O1 envelope.md#9.O1 open later OAuth server
  The assistants' redirects are accepted.
G-TEAM-O2 envelope.md#9.O2 open later OAuth server
  Registration is advertised.
G-TEAM-O3 envelope.md#9.O3 open later OAuth server
  A client that registers twice keeps both ids.
G-TEAM-O4 envelope.md#9.O4 open later OAuth server
  The whole flow passes with a stand-in broker.
G-TEAM-O5 envelope.md#9.O5 open later OAuth server
  Tokens live long enough and are refreshed with a grace.
G-TEAM-O6 envelope.md#9.O6 open later OAuth server
  Resource metadata is JSON at the root and below the path.
G-TEAM-O7 envelope.md#9.O7 open later OAuth server
  resource equals the exact MCP URL.
G-TEAM-O8 envelope.md#9.O8 open later OAuth server
  Registration has its own address, and unused clients expire.
G-TEAM-O9 envelope.md#9.O9 open later OAuth server
  S256 is advertised, and a refresh without scope is accepted.

G-TEAM-M1 envelope.md#9.M1 open #6
  Every answer comes within 50 s.
G-TEAM-M2 envelope.md#9.M2 open #6
  Nothing relies on progress messages.
G-TEAM-M3 envelope.md#9.M3 open #6
  A connector that cuts at 4 minutes loses nothing.
G-TEAM-M4 envelope.md#9.M4 open #6
  A result can be read again by its run's id.
G-TEAM-M5 envelope.md#9.M5 open #6
  A wait is bounded, and then the client polls.
G-TEAM-M6 envelope.md#9.M6 open #6
  The wait is 45 s; results that were made and results that were delivered are counted apart.
G-TEAM-M7 envelope.md#9.M7 open #6
  A listed run can be viewed and continued.

G-TEAM-E1 envelope.md#9.E1 closed
  An allowed host that resolves to a private address is refused, and the address is pinned.
G-TEAM-E2 envelope.md#9.E2 open #6
  A policy that cannot be enforced refuses the install.
G-TEAM-E3 envelope.md#9.E3 open #6
  One policy serves tools, MCP, fetches and sandboxes.
"""
