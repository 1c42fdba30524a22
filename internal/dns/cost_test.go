package dns

import (
	"fmt"
	"testing"

	"github.com/miekg/dns"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/costtest"
)

// crowdedZone returns a zone of n headless Services with two endpoints each, and the view
// by which it is changed.
func crowdedZone(tb testing.TB, n int) (*Zone, *informerView) {
	tb.Helper()
	source := cachetesting.NewFakeControllerSource()
	view, err := newInformerView(tb.Context(), &client.Client{Watch: func(schema.GroupVersionResource, string, fields.Selector) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(source, &v1.Service{}, 0, cache.Indexers{})
	}})
	if err != nil {
		tb.Fatal(err)
	}
	add := func(to cache.Indexer, obj any) {
		if err := to.Add(obj); err != nil {
			tb.Fatal(err)
		}
	}
	add(view.namespaces, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	for i := range n {
		name := fmt.Sprint("s", i)
		add(view.services, &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1.ServiceSpec{ClusterIPs: []string{v1.ClusterIPNone}}})
		add(view.slices, crowdedSlice(name, "10.0.0.1", "10.0.0.2"))
	}
	return &Zone{Domain: "cluster.local.", TTL: ttl, View: view}, view
}

func crowdedSlice(service string, addresses ...string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: addresses}},
	}
}

// changeAndAsk changes the endpoints of one Service, and returns the answer about it.
func changeAndAsk(tb testing.TB, zone *Zone, view *informerView, address string) *dns.Msg {
	if err := view.slices.Update(crowdedSlice("s7", "10.0.0.1", address)); err != nil {
		tb.Fatal(err)
	}
	query := new(dns.Msg).SetQuestion("s7.default.svc.cluster.local.", dns.TypeA)
	reply := new(dns.Msg).SetReply(query)
	zone.Answer(reply, query.Question[0])
	return reply
}

// TestCostOfAChange checks that the change of one Service and the next answer cost among
// 10,000 Services what they cost among 100: nothing is made of the others.
func TestCostOfAChange(t *testing.T) {
	cost := func(services int) uint64 {
		zone, view := crowdedZone(t, services)
		const changes = 20 // of which one may make a map grow
		var reply *dns.Msg
		c := costtest.Of(t, func() {
			for i := range changes {
				reply = changeAndAsk(t, zone, view, fmt.Sprint("10.0.1.", i))
			}
		})
		if len(reply.Answer) != 2 || reply.Rcode != dns.RcodeSuccess {
			t.Errorf("with %d Services, the answer is\n%v", services, reply)
		}
		return c.Bytes / changes
	}
	few, many := cost(100), cost(10_000)
	if many > 4*few {
		t.Errorf("a change and an answer allocate %d bytes with 100 Services and %d with 10,000", few, many)
	}
}

// BenchmarkChange measures the change of one Service and the next answer.
func BenchmarkChange(b *testing.B) {
	for _, services := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprint(services, "Services"), func(b *testing.B) {
			zone, view := crowdedZone(b, services)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				changeAndAsk(b, zone, view, fmt.Sprintf("10.0.1.%d", 1+i%200))
			}
		})
	}
}
