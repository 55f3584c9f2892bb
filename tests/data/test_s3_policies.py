"""The policies in infra/s3, on a server that enforces users, actions and resources (moto's IAM).

It does not enforce conditions, so the statements of `log-uploader` are tried without them: what
they add, only AWS or another server that knows `s3:if-none-match` refuses.
"""

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import s3fs
from botocore.exceptions import ClientError

from rrf.data.files import RemotePath
from rrf.data.transport.episode_store import EpisodeStore
from tests.client.logging import logged
from tests.data.s3_server import S3Server, s3  # noqa: F401 (a fixture)

POLICIES = Path(__file__).parents[2] / "infra/s3"
ROLES = ("ingest", "log-uploader", "registry", "robot", "trainer")
BUCKETS = ("rrf-recordings", "rrf-data", "rrf-models", "rrf-logs")
READ = {"ingest": BUCKETS[:2] + BUCKETS[3:], "trainer": ("rrf-data",), "registry": ("rrf-models",)}
READ |= {"robot": ("rrf-models",), "log-uploader": ()}
WRITE = {"ingest": ("rrf-data",), "registry": ("rrf-models",)}
DELETE = {"registry": ("rrf-models",)}


def policy(role: str) -> dict[str, Any]:
    return json.loads((POLICIES / f"{role}.json").read_text().replace("ROBOT", "robot7"))


def set_unchecked(server: S3Server, number: str) -> None:
    """Let so many requests pass without a user."""
    address, plain = f"{server.endpoint}/moto-api/reset-auth", {"Content-Type": "text/plain"}
    urllib.request.urlopen(urllib.request.Request(address, number.encode(), plain)).close()


@pytest.fixture
def become(s3, monkeypatch) -> Iterator[Callable[[str], Any]]:  # noqa: F811
    """A function that makes this process a role; it returns a client of S3."""
    from moto.backends import get_backend

    iam, admin = boto3.client("iam", endpoint_url=s3.endpoint), boto3.client("s3")
    for bucket in BUCKETS:
        admin.create_bucket(Bucket=bucket)
        admin.put_object(Bucket=bucket, Key="known", Body=b"known")
    versioned = {"Status": "Enabled"}
    admin.put_bucket_versioning(Bucket="rrf-logs", VersioningConfiguration=versioned)
    keys = {}
    for role in ROLES:
        iam.create_user(UserName=role)
        document = policy(role)
        for statement in document["Statement"]:
            statement.pop("Condition", None)
        text = json.dumps(document)
        iam.put_user_policy(UserName=role, PolicyName="rrf", PolicyDocument=text)
        keys[role] = iam.create_access_key(UserName=role)["AccessKey"]

    def be(role: str) -> Any:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys[role]["AccessKeyId"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys[role]["SecretAccessKey"])
        s3fs.S3FileSystem.clear_instance_cache()
        return boto3.client(
            "s3",
            aws_access_key_id=keys[role]["AccessKeyId"],
            aws_secret_access_key=keys[role]["SecretAccessKey"],
        )

    set_unchecked(s3, "0")
    yield be
    set_unchecked(s3, "inf")
    get_backend("iam").reset()
    s3fs.S3FileSystem.clear_instance_cache()


def is_refused(call: Callable[..., object], **how: object) -> bool:
    try:
        call(**how)
    except ClientError as error:
        return error.response["Error"]["Code"] in ("AccessDenied", "403")
    return False


@pytest.mark.parametrize("role", ROLES)
def test_each_role_reads_writes_and_deletes_what_it_has_to_and_nothing_else(role, become):
    client = become(role)
    for bucket in BUCKETS:
        place = {"Bucket": bucket, "Key": "known"}
        reads, writes = bucket in READ[role], bucket in WRITE.get(role, ())
        assert is_refused(client.get_object, **place) != reads, bucket
        assert is_refused(client.put_object, **place, Body=b"new") != writes, bucket
        deletes = bucket in DELETE.get(role, ())
        assert is_refused(client.delete_object, **place) != deletes, bucket
        assert is_refused(client.delete_bucket, Bucket=bucket)
        assert is_refused(client.put_bucket_policy, Bucket=bucket, Policy="{}")
    assert is_refused(client.create_bucket, Bucket="more")


def test_a_robot_adds_episodes_below_its_name_which_ingestion_reads(s3, become, tmp_path):  # noqa: F811
    folder = logged(tmp_path / "log")
    client = become("log-uploader")
    store = EpisodeStore("s3://rrf-logs/robot7")
    assert store.put(folder)
    assert not store.put(folder)
    with pytest.raises(PermissionError, match=r"s3://rrf-logs/robot8.* may not be "):
        EpisodeStore("s3://rrf-logs/robot8").put(folder)
    key = f"robot7/episodes/{folder.name}/manifest.json"
    place = {"Bucket": "rrf-logs", "Key": key}
    become("ingest")
    got = EpisodeStore("s3://rrf-logs/robot7").get(folder.name, tmp_path / "got")
    assert got["episode"] == folder.name

    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(**place, Body=b"new", IfNoneMatch="*")
    overwritten = client.put_object(**place, Body=b"new")  # where no condition is enforced
    assert is_refused(client.delete_object, **place)
    assert is_refused(client.delete_object, **place, VersionId=overwritten["VersionId"])
    set_unchecked(s3, "inf")
    kept = boto3.client("s3").list_object_versions(Bucket="rrf-logs", Prefix=key)["Versions"]
    assert len(kept) == 2


def test_another_content_is_not_replaced_by_the_uploader(s3, tmp_path):  # noqa: F811
    folder = logged(tmp_path / "log")
    name = next(path.name for path in sorted(folder.iterdir()) if path.suffix == ".rrflog")
    place = RemotePath(f"s3://logs/robot7/episodes/{folder.name}") / name
    s3.put(str(place), b"somebody else's")
    with pytest.raises(OSError, match=f"{name} is not what was sent; .* see who else writes there"):
        EpisodeStore("s3://logs/robot7").put(folder)
    assert place.read_bytes() == b"somebody else's"
    assert not place.create(b"new")


def test_a_robot_may_only_create_objects_and_only_below_its_name():
    statements = {one["Sid"]: one for one in policy("log-uploader")["Statement"]}
    assert statements["AddNewLogs"]["Condition"] == {"Null": {"s3:if-none-match": "false"}}
    listed = statements["ListItsOwnLogs"]["Condition"]
    assert listed == {"StringLike": {"s3:prefix": ["robot7/*"]}}


def test_no_policy_has_wildcards_for_actions_or_buckets():
    assert {path.stem for path in POLICIES.glob("*.json")} == set(ROLES)
    for role in ROLES:
        for statement in policy(role)["Statement"]:
            assert statement["Effect"] == "Allow"
            assert not any("*" in action for action in statement["Action"])
            for resource in statement["Resource"]:
                assert resource.removeprefix("arn:aws:s3:::").split("/")[0] in BUCKETS
