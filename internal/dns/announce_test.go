package dns

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/client"
)

// TestAnnounceAgain announces when the Service exists. An API server would
// refuse to create it again because of its address, not because of its name.
func TestAnnounceAgain(t *testing.T) {
	s := &Server{config: Config{Announce: []string{"10.96.0.10"}, Addresses: []string{"10.0.0.1"}, NodeName: "a", Port: 53}}
	kubernetes := fake.NewSimpleClientset(s.service())
	kubernetes.PrependReactor("create", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, serviceName, nil)
	})
	s.config.Client = &client.Client{Kubernetes: kubernetes}
	if err := s.publish(t.Context(), s.endpointSlices(), nil); err != nil {
		t.Error(err)
	}
}

// TestAnnounceTogether announces while another server creates the Service, which
// has the address then.
func TestAnnounceTogether(t *testing.T) {
	s := &Server{config: Config{Announce: []string{"10.96.0.10"}, Addresses: []string{"10.0.0.1"}, NodeName: "a", Port: 53}}
	kubernetes := fake.NewSimpleClientset()
	kubernetes.PrependReactor("create", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.Join(kubernetes.Tracker().Add(s.service()), apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, serviceName, nil))
	})
	s.config.Client = &client.Client{Kubernetes: kubernetes}
	if err := s.publish(t.Context(), s.endpointSlices(), nil); err != nil {
		t.Error(err)
	}
}

// What the server of one node has left is withdrawn, and not what others announce.
func TestWithdraw(t *testing.T) {
	gone := &Server{config: Config{Addresses: []string{"10.0.0.2", "fd00::2"}, NodeName: "b", Port: 53}}
	other := &Server{config: Config{Addresses: []string{"10.0.0.1"}, NodeName: "a", Port: 53}}
	kubernetes := fake.NewSimpleClientset()
	for _, slice := range append(gone.endpointSlices(), other.endpointSlices()...) {
		if err := kubernetes.Tracker().Add(slice); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := Withdraw(t.Context(), kubernetes, "b"); err != nil {
			t.Error(err)
		}
	}
	left, err := kubernetes.DiscoveryV1().EndpointSlices(serviceNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 1 || left.Items[0].Name != "kube-dns-a-ipv4" {
		t.Errorf("left %+v, %v", left, err)
	}
	kubernetes.PrependReactor("delete", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no")
	})
	if err := Withdraw(t.Context(), kubernetes, "a"); err == nil {
		t.Error("a failure is no error")
	}
}

// TestWhatIsAnnouncedIsKept deletes and changes what the server announces, and
// expects it to be restored, and to be gone after the server.
func TestWhatIsAnnouncedIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kubernetes := fake.NewSimpleClientset()
		view := &informerView{services: cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), slices: cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)}
		s := &Server{
			config: Config{
				Client: &client.Client{Kubernetes: kubernetes}, Announce: []string{"10.96.0.10"}, Addresses: []string{"10.0.0.1"}, NodeName: "a", Port: 53,
			},
			view: view,
		}
		services, slices := kubernetes.CoreV1().Services(serviceNamespace), kubernetes.DiscoveryV1().EndpointSlices(serviceNamespace)
		const slice = "kube-dns-a-ipv4"
		// inform fills the informers with what the API server has.
		inform := func() {
			var there []any
			if service, err := services.Get(t.Context(), serviceName, metav1.GetOptions{}); err == nil {
				there = append(there, service)
			}
			_ = view.services.Replace(there, "")
			there = nil
			if have, err := slices.Get(t.Context(), slice, metav1.GetOptions{}); err == nil {
				there = append(there, have)
			}
			_ = view.slices.Replace(there, "")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.announce(ctx) }()
		for change, apply := range map[string]func() error{
			"nothing":                func() error { return nil },
			"the Service is deleted": func() error { return services.Delete(t.Context(), serviceName, metav1.DeleteOptions{}) },
			"the slice is deleted":   func() error { return slices.Delete(t.Context(), slice, metav1.DeleteOptions{}) },
			"the slice is emptied": func() error {
				_, err := slices.Update(t.Context(), &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: slice, Namespace: serviceNamespace}}, metav1.UpdateOptions{})
				return err
			},
		} {
			synctest.Wait()
			if err := apply(); err != nil {
				t.Fatalf("%s: %v", change, err)
			}
			inform()
			time.Sleep(2 * announceInterval)
			synctest.Wait()
			service, err := services.Get(t.Context(), serviceName, metav1.GetOptions{})
			if err != nil || service.Spec.ClusterIP != "10.96.0.10" {
				t.Errorf("%s: Service %v, %v", change, service, err)
			}
			have, err := slices.Get(t.Context(), slice, metav1.GetOptions{})
			if err != nil || len(have.Endpoints) != 1 || have.Labels[discoveryv1.LabelServiceName] != serviceName {
				t.Errorf("%s: EndpointSlice %v, %v", change, have, err)
			}
			inform()
		}
		before := len(kubernetes.Actions())
		time.Sleep(10 * announceInterval)
		if requests := kubernetes.Actions()[before:]; len(requests) > 0 {
			t.Errorf("checks make requests: %v", requests)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if left, err := slices.List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) > 0 {
			t.Errorf("left are %v, %v", left, err)
		}
	})
}

