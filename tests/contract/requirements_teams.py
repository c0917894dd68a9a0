"""Rows of the team seed: connecting, keys, limits and what each operation does. Fields stand in the next module."""

ROWS = """
TM-HEAD-1 teams:1,7,9,20,26,36,42,46,53,70,82,91,106,119,135,149,161,170,177,185,191,206 not_testable headings
  The headings of the first half promise nothing by themselves.
TM-HEAD-2 teams:214,227,240,254,263,275,285,289,297,304,314,321,336,348,358,365,374 not_testable headings
  The headings of the second half promise nothing by themselves.
TM-HEAD-3 teams:17,18,24,384 not_testable links to pages of the original service
  The arrows lead to guides of the original service.
TM-HEAD-4 teams:168 not_testable the seed names no parameter below this heading
  The listing of runs has a heading for query parameters.

TM-MCP-sixteen teams:3 open #6
  The MCP server of the team side has sixteen tools.
TM-MCP-execution teams:3 open #6
  The tools cover execution: run, continue, reject, cancel.
TM-MCP-observability teams:3 open #6
  The tools cover observability: installs and runs with their state.
TM-MCP-building teams:3 open #6
  The tools cover team building: browse, generate, create, update, install, uninstall, publish.
TM-MCP-routing teams:3 open #6
  The tools cover model routing: list, set and reset an agent's model.
TM-MCP-claude_ai teams:3 open later hosted assistants
  The tools can be reached from Claude.ai.
TM-MCP-chatgpt teams:3 open later hosted assistants
  The tools can be reached from ChatGPT.
TM-MCP-claude_code teams:3 open #6
  The tools can be reached from Claude Code.
TM-MCP-url teams:5 open #6
  The endpoint's path is /api/mcp.

TM-OAUTH-no_key teams:11 open later OAuth server
  Claude.ai and ChatGPT connect by OAuth 2 without an API key.
TM-OAUTH-paste teams:13 open later OAuth server
  Pasting the endpoint's URL into the assistant's connector settings starts the connection.
TM-OAUTH-sign_in teams:14 open later OAuth server
  The person signs in with their own account in the OAuth flow.
TM-OAUTH-approve teams:15 open later OAuth server
  After the person approves, the workspace shows as tools in the conversation.
TM-OAUTH-tokens teams:28 open later OAuth server
  The assistants use access tokens that the sign-in flow issues.
TM-OAUTH-no_setup teams:28 open later OAuth server
  OAuth needs no set-up by hand.
TM-SKILL-add teams:22 open #6
  A skill can be added to a Claude Code installation.
TM-SKILL-carries teams:22 open #6
  The skill carries the server's URL and configures sign-in with the personal API key.
TM-KEY-personal teams:30 open #6 personal keys
  Claude Code and direct access use a personal API key.
TM-KEY-settings teams:30 open later Keys page
  The personal key comes from the person's account settings.
TM-KEY-header teams:32 open #6
  The key travels in the header Authorization as a bearer.
TM-KEY-scoped teams:34 open #6
  A key is scoped to an organisation.
TM-KEY-owned teams:34 open #6
  Every read and write acts on installs and runs that this organisation owns.
TM-LIMIT-requests teams:38 closed
  One key makes at most 200 requests a minute.
TM-LIMIT-runs teams:39 open #6
  The run endpoint is also limited to ten concurrent runs of an organisation.
TM-LIMIT-retry_after teams:40 closed
  An answer 429 has the header Retry-After.
TM-ERROR-shape teams:44 open #6
  Every error is JSON with message, under an HTTP status.

TM-LIST-all teams:48 open #6
  The list has every install of the key's organisation.
TM-LIST-ids teams:48 open #6
  The listed ids can be used with the run and gate endpoints.
TM-LIST-route teams:50-51 open #6
  GET /api/installs takes the bearer key.
TM-RUN-triggers teams:72 open #6
  The run endpoint triggers a run of an installed team.
TM-RUN-held teams:72 open #6
  The connection stays open until the team finishes or reaches a gate.
TM-RUN-route teams:74-76 open #6
  POST /api/installs/:id/run takes the bearer key and JSON.
TM-RUN-paused teams:104 open #6
  A run whose status is gate is paused.
TM-RUN-proceed teams:104 open #6
  A paused run goes on by continue, or ends by reject.
TM-HOOK-triggers teams:108 open #6
  A webhook URL triggers a run.
TM-HOOK-no_key teams:108 open #6
  The webhook request carries no API key; the URL is what signs it.
TM-HOOK-external teams:108 open #6
  A system outside can call the webhook.
TM-HOOK-route teams:110-111 open #6
  POST /api/installs/:id/webhook/:token takes JSON.
TM-HOOK-generated teams:117 open #6
  The webhook token is made when the install is created.
TM-HOOK-secret teams:117 open #6
  The webhook token is a secret and is handled as one.
TM-CONT-resumes teams:121 open #6
  Continue resumes a paused run after a person approved the gate.
TM-CONT-route teams:123-125 open #6
  POST /api/installs/:id/continue takes the bearer key and JSON.
TM-CONT-optional teams:133 open #6
  feedback is optional.
TM-CONT-context teams:133 open #6
  feedback reaches the agent as context before the run resumes.
TM-REJ-stops teams:137 open #6
  Reject stops a paused run without resuming it.
TM-REJ-cancelled teams:137 open #6
  A rejected run has the status cancelled.
TM-REJ-route teams:139-141 open #6
  POST /api/installs/:id/reject-gate takes the bearer key and JSON.
TM-CANCEL-running teams:151 open #6
  Cancel ends a run that is in progress.
TM-CANCEL-ended teams:151 open #6
  Cancel has no effect on a run that is completed or cancelled.
TM-CANCEL-route teams:153-155 open #6
  POST /api/installs/:id/cancel-run takes the bearer key and JSON.
TM-RUNS-many teams:163 open #6
  The list of runs covers one or more installs.
TM-RUNS-required teams:163 open #6
  The list of runs needs installId or templateId.
TM-RUNS-route teams:165-166 open #6
  GET /api/runs takes installId as a query parameter, and the bearer key.
TM-WHO-identity teams:172 open #6
  whoami gives the install identity of the calling key.
TM-WHO-scope teams:172 open #6
  whoami confirms to which install a key is scoped.
TM-WHO-route teams:174-175 open #6
  GET /api/installs/whoami takes the bearer key.
TM-TMPL-published teams:187 open #6
  The browse list has the published templates that can be installed.
TM-TMPL-anonymous teams:187 open #6
  Browsing templates needs no authentication.
TM-TMPL-route teams:189 open #6
  GET /api/templates answers.
TM-SCHEMA-returned teams:208 open #6
  The schema endpoint returns the JSON Schema of the team definition format.
TM-SCHEMA-validates teams:208 open #6
  A definition file can be checked with the schema before it is uploaded.
TM-SCHEMA-route teams:210 open #6
  GET /api/schema answers.
TM-SCHEMA-current teams:212 open #6
  The whole schema of the current schema version is returned.
TM-GEN-description teams:216 open #6
  Generate makes a team definition from a description in plain language.
TM-GEN-proposal teams:216 open #6
  Generate returns a proposal for review.
TM-GEN-not_saved teams:216 open #6
  Generate saves and installs nothing.
TM-GEN-then_create teams:216 open #6
  After the person confirms, create saves the definition.
TM-GEN-route teams:218-220 open #6
  POST /api/templates/generate takes the bearer key and JSON.
TM-CREATE-draft teams:242 open #6
  Create saves a definition to the workspace as a private draft.
TM-CREATE-id teams:242 open #6
  Create returns a template id that install takes.
TM-CREATE-route teams:244-246 open #6
  POST /api/templates takes the bearer key and JSON.
TM-APPLY-modifies teams:265 open #6
  Apply changes an existing definition by an instruction in plain language.
TM-APPLY-kinds teams:265 open #6
  An instruction can add or change agents, update roles, or adjust configuration.
TM-APPLY-not_replaced teams:265 open #6
  Apply does not replace the whole definition.
TM-APPLY-route teams:267-269 open #6
  POST /api/templates/:id/apply takes the bearer key and JSON.
TM-INST-installs teams:277 open #6
  Install puts a template into the workspace so that it can be triggered.
TM-INST-immediate teams:277 open #6
  With every required credential in the vault the install completes at once.
TM-INST-setup_url teams:277 open #6
  With a credential missing the answer has a setupUrl.
TM-INST-no_secrets teams:277 open #6
  A secret never passes through the API or a conversation.
TM-INST-route teams:279-281 open #6
  POST /api/installs takes the bearer key and JSON.
TM-UNINST-removes teams:299 open #6
  Uninstall removes an installed team.
TM-UNINST-cancels teams:299 open #6
  Uninstall cancels the team's active runs.
TM-UNINST-route teams:301-302 open #6
  DELETE /api/installs/:installId takes the bearer key.
TM-PUB-market teams:306 open #6
  Publish puts a draft or private template on the public marketplace.
TM-PUB-route teams:308-310 open #6
  POST /api/templates/:id/publish takes the bearer key and JSON.
TM-MODEL-every_agent teams:316 open #6
  The list has every agent of an install with its present model.
TM-MODEL-order teams:316 open #6
  effectiveModel follows the order deployer override, definition model, automatic routing.
TM-MODEL-list_route teams:318-319 open #6
  GET /api/installs/:installId/agents takes the bearer key.
TM-MODEL-pin teams:338 open #6
  A model can be pinned to one agent of an install.
TM-MODEL-next_run teams:338 open #6
  A pin takes effect at the next run.
TM-MODEL-auto teams:338 open #6
  The model auto resets the pin without the delete endpoint.
TM-MODEL-set_route teams:340-342 open #6
  PATCH /api/installs/:installId/agents/:agentKey/model takes the bearer key and JSON.
TM-MODEL-reset teams:360 open #6
  Reset clears the pin and returns the agent to automatic routing.
TM-MODEL-reset_route teams:362-363 open #6
  DELETE /api/installs/:installId/agents/:agentKey/model takes the bearer key.
TM-MODEL-gpt-5.4 teams:346 open #6
  openai:gpt-5.4 is a valid model.
TM-MODEL-gpt-5-mini teams:346 open #6
  openai:gpt-5-mini is a valid model.
TM-MODEL-gpt-5-nano teams:346 open #6
  openai:gpt-5-nano is a valid model.
TM-MODEL-o4-mini teams:346 open #6
  openai:o4-mini is a valid model.
TM-MODEL-o3 teams:346 open #6
  openai:o3 is a valid model.
TM-MODEL-opus-4-5 teams:346 open #6
  anthropic:claude-opus-4-5 is a valid model.
TM-MODEL-sonnet-4-5 teams:346 open #6
  anthropic:claude-sonnet-4-5 is a valid model.
TM-MODEL-haiku-4-5 teams:346 open #6
  anthropic:claude-haiku-4-5 is a valid model.

TM-FAQ-account teams:376 open later OAuth server
  The MCP server is for people with an account: a sign-in is required.
TM-FAQ-plans teams:376 not_testable price plans of the original service; tollbar is self-hosted and has none
  Plans differ in rate limits and queue priority.
TM-FAQ-same_key teams:378 open #6
  The same API key serves MCP and direct access.
TM-FAQ-oauth teams:378 open later OAuth server
  For hosted assistants the connector flow handles the sign-in.
TM-FAQ-conversation teams:380 open later hosted assistants
  A team can be designed, installed and run in a conversation, without code.
TM-FAQ-high_level teams:382 open #6
  The MCP server has operations such as run team, continue gate and browse templates.
TM-FAQ-rest teams:382 open #6
  The REST API serves programs: pipelines, dashboards, server-side automation.
"""
