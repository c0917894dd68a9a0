"""What a request's messages hold beside text: images, documents, URLs, and references to input that is elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tollbar.gateway.dialects import Dialect

Part = Mapping[str, Any]


@dataclass
class Contents:
    """What a body's messages hold. `problems` are parts whose tokens the body does not bound, one phrase each."""

    images: int = 0
    whole_window: bool = False
    base64_bytes: int = 0
    urls: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def image(self, data: str | None = None) -> None:
        """Counts an image; `data` is its base64 text, None when it is fetched."""
        self.images += 1
        self.base64_bytes += len(data or "")

    def document(self, data: str | None = None) -> None:
        """Counts a PDF, a sound or a film: up to a whole context window of tokens."""
        self.whole_window = True
        self.base64_bytes += len(data or "")

    def located(self, where: str, url: str, *, document: bool = False) -> None:
        """Counts what a `data:` URL holds, or notes a URL that the provider would fetch."""
        if url[:5].lower() == "data:":
            data = url.partition(",")[2]
            if document:
                self.document(data)
            else:
                self.image(data)
            return
        self.urls.append(where)
        if document or not url.lower().startswith(("http://", "https://")):
            self.problems.append(f"{where} is fetched by its provider and has no bound")
        else:
            self.image()

    def outside(self, where: str) -> None:
        """Notes a reference to input that the body does not hold."""
        self.problems.append(f"{where} refers to input outside the body")

    def unknown(self, where: str) -> None:
        """Notes a part of a kind whose tokens nobody has bounded."""
        self.problems.append(f"{where} is of a kind that has no bound")


def survey(dialect: Dialect, body: Mapping[str, Any]) -> Contents:
    """Returns what the messages of a request hold."""
    found = Contents()
    _SURVEYS[dialect](body, found)
    return found


def _parts(value: object) -> Iterator[Part]:
    """Yields the objects of a list; text and null have none."""
    if isinstance(value, list):
        yield from (part for part in value if isinstance(part, dict))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _chat(body: Mapping[str, Any], found: Contents) -> None:
    for message in _parts(body.get("messages")):
        if message.get("audio") is not None:
            found.outside("message.audio")
        for part in _parts(message.get("content")):
            _openai_part(part, found, _text(part.get("type")))


def _openai_part(part: Part, found: Contents, kind: str) -> None:
    """Reads one part of a message of the two OpenAI dialects; their kinds have different names."""
    if kind in {"text", "refusal", "input_text", "output_text", "summary_text", "reasoning_text", "thinking"}:
        return
    if kind in {"image_url", "input_image", "computer_screenshot"}:
        held = part.get("image_url")
        url = held.get("url") if isinstance(held, dict) else held
        if part.get("file_id") is not None:
            found.outside(f"{kind}.file_id")
        elif isinstance(url, str):
            found.located(f"{kind}.url", url)
        else:
            found.unknown(kind)
    elif kind == "input_audio":
        held = part.get("input_audio")
        found.document(_text(held.get("data")) if isinstance(held, dict) else "")
    elif kind in {"file", "input_file"}:
        held = part.get("file") if kind == "file" else part
        _openai_file(held if isinstance(held, dict) else {}, found, kind)
    else:
        found.unknown(f"part {kind or '(no type)'}")


def _openai_file(held: Part, found: Contents, kind: str) -> None:
    if held.get("file_id") is not None:
        found.outside(f"{kind}.file_id")
    if isinstance(url := held.get("file_url"), str):
        found.located(f"{kind}.file_url", url, document=True)
    if held.get("file_data") is not None:
        found.document(_text(held.get("file_data")))


_PLAIN_ITEMS: Final = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "local_shell_call_output",
        "shell_call",
        "shell_call_output",
        "apply_patch_call",
        "apply_patch_call_output",
        "computer_call",
    }
)


