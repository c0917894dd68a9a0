"""Rows of the evaluation seed: one for every sentence, table row and field."""

ROWS = """
EV-HEAD-1 evaluation:1,5,31,54,62,70,72,74,76,78,80,82,84 not_testable headings and repeated navigation promise nothing
  The page's headings and its repeated table of contents.
EV-HEAD-2 evaluation:33 not_testable the heads of the tool table; the rows below carry the facts
  The tool table has the columns tool, what it does, and needed capability.

EV-WORK-browse evaluation:3 closed
  A coding agent connected over MCP browses the project's datasets directly.
EV-WORK-submit evaluation:3 closed
  A coding agent submits an Agent Job with a spend cap over MCP.
EV-WORK-follow evaluation:3 closed
  A coding agent follows its Job over MCP.
EV-WORK-read evaluation:3 open #5 artifacts over MCP
  A coding agent reads scores, structured results and artifacts over MCP.
EV-WORK-images evaluation:3 open #5
  An image comes back as MCP image content, so that the agent sees it.
EV-WORK-update evaluation:3 not_testable says when the original service got the endpoint
  The endpoint needs the platform version that brings it.

EV-KEY-project evaluation:7 closed
  A project API key is what a client needs to connect.
EV-KEY-automation evaluation:7 open #5 all thirteen tools
  A key of the preset Project automation can use every tool.
EV-KEY-read_only_reads evaluation:7 open #5 artifact contents
  A Read only key can read everything, artifact contents included.
EV-KEY-read_only_submits evaluation:7 closed
  A Read only key cannot submit.
EV-KEY-login_role evaluation:7 open #5 login keys
  A key made by the login of the command line follows its owner's role in the project.

EV-CONN-type evaluation:9-12,15-17 closed
  A JSON client configuration with a server of type http connects.
EV-CONN-url evaluation:13 closed
  The endpoint's path is /v1/mcp.
EV-CONN-header evaluation:14 closed
  The key travels in the header Authorization as a bearer, filled in from an environment variable.
EV-CONN-mcp_json evaluation:19 open #5 tested with the real client
  The same configuration, saved as .mcp.json in a project, works for Claude Code.
EV-CONN-claude evaluation:21-22 open #5 tested with the real client
  One claude mcp add line with transport http and the header adds the server.
EV-CONN-codex evaluation:24-27 open #5 tested with the real client
  A Codex table with url and bearer_token_env_var connects, and the key stays in the environment.
EV-CONN-personal evaluation:29 open #5 personal keys
  A personal key also needs the headers X-Workspace-ID and X-Project-ID.
EV-CONN-carries evaluation:29 closed
  A project key carries its project and needs no such header.
EV-CONN-stateless evaluation:29 closed
  The MCP server is stateless: no session is needed between two requests.
EV-CONN-json evaluation:29 closed
  The MCP server answers JSON, not an event stream.
EV-CONN-at_once evaluation:29 open #5 each of the thirteen
  Every tool returns at once.
EV-CONN-poll evaluation:29 closed
  A submission returns the Job's id, and the agent polls the status tool with it.

EV-TOOL-datasets_list evaluation:34 closed
  envloop_datasets_list lists the datasets that the project can use.
EV-LIST-name evaluation:34 closed
  Each listed dataset has its name.
EV-LIST-type evaluation:34 closed
  Each listed dataset has its type.
EV-LIST-versions evaluation:34 closed
  Each listed dataset has its versions.
EV-LIST-visibility evaluation:34 closed
  Each listed dataset has its visibility.
EV-LIST-splits evaluation:34 closed
  Each listed dataset has its splits.
EV-NEED-datasets_list evaluation:34 closed
  envloop_datasets_list needs datasets.read.
EV-TOOL-dataset_get evaluation:35 closed
  envloop_dataset_get gives one dataset and its versions.
EV-GET-revision evaluation:35 closed
  With a version, envloop_dataset_get gives that revision and a page of its tasks.
EV-GET-name evaluation:35 closed
  Each task of the page has its name.
EV-GET-digest evaluation:35 closed
  Each task of the page has its digest.
EV-GET-task_ref evaluation:35 closed
  Each task of the page has a task_ref that can be submitted as it is.
EV-GET-split evaluation:35 closed
  Each task of the page has its split.
EV-GET-no_files evaluation:35 closed
  Manifests and task files are never returned by envloop_dataset_get.
EV-NEED-dataset_get evaluation:35 closed
  envloop_dataset_get needs datasets.read.
EV-TOOL-job_submit evaluation:36 closed
  envloop_job_submit submits an Agent Job.
EV-SUBMIT-cap_required evaluation:36 closed
  envloop_job_submit without max_cost_usd is refused.
EV-NEED-job_submit evaluation:36 closed
  envloop_job_submit needs jobs.run.
EV-TOOL-job_status evaluation:37 closed
  envloop_job_status tells where a Job stands.
EV-STATUS-status evaluation:37 closed
  The status answer has the Job's status.
EV-STATUS-phase evaluation:37 closed
  The status answer has the Job's phase.
EV-STATUS-scores evaluation:37 closed
  The status answer has the scores so far.
EV-STATUS-counts evaluation:37 closed
  The status answer has the counts of Trials.
EV-STATUS-cheap evaluation:37 open #5 measured with 100,000 Trials
  Polling the status is cheap whatever the size of the Job.
EV-NEED-job_status evaluation:37 closed
  envloop_job_status needs jobs.read.
EV-TOOL-job_result evaluation:38 closed
  envloop_job_result gives the result of a Job.
EV-RESULT-score evaluation:38 closed
  The result has score.
EV-RESULT-pass evaluation:38 closed
  The result has pass.
EV-RESULT-pass@k evaluation:38 closed
  The result has pass@k for every k up to the attempts.
EV-RESULT-pass^k evaluation:38 closed
  The result has pass^k for every k up to the attempts.
EV-RESULT-budget evaluation:38 closed
  The result has the budget.
EV-RESULT-cost evaluation:38 closed
  The result has the cost.
EV-RESULT-usage evaluation:38 closed
  The result has the usage of language models.
EV-RESULT-trials evaluation:38 closed
  The result has the Trials with their rewards.
EV-NEED-job_result evaluation:38 closed
  envloop_job_result needs jobs.read.
EV-TOOL-job_aggregate evaluation:39 open #5
  envloop_job_aggregate sums a Job up.
EV-AGG-pass_rate evaluation:39 open #5
  The aggregate has the pass rate.
EV-AGG-reward evaluation:39 open #5
  The aggregate has statistics of the reward.
EV-AGG-dimensions evaluation:39 open #5
  The aggregate has the mean of each dimension of the structured results.
EV-AGG-composite evaluation:39 open #5
  The aggregate has the composite mean of the structured results.
EV-AGG-reasons evaluation:39 open #5
  The aggregate has the failure reasons, counted.
EV-AGG-task_means evaluation:39 open #5
  The aggregate has the mean of each task.
EV-AGG-cost evaluation:39 open #5
  The aggregate has the cost.
EV-AGG-compare evaluation:39 open #5
  Two aggregates serve to compare variants.
EV-NEED-job_aggregate evaluation:39 open #5
  envloop_job_aggregate needs jobs.read.
EV-TOOL-job_list evaluation:40 open #5
  envloop_job_list lists the project's recent Agent Jobs, or its regrade Jobs.
EV-NEED-job_list evaluation:40 open #5
  envloop_job_list needs jobs.read.
EV-TOOL-job_stop evaluation:41 closed
  envloop_job_stop stops a Job.
EV-STOP-running evaluation:41 closed
  The running Trials of a stopped Job stop.
EV-NEED-job_stop evaluation:41 closed
  envloop_job_stop needs jobs.stop.
EV-TOOL-trial_result evaluation:42 closed
  envloop_trial_result gives one Trial.
EV-TRIAL-status evaluation:42 closed
  The Trial has its status.
EV-TRIAL-reward evaluation:42 closed
  The Trial has its reward.
EV-TRIAL-structured evaluation:42 closed
  The Trial has its structured_result.
EV-TRIAL-artifacts evaluation:42 closed
  The Trial has its output artifacts.
EV-NEED-trial_result evaluation:42 closed
  envloop_trial_result needs jobs.read.
EV-TOOL-trial_artifacts_list evaluation:43 open #5
  envloop_trial_artifacts_list gives a page of a Trial's artifacts.
EV-NEED-trial_artifacts_list evaluation:43 open #5
  envloop_trial_artifacts_list needs jobs.read.
EV-TOOL-trial_artifact_read evaluation:44 open #5
  envloop_trial_artifact_read reads one artifact.
EV-READ-offset evaluation:44 open #5
  Text comes as a window that begins at offset.
EV-READ-max_bytes evaluation:44 open #5
  The window is bounded by max_bytes.
EV-READ-png evaluation:44 open #5
  A PNG up to 3 MiB comes as an image.
EV-READ-jpeg evaluation:44 open #5
  A JPEG up to 3 MiB comes as an image.
EV-READ-gif evaluation:44 open #5
  A GIF up to 3 MiB comes as an image.
EV-READ-webp evaluation:44 open #5
  A WebP up to 3 MiB comes as an image.
EV-READ-other evaluation:44 open #5
  Any other file comes as metadata with a hint how to download it.
EV-READ-counts evaluation:44 open #5
  A read counts as a download of data.
EV-NEED-trial_artifact_read evaluation:44 open #5
  envloop_trial_artifact_read needs jobs.read and artifacts.download.
EV-TOOL-regrade_submit evaluation:45 open #5
  envloop_regrade_submit regrades the sealed Trials of compose tasks.
EV-REGRADE-verifier_only evaluation:45 open #5
  A regrade reruns the verifier and nothing else.
EV-REGRADE-reward_set evaluation:45 open #5
  A regrade grades with a published version of a reward set.
EV-REGRADE-own_tests evaluation:45 open #5
  A regrade without a reward set grades with each Task's own tests.
EV-REGRADE-source evaluation:45 open #5
  A regrade does not change its source Trials.
EV-REGRADE-runner evaluation:45 open #5
  A regrade takes a runner revision that has the regrade capability.
EV-REGRADE-cap evaluation:45 open #5
  A regrade takes max_cost_usd as its cap.
EV-NEED-regrade_submit evaluation:45 open #5
  envloop_regrade_submit needs jobs.run.
EV-TOOL-regrade_result evaluation:46 open #5
  envloop_regrade_result gives the result of a regrade.
EV-REGRES-old_new evaluation:46 open #5
  It has the old and the new reward of each Trial.
EV-REGRES-skipped evaluation:46 open #5
  It has the skipped Trials.
EV-REGRES-summary evaluation:46 open #5
  It has a summary.
EV-NEED-regrade_result evaluation:46 open #5
  envloop_regrade_result needs jobs.read.

EV-SAFE-untrusted evaluation:48 open #5 artifacts and judge texts over MCP
  Artifact contents and judge texts are marked as untrusted data written by the evaluated run.
EV-SAFE-well_formed evaluation:48 open #5
  An image is returned as an image only when it is well formed.
EV-SAFE-pixels evaluation:48 open #5
  An image is returned as an image only when no side has more than 8000 pixels.
EV-SAFE-download evaluation:48 open #5
  An artifact read counts as a data download.
EV-SAFE-allowance evaluation:48 open #5
  While a read runs, the whole file size is held against the project's daily allowance, even for a small window.
EV-SAFE-one_call evaluation:50 closed
  One request carries one tool call.
EV-SAFE-batch evaluation:50 closed
  A JSON-RPC batch is refused.
EV-SAFE-denied evaluation:52 closed
  A tool that the key may not use answers ACCESS_DENIED and names the missing capability.
EV-SAFE-codes evaluation:52 closed
  An error has the same code over MCP as over HTTP.

EV-ARG-exactly_one evaluation:56 closed
  A submission takes exactly one of dataset, dataset_ref and task_ref.
EV-ARG-dataset evaluation:56 closed
  dataset is name@version, or an object.
EV-ARG-dataset.name evaluation:56 closed
  The object takes name.
EV-ARG-dataset.version evaluation:56 closed
  The object takes version.
EV-ARG-dataset.task_id evaluation:56 closed
  The object takes task_id.
EV-ARG-dataset.split evaluation:56 closed
  The object takes split.
EV-ARG-dataset.config evaluation:56 closed
  The object takes config.
EV-ARG-dataset.namespace evaluation:56 closed
  The object takes namespace.
EV-ARG-dataset_ref evaluation:56 closed
  dataset_ref names a pinned dataset version.
EV-ARG-task_ref evaluation:56 closed
  task_ref names one pinned task.
EV-ARG-request_id evaluation:56 closed
  A submission takes request_id.
EV-ARG-runner evaluation:56 closed
  A submission may name a runner as name@revision.
EV-ARG-profile_name evaluation:56 closed
  A submission may name a profile.
EV-ARG-profile_version evaluation:56 closed
  A submission may name a version of the profile.
EV-ARG-attempts evaluation:56 closed
  A submission takes 1 to 100 attempts.
EV-ARG-tag evaluation:56 closed
  A submission takes a tag.
EV-ARG-params evaluation:56 closed
  A submission takes params.
EV-ARG-max_cost_usd evaluation:56 closed
  A submission takes max_cost_usd and needs it.

EV-CAP-bounds evaluation:58 closed
  The cap bounds the model and sandbox spend of a Job in USD.
EV-CAP-no_new evaluation:58 closed
  When the cap is reached no new Trial starts.
EV-CAP-cancels evaluation:58 closed
  When the cap is reached the running Trials are cancelled.
EV-CAP-exceeded evaluation:58 closed
  When the cap is reached the Job ends cancelled with the error BUDGET_EXCEEDED.
EV-CAP-unmetered evaluation:58 closed
  A capped Job whose usage cannot be priced starts no new Trial and ends cancelled with BUDGET_UNMETERED.
EV-CAP-shows evaluation:58 closed
  The Job's result shows its budget and its cost.
EV-CAP-range evaluation:58 closed
  max_cost_usd lies between 0.000001 and 100000.
EV-RETRY-same evaluation:59 closed
  The same request_id with the same arguments returns the same Job.
EV-RETRY-different evaluation:59 closed
  The same request_id with different arguments is refused.
EV-CAP-never_without evaluation:60 closed
  The submit tool never submits without the cap.
EV-CAP-old_version evaluation:60 not_testable tollbar has spend caps from its first version
  A platform version without caps refuses the submission.

EV-EX-ask evaluation:64 not_testable an introduction
  The example is a request in a person's words.
EV-EX-run evaluation:66 open #5 with a real client
  The example's dataset, profile, attempts and cap can be given as the request says.
EV-EX-answer evaluation:66 open #5
  Pass rate, three most common failure reasons and the worst Trial's screenshot can be had from the answers.
EV-EX-calls evaluation:68 open #5
  The example needs the submit, status, aggregate, artifacts list and artifact read tools, in this order.
"""
