"""Errors: one tree, one way from a status of libdtk to it, and all of it survives a pickle."""

from __future__ import annotations

import pickle
import traceback

import pytest

import dtk
from dtk import errors
from dtk._native import ffi, lib
from dtk._statuses import STATUSES

CLASSES = [
    dtk.Error,
    dtk.NoDriver,
    dtk.DeviceNotFound,
    dtk.DeviceLost,
    dtk.NotSupported,
    dtk.PermissionDenied,
    dtk.Timeout,
    dtk.LibraryError,
    dtk.InvalidArgument,
]
PARENTS = {
    dtk.DeviceNotFound: LookupError,
    dtk.PermissionDenied: PermissionError,
    dtk.Timeout: TimeoutError,
    dtk.InvalidArgument: ValueError,
}


def an_error(cls: type[dtk.Error]) -> dtk.Error:
    return cls("no such file", operation="open", path="/a/b", hint="make it", status="not_found")


@pytest.mark.parametrize("cls", CLASSES)
def test_class(cls: type[dtk.Error]) -> None:
    assert issubclass(cls, dtk.Error)
    assert issubclass(cls, PARENTS.get(cls, Exception))
    assert cls.__module__ == "dtk"
    assert cls.__doc__
    assert cls.__name__ in (errors.__doc__ or ""), "the tree in the docstring shows every class"
    assert getattr(dtk, cls.__name__) is cls


@pytest.mark.parametrize("cls", CLASSES)
def test_text_has_operation_path_and_hint(cls: type[dtk.Error]) -> None:
    assert str(an_error(cls)) == "open: /a/b: no such file (make it)"
    assert str(cls("no such file")) == "no such file"


@pytest.mark.parametrize("cls", CLASSES)
def test_pickle_keeps_everything(cls: type[dtk.Error]) -> None:
    error = an_error(cls)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert str(copy) == str(error)
    assert (copy.operation, copy.path, copy.hint, copy.status) == ("open", "/a/b", "make it", "not_found")
    assert hash(copy) != 0


def test_traceback_names_the_public_class() -> None:
    try:
        raise an_error(dtk.DeviceLost)
    except dtk.Error:
        assert "dtk.DeviceLost: open: /a/b: no such file (make it)" in traceback.format_exc()


@pytest.mark.parametrize("number", STATUSES)
def test_status_table_is_the_library_s(number: int) -> None:
    name, text, class_name = STATUSES[number]
    for signed in (number, -number):
        assert ffi.string(lib.dtk_status_name(signed)).decode() == name
        assert ffi.string(lib.dtk_status_text(signed)).decode() == text
    assert (class_name == "") == (number == 0)


def test_status_table_is_complete() -> None:
    assert ffi.string(lib.dtk_status_name(len(STATUSES))) == b"unknown"


@pytest.mark.parametrize("number", [number for number in STATUSES if number])
def test_every_status_becomes_its_class(number: int) -> None:
    name, text, class_name = STATUSES[number]
    for signed in (number, -number):
        error = errors.from_status(signed, "read", "/a", "look")
        assert type(error) is getattr(dtk, class_name)
        assert (error.status, error.operation, error.path, error.hint) == (name, "read", "/a", "look")
        assert str(error) == f"read: /a: {text} (look)"


def test_unknown_status_is_an_error_too() -> None:
    error = errors.from_status(-99, "read")
    assert type(error) is dtk.Error
    assert error.status == "unknown"
    assert "-99" in str(error)
