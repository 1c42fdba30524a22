package runtimeconfig

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	"sigs.k8s.io/randfill"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource/all"
)

// everything enables every feature.
func everything(t *testing.T) *feature.Set {
	t.Helper()
	features, err := feature.Parse([]string{"AllAlpha=true", "AllBeta=true"})
	if err != nil {
		t.Fatal(err)
	}
	return features
}

func served(t *testing.T, config ...string) map[string]bool {
	t.Helper()
	rs, err := Serve(all.All(), config, everything(t))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, r := range rs {
		for i := range r.Versions {
			if v := &r.Versions[i]; !v.Unserved {
				out[v.GroupVersion.String()+"/"+r.Plural] = true
			}
		}
	}
	return out
}

func TestServe(t *testing.T) {
	usual := served(t)
	for _, c := range []struct {
		config  string
		on, off []string
	}{
		{"", []string{"v1/pods", "apps/v1/daemonsets", "resource.k8s.io/v1/resourceclaims"}, []string{"resource.k8s.io/v1beta1/resourceclaims", "coordination.k8s.io/v1beta1/leasecandidates"}},
		{"api/all=true", []string{"v1/pods", "resource.k8s.io/v1beta1/resourceclaims", "admissionregistration.k8s.io/v1alpha1/mutatingadmissionpolicies", "coordination.k8s.io/v1alpha2/leasecandidates"}, nil},
		{"api/beta=true", []string{"resource.k8s.io/v1beta2/resourceclaims", "certificates.k8s.io/v1beta1/clustertrustbundles"}, []string{"resource.k8s.io/v1alpha3/devicetaintrules"}},
		{"api/alpha", []string{"resource.k8s.io/v1alpha3/devicetaintrules"}, []string{"resource.k8s.io/v1beta2/resourceclaims"}},
		{"api/beta=true,resource.k8s.io/v1beta1=false", []string{"resource.k8s.io/v1beta2/resourceclaims"}, []string{"resource.k8s.io/v1beta1/resourceclaims"}},
		{"resource.k8s.io/v1beta1/resourceslices=true", []string{"resource.k8s.io/v1beta1/resourceslices"}, []string{"resource.k8s.io/v1beta1/resourceclaims"}},
		{"apps/v1/daemonsets=false", []string{"apps/v1/deployments"}, []string{"apps/v1/daemonsets"}},
		{"batch/v1=false,batch/v1/jobs=true", []string{"batch/v1/jobs"}, []string{"batch/v1/cronjobs"}},
		{"api/all=false,v1=true", []string{"v1/pods"}, []string{"apps/v1/deployments"}},
		{"api/ga=false,api/v1=true", []string{"v1/pods"}, []string{"apps/v1/deployments"}},
	} {
		var config []string
		if c.config != "" {
			config = strings.Split(c.config, ",")
		}
		got := served(t, config...)
		for _, name := range c.on {
			if !got[name] {
				t.Errorf("%s: %s is not served", c.config, name)
			}
		}
		for _, name := range c.off {
			if got[name] {
				t.Errorf("%s: %s is served", c.config, name)
			}
		}
		if c.config == "" {
			if diff := cmp.Diff(usual, got); diff != "" {
				t.Error(diff)
			}
		}
	}
}

// TestServeGated checks that kinds of disabled features are not served,
// whatever --runtime-config says.
func TestServeGated(t *testing.T) {
	features, err := feature.Parse([]string{"GenericWorkload=true", "StorageVersionAPI=true"})
	if err != nil {
		t.Fatal(err)
	}
	rs, err := Serve(all.All(), []string{"api/all=true"}, features)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, r := range rs {
		got[r.GroupResource().String()] = true
	}
	for name, want := range map[string]bool{
		"workloads.scheduling.k8s.io": true, "podgroups.scheduling.k8s.io": true, "compositepodgroups.scheduling.k8s.io": false,
		"storageversions.internal.apiserver.k8s.io": true, "evictionrequests.lifecycle.k8s.io": false, "evictions.lifecycle.k8s.io": false,
		"resourcepoolstatusrequests.resource.k8s.io": false, "leasecandidates.coordination.k8s.io": true,
	} {
		if got[name] != want {
			t.Errorf("%s is served: %v, want %v", name, got[name], want)
		}
	}
}

func TestServeRefuses(t *testing.T) {
	_, err := Serve(all.All(), []string{"apps/v9=true", "example.com/v1=true", "apps/v1/widgets=true", "api/beta=true"}, everything(t))
	if err == nil || !strings.Contains(err.Error(), "apps/v1/widgets, apps/v9, example.com/v1:") {
		t.Errorf("%v", err)
	}
	if _, err := Serve(all.All(), []string{"apps/v1=maybe"}, everything(t)); err == nil || !strings.Contains(err.Error(), `apps/v1: "maybe"`) {
		t.Errorf("%v", err)
	}
}

