package podautoscaler

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	autoscaling "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coracle-io/coracle/internal/client"
)

// answers returns the responses of the metrics APIs, by path and query.
func answers() map[string]string {
	const (
		group = `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"custom.metrics.k8s.io","versions":[{"groupVersion":"custom.metrics.k8s.io/v1beta2","version":"v1beta2"}],"preferredVersion":{"groupVersion":"custom.metrics.k8s.io/v1beta2","version":"v1beta2"}}]}`
		at    = `"timestamp":"2026-08-01T12:00:00Z"`
		value = `{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/v1beta2","items":[`
	)
	return map[string]string{
		"/apis": group,
		"/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods?labelSelector=app%3Dweb": `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","items":[
			{"metadata":{"name":"p0","namespace":"shop"},` + at + `,"window":"15s","containers":[{"name":"a","usage":{"cpu":"100m"}},{"name":"b","usage":{"cpu":"20m"}}]},
			{"metadata":{"name":"p1","namespace":"shop"},` + at + `,"window":"15s","containers":[{"name":"a","usage":{"cpu":"7m"}},{"name":"b","usage":{}}]}]}`,
		"/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods?labelSelector=app%3Dnone": `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","items":[]}`,
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/%2A/hits?labelSelector=app%3Dweb&metricLabelSelector=verb%3Dget": value + `
			{"describedObject":{"kind":"Pod","name":"p0"},"metric":{"name":"hits"},` + at + `,"windowSeconds":30,"value":"1500m"},
			{"describedObject":{"kind":"Pod","name":"p1"},"metric":{"name":"hits"},` + at + `,"value":"2"}]}`,
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/services/web/hits?metricLabelSelector=verb%3Dget": value + `{"describedObject":{"kind":"Service","name":"web"},"metric":{"name":"hits"},` + at + `,"value":"40"}]}`,
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/metrics/hits?metricLabelSelector=verb%3Dget":      value + `{"describedObject":{"kind":"Namespace","name":"shop"},"metric":{"name":"hits"},` + at + `,"value":"50"}]}`,
		"/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue": `{"kind":"ExternalMetricValueList","apiVersion":"external.metrics.k8s.io/v1beta1","items":[
			{"metricName":"queue",` + at + `,"value":"3"},{"metricName":"queue",` + at + `,"value":"500m"}]}`,
	}
}

// TestSources reads each of the metrics APIs.
func TestSources(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.EscapedPath()
		q := r.URL.Query()
		q.Del("timeout")
		if len(q) > 0 {
			path += "?" + q.Encode()
		}
		body, ok := answers()[path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1.SchemeGroupVersion})
	for _, kind := range []string{"Pod", "Service"} {
		mapper.Add(v1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(v1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	from, err := newAPIs(&client.Client{Kubernetes: kube, Config: config}, mapper)
	if err != nil {
		t.Fatal(err)
	}
	show := func(all samples, err error) string {
		text := ""
		for _, name := range []string{"p0", "p1"} {
			if s, ok := all[name]; ok {
				text += fmt.Sprintf("%s %dm of %v at %s; ", name, s.milli, s.window, s.at.UTC().Format("15:04"))
			}
		}
		if err != nil {
			text += err.Error()
		}
		return text
	}
	web, none := labels.Set{"app": "web"}.AsSelector(), labels.Set{"app": "none"}.AsSelector()
	hits := autoscaling.MetricIdentifier{Name: "hits", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"verb": "get"}}}
	whole := func(n int64, err error) string { return fmt.Sprint(n, " ", err) }
	for what, c := range map[string]struct{ got, want string }{
		"pods":                 {show(from.resource(t.Context(), v1.ResourceCPU, "shop", web, "")), "p0 120m of 15s at 12:00; "},
		"a container":          {show(from.resource(t.Context(), v1.ResourceCPU, "shop", web, "a")), "p0 100m of 15s at 12:00; p1 7m of 15s at 12:00; "},
		"an unknown container": {show(from.resource(t.Context(), v1.ResourceCPU, "shop", web, "c")), "container c not present in metrics for pod shop/p0"},
		"no pods":              {show(from.resource(t.Context(), v1.ResourceCPU, "shop", none, "")), "no metrics returned from resource metrics API"},
		"custom, of pods":      {show(from.ofPods("shop", web, hits)), "p0 1500m of 30s at 12:00; p1 2000m of 1m0s at 12:00; "},
		"of a Service":         {whole(from.ofObject("shop", autoscaling.CrossVersionObjectReference{Kind: "Service", Name: "web", APIVersion: "v1"}, hits)), "40000 <nil>"},
		"of the namespace":     {whole(from.ofObject("shop", autoscaling.CrossVersionObjectReference{Kind: "Namespace", Name: "shop", APIVersion: "v1"}, hits)), "50000 <nil>"},
		"external":             {whole(from.external("shop", autoscaling.MetricIdentifier{Name: "queue"})), "3500 <nil>"},
		"unknown external": {whole(from.external("shop", autoscaling.MetricIdentifier{Name: "boats"})),
			"0 unable to fetch metrics from external metrics API: the server could not find the requested resource (get boats.external.metrics.k8s.io)"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s\nwant %s", what, c.got, c.want)
		}
	}
}
