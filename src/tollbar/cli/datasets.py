"""`tollbar datasets list` and `show`."""

from __future__ import annotations

from typing import Annotated, Any, Final

from cyclopts import Parameter

from tollbar.cli.lists import FIRST_PAGE, Pages, show_list
from tollbar.cli.nearest import with_nearest_dataset
from tollbar.cli.output import Column, Kind, Moment, Rows
from tollbar.cli.session import NO_OPTIONS, Global, Session
from tollbar.cli.text import number
from tollbar.client.schemas import Dataset, DatasetTask, DatasetVersion

_DATASETS: Final = (
    Column[Dataset]("NAME", lambda item: item["name"], Kind.WHOLE),
    Column[Dataset]("VERSION", lambda item: item["default_version"]),
    Column[Dataset]("VERSIONS", lambda item: item["version_count"]),
    Column[Dataset]("TYPE", lambda item: item["type"]),
    Column[Dataset]("VISIBILITY", lambda item: item["visibility"]),
    Column[Dataset]("SPLITS", lambda item: ", ".join(item["splits"])),
    Column[Dataset]("UPDATED", lambda item: item["catalog_updated_at"], Kind.TIME),
)
_TASKS: Final = (
    Column[DatasetTask]("TASK", lambda item: item["task_id"], Kind.WHOLE),
    Column[DatasetTask]("SPLIT", lambda item: item["split"]),
    Column[DatasetTask]("DIGEST", lambda item: item["digest"]),
)


def list_datasets(
    *,
    q: Annotated[str | None, Parameter(name="--match", help="Only names that contain this.")] = None,
    kind: Annotated[str | None, Parameter(name="--type", help="Only this type: environment or trajectory.")] = None,
    pages: Pages = FIRST_PAGE,
    options: Global = NO_OPTIONS,
) -> None:
    """List the datasets that the project can use, newest first.

    Example: tollbar datasets list --match demo
    """
    session = Session(options)
    with session.client() as client:
        show_list(
            session.out,
            pages,
            lambda limit, cursor: client.datasets(limit=limit, cursor=cursor, type_=kind, q=q),
            _DATASETS,
        )


def show_dataset(
    dataset: Annotated[str, Parameter(help="NAME for the dataset, or NAME@VERSION for one version.")],
    /,
    *,
    tasks: Annotated[bool, Parameter(negative="", show_default=False, help="List the tasks of the version.")] = False,
    split: Annotated[str | None, Parameter(help="With --tasks: only tasks of this split.")] = None,
    pages: Pages = FIRST_PAGE,
    options: Global = NO_OPTIONS,
) -> None:
    """Show a dataset, one of its versions, or the tasks of a version.

    Without a version, --tasks lists those of the default one.

    Example: tollbar datasets show demo/mini@1 --tasks
    """
    session = Session(options)
    name, version = split_version(dataset)
    with session.client() as client, with_nearest_dataset(client, name):
        if tasks:
            chosen = version or client.dataset(name)["default_version"] or ""
            show_list(
                session.out,
                pages,
                lambda limit, cursor: client.dataset_tasks(name, chosen, split=split, limit=limit, cursor=cursor),
                _TASKS,
            )
        elif version is None:
            found = client.dataset(name)
            session.out.record(found, _dataset_rows(found))
        else:
            one = client.dataset_version(name, version)
            session.out.record(one, version_rows(one))


def split_version(text: str) -> tuple[str, str | None]:
    """Returns name and version of `name@version`, split at the last `@`."""
    name, at, version = text.rpartition("@")
    return (name, version) if at else (text, None)


def _dataset_rows(item: Dataset) -> Rows:
    return [
        ("name", item["name"]),
        ("type", item["type"]),
        ("description", item.get("description")),
        ("visibility", item["visibility"]),
        ("default version", item["default_version"]),
        ("versions", f"{item['version_count']}: {', '.join(item['versions'])}"),
        ("splits", ", ".join(item["splits"])),
        ("configs", ", ".join(item.get("configs", []))),
        ("authors", ", ".join(item["authors"])),
        ("updated", Moment(item["catalog_updated_at"])),
    ]


def version_rows(item: DatasetVersion) -> Rows:
    """Returns a version's rows for people."""
    return [
        ("name", f"{item['name']}@{item['version']}"),
        ("type", item["type"]),
        ("tasks", item["task_count"]),
        ("splits", ", ".join(f"{name}: {count}" for name, count in item["splits"].items())),
        ("configs", ", ".join(item["configs"])),
        ("threshold", number(item["threshold"])),
        ("check", _check(item["check"])),
        ("digest", item["digest"]),
        ("revision", item["revision"]),
        ("published", Moment(item["published_at"])),
    ]


def _check(check: dict[str, Any] | None) -> str | None:
    if check is None:
        return None
    flaky = ", ".join(check.get("flaky_tasks", [])) or "none"
    return f"oracle {number(check.get('oracle_score'))}, nop {number(check.get('nop_score'))}, flaky {flaky}"
