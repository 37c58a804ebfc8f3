"""Holds the examples for Kubernetes against the schemas of its API, strictly: a key that does not exist is an error.

usage: kubernetes.py [PROGRAMS]      (nothing of PROGRAMS is used)

The schemas of Kubernetes come with the package kubernetes-validate. KubeRay's are in no package: what is used of RayJob is written down here,
after the types of KubeRay 1.7 (ray.io/v1), and the pods in it are held against Kubernetes' own. Each key of each example is then misspelt
once, and each must be missed: a check that lets everything pass would be none.
"""

import copy
import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples/kubernetes"
# Keys whose keys are anybody's to name.
FREE = {"limits", "requests", "rayStartParams"}


def closed(required, **properties):
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


NUMBER = {"type": "integer", "minimum": 0}
WORD = {"type": "string", "minLength": 1}
# Ray's own options: KubeRay passes words on, not numbers.
PARAMS = {"type": "object", "additionalProperties": WORD}
GROUP = {"rayStartParams": PARAMS, "template": {"type": "object"}}
RAY_JOB = closed(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayJob"},
    metadata=closed(["name"], name=WORD),
    spec=closed(
        ["entrypoint", "rayClusterSpec"],
        entrypoint=WORD,
        backoffLimit=NUMBER,
        shutdownAfterJobFinishes={"type": "boolean"},
        ttlSecondsAfterFinished=NUMBER,
        rayClusterSpec=closed(
            ["headGroupSpec"],
            headGroupSpec=closed(["template"], **GROUP),
            workerGroupSpecs={
                "type": "array",
                "items": closed(
                    ["groupName", "maxReplicas", "minReplicas", "template"],
                    groupName=WORD,
                    replicas=NUMBER,
                    minReplicas=NUMBER,
                    maxReplicas=NUMBER,
                    **GROUP,
                ),
            },
        ),
    ),
)


def check(example):
    """Raises where the example is not what the API takes."""
    if example.get("kind") != "RayJob":
        kubernetes_validate.validate(example, kubernetes_validate.latest_version(), strict=True)
        return
    jsonschema.validate(example, RAY_JOB)
    cluster = example["spec"]["rayClusterSpec"]
    for group in [cluster["headGroupSpec"], *cluster.get("workerGroupSpecs", [])]:
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": group["template"]}
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)


def places(value, path=()):
    """Each key of a document that the schemas name, as a path."""
    if isinstance(value, dict):
        for key, below in value.items():
            if not (path and path[-1] in FREE):
                yield (*path, key)
            yield from places(below, (*path, key))
    elif isinstance(value, list):
        for at, below in enumerate(value):
            yield from places(below, (*path, at))


def misspelt(example, path):
    other = copy.deepcopy(example)
    holder = other
    for part in path[:-1]:
        holder = holder[part]
    holder[path[-1] + "x"] = holder.pop(path[-1])
    return other


def is_taken(example):
    try:
        check(example)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError, kubernetes_validate.InvalidSchemaError):
        return False
    except (jsonschema.ValidationError, KeyError):
        return False
    return True


def main():
    failed = False
    names = sorted(path.name for path in EXAMPLES.glob("*.yaml"))
    assert names, f"no example in {EXAMPLES}"
    for name in names:
        example = yaml.safe_load((EXAMPLES / name).read_text())
        check(example)
        keys = list(places(example))
        passed = [".".join(map(str, path)) for path in keys if is_taken(misspelt(example, path))]
        failed |= bool(passed)
        print(f"{name}: as the API takes it; {len(keys)} keys misspelt, of which passed: {', '.join(passed) or 'none'}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
