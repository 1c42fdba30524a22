// Uses the API as a program built on @kubernetes/client-node does: creates,
// lists, watches, patches, scales and deletes objects in its own namespace, with
// the typed clients, the generic object client and an informer. Every test has a
// deadline. The cluster is that of $KUBECONFIG.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test, before, after } from 'node:test';
import * as k8s from '@kubernetes/client-node';

const namespace = `node-${randomBytes(4).toString('hex')}`;
const timeout = 60_000;

const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const patchAs = (strategy) => k8s.setHeaderOptions('Content-Type', strategy);

// refused asserts that a call fails with the HTTP code and the status reason.
async function refused(code, reason, call) {
  await assert.rejects(call, (error) => {
    assert.equal(error.code, code);
    const status = typeof error.body === 'string' ? JSON.parse(error.body) : error.body;
    assert.equal(status.reason, reason);
    return true;
  });
}

// watchUntilDeleted collects [type, data] of the events of one ConfigMap after a
// resource version, until it is deleted.
function watchUntilDeleted(name, resourceVersion) {
  return new Promise((resolve, reject) => {
    const events = [];
    let request;
    new k8s.Watch(config)
      .watch(
        `/api/v1/namespaces/${namespace}/configmaps`,
        { resourceVersion, fieldSelector: `metadata.name=${name}`, timeoutSeconds: timeout / 1000 },
        (type, configMap) => {
          events.push([type, configMap.data]);
          if (type === 'DELETED') {
            resolve(events);
            request.abort();
          }
        },
        (error) => reject(error ?? new Error(`the watch ended after ${JSON.stringify(events)}`)),
      )
      .then((started) => (request = started), reject);
  });
}

before(() => core.createNamespace({ body: { metadata: { name: namespace } } }));
after(() => core.deleteNamespace({ name: namespace }));

test('ConfigMap: create, watch, patch, replace, select, delete', { timeout }, async () => {
  const { metadata } = await core.listNamespacedConfigMap({ namespace });
  const watched = watchUntilDeleted('settings', metadata.resourceVersion);

  const body = { metadata: { name: 'settings', labels: { app: 'demo' } }, data: { colour: 'red' } };
  const created = await core.createNamespacedConfigMap({ namespace, body });
  assert.ok(created.metadata.uid);
  assert.ok(created.metadata.creationTimestamp instanceof Date);
  await refused(409, 'AlreadyExists', core.createNamespacedConfigMap({ namespace, body }));

  const merged = await core.patchNamespacedConfigMap(
    { name: 'settings', namespace, body: { data: { colour: 'blue', size: '2' } } },
    patchAs(k8s.PatchStrategy.MergePatch),
  );
  assert.deepEqual(merged.data, { colour: 'blue', size: '2' });
  const operations = [{ op: 'remove', path: '/data/size' }];
  await core.patchNamespacedConfigMap({ name: 'settings', namespace, body: operations });
  await refused(409, 'Conflict', core.replaceNamespacedConfigMap({ name: 'settings', namespace, body: created }));

  const found = await core.listNamespacedConfigMap({ namespace, labelSelector: 'app=demo' });
  assert.deepEqual(found.items.map((item) => item.metadata.name), ['settings']);

  const deleted = await core.deleteNamespacedConfigMap({ name: 'settings', namespace });
  assert.equal(deleted.status, 'Success');
  await refused(404, 'NotFound', core.readNamespacedConfigMap({ name: 'settings', namespace }));

  assert.deepEqual(await watched, [
    ['ADDED', { colour: 'red' }],
    ['MODIFIED', { colour: 'blue', size: '2' }],
    ['MODIFIED', { colour: 'blue' }],
    ['DELETED', { colour: 'blue' }],
  ]);
});

test('Deployment: create, strategic merge patch, scale, deletion seen by an informer', { timeout }, async () => {
  const list = () => apps.listNamespacedDeployment({ namespace });
  const informer = k8s.makeInformer(config, `/apis/apps/v1/namespaces/${namespace}/deployments`, list);
  const gone = new Promise((resolve, reject) => {
    informer.on('delete', resolve);
    informer.on('error', reject);
  });
  await informer.start();

  const labels = { app: 'web' };
  const container = { name: 'web', image: 'registry.example/web:1', ports: [{ containerPort: 8080 }] };
  await apps.createNamespacedDeployment({
    namespace,
    body: {
      metadata: { name: 'web' },
      spec: {
        replicas: 2,
        selector: { matchLabels: labels },
        template: { metadata: { labels }, spec: { containers: [container] } },
      },
    },
  });
  const patch = { spec: { template: { spec: { containers: [{ name: 'web', image: 'registry.example/web:2' }] } } } };
  const patched = await apps.patchNamespacedDeployment(
    { name: 'web', namespace, body: patch },
    patchAs(k8s.PatchStrategy.StrategicMergePatch),
  );
  const [only] = patched.spec.template.spec.containers;
  assert.equal(only.image, 'registry.example/web:2');
  assert.equal(only.ports[0].containerPort, 8080);

  const scale = await apps.readNamespacedDeploymentScale({ name: 'web', namespace });
  scale.spec.replicas = 3;
  delete scale.metadata.resourceVersion; // the controller may write the Deployment in between
  const scaled = await apps.replaceNamespacedDeploymentScale({ name: 'web', namespace, body: scale });
  assert.equal(scaled.spec.replicas, 3);

  await apps.deleteNamespacedDeployment({ name: 'web', namespace, propagationPolicy: 'Background' });
  assert.equal((await gone).metadata.name, 'web');
  await informer.stop();
});

test('Object client: discovery, server-side apply, conflict, delete', { timeout }, async () => {
  const objects = k8s.KubernetesObjectApi.makeApiClient(config);
  const service = (app) => ({
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'web', namespace },
    spec: { selector: { app }, ports: [{ name: 'http', port: 80 }] },
  });
  const apply = (app, manager, force) =>
    objects.patch(service(app), undefined, undefined, manager, force, k8s.PatchStrategy.ServerSideApply);

  const created = await apply('web', 'first');
  assert.ok(created.spec.clusterIP);
  assert.equal(created.metadata.managedFields[0].manager, 'first');
  await refused(409, 'Conflict', apply('other', 'second'));
  const forced = await apply('other', 'second', true);
  assert.deepEqual(forced.spec.selector, { app: 'other' });
  await objects.delete(service('other'));
});

test("refusals carry upstream's codes and reasons", { timeout }, async () => {
  const invalid = { metadata: { name: 'Not_A_Name' } };
  await refused(422, 'Invalid', core.createNamespacedConfigMap({ namespace, body: invalid }));
  await refused(404, 'NotFound', apps.readNamespacedDeployment({ name: 'absent', namespace }));
});