// TestConversions checks that every version survives conversion to the hub and
// back, and the hub to every version and back.
func TestConversions(t *testing.T) {
	rs, err := Serve(all.All(), []string{"api/all=true"}, everything(t))
	if err != nil {
		t.Fatal(err)
	}
	fill := randfill.NewWithSeed(1).NilChance(0.2).NumElements(1, 2).MaxDepth(12).Funcs(fillers()...).Funcs(
		func(r *json.RawMessage, _ randfill.Continue) { *r = nil },
		func(d *resourcev1beta1.DeviceRequest, c randfill.Continue) {
			c.FillNoCustom(d)
			if len(d.FirstAvailable) > 0 {
				*d = resourcev1beta1.DeviceRequest{Name: d.Name, FirstAvailable: d.FirstAvailable}
			}
		},
		func(s *certificatesv1beta1.PodCertificateRequestSpec, c randfill.Continue) {
			c.FillNoCustom(s)
			s.PKIXPublicKey, s.ProofOfPossession = nil, nil //nolint:staticcheck // the deprecated fields are lost
		},
		func(d *resourcev1beta1.Device, c randfill.Continue) {
			c.FillNoCustom(d)
			if d.Basic == nil {
				d.Basic = &resourcev1beta1.BasicDevice{}
			}
		},
	)
	for _, r := range rs {
		for i := range r.Versions {
			v := &r.Versions[i]
			if v.Hub || !strings.Contains(v.Version, "alpha") && !strings.Contains(v.Version, "beta") {
				continue
			}
			for range 50 {
				obj := v.New()
				kind := obj.GetObjectKind().GroupVersionKind()
				fill.Fill(obj)
				obj.GetObjectKind().SetGroupVersionKind(kind)
				hub := v.ToHub(obj)
				if got := hub.GetObjectKind().GroupVersionKind(); got != r.Hub().WithKind(r.Kind) {
					t.Fatalf("%v became %v", kind, got)
				}
				back := v.FromHub(hub)
				if lost := missing(decoded(t, obj), decoded(t, back), r.Kind); lost != "" {
					t.Fatalf("%v loses %s:\n%s", kind, lost, cmp.Diff(decoded(t, obj), decoded(t, back)))
				}
				if diff := cmp.Diff(decoded(t, hub), decoded(t, v.ToHub(back))); diff != "" {
					t.Fatalf("%v: %s", kind, diff)
				}
			}
		}
	}
}

func decoded(t *testing.T, obj any) any {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// missing returns the path of the first value in a that b lacks or has
// different. b can have more, which are defaults.
func missing(a, b any, path string) string {
	switch a := a.(type) {
	case map[string]any:
		other, _ := b.(map[string]any)
		for name, value := range a {
			if lost := missing(value, other[name], path+"."+name); lost != "" {
				return lost
			}
		}
	case []any:
		other, _ := b.([]any)
		if len(a) != len(other) {
			return path
		}
		for i := range a {
			if lost := missing(a[i], other[i], path+"[]"); lost != "" {
				return lost
			}
		}
	case nil, string, float64, bool:
		if a != nil && a != "" && a != 0.0 && a != b {
			return path
		}
	}
	return ""
}

// TestLayouts checks that types that share memory with the hub's types have
// the same layout.
func TestLayouts(t *testing.T) {
	rs, err := Serve(all.All(), []string{"api/all=true"}, everything(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		for i := range r.Versions {
			v := &r.Versions[i]
			convertedJSON := r.Group == "resource.k8s.io" && v.Version == "v1beta1" && r.Plural != "deviceclasses" || r.Plural == "podcertificaterequests"
			if v.Hub || convertedJSON {
				continue
			}
			if !strings.Contains(v.Version, "alpha") && !strings.Contains(v.Version, "beta") {
				continue
			}
			a, b := reflect.TypeOf(v.New()).Elem(), reflect.TypeOf(r.Hub().New()).Elem()
			if why := differs(a, b, r.Kind, map[[2]reflect.Type]bool{}); why != "" {
				t.Errorf("%v and the hub differ at %s", v.WithKind(r.Kind), why)
			}
		}
	}
}

func differs(a, b reflect.Type, path string, seen map[[2]reflect.Type]bool) string {
	pair := [2]reflect.Type{a, b}
	if a == b || seen[pair] {
		return ""
	}
	seen[pair] = true
	if a.Kind() != b.Kind() {
		return path
	}
	switch a.Kind() {
	case reflect.Struct:
		if a.NumField() != b.NumField() {
			return path
		}
		for i := range a.NumField() {
			if a.Field(i).Name != b.Field(i).Name || a.Field(i).Offset != b.Field(i).Offset {
				return path + "." + a.Field(i).Name
			}
			if why := differs(a.Field(i).Type, b.Field(i).Type, path+"."+a.Field(i).Name, seen); why != "" {
				return why
			}
		}
	case reflect.Map:
		if why := differs(a.Key(), b.Key(), path, seen); why != "" {
			return why
		}
		return differs(a.Elem(), b.Elem(), path, seen)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return differs(a.Elem(), b.Elem(), path, seen)
	}
	return ""
}

// TestServeWithoutFeature checks that a kind that is served by default is only
// read from the store if its feature is disabled.
func TestServeWithoutFeature(t *testing.T) {
	features, err := feature.Parse([]string{"ClusterTrustBundle=false", "ClusterTrustBundleProjection=false", "DRADeviceTaintRules=false"})
	if err != nil {
		t.Fatal(err)
	}
	served, err := Serve(all.All(), nil, features)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range served {
		off := r.Plural == "clustertrustbundles" || r.Plural == "devicetaintrules"
		if hub := r.Hub(); off && !hub.Unserved || r.Plural == "podcertificaterequests" && hub.Unserved {
			t.Errorf("%s is unserved: %t", r.Plural, hub.Unserved)
		}
	}
	for _, gvr := range Unserved(all.All(), served) {
		if gvr.Resource == "clustertrustbundles" && gvr.Version == "v1" {
			return
		}
	}
	t.Error("clustertrustbundles are not among what is not served")
}
