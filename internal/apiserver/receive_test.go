package apiserver_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
)

const selfReviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

// dribble begins a request of which more is announced than is sent.
func dribble(t *testing.T, s *apiservertest.Server, method, path, user, begin string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nX-Test-User: %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n%s", method, path, user, begin); err != nil {
		t.Fatal(err)
	}
	return conn
}

// readAnswer reads one answer.
func readAnswer(t *testing.T, conn net.Conn) *http.Response {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response
}

// Bodies that never end hold no place among the requests that are served, and
// are cut at the request's deadline.
func TestBodiesThatNeverEnd(t *testing.T) {
	s := apiservertest.Start(t, func(c *apiserver.Config) {
		c.MaxInFlight, c.MaxMutatingInFlight, c.RequestTimeout = 2, 2, time.Second
	})
	var slow []net.Conn
	for range 20 {
		slow = append(slow, dribble(t, s, "POST", selfReviews, "mallory", `{"kind"`))
	}
	for range 50 {
		if code, body, _ := call(t, s, "POST", selfReviews, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`, "X-Test-User", "somebody"); code != http.StatusCreated {
			t.Fatalf("another's request while bodies dribble: %d %s", code, body)
		}
	}
	for _, conn := range slow {
		response := readAnswer(t, conn)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusGatewayTimeout || !response.Close {
			t.Errorf("a body that never ends: %d, close %v", response.StatusCode, response.Close)
		}
	}
}

// Who may not do what he asks for is told so without a byte of the body.
func TestForbiddenBeforeTheBody(t *testing.T) {
	s := apiservertest.Start(t)
	conn := dribble(t, s, "POST", mapsPath, "mallory", strings.Repeat(" ", 100))
	response := readAnswer(t, conn)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("got %d", response.StatusCode)
	}
}

// One user's bodies take so much memory and no more; others send theirs.
func TestBodiesOfOneUserAreBounded(t *testing.T) {
	s := apiservertest.Start(t, func(c *apiserver.Config) {
		c.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", nil
		})
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	codes := make(chan int, 40)
	for range 40 {
		body, fill := io.Pipe()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+mapsPath, body)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Test-User", "mallory")
		request.Header.Set("Content-Type", "application/json")
		go func() {
			_, _ = fill.Write([]byte(strings.Repeat(" ", 2<<20)))
			<-ctx.Done()
			_ = fill.Close()
		}()
		go func() {
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				codes <- 0
				return
			}
			_ = response.Body.Close()
			codes <- response.StatusCode
		}()
	}
	if code := <-codes; code != http.StatusTooManyRequests {
		t.Errorf("80 MiB of unfinished bodies of one user: %d", code)
	}
	if code, body, _ := call(t, s, "POST", mapsPath, configMap("fine", "}"), "X-Test-User", "somebody"); code != http.StatusCreated {
		t.Errorf("another's request meanwhile: %d %s", code, body)
	}
}
