package apiserver_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
)

const selfReviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

// dribble begins a request that announces more bytes than it sends.
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
	if err := conn.SetReadDeadline(time.Now().Add(3 * time.Minute)); err != nil {
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
// are cut at the request's deadline. The test waits, as do the others that are parallel.
func TestBodiesThatNeverEnd(t *testing.T) {
	t.Parallel()
	const deadline = 10 * time.Second // of the requests that are served, too
	s := apiservertest.Start(t, func(c *apiserver.Config) {
		c.Limits.MaxInFlight, c.Limits.MaxMutatingInFlight, c.Limits.RequestTimeout = 2, 2, deadline
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

// A forbidden request is refused before its body is read.
func TestForbiddenBeforeTheBody(t *testing.T) {
	s := apiservertest.Start(t)
	conn := dribble(t, s, "POST", mapsPath, "mallory", strings.Repeat(" ", 100))
	response := readAnswer(t, conn)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("got %d", response.StatusCode)
	}
}

// everybody may do everything.
func everybody(c *apiserver.Config) {
	c.Registry.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
}

// pour begins requests whose bodies do not end after so many bytes; headers
// says who sends which. It returns the codes that they are answered with.
func pour(t *testing.T, s *apiservertest.Server, count, bytes int, headers func(i int) []string) <-chan int {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	codes := make(chan int, count)
	begin := strings.Repeat(" ", bytes)
	var received sync.WaitGroup
	for i := range count {
		body, fill := io.Pipe()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+mapsPath, body)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		for pair := range slices.Chunk(headers(i), 2) {
			request.Header.Set(pair[0], pair[1])
		}
		received.Go(func() { _, _ = io.WriteString(fill, begin) })
		context.AfterFunc(ctx, func() { _ = fill.Close() })
		go func() {
			response, err := http.DefaultClient.Do(request)
			_ = body.Close() // the rest is not read
			if err != nil {
				codes <- 0
				return
			}
			_ = response.Body.Close()
			codes <- response.StatusCode
		}()
	}
	received.Wait()
	return codes
}

// refusedSome waits until a client is refused because it sends too much. A
// client that keeps sending may lose its connection before it reads that.
func refusedSome(t *testing.T, codes <-chan int) {
	t.Helper()
	code := <-codes
	for code == 0 {
		code = <-codes
	}
	if code != http.StatusTooManyRequests {
		t.Errorf("the first answer to unfinished bodies is %d", code)
	}
}

// The memory for the bodies of one tenant is bounded, under any user name.
// Others can still send theirs.
func TestBodiesOfOneTenantAreBounded(t *testing.T) {
	for _, tt := range []struct {
		who     string
		headers func(i int) []string
	}{
		{"one user", func(int) []string { return []string{"X-Test-User", "mallory"} }},
		{"accounts of one namespace", func(i int) []string { return []string{"X-Test-User", fmt.Sprint("system:serviceaccount:evil:sa", i)} }},
		{"users that one user impersonates", func(i int) []string {
			return []string{"X-Test-User", "mallory", "Impersonate-User", fmt.Sprint("user", i)}
		}},
	} {
		t.Run(tt.who, func(t *testing.T) {
			s := apiservertest.Start(t, everybody)
			codes := pour(t, s, 40, 2<<20, tt.headers)
			refusedSome(t, codes)
			if code, body, _ := call(t, s, "POST", mapsPath, configMap("fine", "}"), "X-Test-User", "somebody"); code != http.StatusCreated {
				t.Errorf("another's request meanwhile: %d %s", code, body)
			}
		})
	}
}

// Many tenants that together fill the memory for bodies make room for a new
// tenant: theirs are cut.
func TestBodiesOfManyTenants(t *testing.T) {
	s := apiservertest.Start(t, everybody)
	codes := pour(t, s, 125, 2<<20, func(i int) []string {
		return []string{"X-Test-User", fmt.Sprintf("system:serviceaccount:evil%d:default", i%5)}
	})
	refusedSome(t, codes)
	large := configMap("fine", `},"data":{"a":"`+strings.Repeat("x", 900<<10)+`"}`)
	for i, who := range []string{"somebody", "system:node:one", "admin", "system:serviceaccount:kube-system:x"} {
		path := fmt.Sprintf("/api/v1/namespaces/other%d/configmaps", i)
		if code, body, _ := call(t, s, "POST", path, large, "X-Test-User", who); code != http.StatusCreated {
			t.Errorf("a large body of %s meanwhile: %d %.200s", who, code, body)
		}
	}
}

// slow is admission that takes its time in the namespace evil.
type slow struct {
	arrived chan struct{}
	end     <-chan struct{}
}

func (slow) Handles(admission.Operation) bool { return true }

func (p slow) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetNamespace() == "evil" {
		p.arrived <- struct{}{}
		select {
		case <-p.end:
		case <-ctx.Done():
		}
	}
	return nil
}

// Large requests of one client that wait for admission do not delay large
// requests of other clients.
func TestSlowAdmissionOfLargeRequests(t *testing.T) {
	end := make(chan struct{})
	p := slow{make(chan struct{}, 100), end}
	s := apiservertest.Start(t, everybody, func(c *apiserver.Config) { c.Registry.Admission = p })
	patch := func(namespace, user string) (int, []byte) {
		code, body, _ := call(t, s, "PATCH", "/api/v1/namespaces/"+namespace+"/configmaps/it", `{"data":{"a":"`+strings.Repeat("x", 20<<10)+`"}}`,
			"X-Test-User", user, "Content-Type", "application/merge-patch+json")
		return code, body
	}
	go func() {
		<-p.arrived // the creation
		end <- struct{}{}
	}()
	mustCreate(t, s, "/api/v1/namespaces/evil/configmaps", configMap("it", "}"))
	mustCreate(t, s, "/api/v1/namespaces/good/configmaps", configMap("it", "}"))
	var patches sync.WaitGroup
	defer patches.Wait()
	defer close(end)
	for range 40 {
		patches.Go(func() { patch("evil", "mallory") })
	}
	for range 10 {
		<-p.arrived
	}
	for _, who := range []string{"somebody", "admin"} {
		if code, body := patch("good", who); code != http.StatusOK {
			t.Errorf("a large patch of %s meanwhile: %d %.200s", who, code, body)
		}
	}
}

// A write whose time is over goes no further, whatever the stages before have
// to say.
func TestDeadlineEndsAWrite(t *testing.T) {
	s := apiservertest.Start(t, func(c *apiserver.Config) {
		c.Registry.Admission = slow{make(chan struct{}, 100), nil}
	})
	for _, query := range []string{"?timeout=50ms", "?timeout=50ms&dryRun=All"} {
		if code, body, _ := call(t, s, "POST", "/api/v1/namespaces/evil/configmaps"+query, configMap("it", "}")); code != http.StatusGatewayTimeout {
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
	if code, body, _ := call(t, s, "GET", "/api/v1/namespaces/evil/configmaps/it", ""); code != http.StatusNotFound {
		t.Errorf("it was written all the same: %d %s", code, body)
	}
}
