"""Whatever an agent sends or a provider answers is read, or refused: nothing else comes out of it."""

from __future__ import annotations

import json
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gateway.cases import AT, TRAITS, UNTIL
from tests.gateway.scripts import script_text

from tollbar.gateway.asks import read
from tollbar.gateway.bound import quote
from tollbar.gateway.cost import settle
from tollbar.gateway.dialects import Dialect, Operation, Route
from tollbar.gateway.edits import edit
from tollbar.gateway.errors import Refused, Unmetered
from tollbar.gateway.fields import egress, refused
from tollbar.gateway.prices import PriceBook
from tollbar.gateway.scripted import Facts, answer, load
from tollbar.gateway.usage import Extractor, usage_only

BOOK: Final = PriceBook()
SCRIPT: Final = load(script_text('[[case.turn]]\ntext = "x"\nshell = "ls"\n'))
WORDS: Final = tuple(
    """model messages input contents parts role user assistant content type text image image_url url source
    base64 data file_id file_data input_image input_file input_audio tool_result document reasoning id functionResponse
    inlineData mimeType fileData tools function custom namespace shell environment local name parameters properties
    required functionDeclarations generationConfig maxOutputTokens candidateCount max_tokens max_completion_tokens
    max_output_tokens n stream stream_options include_usage service_tier thinking enabled budget_tokens cache_control
    ttl context_management edits prompt_cache_options modalities speed inference_geo usage choices finish_reason error
    prompt_tokens completion_tokens total_tokens prompt_tokens_details cached_tokens message_start message
    message_delta delta stop_reason input_tokens output_tokens cache_creation iterations server_tool_use response
    response.completed status incomplete_details reason usageMetadata promptTokenCount candidates finishReason
    promptFeedback modelVersion index gpt-5-mini claude-sonnet-4-5 command""".split()  # noqa: SIM905
)
FEW: Final = settings(max_examples=60, deadline=None)

numbers = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False)
leaves = st.one_of(st.none(), st.booleans(), numbers, st.sampled_from(WORDS), st.text())
documents = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6),
    max_leaves=20,
)
bodies = st.dictionaries(st.sampled_from(WORDS), documents, max_size=10)


@FEW
@given(st.sampled_from(list(Dialect)), bodies)
def test_a_request_is_bounded_or_refused(dialect: Dialect, body: dict[str, Any]) -> None:
    route = Route(dialect, Operation.GENERATE, "gemini-2.5-pro" if dialect is Dialect.GEMINI else None)
    refused(dialect, body)
    egress(dialect, body)
    try:
        asked = read(route, body, len(json.dumps(body)))
        quote(asked, BOOK, TRAITS[dialect], AT, UNTIL, capped=False)
        quoted = quote(asked, BOOK, TRAITS[dialect], AT, UNTIL)
        sent = json.loads(edit(dialect, body, json.dumps(body).encode(), quoted.asked, TRAITS[dialect]))
        assert isinstance(sent, dict)
        answer(SCRIPT, asked, body, Facts(), created=0)
    except Refused:
        return


@FEW
@given(st.sampled_from(list(Dialect)), st.booleans(), st.lists(bodies, max_size=3))
def test_an_answer_is_priced_or_unmetered(dialect: Dialect, streamed: bool, events: list[dict[str, Any]]) -> None:
    extractor = Extractor(dialect, streamed=streamed)
    for event in events:
        extractor.feed(json.dumps(event).encode())
        usage_only(json.dumps(event).encode())
    try:
        assert settle(extractor.final(), BOOK, TRAITS[dialect], "gpt-5-mini", AT).cost_pusd >= 0
    except Unmetered:
        return


USAGES: Final = {
    Dialect.CHAT: "usage",
    Dialect.RESPONSES: "usage",
    Dialect.MESSAGES: "usage",
    Dialect.GEMINI: "usageMetadata",
}


@FEW
@given(st.sampled_from(list(Dialect)), bodies, st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_strange_usage_is_priced_or_unmetered(
    dialect: Dialect, usage: dict[str, Any], first: int, second: int
) -> None:
    counts = {"prompt_tokens": first, "input_tokens": first, "promptTokenCount": first}
    counts |= {"completion_tokens": second, "output_tokens": second}
    extractor = Extractor(dialect, streamed=False)
    extractor.feed(json.dumps({"model": "m", USAGES[dialect]: counts | usage}).encode())
    model = {Dialect.MESSAGES: "claude-sonnet-4-5", Dialect.GEMINI: "gemini-2.5-pro"}.get(dialect, "gpt-5-mini")
    try:
        assert settle(extractor.final(), BOOK, TRAITS[dialect], model, AT).cost_pusd >= 0
    except Unmetered:
        return
