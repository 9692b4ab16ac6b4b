"""A broker for the tests: one kbroker for all of them, with topics of their own. What a test breaks is its own cluster's (fixture kafka_cluster)."""
from typing import Iterator

import pytest
from kclient.testing import Cluster


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """The address of a broker that makes topics when they are first used."""
    with Cluster(1) as cluster:
        yield cluster.bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name of this test's own."""
    name: str = f"{request.node.path.stem}-{request.node.name}"
    return "".join(c if c.isalnum() else "-" for c in name)[:200]