def _responses(body: Mapping[str, Any], found: Contents) -> None:
    for item in _parts(body.get("input")):
        kind = _text(item.get("type")) or ("message" if "role" in item else "")
        if kind == "message":
            for part in _parts(item.get("content")):
                _openai_part(part, found, _text(part.get("type")))
        elif kind in {"function_call_output", "custom_tool_call_output"}:
            for part in _parts(item.get("output")):
                _openai_part(part, found, _text(part.get("type")))
        elif kind == "computer_call_output":
            shot = item.get("output")
            _openai_part(shot if isinstance(shot, dict) else {}, found, "computer_screenshot")
        elif kind == "reasoning":
            # by its id alone the provider would put stored reasoning into the context
            if item.get("id") and not item.get("encrypted_content") and not item.get("content"):
                found.outside("a reasoning item without encrypted_content")
        elif kind == "item_reference":
            found.outside("item_reference")
        elif kind not in _PLAIN_ITEMS:
            found.unknown(f"item {kind or '(no type)'}")


def _messages(body: Mapping[str, Any], found: Contents) -> None:
    for block in _parts(body.get("system")):
        _block(block, found)
    for message in _parts(body.get("messages")):
        for block in _parts(message.get("content")):
            _block(block, found)


_PLAIN_BLOCKS: Final = frozenset(
    {"text", "thinking", "redacted_thinking", "tool_use", "tool_reference", "search_result"}
)


def _block(block: Part, found: Contents) -> None:
    kind = _text(block.get("type"))
    if kind in _PLAIN_BLOCKS:
        return
    if kind == "tool_result":
        for inner in _parts(block.get("content")):
            _block(inner, found)
    elif kind in {"image", "document"}:
        source = block.get("source")
        _source(source if isinstance(source, dict) else {}, found, kind)
    elif kind == "container_upload":
        found.outside(kind)
    else:
        found.unknown(f"block {kind or '(no type)'}")


def _source(source: Part, found: Contents, kind: str) -> None:
    match _text(source.get("type")):
        case "base64" if kind == "image":
            found.image(_text(source.get("data")))
        case "base64":
            found.document(_text(source.get("data")))
        case "url":
            found.located(f"{kind}.source.url", _text(source.get("url")), document=kind == "document")
        case "text":
            return
        case "content":
            for inner in _parts(source.get("content")):
                _block(inner, found)
        case "file":
            found.outside(f"{kind}.source.file_id")
        case other:
            found.unknown(f"{kind} source {other or '(no type)'}")


_PLAIN_GEMINI: Final = frozenset(
    {
        "text",
        "functionCall",
        "functionResponse",
        "thought",
        "thoughtSignature",
        "videoMetadata",
        "mediaResolution",
        "partMetadata",
        "executableCode",
        "codeExecutionResult",
    }
)


def camel(name: str) -> str:
    """Returns the camelCase form of a name; Gemini reads both forms."""
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)


def _gemini(body: Mapping[str, Any], found: Contents) -> None:
    system = body.get("systemInstruction", body.get("system_instruction"))
    contents = body.get("contents")
    for content in [*([system] if isinstance(system, dict) else []), *_parts(contents)]:
        _gemini_parts(content.get("parts"), found)
    if isinstance(contents, dict):
        _gemini_parts(contents.get("parts"), found)


def _gemini_parts(parts: object, found: Contents) -> None:
    for part in [parts] if isinstance(parts, dict) else _parts(parts):
        for name, value in part.items():
            held = value if isinstance(value, dict) else {}
            match camel(name):
                case "inlineData":
                    _gemini_inline(held, found)
                case "fileData":
                    found.outside("fileData")
                    if _text(held.get("fileUri", held.get("file_uri"))).lower().startswith(("http://", "https://")):
                        found.urls.append("fileData.fileUri")
                case "functionResponse":
                    _gemini_parts(held.get("parts"), found)
                case plain if plain in _PLAIN_GEMINI:
                    continue
                case other:
                    found.unknown(f"part {other}")


def _gemini_inline(held: Part, found: Contents) -> None:
    kind = _text(held.get("mimeType", held.get("mime_type"))).lower()
    if kind.startswith("image/"):
        found.image(_text(held.get("data")))
    else:
        found.document(_text(held.get("data")))


_SURVEYS: Final[Mapping[Dialect, Callable[[Mapping[str, Any], Contents], None]]] = {
    Dialect.CHAT: _chat,
    Dialect.RESPONSES: _responses,
    Dialect.MESSAGES: _messages,
    Dialect.GEMINI: _gemini,
}
