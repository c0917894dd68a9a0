"""Rows of the team seed: one for every field of its requests and answers."""

ROWS = """
TM-F-installs.installs teams:55-57,66-68 open #6
  The list of installs has installs, an array.

TM-F-installs.id teams:58 open #6
  An install of the list has id.
TM-F-installs.templateId teams:59 open #6
  An install of the list has templateId.
TM-F-installs.templateName teams:60 open #6
  An install of the list has templateName.
TM-F-installs.templateSlug teams:61 open #6
  An install of the list has templateSlug.
TM-F-installs.templateVersion teams:62 open #6
  An install of the list has templateVersion, a whole number.
TM-F-installs.platform teams:63 open #6
  An install of the list has platform.
TM-F-installs.status teams:64 open #6
  An install of the list has status.
TM-F-installs.createdAt teams:65 open #6
  An install of the list has createdAt, a time in UTC.

TM-F-run.request.task teams:78-80 open #6
  A run request takes task.

TM-F-run.completed.runId teams:84-85,89 open #6
  The answer of a completed run has runId.
TM-F-run.completed.status teams:86 open #6
  The answer of a completed run has status, which is completed.
TM-F-run.completed.output teams:87 open #6
  The answer of a completed run has output.
TM-F-run.completed.tokenUsage teams:88 open #6
  The answer of a completed run has tokenUsage.
TM-F-run.completed.tokenUsage.input teams:88 open #6
  The answer of a completed run has tokenUsage.input.
TM-F-run.completed.tokenUsage.output teams:88 open #6
  The answer of a completed run has tokenUsage.output.

TM-F-run.gate.runId teams:93-94,101-102 open #6
  The answer of a run at a gate has runId.
TM-F-run.gate.status teams:95 open #6
  The answer of a run at a gate has status, which is gate.
TM-F-run.gate.gate teams:96 open #6
  The answer of a run at a gate has gate.
TM-F-run.gate.gate.id teams:97 open #6
  The answer of a run at a gate has gate.id.
TM-F-run.gate.gate.agentId teams:98 open #6
  The answer of a run at a gate has gate.agentId.
TM-F-run.gate.gate.message teams:99 open #6
  The answer of a run at a gate has gate.message.
TM-F-run.gate.gate.context teams:100 open #6
  The answer of a run at a gate has gate.context.

TM-F-webhook.task teams:113-115 open #6
  A webhook request takes task.

TM-F-continue.runId teams:127-128,131 open #6
  A continue request takes runId.
TM-F-continue.gateId teams:129 open #6
  A continue request takes gateId.
TM-F-continue.feedback teams:130 open #6
  A continue request takes feedback.

TM-F-reject.runId teams:143-144,147 open #6
  A reject request takes runId.
TM-F-reject.gateId teams:145 open #6
  A reject request takes gateId.
TM-F-reject.reason teams:146 open #6
  A reject request takes reason.

TM-F-cancel.runId teams:157-159 open #6
  A cancel request takes runId.

TM-F-runs.installId teams:163,165 open #6
  The list of runs takes installId.
TM-F-runs.templateId teams:163 open #6
  The list of runs takes templateId.

TM-F-whoami.installId teams:179-180,183 open #6
  The identity has installId.
TM-F-whoami.orgId teams:181 open #6
  The identity has orgId.
TM-F-whoami.platform teams:182 open #6
  The identity has platform.

TM-F-templates.templates teams:193-195,202-204 open #6
  The list of templates has templates, an array.

TM-F-templates.id teams:196 open #6
  A template of the list has id.
TM-F-templates.name teams:197 open #6
  A template of the list has name.
TM-F-templates.slug teams:198 open #6
  A template of the list has slug.
TM-F-templates.description teams:199 open #6
  A template of the list has description.
TM-F-templates.version teams:200 open #6
  A template of the list has version.
TM-F-templates.platform teams:201 open #6
  A template of the list has platform.

TM-F-generate.description teams:222-223,225 open #6
  A generate request takes description.
TM-F-generate.name teams:224 open #6
  A generate request takes name.

TM-F-generate.answer.definition teams:229-230,237-238 open #6
  The proposal has definition.

TM-F-generate.answer.name teams:231 open #6
  The proposed definition has name.
TM-F-generate.answer.agents teams:232,235 open #6
  The proposed definition has agents.
TM-F-generate.answer.agents.key teams:233-234 open #6
  The proposed definition has agents.key.
TM-F-generate.answer.agents.role teams:233-234 open #6
  The proposed definition has agents.role.
TM-F-generate.answer.requiredSecrets teams:236 open #6
  The proposed definition has requiredSecrets.

TM-F-create.name teams:248-249,252 open #6
  A create request takes name.
TM-F-create.description teams:250 open #6
  A create request takes description.
TM-F-create.definition teams:251 open #6
  A create request takes definition.

TM-F-create.answer.id teams:256-257,261 open #6
  The answer of create has id.
TM-F-create.answer.slug teams:258 open #6
  The answer of create has slug.
TM-F-create.answer.name teams:259 open #6
  The answer of create has name.
TM-F-create.answer.status teams:260 open #6
  The answer of create has status, which is draft.

TM-F-apply.instruction teams:271-273 open #6
  An apply request takes instruction.

TM-F-install.templateId teams:283 open #6
  An install request takes templateId.

TM-F-install.done.installId teams:287 open #6
  The answer of a complete install has installId.
TM-F-install.done.status teams:287 open #6
  The answer of a complete install has status, which is completed.

TM-F-install.pending.installId teams:291-292,295 open #6
  The answer of an install that lacks credentials has installId.
TM-F-install.pending.status teams:293 open #6
  The answer of an install that lacks credentials has status, which is pending_credentials.
TM-F-install.pending.setupUrl teams:294 open #6
  The answer of an install that lacks credentials has setupUrl.

TM-F-publish.changeLog teams:312 open #6
  A publish request takes changeLog.

TM-F-agents.installId teams:323-324 open #6
  The list of agents has installId.
TM-F-agents.agents teams:325-326,332-334 open #6
  The list of agents has agents.

TM-F-agents.agentKey teams:327 open #6
  An agent of the list has agentKey.
TM-F-agents.name teams:328 open #6
  An agent of the list has name.
TM-F-agents.definitionModel teams:329 open #6
  An agent of the list has definitionModel, or null.
TM-F-agents.overrideModel teams:330 open #6
  An agent of the list has overrideModel, or null.
TM-F-agents.effectiveModel teams:331 open #6
  An agent of the list has effectiveModel.

TM-F-model.model teams:344 open #6
  A model request takes model.

TM-F-model.answer.ok teams:350-351,356 open #6
  The answer of a pin has ok.
TM-F-model.answer.installId teams:352 open #6
  The answer of a pin has installId.
TM-F-model.answer.agentKey teams:353 open #6
  The answer of a pin has agentKey.
TM-F-model.answer.model teams:354 open #6
  The answer of a pin has model.
TM-F-model.answer.routing teams:355 open #6
  The answer of a pin has routing, which is override.

TM-F-model.reset.ok teams:367-368,372 open #6
  The answer of a reset has ok.
TM-F-model.reset.installId teams:369 open #6
  The answer of a reset has installId.
TM-F-model.reset.agentKey teams:370 open #6
  The answer of a reset has agentKey.
TM-F-model.reset.routing teams:371 open #6
  The answer of a reset has routing, which is auto.
"""
