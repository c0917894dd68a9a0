"""What a task's compose file may say: each key that is not known to be harmless is refused by its name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tollbar.sandboxes.docker.compose_file import read
from tollbar.sandboxes.docker.labels import Mark
from tollbar.sandboxes.docker.project import written
from tollbar.sandboxes.errors import EnvironmentRefused
from tollbar.sandboxes.interface import Form, ImageRef, Limits, Purpose, SandboxName, SandboxSpec

BOMB = "a: &a [x, x, x, x]\n" + "".join(
    f"{letter}: &{letter} [*{before}, *{before}, *{before}, *{before}]\n"
    for before, letter in zip("abcdefghi", "bcdefghij", strict=True)
)
FORBIDDEN = {
    "privileged": True, "pid": "host", "ipc": "host", "uts": "host", "userns_mode": "host", "network_mode": "host",
    "cgroup": "host", "cgroup_parent": "/x", "devices": ["/dev/sda"], "device_cgroup_rules": ["a"],
    "cap_add": ["SYS_ADMIN"], "cap_drop": ["ALL"], "security_opt": ["seccomp:unconfined"], "sysctls": {"a": 1},
    "group_add": ["0"], "runtime": "runc", "gpus": "all", "deploy": {}, "ports": ["80:80"], "extra_hosts": ["a:1"],
    "dns": "1.1.1.1", "links": ["a"], "external_links": ["a"], "volumes_from": ["a"], "extends": {"file": "x"},
    "secrets": ["a"], "configs": ["a"], "logging": {}, "restart": "always", "profiles": ["a"], "oom_score_adj": -1000,
    "oom_kill_disable": True, "storage_opt": {}, "develop": {}, "container_name": "x", "pull_policy": "always",
    "mac_address": "0", "stop_signal": "SIGTERM", "no_such_key": 1,
}  # fmt: skip
MOUNTS = {
    "/var/run/docker.sock:/var/run/docker.sock:ro": "inside the folder",
    "/:/host:ro": "inside the folder",
    "../other:/x:ro": "inside the folder",
    "./page:/x": "read-only",
    "./page:/x:rw": "read-only",
    "./page:/x:ro,z": "mode",
    "./missing:/x:ro": "not in the folder",
    "./out:/x:ro": "not in the folder",
    "named:/x": "does not declare",
    "./page:relative:ro": "absolute path",
    "./page:/:ro": "absolute path",
    "./page:/a/../..:ro": "absolute path",
}


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "environment"
    (inside / "page").mkdir(parents=True)
    (inside / "page" / "Dockerfile").write_text("FROM x")
    (inside / "web.env").write_text("# a comment\nA=file\nexport B='two words'\n")
    (inside / "out").symlink_to(tmp_path)
    return inside


def told(folder, document):
    """Returns the message with which a document is refused."""
    (folder / "docker-compose.yaml").write_text(document if isinstance(document, str) else json.dumps(document))
    with pytest.raises(EnvironmentRefused) as raised:
        read(folder)
    assert raised.value.detail == "key"
    return raised.value.message


def taken(folder, document):
    (folder / "docker-compose.yaml").write_text(document if isinstance(document, str) else json.dumps(document))
    return read(folder)


@pytest.mark.requirement("G-SBX-14.compose_keys")
@pytest.mark.parametrize("key", FORBIDDEN)
@pytest.mark.parametrize("service", ["main", "web"])
def test_each_key_of_a_service_that_is_not_allowed_is_refused_by_name(folder, key, service):
    message = told(folder, {"services": {service: {"image": "x", key: FORBIDDEN[key]}}})
    assert message == f"docker-compose.yaml: services.{service}.{key} is not allowed in a task."


@pytest.mark.requirement("G-SBX-14.compose_keys")
@pytest.mark.parametrize("mount", MOUNTS)
def test_a_mount_of_anything_but_a_named_volume_or_a_path_of_the_task_to_be_read_is_refused(folder, mount):
    message = told(folder, {"services": {"web": {"image": "x", "volumes": [mount]}}})
    assert message.startswith("docker-compose.yaml: services.web.volumes[0]")
    assert MOUNTS[mount] in message


@pytest.mark.requirement("G-SBX-14.compose_keys")
@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"include": ["x"]}, "include"),
        ({"secrets": {"a": {"file": "x"}}}, "secrets"),
        ({"configs": {}}, "configs"),
        ({"volumes": {"a": {"driver": "local"}}}, "volumes.a.driver"),
        ({"volumes": {"a": {"external": True}}}, "volumes.a.external"),
        ({"volumes": {"a": {"name": "other"}}}, "volumes.a.name"),
        ({"networks": {"a": {"driver": "host"}}}, "networks.a.driver"),
        ({"networks": {"a": {"external": True}}}, "networks.a.external"),
        ({"services": {"web": {"image": "x", "networks": ["other"]}}}, "services.web.networks"),
        ({"services": {"web": {"image": "x", "networks": {"default": {"a": 1}}}}}, "services.web.networks.default"),
        ({"services": {"web": {"build": "https://host/x.git"}}}, "services.web.build"),
        ({"services": {"web": {"build": {"context": "..", "dockerfile": "x"}}}}, "services.web.build.context"),
        ({"services": {"web": {"build": {"context": ".", "ssh": ["default"]}}}}, "services.web.build.ssh"),
        ({"services": {"web": {"build": {"context": "page", "dockerfile": "../x"}}}}, "services.web.build.dockerfile"),
        ({"services": {"web": {"image": "x", "env_file": "/etc/passwd"}}}, "services.web.env_file"),
        ({"services": {"web": {"image": "x", "labels": {"tollbar.owner": "me"}}}}, "services.web.labels.tollbar.owner"),
        ({"services": {"web": {"image": "x", "ulimits": {"memlock": -1}}}}, "services.web.ulimits.memlock"),
        ({"services": {"web": {"image": "x", "environment": {"A": "${B:?gone}"}}}}, "services.web.environment.A"),
        ({"services": {"web": {"image": "x", "depends_on": ["main"]}}}, "services.web.depends_on"),
        ({"services": {"web": {"image": "x", "depends_on": ["db"]}}}, "services.web.depends_on"),
        ({"services": {"Web": {"image": "x"}}}, "services.Web"),
        ({"services": {f"s{number}": {"image": "x"} for number in range(20)}}, "services"),
        ("services: [", "the file"),
        ("services: !!python/object/apply:os.system [id]", "the file"),
        (BOMB, "the file"),
    ],
)  # fmt: skip
def test_what_else_is_not_allowed_is_refused_by_name(folder, document, named):
    assert told(folder, document).startswith(f"docker-compose.yaml: {named} ")


def test_variables_come_from_nowhere_but_their_defaults(folder, monkeypatch):
    monkeypatch.setenv("TOKEN", "of-the-server")
    monkeypatch.setenv("PATH_OF_MINE", "of-the-server")
    text = {
        "A": "${TOKEN}",
        "B": "$PATH_OF_MINE",
        "C": "${TOKEN:-own}",
        "D": "${TOKEN-}",
        "E": "5$$",
        "F": True,
    }
    web = taken(folder, {"services": {"web": {"image": "x:${TAG:-1}", "environment": text}}}).others[0]
    assert web.environment == {"A": "", "B": "", "C": "own", "D": "", "E": "5$", "F": "true"}
    assert web.image == "x:1"


def test_a_file_of_variables_lies_below_those_that_are_written_out(folder):
    given = {"image": "x", "env_file": ["web.env"], "environment": ["A=own", "UNSET"]}
    assert taken(folder, {"services": {"web": given}}).others[0].environment == {"A": "own", "B": "two words"}


@pytest.mark.requirement("G-SBX-14.compose_keys")
def test_the_written_file_has_the_forced_keys_for_every_service_and_no_variable(folder):
    services = taken(
        folder,
        {
            "version": "3.8", "name": "mine", "volumes": {"data": None}, "networks": {"back": {"internal": True}},
            "services": {
                "main": {"depends_on": ["web"], "networks": ["default", "back"], "volumes": ["data:/data"]},
                "web": {"image": "x", "command": "echo $$HOME", "mem_limit": "64g", "cpus": 0.25, "pids_limit": 9999,
                        "init": False, "user": "1000", "read_only": True, "tmpfs": "/tmp:size=1m", "shm_size": "8m",
                        "expose": [80], "networks": ["back"], "volumes": ["data:/data:ro", "./page:/page:ro"],
                        "ulimits": {"nofile": {"soft": 1, "hard": 50}}, "healthcheck": {"test": "true"}},
            },
        },
    )  # fmt: skip
    services = replace(services, images={"main": "sha256:1", "web": "sha256:2"})
    spec = SandboxSpec(
        name=SandboxName("trial_1", 2, Purpose.AGENT), owner="me", form=Form.HELD,
        image=ImageRef("sha256:1", (), "/work", {}), workdir="/work", env={"PRICE": "$5"},
        limits=Limits(cpus=1, memory_mb=100, pids=10, nofile=40),
        ceiling=Limits(cpus=2, memory_mb=200, pids=20, nofile=80),
    )  # fmt: skip
    document = written(spec, services, Mark("inst", "here"), "runsc")
    main, web = document["services"]["main"], document["services"]["web"]
    for service in (main, web):
        assert (service["privileged"], service["cap_drop"], service["restart"]) == (False, ["ALL"], "no")
        assert service["cap_add"] == ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert (service["init"], service["runtime"], service["pull_policy"]) == (True, "runsc", "never")
        assert service["mem_limit"] == service["memswap_limit"]
        assert service["labels"]["tollbar.installation"] == "inst"
        assert "ports" not in service
        assert "expose" not in service
    assert (main["image"], main["command"], main["working_dir"]) == ("sha256:1", ["sleep", "infinity"], "/work")
    assert main["environment"] == {"IS_SANDBOX": "1", "PRICE": "$$5"}
    assert (main["mem_limit"], main["cpus"], main["pids_limit"]) == (100 << 20, 1, 10)
    assert (web["mem_limit"], web["cpus"], web["pids_limit"]) == (200 << 20, 0.25, 20)
    assert (web["ulimits"], web["shm_size"], web["read_only"]) == ({"nofile": 50}, 8 << 20, True)
    assert web["command"] == "echo $$HOME"
    assert (main["networks"], web["networks"]) == (["default", "back"], ["back"])
    assert [volume["type"] for volume in (*main["volumes"], *web["volumes"])] == ["volume", "volume"]
    for network in document["networks"].values():
        assert network["internal"] is True
        assert network["labels"]["tollbar.trial"] == "trial_1"
    assert document["volumes"]["data"]["labels"]["tollbar.trial"] == "trial_1"
    alone = taken(folder, {"services": {"main": {}}})
    only = written(spec, replace(alone, images={"main": "sha256:1"}), Mark("inst", "here"), None)
    assert (only["services"]["main"]["network_mode"], "networks" in only) == ("none", False)
