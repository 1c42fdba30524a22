"""Uses the API as a program built on python3-kubernetes does.

Creates, lists, watches, patches, scales and deletes objects in its own
namespace, with the typed and the dynamic client. Fails at the first unexpected
response. The cluster is that of $KUBECONFIG.
"""

import threading
import uuid

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException

NAMESPACE = "python-" + uuid.uuid4().hex[:8]
TIMEOUT = 60


def step(text):
    print("ok python:", text, flush=True)


def refused(status, reason, call, *args, **kwargs):
    """Checks that a call fails with the HTTP status and the reason."""
    try:
        call(*args, **kwargs)
    except ApiException as error:
        assert error.status == status, error
        assert f'"reason":"{reason}"' in error.body, error.body
        return
    raise AssertionError(f"{call.__name__} succeeded, want {status} {reason}")


def watch_config_maps(core, version, events, ended):
    """Collects (type, name, data) of every event until the map is deleted."""
    watcher = watch.Watch()
    try:
        for event in watcher.stream(
            core.list_namespaced_config_map,
            NAMESPACE,
            resource_version=version,
            timeout_seconds=TIMEOUT,
        ):
            config_map = event["object"]
            events.append((event["type"], config_map.metadata.name, config_map.data))
            if event["type"] == "DELETED":
                watcher.stop()
    finally:
        ended.set()


def config_maps(core):
    before = core.list_namespaced_config_map(NAMESPACE)
    events, ended = [], threading.Event()
    watching = threading.Thread(
        target=watch_config_maps,
        args=(core, before.metadata.resource_version, events, ended),
    )
    watching.start()

    body = client.V1ConfigMap(
        metadata=client.V1ObjectMeta(name="settings", labels={"app": "demo"}),
        data={"colour": "red"},
    )
    created = core.create_namespaced_config_map(NAMESPACE, body)
    assert created.metadata.uid and created.metadata.creation_timestamp
    refused(409, "AlreadyExists", core.create_namespaced_config_map, NAMESPACE, body)

    patched = core.patch_namespaced_config_map(
        "settings", NAMESPACE, {"data": {"colour": "blue", "size": "2"}}
    )
    assert patched.data == {"colour": "blue", "size": "2"}, patched.data
    by_operations = core.patch_namespaced_config_map(
        "settings", NAMESPACE, [{"op": "remove", "path": "/data/size"}]
    )
    assert by_operations.data == {"colour": "blue"}, by_operations.data

    created.data = {"colour": "green"}
    refused(409, "Conflict", core.replace_namespaced_config_map, "settings", NAMESPACE, created)

    found = core.list_namespaced_config_map(
        NAMESPACE, label_selector="app=demo", field_selector="metadata.name=settings"
    )
    assert [i.metadata.name for i in found.items] == ["settings"]

    deleted = core.delete_namespaced_config_map("settings", NAMESPACE)
    assert deleted.status == "Success", deleted
    refused(404, "NotFound", core.read_namespaced_config_map, "settings", NAMESPACE)

    assert ended.wait(TIMEOUT), "the watch did not see the deletion"
    watching.join()
    seen = [(kind, data) for kind, name, data in events if name == "settings"]
    assert seen == [
        ("ADDED", {"colour": "red"}),
        ("MODIFIED", {"colour": "blue", "size": "2"}),
        ("MODIFIED", {"colour": "blue"}),
        ("DELETED", {"colour": "blue"}),
    ], seen
    step("ConfigMap: create, watch, patch, replace, select, delete")


def deployments(apps):
    container = client.V1Container(
        name="web",
        image="registry.example/web:1",
        ports=[client.V1ContainerPort(container_port=8080)],
    )
    labels = {"app": "web"}
    apps.create_namespaced_deployment(
        NAMESPACE,
        client.V1Deployment(
            metadata=client.V1ObjectMeta(name="web"),
            spec=client.V1DeploymentSpec(
                replicas=2,
                selector=client.V1LabelSelector(match_labels=labels),
                template=client.V1PodTemplateSpec(
                    metadata=client.V1ObjectMeta(labels=labels),
                    spec=client.V1PodSpec(containers=[container]),
                ),
            ),
        ),
    )
    patch = {
        "spec": {"template": {"spec": {"containers": [{"name": "web", "image": "registry.example/web:2"}]}}}
    }
    patched = apps.patch_namespaced_deployment("web", NAMESPACE, patch)
    only = patched.spec.template.spec.containers[0]
    assert only.image.endswith(":2") and only.ports[0].container_port == 8080, only

    scaled = apps.patch_namespaced_deployment_scale("web", NAMESPACE, {"spec": {"replicas": 3}})
    assert scaled.spec.replicas == 3, scaled

    watcher = watch.Watch()
    for event in watcher.stream(apps.list_namespaced_deployment, NAMESPACE, timeout_seconds=TIMEOUT):
        status = event["object"].status
        if status.observed_generation == 3 and status.updated_replicas:
            watcher.stop()
            break
    else:
        raise AssertionError("the controller did not roll out the third generation")

    status = apps.delete_namespaced_deployment(
        "web", NAMESPACE, body=client.V1DeleteOptions(propagation_policy="Foreground")
    )
    assert status.status is not None
    step("Deployment: create, strategic merge patch, scale, foreground deletion")


def refusals(core, apps):
    refused(
        422, "Invalid", core.create_namespaced_config_map, NAMESPACE,
        client.V1ConfigMap(metadata=client.V1ObjectMeta(name="Not_A_Name")),
    )
    refused(404, "NotFound", apps.read_namespaced_deployment, "absent", NAMESPACE)
    step("refusals carry upstream's codes and reasons")


def dynamic_client(api):
    services = dynamic.DynamicClient(api).resources.get(api_version="v1", kind="Service")
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
    created = services.create(body=body, namespace=NAMESPACE)
    assert created.spec.clusterIP and created.spec.ports[0].targetPort == 80, created
    services.patch(
        name="web",
        namespace=NAMESPACE,
        body={"metadata": {"labels": {"tier": "front"}}},
        content_type="application/merge-patch+json",
    )
    found = services.get(namespace=NAMESPACE, label_selector="tier=front")
    assert [i.metadata.name for i in found.items] == ["web"]
    services.delete(name="web", namespace=NAMESPACE)
    step("dynamic client: discovery, create, merge patch, list, delete")


def main():
    config.load_kube_config()
    api = client.ApiClient()
    core, apps = client.CoreV1Api(api), client.AppsV1Api(api)
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    try:
        config_maps(core)
        deployments(apps)
        refusals(core, apps)
        dynamic_client(api)
    finally:
        core.delete_namespace(NAMESPACE)
    print("python: 4 passed, 0 failed", flush=True)


if __name__ == "__main__":
    main()
