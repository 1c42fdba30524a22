package ingress

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/ingress/gateway"
	"github.com/coracle-io/coracle/internal/ingress/table"
)

// newDynamic returns a fake API of the resources that client-go does not know.
func newDynamic() *dynamicfake.FakeDynamicClient {
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		customResource("apiextensions.k8s.io", "v1", "customresourcedefinitions"): "CustomResourceDefinitionList",
		customResource(gateway.Group, "v1", gatewayClasses):                       "GatewayClassList",
		customResource(gateway.Group, "v1", gatewaysOfAPI):                        "GatewayList",
		customResource(gateway.Group, "v1", httpRoutes):                           "HTTPRouteList",
		customResource(gateway.Group, "v1", grpcRoutes):                           "GRPCRouteList",
		customResource(gateway.Group, "v1beta1", referenceGrants):                 "ReferenceGrantList",
	})
}

func customResource(group, version, name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: name}
}

// make creates an object in JSON. Its UID is its name.
func (b *bench) make(version, resource, text string) {
	b.t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
		b.t.Fatal(err)
	}
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		b.t.Fatal(err)
	}
	u.SetAPIVersion(version)
	u.SetUID(types.UID(resource + "/" + u.GetName()))
	var in dynamic.ResourceInterface = b.Env.Client.Dynamic.Resource(gv.WithResource(resource))
	if namespace := u.GetNamespace(); namespace != "" {
		in = b.Env.Client.Dynamic.Resource(gv.WithResource(resource)).Namespace(namespace)
	}
	if _, err := in.Create(context.Background(), u, metav1.CreateOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

// define installs the definition of a resource of the Gateway API, with a version.
func (b *bench) define(resource, version string) {
	b.t.Helper()
	b.make("apiextensions.k8s.io/v1", "customresourcedefinitions", `{"kind": "CustomResourceDefinition", "metadata": {"name": "`+resource+"."+gateway.Group+`"},
		"spec": {"versions": [{"name": "v1alpha2", "served": true}, {"name": "`+version+`", "served": true, "schema": {}}]},
		"status": {"conditions": [{"type": "Established", "status": "True"}]}}`)
}

// conditionsOf returns the conditions of an object of the Gateway API, or of its first
// parent.
func (b *bench) conditionsOf(resource, namespace, name string) string {
	u, err := b.Env.Client.Dynamic.Resource(customResource(gateway.Group, "v1", resource)).Namespace(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	data, err := json.Marshal(u.Object["status"])
	if err != nil {
		return err.Error()
	}
	type condition struct{ Type, Status string }
	var status struct {
		Conditions []condition
		Addresses  []struct{ Value string }
		Parents    []struct{ Conditions []condition }
	}
	if err := json.Unmarshal(data, &status); err != nil {
		return err.Error()
	}
	if len(status.Parents) > 0 {
		status.Conditions = status.Parents[0].Conditions
	}
	var all []string
	for _, c := range status.Conditions {
		all = append(all, c.Type+"="+c.Status)
	}
	for _, a := range status.Addresses {
		all = append(all, a.Value)
	}
	return strings.Join(all, " ")
}

// Once a user has installed the definitions of the Gateway API, Gateways are served. Before
// that, one definition is watched.
func TestGatewaysAreServedOnceTheyAreDefined(t *testing.T) {
	b := start(t, false, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, newService("web", "web"))
	b.eventually(func() string {
		_, err := b.Fake.NetworkingV1().IngressClasses().Get(context.Background(), DefaultClass, metav1.GetOptions{})
		return strconv.FormatBool(err == nil)
	}, "true")
	for _, resource := range []string{gatewayClasses, gatewaysOfAPI, httpRoutes, "namespaces"} {
		if b.isWatched(resource) {
			t.Errorf("%s are watched before they are defined", resource)
		}
	}
	for _, resource := range []string{httpRoutes, grpcRoutes, gatewayClasses, gatewaysOfAPI} {
		b.define(resource, "v1")
	}
	b.define(referenceGrants, "v1beta1")
	b.eventually(func() string { return b.conditionsOf(gatewayClasses, "", gateway.DefaultClass) }, "Accepted=True")
	if at := b.address(httpPort); at != "" {
		t.Error("a port is open without a Gateway")
	}

	b.make(gateway.Group+"/v1", gatewaysOfAPI, `{"kind": "Gateway", "metadata": {"name": "gw", "namespace": "web"},
		"spec": {"gatewayClassName": "coracle", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}}`)
	b.make(gateway.Group+"/v1", httpRoutes, `{"kind": "HTTPRoute", "metadata": {"name": "shop", "namespace": "web"},
		"spec": {"parentRefs": [{"name": "gw"}], "hostnames": ["shop.example"], "rules": [
			{"backendRefs": [{"name": "web", "port": 80}]}, {"matches": [{"path": {"value": "/none"}}], "backendRefs": [{"name": "none", "port": 80}]}]}}`)
	b.eventually(func() string { return b.conditionsOf(gatewaysOfAPI, "web", "gw") }, "Accepted=True Programmed=True 192.0.2.1")
	b.eventually(func() string { return b.conditionsOf(httpRoutes, "web", "shop") }, "Accepted=True ResolvedRefs=False")
	b.eventually(func() string { return b.ask("shop.example") }, "503 503 Service Unavailable") // there is no pod
	b.eventually(func() string { return b.ask("shop.example/none") }, "500 500 Internal Server Error")
	b.eventually(func() string { return b.ask("other.example") }, "404 404 Not Found")

	// The addresses are those of nodes that are there.
	nodes := b.Fake.CoreV1().Nodes()
	if err := nodes.Delete(t.Context(), "here", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.eventually(func() string { return b.conditionsOf(gatewaysOfAPI, "web", "gw") }, "Accepted=True Programmed=False")
	if _, err := nodes.Create(t.Context(), newNode("here", "192.0.2.1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.eventually(func() string { return b.conditionsOf(gatewaysOfAPI, "web", "gw") }, "Accepted=True Programmed=True 192.0.2.1")

	// A Gateway of another class is another controller's.
	b.make(gateway.Group+"/v1", gatewaysOfAPI, `{"kind": "Gateway", "metadata": {"name": "foreign", "namespace": "web"},
		"spec": {"gatewayClassName": "other", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}}`)
	if err := b.Env.Client.Dynamic.Resource(customResource(gateway.Group, "v1", gatewaysOfAPI)).Namespace("web").Delete(t.Context(), "gw", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.eventually(func() string { return b.address(httpPort) + b.address(httpsPort) }, "")
	if got := b.conditionsOf(gatewaysOfAPI, "web", "foreign"); got != "" {
		t.Errorf("a Gateway of another class has the conditions %s", got)
	}
}

// Servers that do not agree on a status must not write it as fast as they can.
func TestStatusesOfGatewaysAreNotWrittenInALoop(t *testing.T) {
	api := newDynamic()
	c := New(Config{Client: &client.Client{Dynamic: api}})
	synctest.Test(t, func(t *testing.T) {
		keys := []gatewayStatusKey{{gatewaysOfAPI, "web", "one"}, {gatewaysOfAPI, "web", "two"}}
		c.pending = map[gatewayStatusKey]gatewayStatus{}
		for _, key := range keys {
			c.pending[key] = gatewayStatus{customResource(gateway.Group, "v1", gatewaysOfAPI), key.namespace, key.name, []byte("{}")}
		}
		for _, want := range []int{2, 4} {
			for range 3 {
				for _, key := range keys {
					if err := c.syncGatewayStatus(t.Context(), key); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got := len(api.Actions()); got != want {
				t.Errorf("%d writes, want %d", got, want)
			}
			time.Sleep(statusPause)
		}
	})
}

// A host belongs to the namespace whose Ingress or Gateway had it first, between both.
func TestHostsOfIngressesAndGateways(t *testing.T) {
	old, late := newIngress("one", "old", 2, newRule("a.example", "/=web:80")), newIngress("one", "late", 0, newRule("b.example", "/=web:80"))
	listener := []gateway.Listener{{Name: "http", Port: 80, Protocol: "HTTP"}}
	g := &gateway.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "two", Name: "gw", CreationTimestamp: metav1.NewTime(old.CreationTimestamp.Add(time.Hour))}}
	g.Spec.GatewayClassName, g.Spec.Listeners = gateway.DefaultClass, listener
	class := &gateway.Class{ObjectMeta: metav1.ObjectMeta{Name: gateway.DefaultClass}}
	class.Spec.ControllerName = gateway.ControllerName
	r := &gateway.Route{Kind: gateway.KindHTTP, ObjectMeta: metav1.ObjectMeta{Namespace: "two", Name: "shop", CreationTimestamp: g.CreationTimestamp}}
	r.Spec.ParentRefs = []gateway.ParentRef{{Reference: gateway.Reference{Name: "gw"}}}
	r.Spec.Hostnames = []string{"a.example", "b.example"}
	r.Spec.Rules = []gateway.Rule{{BackendRefs: []gateway.BackendRef{{Reference: gateway.Reference{Name: "web"}, Port: new(int32(80))}}}}
	o := objects{
		ingresses: []*networkingv1.Ingress{old, late}, services: []*v1.Service{newService("one", "web"), newService("two", "web")},
		gateways: gateway.Source{
			Classes: []*gateway.Class{class}, Gateways: []*gateway.Gateway{g}, Routes: []*gateway.Route{r}, HTTPPort: 80, HTTPSPort: 443,
			Addresses: func([]string) []string { return nil },
		},
	}
	served, problems := o.compile()
	for host, want := range map[string]string{"a.example": "one/old", "b.example": "two/HTTPRoute/shop"} {
		request, err := http.NewRequest(http.MethodGet, "http://"+host+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		path, err := table.ParsePath("/")
		if err != nil {
			t.Fatal(err)
		}
		found := served.Match(host, path, request)
		if found == nil || found.Namespace+"/"+found.Name != want {
			t.Errorf("%s is answered by %+v, want %s", host, found, want)
		}
	}
	if got := reasons(problems, old) + "," + reasons(problems, late); got != ","+hostConflict {
		t.Errorf("problems %s", got)
	}
}

// listed counts how often its objects are listed.
type listed struct {
	cache.Indexer
	times int
}

func (l *listed) List() []any {
	l.times++
	return l.Indexer.List()
}

// Many Gateways are given addresses by one look at the nodes.
func TestAddressesOfManyGateways(t *testing.T) {
	nodes := &listed{Indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})}
	for _, address := range []string{"192.0.2.1", "192.0.2.2"} {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: address}, Status: v1.NodeStatus{Addresses: []v1.NodeAddress{{Address: address}}}}
		if err := nodes.Add(n); err != nil {
			t.Fatal(err)
		}
	}
	c := &Controller{Config: Config{Addresses: []string{"192.0.2.1"}}, nodes: nodes, ports: newPorts(nil, nil, 80, 443, nil)}
	c.ports.all[0].isOpen = true
	addresses := c.gatewayAddresses()
	for range 100 {
		if got := addresses([]string{"192.0.2.2", "192.0.2.9"}); !slices.Equal(got, []string{"192.0.2.1", "192.0.2.2"}) {
			t.Fatalf("got %q", got)
		}
	}
	if nodes.times != 1 {
		t.Errorf("the nodes were listed %d times", nodes.times)
	}
}
