"""Rows of the evaluation guide: reward files, strict reading, faults seen in the field, and its list of tests."""

ROWS = """
G-EVAL-9.txt_plain evaluation.md#9 closed
  reward.txt with 1, a padded 1, +1, 1e0, .5 or 5. is read as that number.
G-EVAL-9.txt_underscore evaluation.md#9 closed
  reward.txt with 1_0 is REWARD_INVALID not_a_number.
G-EVAL-9.txt_unicode evaluation.md#9 closed
  reward.txt with a full-width digit or a no-break space is REWARD_INVALID not_a_number.
G-EVAL-9.txt_words evaluation.md#9 closed
  reward.txt with a unit, a decimal comma, true, hexadecimal, two lines or a NUL is REWARD_INVALID not_a_number.
G-EVAL-9.txt_not_finite evaluation.md#9 closed
  reward.txt with nan, Infinity or 1e309 is REWARD_INVALID not_finite.
G-EVAL-9.bom evaluation.md#9 closed
  Either reward file with a byte order mark is REWARD_INVALID bom.
G-EVAL-9.encoding evaluation.md#9 closed
  A reward file that is not UTF-8 is REWARD_INVALID encoding.
G-EVAL-9.zero_bytes evaluation.md#9 closed
  A reward file of 0 bytes is REWARD_MISSING empty.
G-EVAL-9.white_space evaluation.md#9 closed
  A reward file of white space alone is REWARD_MISSING empty.
G-EVAL-9.no_file evaluation.md#9 closed
  Without a reward file the Trial is REWARD_MISSING absent.
G-EVAL-9.symlink evaluation.md#9 closed
  A reward file that is a link counts as absent.
G-EVAL-9.json_boolean evaluation.md#9 closed
  A boolean as a value is REWARD_INVALID not_a_number, never 1.
G-EVAL-9.json_duplicate evaluation.md#9 closed
  A name twice is REWARD_INVALID duplicate_key.
G-EVAL-9.json_no_keys evaluation.md#9 closed
  An empty object is REWARD_INVALID no_keys.
G-EVAL-9.json_number evaluation.md#9 closed
  A bare number is REWARD_INVALID not_an_object.
G-EVAL-9.json_other evaluation.md#9 closed
  A list, null or string at the top is REWARD_INVALID not_an_object.
G-EVAL-9.json_nested evaluation.md#9 closed
  A value that is an object, list, null or string is REWARD_INVALID not_a_number.
G-EVAL-9.json_not_finite evaluation.md#9 closed
  A value NaN, Infinity or 1e309 is REWARD_INVALID not_finite.
G-EVAL-9.json_syntax evaluation.md#9 closed
  A trailing comma, a second document, text after it or single quotes is REWARD_INVALID syntax.
G-EVAL-9.json_bad_key evaluation.md#9 closed
  An empty name or one with a NUL is REWARD_INVALID bad_key.
G-EVAL-9.json_out_of_range evaluation.md#9 closed
  A value of 1e308 or of 30 digits is REWARD_INVALID out_of_range.
G-EVAL-9.negative evaluation.md#9 closed
  A negative reward is valid.
G-EVAL-9.both_files evaluation.md#9 closed
  With both files reward.json counts, and a difference sets the flag reward_files_differ.
G-EVAL-9.exit_after evaluation.md#9 closed
  A verifier that exits non-zero after a valid reward keeps the reward and sets verifier_exit_nonzero.
G-EVAL-9.too_large evaluation.md#9 closed
  A reward file above 64 KiB is REWARD_TOO_LARGE.
G-EVAL-9.agent_timeout evaluation.md#9 closed
  An agent that ran out of time is graded, and its outcome is timeout.
G-EVAL-9.agent_exit evaluation.md#9 closed
  An agent that exited 3 is graded, and its outcome is nonzero_exit.
G-EVAL-9.planted evaluation.md#9 closed
  A reward that only the agent planted is REWARD_MISSING absent.
G-EVAL-9.agent_rewrites evaluation.md#9 closed
  A background process of the agent cannot rewrite the reward: it is dead before the verifier starts.
G-EVAL-9.verifier_rewrites evaluation.md#9 closed
  What the reward file holds at the end of the test script counts; later writes of its children do not.
G-EVAL-9.verifier_timeout evaluation.md#9 closed
  A verifier that ran out of time is VERIFIER_TIMEOUT although it wrote a reward.
G-EVAL-9.artifact_missing evaluation.md#9 closed
  A declared artifact that is missing is listed on the Trial, and the reward stands.
G-EVAL-9.loud_output evaluation.md#9 closed
  300 KB of random bytes or 60 MB of text on stdout leave the Trial alive and the log capped, with byte counts.
G-EVAL-9.special_file evaluation.md#9 closed
  A FIFO, socket or device in the place of a reward file counts as absent and blocks nothing.
G-EVAL-9.no_fall_back evaluation.md#9 closed
  A reward.json that exists decides, valid or not; reward.txt is not read instead.
G-EVAL-9.minus_zero evaluation.md#9 closed
  Minus zero is stored as 0.
G-EVAL-9.single_member evaluation.md#9 closed
  A single member of another name than reward is the reward.
G-EVAL-9.missing_dimension evaluation.md#9 closed
  A declared dimension that is missing makes the composite null, never 0.
G-EVAL-9.weights evaluation.md#9 closed
  With declared weights the composite is their weighted mean.
G-EVAL-9.details evaluation.md#9 closed
  An invalid reward-details.json sets details_invalid and never touches the reward.

G-EVAL-17.parse evaluation.md#17 closed
  TOML or JSON that does not parse is refused with file, line and column.
G-EVAL-17.unknown_key evaluation.md#17 closed
  An unknown key or table outside metadata is refused with its path and the nearest known name.
G-EVAL-17.newer_schema evaluation.md#17 closed
  A schema_version newer than known is refused with the newest readable one.
G-EVAL-17.wrong_type evaluation.md#17 closed
  A wrong type, a wrong pattern or a step name twice is refused with key and rule.
G-EVAL-17.limits evaluation.md#17 closed
  Limits and time-outs that are zero or negative are refused.
G-EVAL-17.files evaluation.md#17 closed
  A needed file that is missing, ignored, or a link out of the task folder or in a cycle is refused by name.
G-EVAL-17.step_keys evaluation.md#17 closed
  Keys that belong to steps are refused in a task without steps.
G-EVAL-17.digests evaluation.md#17 closed
  A digest mismatch, an unlisted or missing task, or a task name twice is refused with both digests.
G-EVAL-17.broken_folder evaluation.md#17 closed
  A folder with a broken task.toml refuses the upload; nothing is skipped.
G-EVAL-17.all_problems evaluation.md#17 closed
  One error lists all problems of an upload.
G-EVAL-17.capability evaluation.md#17 closed
  What a backend cannot enforce fails the Trial with ENVIRONMENT_REFUSED before anything is started or reserved.
G-EVAL-17.all_refused evaluation.md#17 closed
  A submission whose every task would be refused is 422 UNSUPPORTED_CAPABILITY.
G-EVAL-17.echo evaluation.md#17 closed
  A submission echoes what was resolved; an option that would be dropped is an error.

G-EVAL-18.1 evaluation.md#18.1 closed
  The verifier's folder is new: a reward that the agent planted is not read.
G-EVAL-18.2 evaluation.md#18.2 closed
  No process of the agent lives when the verifier starts, and none of the verifier when the reward is read.
G-EVAL-18.3 evaluation.md#18.3 closed
  A separate verifier that sees nothing because nothing was declared is named by lint and fails the oracle check.
G-EVAL-18.4 evaluation.md#18.4 closed
  reward.json wins over reward.txt everywhere, and a conflict is flagged.
G-EVAL-18.5 evaluation.md#18.5 closed
  The read of a reward is bounded at 64 KiB.
G-EVAL-18.6 evaluation.md#18.6 closed
  Nested values, strings and booleans in reward.json are refused, each with a detail word.
G-EVAL-18.7 evaluation.md#18.7 closed
  A judge that cannot answer exits 75 and leaves the Trial without reward; only the verifier is repeated.
G-EVAL-18.8 evaluation.md#18.8 closed
  An infrastructure fault is never a 0: no reward, a reason, less coverage.
G-EVAL-18.9 evaluation.md#18.9 closed
  Coverage stands beside every score on every interface.
G-EVAL-18.10 evaluation.md#18.10 open #5
  --fail-under judges only at or above --min-coverage, and every k up to the attempts is reported.
G-EVAL-18.11 evaluation.md#18.11 closed
  pass@k is null where fewer than k attempts are scored.
G-EVAL-18.12 evaluation.md#18.12 closed
  A try that is repeated is not another sample: n counts slots.
G-EVAL-18.13 evaluation.md#18.13 closed
  The attempt number is stored; the id says only who is who.
G-EVAL-18.14 evaluation.md#18.14 closed
  Results are keyed by Trial and counted once, and one threshold serves both pass measures.
G-EVAL-18.15 evaluation.md#18.15 closed
  pass^k is C(c, k) / C(n, k), not a power of the rate.
G-EVAL-18.16 evaluation.md#18.16 open #5
  A missing dimension is left out by one rule everywhere, with a count per dimension.
G-EVAL-18.17 evaluation.md#18.17 open #5
  An absent reward is absent in every mean, never 0.
G-EVAL-18.18 evaluation.md#18.18 closed
  Only unscored slots run again; a scored zero is kept.
G-EVAL-18.19 evaluation.md#18.19 closed
  A result that was written stays: the first complete write wins.
G-EVAL-18.20 evaluation.md#18.20 closed
  A Trial whose worker died is dispatched again under the next try.
G-EVAL-18.21 evaluation.md#18.21 closed
  Results are keyed by Job; nothing old is counted.
G-EVAL-18.22 evaluation.md#18.22 closed
  No option is dropped silently: the resolved configuration is echoed, the unknown refused.
G-EVAL-18.23 evaluation.md#18.23 closed
  Input, output, cache reads and cache writes are four disjoint counts, each with its own price.
G-EVAL-18.24 evaluation.md#18.24 closed
  A cap holds when a cost is unknown: unknown is not 0, a price that is not a number is refused.
G-EVAL-18.25 evaluation.md#18.25 open #4
  List price and "billed elsewhere" are two fields.
G-EVAL-18.26 evaluation.md#18.26 closed
  The cap stops running work; what finished stays scored and the logs of the rest are kept.
G-EVAL-18.27 evaluation.md#18.27 closed
  The verifier's spend has its own account inside the Job's cap.
G-EVAL-18.28 evaluation.md#18.28 closed
  A time-out says which timer fired, its limit and the elapsed time.
G-EVAL-18.29 evaluation.md#18.29 closed
  Output that was cut says so, with byte counts.
G-EVAL-18.30 evaluation.md#18.30 closed
  A byte that is not UTF-8 kills nothing: raw bytes are kept, text is shown with replacement.
G-EVAL-18.31 evaluation.md#18.31 closed
  An archive from a sandbox cannot escape, and a FIFO in it blocks nothing.
G-EVAL-18.32 evaluation.md#18.32 closed
  Sandboxes carry labels, and a start removes those that were left.
G-EVAL-18.33 evaluation.md#18.33 closed
  What a digest covers is published, README.md included.
G-EVAL-18.34 evaluation.md#18.34 open #5 import by commit
  A source is pinned to its commit, digests are recomputed, a mismatch ends the upload, results are stamped.
G-EVAL-18.35 evaluation.md#18.35 closed
  Infrastructure has reasons, flaky tasks a mark, and time zone and hash seed are fixed.
G-EVAL-18.36 evaluation.md#18.36 closed
  A Job whose Trials so far are all unscored for one reason warns with that reason on every interface.
G-EVAL-18.37 evaluation.md#18.37 closed
  A malformed task refuses the upload and is named.
G-EVAL-18.38 evaluation.md#18.38 closed
  A missing declared artifact is listed on the Trial.
G-EVAL-18.39 evaluation.md#18.39 closed
  A test script that exits 7 after writing 1 gives 1 with a flag.
G-EVAL-18.40 evaluation.md#18.40 closed
  An agent's time-out with passing tests is graded, counted and shown.
G-EVAL-18.41 evaluation.md#18.41 closed
  Standard errors come from the tasks' means.
G-EVAL-18.42 evaluation.md#18.42 closed
  An override changes exactly the field that it names.
G-EVAL-18.43 evaluation.md#18.43 closed
  Import and start need no network.

G-EVAL-21.1 evaluation.md#21.1 closed
  Every key of task.toml is tested with its default, its legacy form and a refused value; the example tasks load.
G-EVAL-21.2 evaluation.md#21.2 closed
  Digests equal the golden ones, and change with counted bytes only.
G-EVAL-21.3 evaluation.md#21.3 closed
  Each refusal of a format has a test, and five faults of one upload are five problems.
G-EVAL-21.4 evaluation.md#21.4 closed
  Each reason and outcome has a test through a real Job with a planted fault.
G-EVAL-21.5 evaluation.md#21.5 closed
  Each reward row has a test through a real verifier in a real sandbox.
G-EVAL-21.6 evaluation.md#21.6 open #5 compare
  The worked examples, enumerations and invariants of the statistics hold.
G-EVAL-21.7 evaluation.md#21.7 open #5
  No number of any interface contains an unscored Trial, over random Jobs.
G-EVAL-21.8 evaluation.md#21.8 open #5 the last of them
  Each of the 43 behaviours has a test by its number.
G-EVAL-21.9 evaluation.md#21.9 open #5 regrade
  A regrade gives the same reward twice and leaves every row and blob of its source as it was.
G-EVAL-21.10 evaluation.md#21.10 open #5 export
  Rewards equal those of the format's reference program, and its readers take our export.
"""
