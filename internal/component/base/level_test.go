package base

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/logging"
)

// The log level of a component is set, with its profiles on, by those who may put its
// path.
func TestLogLevelOfAComponent(t *testing.T) {
	var out bytes.Buffer
	ctx := logging.New(&out, logging.Levels{}).Context(t.Context(), "scheduler")
	var asked []string
	a := &access{
		authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: user.Anonymous}}, true, nil
		}),
		authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			asked = append(asked, a.GetVerb()+" "+a.GetPath())
			return authorizer.DecisionAllow, "", nil
		}),
	}
	for _, test := range []struct {
		profiling bool
		code      int
	}{{false, http.StatusNotFound}, {true, http.StatusOK}} {
		s := &Serving{Profiling: test.profiling}
		asked = nil
		server := httptest.NewUnstartedServer(nil)
		server.Config = httpserver.New(ctx, a.guard(s.handlers(ctx, "kube-scheduler", nil, NewCounts(ctx))), nil)
		server.Start()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL+"/debug/flags/v", strings.NewReader("3"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		server.Close()
		if answer.StatusCode != test.code || klog.FromContext(ctx).V(3).Enabled() != test.profiling {
			t.Errorf("with profiling %v: %s", test.profiling, answer.Status)
		}
		if want := []string{"put /debug/flags/v"}; !slices.Equal(asked, want) {
			t.Errorf("permissions %q, want %q", asked, want)
		}
	}
}
