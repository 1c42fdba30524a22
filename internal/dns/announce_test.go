package dns

import (
	"context"
	"errors"
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
	if err := s.publish(t.Context()); err != nil {
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
	if err := s.publish(t.Context()); err != nil {
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
