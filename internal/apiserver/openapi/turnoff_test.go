package openapi

import (
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/resource/runtimeconfig"
)

// serving returns a handler configured with --runtime-config.
func serving(t *testing.T, config ...string) *Handler {
	t.Helper()
	usual := all.All()
	served, err := runtimeconfig.Serve(usual, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	on, off := runtimeconfig.Changed(usual, served)
	h, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.TurnOn(on); err != nil {
		t.Fatal(err)
	}
	h.TurnOff(off, runtimeconfig.Unserved(usual, served))
	return h
}

// Disabled versions and resources are in no document, and neither are the
// definitions that only they need.
func TestTurnOff(t *testing.T) {
	const meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
	for name, test := range map[string]struct {
		config      []string
		off, on     []string // paths
		forgotten   []string // definitions
		index       []string // paths that the index lacks
		v3, without string   // a version 3 document, and a path that it lacks
	}{
		"a group": {
			config:    []string{"autoscaling/v1=false", "autoscaling/v2=false"},
			off:       []string{"/apis/autoscaling/", "/apis/autoscaling/v1/", "/apis/autoscaling/v2/horizontalpodautoscalers"},
			on:        []string{"/apis/apps/v1/deployments", "/apis/", "/api/v1/namespaces/{name}"},
			forgotten: []string{"io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler", "io.k8s.api.autoscaling.v2.MetricSpec"},
			index:     []string{"apis/autoscaling", "apis/autoscaling/v1", "apis/autoscaling/v2"},
		},
		"one version of two": {
			config:    []string{"autoscaling/v1=false"},
			off:       []string{"/apis/autoscaling/v1/"},
			on:        []string{"/apis/autoscaling/", "/apis/autoscaling/v2/horizontalpodautoscalers"},
			forgotten: []string{"io.k8s.api.autoscaling.v1.HorizontalPodAutoscaler"},
			index:     []string{"apis/autoscaling/v1"},
		},
		"one resource": {
			config: []string{"apps/v1/deployments=false"},
			off: []string{
				"/apis/apps/v1/deployments", "/apis/apps/v1/watch/deployments",
				"/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale",
			},
			on:        []string{"/apis/apps/v1/replicasets", "/apis/apps/v1/"},
			forgotten: []string{"io.k8s.api.apps.v1.Deployment", "io.k8s.api.apps.v1.RollingUpdateDeployment"},
			v3:        "apis/apps/v1", without: "/apis/apps/v1/deployments",
		},
		"one resource of a version that is on by request": {
			config: []string{"coordination.k8s.io/v1beta1=true", "coordination.k8s.io/v1beta1/leasecandidates=false", "api/beta=true"},
			off:    []string{"/apis/coordination.k8s.io/v1beta1/leasecandidates", "/apis/scheduling.k8s.io/v1beta1/workloads"},
			on:     []string{"/apis/coordination.k8s.io/v1/leases"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := serving(t, test.config...)
			d := plain(t, h)
			for _, path := range test.off {
				if d.Paths[path] != nil {
					t.Errorf("version 2 has the path %s", path)
				}
			}
			for _, path := range test.on {
				if d.Paths[path] == nil {
					t.Errorf("version 2 has no path %s", path)
				}
			}
			for _, definition := range test.forgotten {
				if d.Definitions[definition] != nil {
					t.Errorf("version 2 defines %s", definition)
				}
			}
			if d.Definitions[meta] == nil {
				t.Errorf("version 2 does not define %s", meta)
			}
			parsed := &openapi_v2.Document{}
			if err := proto.Unmarshal(ask(t, h, "/openapi/v2", typeV2).Body.Bytes(), parsed); err != nil {
				t.Fatal(err)
			}
			if n := len(parsed.GetPaths().GetPath()); n != len(d.Paths) {
				t.Errorf("%d paths as protobuf, %d as JSON", n, len(d.Paths))
			}
			index := ask(t, h, "/openapi/v3", typeJSON).Body.String()
			for _, path := range test.index {
				if strings.Contains(index, `"`+path+`"`) {
					t.Errorf("the index has %s", path)
				}
			}
			if test.v3 != "" && strings.Contains(ask(t, h, "/openapi/v3/"+test.v3, typeJSON).Body.String(), `"`+test.without+`"`) {
				t.Errorf("%s has the path %s", test.v3, test.without)
			}
		})
	}
}

// Nothing changes if everything is served.
func TestTurnOffNothing(t *testing.T) {
	h := serving(t)
	if h.off != nil {
		t.Errorf("%v is off", h.off)
	}
	h.TurnOff(nil, []schema.GroupVersionResource{{Group: "example.com", Version: "v1", Resource: "boats"}})
	if h.off != nil {
		t.Errorf("%v is off", h.off)
	}
}
