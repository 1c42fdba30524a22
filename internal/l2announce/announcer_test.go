package l2announce

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	"k8s.io/client-go/tools/record"

	"github.com/coracle-io/coracle/internal/addresspool"
	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/supervise"
)

// TestAnnouncerFollowsThePools checks that an announcer watches objects only while
// there are pools, and what it wants then.
func TestAnnouncerFollowsThePools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sources := map[string]*cachetesting.FakeControllerSource{}
		watches := map[string]int{}
		for resource := range kinds() {
			sources[resource] = cachetesting.NewFakeControllerSource()
		}
		api := &client.Client{Watch: func(of schema.GroupVersionResource, namespace string, selector fields.Selector) cache.SharedIndexInformer {
			watches[of.Resource+" "+namespace+" "+selector.String()]++
			return cache.NewSharedIndexInformer(sources[of.Resource], kinds()[of.Resource], 0, nil)
		}}
		events := record.NewFakeRecorder(10)
		a := New(Config{Client: api, NodeName: "alpha", Taken: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, Events: events})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- supervise.Run(ctx, func(ctx context.Context) error {
				err := a.follow(ctx)
				if err == nil {
					<-ctx.Done()
				}
				return err
			})
		}()
		expect := func(when string, want, watched int) {
			t.Helper()
			synctest.Wait()
			if got := a.state.wanted(); len(got) != want || watches["services  spec.type=LoadBalancer"] != watched {
				t.Errorf("%s: %v is wanted, want %d; watches %v, want %d", when, got, want, watches, watched)
			}
		}
		pools := func(text string) *v1.ConfigMap {
			return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: addresspool.Namespace, Name: addresspool.Name}, Data: map[string]string{"office": text}}
		}
		service := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "web"}, Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer}}
		service.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}
		sources["services"].Add(service)
		sources["nodes"].Add(node("alpha", v1.ConditionTrue))
		expect("without pools", 0, 0)
		sources["configmaps"].Add(pools("addresses: [192.0.2.0/28]"))
		expect("with a pool", 1, 1)
		a.took(netip.MustParseAddr("192.0.2.1"))
		if got := <-events.Events; got != "Normal AddressAnnounced Node alpha answers for 192.0.2.1" {
			t.Error(got)
		}
		a.ceded(netip.MustParseAddr("192.0.2.1"), hardware{2, 0, 0, 0, 0, 9})
		if got := <-events.Events; got != "Warning AddressConflict Machine 02:00:00:00:00:09 claims 192.0.2.1, too: node alpha leaves it" {
			t.Error(got)
		}
		sources["configmaps"].Modify(pools("addresses: [10.0.0.0/8]"))
		expect("with an error", 1, 1)
		sources["configmaps"].Modify(pools("addresses: [192.0.2.2]"))
		expect("with another pool", 0, 1)
		sources["configmaps"].Delete(pools(""))
		expect("after the pools", 0, 1)
		sources["configmaps"].Add(pools("addresses: [192.0.2.1]"))
		expect("with pools again", 1, 2)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, source := range sources {
			source.Shutdown()
		}
	})
}

// kinds are the objects that an announcer watches, by resource.
func kinds() map[string]runtime.Object {
	return map[string]runtime.Object{"configmaps": &v1.ConfigMap{}, "services": &v1.Service{}, "nodes": &v1.Node{}, "endpointslices": &discoveryv1.EndpointSlice{}}
}
