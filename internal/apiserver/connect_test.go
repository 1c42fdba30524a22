package apiserver_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/apiserver/connect"
	"github.com/coracle-io/coracle/internal/feature"
)

// reached is a connector that lets every request through to an answer of 200.
type reached struct{ *connect.Connector }

func (reached) Handler(context.Context, *apirequest.RequestInfo, runtime.Object, *http.Request, func(error)) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }), nil
}

// Requests that act on a container need the right to create, for every method
// and path: to read is not to act, though WebSockets begin by GET.
func TestActingNeedsCreate(t *testing.T) {
	start := func(gates ...string) *apiservertest.Server {
		return apiservertest.Start(t, func(c *apiserver.Config) {
			features, err := feature.Parse(gates)
			if err != nil {
				t.Fatal(err)
			}
			c.Registry.Features = features
			c.Handlers.Connect = reached{&connect.Connector{}}
			c.Registry.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if a.GetUser().GetName() == a.GetVerb() || slices.Contains(a.GetUser().GetGroups(), "system:masters") {
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			})
		})
	}
	const pod, node = "/api/v1/namespaces/default/pods/web/", "/api/v1/nodes/one/proxy"
	upgrade := func(protocol string) []string {
		return []string{"Connection", "keep-alive, Upgrade", "Upgrade", protocol}
	}
	for _, test := range []struct {
		user, method, path string
		headers            []string
		gates              []string
		want               int
	}{
		{user: "get", method: "GET", path: pod + "exec?command=id", headers: upgrade("websocket"), want: 403},
		{user: "get", method: "GET", path: pod + "exec?command=id", headers: upgrade("SPDY/3.1"), want: 403},
		{user: "get", method: "GET", path: pod + "attach", headers: upgrade("SPDY/3.1"), want: 403},
		{user: "get", method: "GET", path: pod + "portforward", headers: upgrade("SPDY/3.1, websocket"), want: 403},
		{user: "update", method: "PUT", path: pod + "exec?command=id", headers: upgrade("SPDY/3.1"), want: 405},
		{user: "create", method: "POST", path: pod + "exec?command=id", headers: upgrade("SPDY/3.1"), want: 200},
		{user: "get", method: "GET", path: pod + "exec?command=id", headers: upgrade("websocket"), gates: []string{"AuthorizePodWebsocketUpgradeCreatePermission=false"}, want: 200},
		{user: "get", method: "GET", path: pod + "log", want: 200},
		{user: "get", method: "GET", path: pod + "proxy/chat", headers: upgrade("websocket"), want: 200},

		{user: "get", method: "GET", path: node + "/exec/default/web/main?command=id", want: 403},
		{user: "get", method: "GET", path: node + "/exec/default/web/main?command=id", headers: upgrade("websocket"), want: 403},
		{user: "get", method: "GET", path: node + "/%65xec/default/web/main", want: 403},
		{user: "get", method: "GET", path: node + "/metrics/../exec/default/web/main", want: 403},
		{user: "get", method: "GET", path: node + "/metrics/%2e%2e/attach/default/web/main", want: 403},
		{user: "get", method: "GET", path: node + "//portForward/default/web", want: 403},
		{user: "get", method: "GET", path: node + "/run/default/web/main", want: 403},
		{user: "get", method: "GET", path: node + "/cri/exec/token", want: 403},
		{user: "update", method: "PUT", path: node + "/exec/default/web/main", want: 403},
		{user: "get", method: "GET", path: node + "/anything", headers: upgrade("websocket"), want: 403},
		{user: "get", method: "GET", path: "/api/v1/nodes/https:one:10250/proxy/exec/default/web/main", want: 403},
		{user: "create", method: "POST", path: node + "/run/default/web/main", want: 200},
		{user: "get", method: "GET", path: node + "/metrics", want: 200},
		{user: "get", method: "GET", path: node + "/executions", want: 200},

		// A path of the old form of watches has no subresources.
		{user: "watch", method: "POST", path: "/api/v1/watch/namespaces/default/pods/web/proxy/", want: 404},
		{user: "watch", method: "DELETE", path: "/api/v1/watch/namespaces/default/services/web/proxy/", want: 404},
		{user: "watch", method: "POST", path: "/api/v1/watch/nodes/one/proxy/configz", want: 404},
		{user: "watch", method: "GET", path: "/api/v1/watch/namespaces/default/pods/web/log", want: 404},
	} {
		s := start(test.gates...)
		code, body, _ := call(t, s, test.method, test.path, "", append(test.headers, "X-Test-User", test.user)...)
		if code != test.want {
			t.Errorf("%s by who may %s, %s %v: %d %s, want %d", test.method, test.user, test.path, test.headers, code, body, test.want)
		}
	}
}

