package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	namespacesPath = "/api/v1/namespaces"
	jsonType       = "application/json"
)

// namespace creates a namespace and waits until pods can be created in it.
func (l *load) namespace(ctx context.Context, name string) error {
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name)
	if err := l.do(ctx, 0, call{method: http.MethodPost, path: namespacesPath, contentType: jsonType, body: body}); err != nil {
		return err
	}
	return poll(ctx, time.Minute, "the service account default of namespace "+name, func() bool {
		return l.do(ctx, 0, call{method: http.MethodGet, path: namespacesPath + "/" + name + "/serviceaccounts/default"}) == nil
	})
}

// removeNamespace deletes a namespace and waits until it is gone.
func (l *load) removeNamespace(ctx context.Context, name string) error {
	path := namespacesPath + "/" + name
	if err := l.do(ctx, 0, call{method: http.MethodDelete, path: path}); err != nil {
		return err
	}
	return poll(ctx, 3*time.Minute, "the end of namespace "+name, func() bool {
		return l.do(ctx, 0, call{method: http.MethodGet, path: path}) != nil
	})
}

// poll repeats a check until it succeeds.
func poll(ctx context.Context, limit time.Duration, what string, reached func() bool) error {
	return pollEvery(ctx, 20*time.Millisecond, limit, what, reached)
}

// pollEvery is like poll, with a question that costs the server more.
func pollEvery(ctx context.Context, interval, limit time.Duration, what string, reached func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for !reached() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
	}
	return nil
}

// benchPod returns a pod of ordinary size that no scheduler handles.
const benchPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s","labels":{"app":"web","tier":"front","n":"%d"},
"annotations":{"note":"a pod of the API benchmark"}},"spec":{"schedulerName":"nobody","containers":[{"name":"main",
"image":"registry.example/app/web:1.2.3","ports":[{"containerPort":8080}],
"env":[{"name":"A","value":"1"},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],
"resources":{"requests":{"cpu":"100m","memory":"64Mi"},"limits":{"cpu":"200m","memory":"128Mi"}},
"livenessProbe":{"httpGet":{"path":"/healthz","port":8080},"periodSeconds":10}}],"tolerations":[{"key":"a","operator":"Exists"}]}}`

// measureAPI measures each verb with the same pods.
func measureAPI(ctx context.Context, s *settings, c *cluster, t *table) error {
	l, err := newLoad(c.config)
	if err != nil {
		return err
	}
	defer l.close()
	const namespace = "bench-api"
	if err := l.namespace(ctx, namespace); err != nil {
		return err
	}
	pods := namespacesPath + "/" + namespace + "/pods"
	name := func(i int) string { return fmt.Sprintf("pod-%06d", i%s.pods) }
	pod := func(i int) string { return pods + "/" + name(i) }
	for _, verb := range []struct {
		what, budget string
		n, atATime   int
		call         func(i int) call
	}{
		{"create pod", "5,000/s", s.pods, s.clients, func(i int) call {
			return call{method: http.MethodPost, path: pods, contentType: jsonType, body: fmt.Appendf(nil, benchPod, name(i), i)}
		}},
		{"get pod", "12,000/s", 4 * s.pods, s.clients, func(i int) call {
			return call{method: http.MethodGet, path: pod(i)}
		}},
		{fmt.Sprintf("list %d pods, JSON", s.pods), "60/s", 60, 4, func(int) call {
			return call{method: http.MethodGet, path: pods}
		}},
		{fmt.Sprintf("list %d pods, protobuf", s.pods), "", 60, 4, func(int) call {
			return call{method: http.MethodGet, path: pods, accept: "application/vnd.kubernetes.protobuf"}
		}},
		{fmt.Sprintf("list %d pods, Table", s.pods), "", 20, 4, func(int) call {
			return call{method: http.MethodGet, path: pods, accept: "application/json;as=Table;v=v1;g=meta.k8s.io"}
		}},
		{"list the first page of 500 pods", "", 400, 4, func(int) call {
			return call{method: http.MethodGet, path: pods + "?limit=500"}
		}},
		{fmt.Sprintf("list 1 of %d pods by label", s.pods), "", 400, 4, func(i int) call {
			return call{method: http.MethodGet, path: fmt.Sprintf("%s?labelSelector=n%%3D%d", pods, i)}
		}},
		{"merge patch", "4,000/s", s.pods, s.clients, func(i int) call {
			return call{method: http.MethodPatch, path: pod(i), contentType: "application/merge-patch+json", body: fmt.Appendf(nil, `{"metadata":{"labels":{"touched":"%d"}}}`, i)}
		}},
		{"server-side apply", "4,000/s", max(s.pods/5, 1), s.clients, func(i int) call {
			return call{method: http.MethodPatch, path: pod(i) + "?fieldManager=bench&force=true", contentType: "application/apply-patch+yaml",
				body: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"labels":{"applied":"yes"}}}`, name(i))}
		}},
		{"delete pod", "4,000/s", s.pods, s.clients, func(i int) call {
			return call{method: http.MethodDelete, path: pod(i) + "?gracePeriodSeconds=0"}
		}},
	} {
		done, err := parallel(ctx, verb.n, verb.atATime, func(ctx context.Context, i int) error { return l.do(ctx, i, verb.call(i)) })
		if err != nil {
			return err
		}
		t.add(fmt.Sprintf("%s, %d clients", verb.what, verb.atATime), verb.budget, "%v", done)
	}
	return l.removeNamespace(ctx, namespace)
}
