package aggregator

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/coracle-io/coracle/internal/resource"
	"k8s.io/utils/ptr"
)

func TestDecide(t *testing.T) {
	boats := schema.GroupVersion{Group: "sea.example.com", Version: "v1"}
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	const boatsName, appsName = "v1.sea.example.com", "v1.apps"
	registered := func(gv schema.GroupVersion, managed string, group, version int32) *apiregistrationv1.APIService {
		s := &apiregistrationv1.APIService{Spec: apiregistrationv1.APIServiceSpec{
			Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: group, VersionPriority: version,
		}}
		if managed != "" {
			s.Labels = map[string]string{managedLabel: managed}
		}
		return s
	}
	with := func(s *apiregistrationv1.APIService, service string) *apiregistrationv1.APIService {
		s.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "default", Name: service}
		return s
	}
	tests := map[string]struct {
		all      map[string]*apiregistrationv1.APIService
		custom   []schema.GroupVersion
		starting bool
		want     map[string]string
	}{
		"all there": {
			all: map[string]*apiregistrationv1.APIService{
				appsName: registered(apps, managedOnStart, 17800, 15), boatsName: registered(boats, managedAlways, 1000, 100),
			},
			custom: []schema.GroupVersion{boats}, starting: true, want: map[string]string{},
		},
		"the first start": {
			custom: []schema.GroupVersion{boats}, starting: true, want: map[string]string{appsName: "create onstart", boatsName: "create true"},
		},
		"one of the built-in ones is deleted": {custom: nil, want: map[string]string{}},
		"one of a custom resource is deleted": {custom: []schema.GroupVersion{boats}, want: map[string]string{boatsName: "create true"}},
		"the last definition of a group version is gone": {
			all: map[string]*apiregistrationv1.APIService{boatsName: registered(boats, managedAlways, 1000, 100)}, want: map[string]string{boatsName: "delete"},
		},
		"a built-in group version is no longer served": {
			all:      map[string]*apiregistrationv1.APIService{"v1beta1.apps": registered(schema.GroupVersion{Group: "apps", Version: "v1beta1"}, managedOnStart, 17800, 9), appsName: registered(apps, managedOnStart, 17800, 15)},
			starting: true, want: map[string]string{"v1beta1.apps": "delete"},
		},
		"changed by a user": {
			all:    map[string]*apiregistrationv1.APIService{boatsName: registered(boats, managedAlways, 5, 5)},
			custom: []schema.GroupVersion{boats}, want: map[string]string{boatsName: "update"},
		},
		"redirected by a user": {
			all:    map[string]*apiregistrationv1.APIService{boatsName: with(registered(boats, managedAlways, 1000, 100), "mine")},
			custom: []schema.GroupVersion{boats}, want: map[string]string{boatsName: "update"},
		},
		"created by a user": {
			all:    map[string]*apiregistrationv1.APIService{boatsName: with(registered(boats, "", 1000, 100), "mine")},
			custom: []schema.GroupVersion{boats}, want: map[string]string{},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			custom := resource.GroupVersions{}
			for _, gv := range test.custom {
				custom[gv] = resource.Priority{Group: 1000, Version: 100}
			}
			builtIn := resource.GroupVersions{apps: {}, {Group: apiregistrationv1.GroupName, Version: "v1"}: {}}
			got := map[string]string{}
			for name, c := range decide(test.all, builtIn, custom, test.starting) {
				switch {
				case c.create != nil:
					got[name] = "create " + c.create.Labels[managedLabel]
				case c.update != nil:
					got[name] = "update"
				case c.delete:
					got[name] = "delete"
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestReplaceable checks that another server serves metrics.k8s.io if an
// APIService names its Service, and that this server serves it when that
// APIService is gone.
func TestReplaceable(t *testing.T) {
	gv, name := metricsv1beta1.SchemeGroupVersion, "v1beta1.metrics.k8s.io"
	builtIn := resource.GroupVersions{gv: {Group: 100, Version: 100}}
	in := func(s *apiregistrationv1.APIService) map[string]*apiregistrationv1.APIService {
		return map[string]*apiregistrationv1.APIService{name: s}
	}
	create := decide(nil, builtIn, nil, false)[name].create
	if create == nil || create.Spec.Service != nil {
		t.Fatalf("without an APIService: %+v, want one without a Service at once", create)
	}
	if changes := decide(in(create), builtIn, nil, true); len(changes) > 0 {
		t.Errorf("with its own: %+v, want no change", changes)
	}
	applied := create.DeepCopy()
	applied.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "kube-system", Name: "metrics-server"}
	for _, starting := range []bool{false, true} {
		if changes := decide(in(applied), nil, nil, starting); len(changes) > 0 {
			t.Errorf("another server takes over what this one has turned off: %+v, want no change", changes)
		}
	}
	given := decide(in(applied), builtIn, nil, false)[name].update
	if given == nil || given.Spec.Service == nil || given.Labels[managedLabel] != "" {
		t.Fatalf("another server takes over: %+v, want it to be the user's", given)
	}
	for _, starting := range []bool{false, true} {
		if changes := decide(in(given), builtIn, nil, starting); len(changes) > 0 {
			t.Errorf("another server serves: %+v, want no change", changes)
		}
		if changes := decide(in(given), nil, nil, starting); len(changes) > 0 {
			t.Errorf("another server serves, and this one has turned the group off: %+v, want no change", changes)
		}
	}
}

func TestJudge(t *testing.T) {
	ref := &apiregistrationv1.ServiceReference{Namespace: "orchard", Name: "api", Port: ptr.To(int32(443))}
	service := func(port int32) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Name: "https", Port: port}}}}
	}
	slice := func(port string, ready *bool) []*discoveryv1.EndpointSlice {
		return []*discoveryv1.EndpointSlice{{
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ready}}},
			Ports:     []discoveryv1.EndpointPort{{Name: &port, Port: ptr.To(int32(8443))}},
		}}
	}
	tests := map[string]struct {
		service      *corev1.Service
		slices       []*discoveryv1.EndpointSlice
		reason, text string
	}{
		"no service":        {nil, nil, "ServiceNotFound", `service/api in "orchard" is not present`},
		"another port":      {service(80), nil, "ServicePortError", `service/api in "orchard" is not listening on port 443`},
		"no slices":         {service(443), nil, "EndpointsNotFound", `cannot find endpointslices for service/api in "orchard"`},
		"no ready endpoint": {service(443), slice("https", ptr.To(false)), "MissingEndpoints", `endpointslices for service/api in "orchard" have no addresses with port name "https"`},
		"another port name": {service(443), slice("http", nil), "MissingEndpoints", `endpointslices for service/api in "orchard" have no addresses with port name "https"`},
		"ready":             {service(443), slice("https", ptr.To(true)), "", ""},
		"readiness unknown": {service(443), slice("https", nil), "", ""},
		"by name":           {&corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "api.example.com"}}, nil, "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := endpointProblem(ref, test.service, test.slices)
			if c == nil {
				c = &apiregistrationv1.APIServiceCondition{}
			}
			if c.Reason != test.reason || c.Message != test.text {
				t.Errorf("got %s: %s", c.Reason, c.Message)
			}
		})
	}
}

func TestTransitionTimeChangesWithTheStatusOnly(t *testing.T) {
	condition := func(status apiregistrationv1.ConditionStatus, reason string, unix int64) apiregistrationv1.APIServiceCondition {
		return apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: status, Reason: reason, LastTransitionTime: metav1.Unix(unix, 0)}
	}
	before := []apiregistrationv1.APIServiceCondition{condition(apiregistrationv1.ConditionFalse, "ServiceNotFound", 1)}
	for name, test := range map[string]struct {
		next apiregistrationv1.APIServiceCondition
		want []int64
	}{
		"the same":       {condition(apiregistrationv1.ConditionFalse, "ServiceNotFound", 2), nil},
		"another reason": {condition(apiregistrationv1.ConditionFalse, "MissingEndpoints", 2), []int64{1}},
		"another status": {condition(apiregistrationv1.ConditionTrue, "Passed", 2), []int64{2}},
	} {
		var got []int64
		for _, c := range withCondition(before, test.next) {
			got = append(got, c.LastTransitionTime.Unix())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := withCondition(nil, before[0]); len(got) != 1 {
		t.Errorf("the first condition: %v", got)
	}
}