// waiting is a connector whose requests are answered once they are let go.
type waiting struct {
	*connect.Connector
	arrived, release chan struct{}
}

func (c waiting) Handler(context.Context, *apirequest.RequestInfo, runtime.Object, *http.Request, func(error)) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c.arrived <- struct{}{}
		<-c.release
		w.WriteHeader(http.StatusOK)
	}), nil
}

// However many requests one connection carries, a user has so many passed on
// at a time and no more. Others do not notice.
func TestRequestsPassedOnAreBounded(t *testing.T) {
	c := waiting{&connect.Connector{}, make(chan struct{}, 2000), make(chan struct{})}
	s := apiservertest.Start(t, everybody, func(config *apiserver.Config) {
		config.Handlers.Connect = c
	})
	handler := s.Handler()
	ask := func(user string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/default/pods/web/log?follow=true", nil)
		r.Header.Set("X-Test-User", user)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	var asked sync.WaitGroup
	defer asked.Wait()
	defer close(c.release)
	greedy := func() { asked.Go(func() { ask("greedy") }) }
	for range 1000 {
		greedy()
		<-c.arrived
	}
	if w := ask("greedy"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
		t.Errorf("one stream too many: %d %s %s", w.Code, w.Header(), w.Body)
	}
	asked.Go(func() { ask("other") })
	<-c.arrived
}

// upgraded is a writer whose connection can be taken over.
type upgraded struct {
	http.ResponseWriter
	conn *drain
}

// Hijack implements http.Hijacker.
func (u upgraded) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return u.conn, bufio.NewReadWriter(bufio.NewReader(u.conn), bufio.NewWriter(u.conn)), nil
}

// drain is a connection that remembers until when it may be written to.
type drain struct {
	net.Conn
	deadline time.Time
}

// Write implements net.Conn.
func (*drain) Write(data []byte) (int, error) { return len(data), nil }

// SetWriteDeadline implements net.Conn.
func (d *drain) SetWriteDeadline(at time.Time) error {
	d.deadline = at
	return nil
}

// upgrading is a connector and a handler that take the connection over and write to it.
type upgrading struct{ *connect.Connector }

func (c upgrading) Handler(context.Context, *apirequest.RequestInfo, runtime.Object, *http.Request, func(error)) (http.Handler, error) {
	return c, nil
}

func (upgrading) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		_, _ = conn.Write([]byte("x"))
	}
}

// A client that reads nothing of an upgraded connection does not hold it for
// ever, whether or not the request is one of those that last.
func TestUpgradedConnectionsAreBounded(t *testing.T) {
	c := upgrading{&connect.Connector{}}
	s := apiservertest.Start(t, func(config *apiserver.Config) {
		config.Handlers.Connect = c
		config.Handlers.Paths = map[string]http.Handler{"/elsewhere": c}
	})
	for _, path := range []string{"/api/v1/namespaces/default/pods/web/attach", "/elsewhere"} {
		w := upgraded{httptest.NewRecorder(), &drain{}}
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if left := time.Until(w.conn.deadline); left < time.Minute || left > 24*time.Hour {
			t.Errorf("%s: a write may take %v", path, left)
		}
	}
}
