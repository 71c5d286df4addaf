"""The oldest versions that the project says it works with, and how they are held to it."""

from __future__ import annotations

import pytest

from tests.packaging.oldest import oldest

PROJECT = {
    "name": "it",
    "dependencies": ["always>=1.23", "new>=2; python_version < '3.11'", "later>=3; python_version >= '3.11'"],
    "optional-dependencies": {
        "one": ["shown[part]>=3.6,<4", "short>=6"],
        "two": ["near~=4.1.2"],
        "all": ["it[one,two]"],
        "dev": ["newest>=99"],
    },
}


def test_each_package_of_the_oldest_python_is_of_the_series_that_it_begins_with() -> None:
    assert oldest(PROJECT) == ["always==1.23.*", "near==4.1.2.*", "new==2.0.*", "short==6.0.*", "shown==3.6.*"]
    assert oldest(PROJECT, "two") == ["always==1.23.*", "near==4.1.2.*", "new==2.0.*"]


def test_a_requirement_that_begins_nowhere_is_named() -> None:
    with pytest.raises(ValueError, match="bare: it does not say which version is the oldest"):
        oldest(PROJECT | {"dependencies": ["bare"]})
