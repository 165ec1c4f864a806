"""Checks Kubernetes manifests by the schemas of Kubernetes and KEDA, in an environment that has these: ``make schemas``.

It reads a list of manifests as JSON, and prints what is wrong with each, or null.
"""

import json
import sys
from typing import Any

import kubernetes_validate
from cloudcoil.models.keda import v1alpha1 as keda


def fault(manifest: dict[str, Any]) -> str | None:
    """What the schema of its kind says of a manifest; None: it fits."""
    if manifest["apiVersion"].startswith("keda.sh/"):
        read = getattr(keda, manifest["kind"]).model_validate(manifest)
        known = read.model_dump(mode="json", by_alias=True, exclude_none=True)
        return None if known == manifest else f"the schema knows only {known}"
    try:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error)
    return None


if __name__ == "__main__":
    print(json.dumps([fault(one) for one in json.load(sys.stdin)]))  # noqa: T201 - its answer