// dualStackServer returns a server with addresses of both families whose informers have
// nothing and do not run.
func dualStackServer(kubernetes *fake.Clientset) *Server {
	return &Server{
		config: Config{
			Client: &client.Client{Kubernetes: kubernetes}, Announce: []string{"10.96.0.10", "fd01::a"}, Addresses: []string{"10.0.0.1", "fd00::1"}, NodeName: "a", Port: 53,
		},
		view: &informerView{
			services: cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil),
			slices: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byService: func(obj any) ([]string, error) {
				return []string{serviceNamespace + "/" + obj.(*discoveryv1.EndpointSlice).Labels[discoveryv1.LabelServiceName]}, nil
			}}),
		},
	}
}

// TestAnnounceAfterAConflict loses each slice while it is updated, and expects a new one,
// which an API server would refuse with the version of the lost one.
func TestAnnounceAfterAConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kubernetes := fake.NewSimpleClientset()
		s := dualStackServer(kubernetes)
		for _, slice := range s.endpointSlices() {
			slice.ResourceVersion, slice.Endpoints = "7", nil
			if err := kubernetes.Tracker().Add(slice); err != nil {
				t.Fatal(err)
			}
		}
		resource := discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
		kubernetes.PrependReactor("update", resource.Resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
			name := action.(clienttesting.UpdateAction).GetObject().(*discoveryv1.EndpointSlice).Name
			return true, nil, errors.Join(kubernetes.Tracker().Delete(resource, serviceNamespace, name), apierrors.NewConflict(resource.GroupResource(), name, nil))
		})
		kubernetes.PrependReactor("create", resource.Resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
			if version := action.(clienttesting.CreateAction).GetObject().(*discoveryv1.EndpointSlice).ResourceVersion; version != "" {
				return true, nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
			}
			return false, nil, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.announce(ctx) }()
		time.Sleep(announceInterval / 2)
		synctest.Wait()
		list, err := kubernetes.DiscoveryV1().EndpointSlices(serviceNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 2 || len(list.Items[0].Endpoints) != 1 || len(list.Items[1].Endpoints) != 1 {
			t.Errorf("the slices are %+v, %v", list.Items, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestAnotherServerTakesThePlace adds the endpoints of another DNS server, such as
// CoreDNS, to the Service, and expects this one to answer only for the addresses and
// as long as no other one does.
func TestAnotherServerTakesThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kubernetes := fake.NewSimpleClientset()
		s := dualStackServer(kubernetes)
		services, endpoints := kubernetes.CoreV1().Services(serviceNamespace), kubernetes.DiscoveryV1().EndpointSlices(serviceNamespace)
		const ipv4, ipv6, foreign = "kube-dns-a-ipv4", "kube-dns-a-ipv6", "kube-dns-abcde"
		other := func(ready bool) *discoveryv1.EndpointSlice {
			return &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{
					Name: foreign, Namespace: serviceNamespace,
					Labels: map[string]string{discoveryv1.LabelServiceName: serviceName, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"},
				},
				AddressType: discoveryv1.AddressTypeIPv4,
				Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.9"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.announce(ctx) }()
		for i, step := range []struct {
			change func() error
			want   []string
		}{
			{func() error { return nil }, []string{ipv4, ipv6}},
			{func() error {
				_, err := endpoints.Create(t.Context(), other(false), metav1.CreateOptions{})
				return err
			}, []string{ipv4, ipv6, foreign}},
			{func() error {
				_, err := endpoints.Update(t.Context(), other(true), metav1.UpdateOptions{})
				return err
			}, []string{ipv6, foreign}},
			{func() error { return services.Delete(t.Context(), serviceName, metav1.DeleteOptions{}) }, []string{ipv6, foreign}},
			{func() error { return endpoints.Delete(t.Context(), foreign, metav1.DeleteOptions{}) }, []string{ipv4, ipv6}},
		} {
			synctest.Wait()
			if err := step.change(); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
			for range 2 { // what the informers have, also of what this server did then
				var knownServices, knownSlices []any
				if service, err := services.Get(t.Context(), serviceName, metav1.GetOptions{}); err == nil {
					knownServices = append(knownServices, service)
				}
				list, err := endpoints.List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				for j := range list.Items {
					knownSlices = append(knownSlices, &list.Items[j])
				}
				_, _ = s.view.services.Replace(knownServices, ""), s.view.slices.Replace(knownSlices, "")
				time.Sleep(2 * announceInterval)
				synctest.Wait()
			}
			if _, err := services.Get(t.Context(), serviceName, metav1.GetOptions{}); err != nil {
				t.Errorf("step %d: %v", i, err)
			}
			list, err := endpoints.List(t.Context(), metav1.ListOptions{})
			var got []string
			for _, slice := range list.Items {
				got = append(got, slice.Name)
			}
			if slices.Sort(got); err != nil || !slices.Equal(got, step.want) {
				t.Errorf("step %d: the slices are %v, %v; want %v", i, got, err, step.want)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Addresses are announced in the canonical notation, which the API requires.
func TestNotationOfAddresses(t *testing.T) {
	s := &Server{config: Config{Addresses: []string{"FD00:0::1", "::ffff:10.0.0.1", "::1"}, NodeName: "a", Port: 53}}
	got := map[discoveryv1.AddressType]string{}
	for _, slice := range s.endpointSlices() {
		got[slice.AddressType] = strings.Join(slice.Endpoints[0].Addresses, " ")
	}
	want := map[discoveryv1.AddressType]string{discoveryv1.AddressTypeIPv4: "10.0.0.1", discoveryv1.AddressTypeIPv6: "fd00::1"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
