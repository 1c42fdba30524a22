package kubernetesservice

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/store"
)

// The endpoints are the API servers that are alive, on every server's round.
func TestReconcile(t *testing.T) {
	s := apiservertest.Start(t)
	client := kubernetes.NewForConfigOrDie(s.Config)
	server := func(address string) Config {
		return Config{
			Client: client, Store: s.Store, Address: netip.MustParseAddr(address), Port: 6443, ServiceAddress: netip.MustParseAddr("10.96.0.1"),
		}
	}
	one, two := server("192.0.2.1"), server("192.0.2.2")
	round := func(c Config, want ...string) {
		t.Helper()
		if err := reconcile(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		endpoints, err := client.CoreV1().Endpoints(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range endpoints.Subsets[0].Addresses {
			got = append(got, a.IP)
		}
		slice, err := client.DiscoveryV1().EndpointSlices(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var inSlice []string
		for _, e := range slice.Endpoints {
			inSlice = append(inSlice, e.Addresses...)
		}
		if !slices.Equal(got, want) || !slices.Equal(inSlice, want) || *slice.Ports[0].Port != 6443 || slice.Labels["kubernetes.io/service-name"] != name {
			t.Errorf("endpoints %v, slice %v %+v, want %v", got, inSlice, slice, want)
		}
	}
	round(one, "192.0.2.1")
	round(two, "192.0.2.1", "192.0.2.2")
	round(one, "192.0.2.1", "192.0.2.2")
	leave(t.Context(), one)
	round(two, "192.0.2.2")
	stray := newSlice(one, []string{"192.0.2.1"})
	stray.Name = name + "-v4"
	if _, err := client.DiscoveryV1().EndpointSlices(namespace).Create(t.Context(), stray, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	six := server("2001:db8::1")
	round(six, "192.0.2.2") // the Service has IPv4
	if _, err := client.DiscoveryV1().EndpointSlices(namespace).Get(t.Context(), stray.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a slice that no server maintains: %v", err)
	}
	lost := two
	lost.Store = forgetful{s.Store}
	if err := reconcile(t.Context(), lost); err == nil || !strings.Contains(err.Error(), "refusing to erase all endpoints") {
		t.Errorf("without any lease: %v", err)
	}
	round(two, "192.0.2.2")
	service, err := client.CoreV1().Services(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || service.Spec.ClusterIP != "10.96.0.1" || service.Spec.Ports[0].Port != 443 || service.Spec.Ports[0].TargetPort.IntValue() != 6443 {
		t.Errorf("%v %+v", err, service)
	}
}

// forgetful is a store that lists nothing.
type forgetful struct{ store.Store }

func (forgetful) List(context.Context, string, store.ListOptions) (store.Page, error) {
	return store.Page{}, nil
}
