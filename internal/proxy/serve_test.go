package proxy

import (
	"net"
	"net/http"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// The server of a Service that has gone is kept nowhere.
func TestHealthCheckServersEndWithTheirServices(t *testing.T) {
	free, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	s := &servers{ctx: t.Context(), local: map[uint16]*localServer{}}
	name := PortName{NamespacedName: types.NamespacedName{Namespace: "default", Name: "web"}}
	with := Rules{Services: map[PortName]*ServicePort{name: {HealthCheckNodePort: uint16(port)}}}
	ask := func() error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Close = true
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = answer.Body.Close()
		}
		return err
	}
	for range 3 {
		s.localHealth(with)
		if err := ask(); err != nil {
			t.Error(err)
		}
		s.localHealth(Rules{})
		if ask() == nil {
			t.Error("it answers after its Service has gone")
		}
	}
	if len(s.all) > 0 || len(s.local) > 0 {
		t.Errorf("%d servers are kept", len(s.all)+len(s.local))
	}
	s.localHealth(with)
	s.stop()
	if ask() == nil {
		t.Error("it answers after the proxy has stopped")
	}
}
