package clientgo

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/disk"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
)

// counting counts the requests of a transport.
type counting struct {
	http.RoundTripper
	n *atomic.Int64
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

func counted(n *atomic.Int64) *rest.Config {
	config := rest.CopyConfig(restConfig)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, n} })
	return config
}

// TestDiscovery checks that all APIs are read in the two requests of aggregated
// discovery, and that cached ones are not read again.
func TestDiscovery(t *testing.T) {
	var requests atomic.Int64
	d, err := discovery.NewDiscoveryClientForConfig(counted(&requests))
	must(t, err)
	_, lists, err := d.ServerGroupsAndResources()
	must(t, err)
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests for the whole API, want 2", n)
	}
	kinds := map[string]bool{}
	for _, list := range lists {
		for _, r := range list.APIResources {
			kinds[list.GroupVersion+" "+r.Kind] = true
		}
	}
	for _, want := range []string{"v1 Pod", "apps/v1 Deployment", "autoscaling/v1 HorizontalPodAutoscaler", "autoscaling/v2 HorizontalPodAutoscaler"} {
		if !kinds[want] {
			t.Errorf("%s is missing", want)
		}
	}
	preferred, err := d.ServerPreferredNamespacedResources()
	must(t, err)
	for _, list := range preferred {
		if list.GroupVersion == "autoscaling/v1" {
			t.Error("autoscaling/v1 is preferred to v2")
		}
	}
	version, err := d.ServerVersion()
	must(t, err)
	if version.Major != "1" || version.Minor != "37" {
		t.Errorf("version %s.%s", version.Major, version.Minor)
	}

	requests.Store(0)
	dir := t.TempDir()
	for range 2 {
		cached, err := disk.NewCachedDiscoveryClientForConfig(counted(&requests), dir, dir, time.Hour)
		must(t, err)
		_, _, err = cached.ServerGroupsAndResources()
		must(t, err)
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests of two clients with one cache, want 2", n)
	}
}

func TestMappings(t *testing.T) {
	d, err := discovery.NewDiscoveryClientForConfig(restConfig)
	must(t, err)
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d)), d, nil)
	for short, want := range map[string]schema.GroupVersionResource{
		"deploy": deployments,
		"cm":     configMaps,
		"hpa":    {Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
		"netpol": {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	} {
		got, err := mapper.ResourceFor(schema.GroupVersionResource{Resource: short})
		must(t, err)
		if got != want {
			t.Errorf("%s is %v, want %v", short, got, want)
		}
	}
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"})
	must(t, err)
	if mapping.Scope.Name() != "root" {
		t.Errorf("the scope of ClusterRole is %s", mapping.Scope.Name())
	}
}

func TestOpenAPI(t *testing.T) {
	d, err := discovery.NewDiscoveryClientForConfig(restConfig)
	must(t, err)
	v2, err := d.OpenAPISchema()
	must(t, err)
	if v2.GetDefinitions() == nil || len(v2.GetPaths().GetPath()) < 100 {
		t.Errorf("the OpenAPI v2 document has %d paths", len(v2.GetPaths().GetPath()))
	}
	paths, err := openapi.NewClient(d.RESTClient()).Paths()
	must(t, err)
	apps, err := paths["apis/apps/v1"].Schema("application/json")
	must(t, err)
	if !strings.Contains(string(apps), "io.k8s.api.apps.v1.Deployment") {
		t.Error("apps/v1 has no Deployment")
	}
}

func TestScaleClient(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	ns := newNamespace(t, c)
	_, err := c.AppsV1().Deployments(ns).Create(ctx, deployment("web", 0), metav1.CreateOptions{})
	must(t, err)
	d := memory.NewMemCacheClient(c.Discovery())
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(d)
	scales, err := scale.NewForConfig(restConfig, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(d))
	must(t, err)

	s, err := scales.Scales(ns).Get(ctx, deployments.GroupResource(), "web", metav1.GetOptions{})
	must(t, err)
	if s.Spec.Replicas != 0 || s.Status.Selector != "app=web" {
		t.Errorf("scale: %+v", s)
	}
	s.ResourceVersion, s.Spec.Replicas = "", 2
	_, err = scales.Scales(ns).Update(ctx, deployments.GroupResource(), s, metav1.UpdateOptions{})
	must(t, err)
	s, err = scales.Scales(ns).Patch(ctx, deployments, "web", types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{})
	must(t, err)
	if s.Spec.Replicas != 3 {
		t.Errorf("patched to %d", s.Spec.Replicas)
	}
	eventually(t, "three pods", func(ctx context.Context) error {
		typed, err := c.AppsV1().Deployments(ns).GetScale(ctx, "web", metav1.GetOptions{})
		if err != nil || typed.Status.Replicas != 3 {
			return fmt.Errorf("%+v %w", typed, err)
		}
		return nil
	})
	_, err = c.AppsV1().Deployments(ns).UpdateScale(ctx, "web", &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: ns, ResourceVersion: "1"},
	}, metav1.UpdateOptions{})
	if err == nil {
		t.Error("an outdated scale was accepted")
	}
}
