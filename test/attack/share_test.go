package attack

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// attempt is a write of another client during an attack.
type attempt struct {
	what              string
	as                *rest.Config
	method, path      string
	contentType, body string
	code              int
}

// attempts returns small and large writes of another tenant and of the
// administrator, and the renewal of a node's lease.
func (c *cluster) attempts(t *testing.T) (all []attempt) {
	t.Helper()
	other, maps := c.editor(t)
	for who, as := range map[string]*rest.Config{"another tenant": other, "the administrator": c.admin} {
		all = append(all,
			attempt{"a small ConfigMap by " + who, as, http.MethodPost, maps + "?dryRun=All", "application/json", `{"metadata":{"generateName":"small-"}}`, http.StatusCreated},
			attempt{"a small patch by " + who, as, http.MethodPatch, maps + "/it", mergePatch, `{"data":{"a":"b"}}`, http.StatusOK},
			attempt{"a patch of 20 KB by " + who, as, http.MethodPatch, maps + "/it", mergePatch, `{"data":{"a":"` + strings.Repeat("x", 20_000) + `"}}`, http.StatusOK},
			attempt{"a ConfigMap of 400 KB by " + who, as, http.MethodPost, maps + "?dryRun=All", "application/json", `{"metadata":{"generateName":"large-"},"data":{"a":"` + strings.Repeat("x", 400_000) + `"}}`, http.StatusCreated})
	}
	return append(all, attempt{"a node's lease", c.kubelet(t, "other"), http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?dryRun=All",
		"application/json", `{"metadata":{"name":"other"},"spec":{"holderIdentity":"other"}}`, http.StatusCreated})
}

// editor returns a tenant with the role edit and the path of its ConfigMaps. It
// creates the ConfigMap "it".
func (c *cluster) editor(t *testing.T) (as *rest.Config, maps string) {
	t.Helper()
	as, namespace := c.tenant(t, "edit")
	maps = "/api/v1/namespaces/" + namespace + "/configmaps"
	eventually(t, "the tenant's permissions", func() error {
		if code, body := send(t, as, http.MethodPost, maps, `{"metadata":{"name":"it"}}`); code != http.StatusCreated {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	return as, maps
}

// checkAttempts repeats all attempts for the duration of an attack. Each must
// succeed.
func checkAttempts(ctx context.Context, t *testing.T, attempts []attempt) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, attackDuration)
	defer cancel()
	var slowest longest
	for ctx.Err() == nil {
		for _, a := range attempts {
			begun := time.Now()
			code, answer := send(t, a.as, a.method, a.path, a.body, "Content-Type", a.contentType)
			slowest.note(a.what, begun)
			if code != a.code {
				t.Errorf("%s during the attack: %d after %v: %.200s", a.what, code, time.Since(begun), answer)
			}
		}
	}
	slowest.check(t)
}

// TestBodiesThatFillTheBudget has service accounts without permissions, of
// several namespaces and with false names, announce bodies of 3 MB to an
// endpoint that all users may call. They send most of each body and then stop.
func TestBodiesThatFillTheBudget(t *testing.T) {
	c := controlPlane(t)
	attempts := c.attempts(t)
	var greedy []*rest.Config
	for range 6 {
		greedy = append(greedy, first(c.tenant(t, "")))
	}
	part := []byte(strings.Repeat(" ", 2_800_000))
	before := c.memory(t)
	var next atomic.Int64
	ctx := t.Context()
	group := openMany(ctx, 120, func() (net.Conn, error) {
		mallory := greedy[int(next.Add(1))%len(greedy)]
		conn, err := c.secure(ctx, t, "http/1.1")
		if err != nil {
			return conn, err
		}
		if err := conn.SetWriteDeadline(time.Now().Add(attackDuration)); err != nil { // the server may have stopped reading
			return conn, err
		}
		if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 3000000\r\n\r\n", ownReviews, mallory.BearerToken); err != nil {
			return conn, err
		}
		_, err = conn.Write(part)
		return conn, err
	})
	c.checkLatencyDuring(t, func(ctx context.Context) { checkAttempts(ctx, t, attempts) })
	group.close(t)
	c.recordMemory(t, before)
}

// repeatRequests repeats a request from several senders, each with its own
// connection, until stop is called. served is closed by the first response with
// the status code. stop returns the number of responses by status code.
func repeatRequests(ctx context.Context, t *testing.T, config *rest.Config, senders int, method, path, contentType, body string, code int) (served <-chan struct{}, stop func() map[int]int) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	l := newLoader(t, config)
	codes := make(chan map[int]int)
	first, once := make(chan struct{}), sync.Once{}
	for i := range senders {
		go func() {
			seen := map[int]int{}
			defer func() { codes <- seen }()
			for ctx.Err() == nil {
				response, err := l.do(ctx, i, method, path, []byte(body), "Content-Type", contentType)
				if err != nil {
					continue
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				seen[response.StatusCode]++
				if response.StatusCode == code {
					once.Do(func() { close(first) })
				}
			}
		}()
	}
	return first, func() map[int]int {
		cancel()
		all := map[int]int{}
		for range senders {
			for code, n := range <-codes {
				all[code] += n
			}
		}
		return all
	}
}

// TestLargeRequestsOfOneTenant has a tenant send large writes, some of them to a slow
// webhook.
func TestLargeRequestsOfOneTenant(t *testing.T) {
	c := controlPlane(t)
	attempts := c.attempts(t)
	mallory, maps := c.editor(t)
	slow, slowMaps := c.editor(t)
	slowNamespace := strings.Split(slowMaps, "/")[4]
	answer := c.registerWebhooks(t, slowNamespace, "Ignore")
	never := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the end of the connection is noticed after the body
		<-r.Context().Done()
	})
	answer.Store(&never)
	large := `{"metadata":{"generateName":"large-"},"data":{"a":"` + strings.Repeat("x", 300_000) + `"}}`
	patch := `{"data":{"a":"` + strings.Repeat("x", 20_000) + `"}}`
	c.checkLatencyDuring(t, func(ctx context.Context) {
		served, stopLarge := repeatRequests(ctx, t, mallory, 60, http.MethodPost, maps+"?dryRun=All", "application/json", large, http.StatusCreated)
		_, stopSlow := repeatRequests(ctx, t, slow, 60, http.MethodPatch, slowMaps+"/it", mergePatch, patch, http.StatusOK)
		checkAttempts(ctx, t, attempts)
		select {
		case <-served:
		case <-ctx.Done():
		}
		if codes := stopLarge(); codes[http.StatusCreated] == 0 {
			t.Errorf("no attacker was served, so the test proves nothing: %v", codes)
		}
		stopSlow()
	})
}

// TestSlowReadersOfLargeLists has a tenant request large lists and read them slowly.
func TestSlowReadersOfLargeLists(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "700MiB")
	c := startOwn(t, "--nodes=0")
	attempts := c.attempts(t)
	mallory, maps := c.editor(t)
	for i := range 12 {
		checkAnswer(t, "a large object", c.admin, http.MethodPost, maps, fmt.Sprintf(`{"metadata":{"name":"m%d"},"data":{"k":%q}}`, i, strings.Repeat("x", 1_000_000)), "application/json", http.StatusCreated)
	}
	c.checkLatencyDuring(t, func(ctx context.Context) {
		group := openMany(ctx, 12, func() (net.Conn, error) {
			conn, err := c.secure(ctx, t, "http/1.1")
			if err != nil {
				return conn, err
			}
			if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAccept: application/yaml\r\nAuthorization: Bearer %s\r\n\r\n", maps, mallory.BearerToken); err != nil {
				return conn, err
			}
			_, err = io.ReadFull(conn, make([]byte, 12)) // the response has started
			return conn, err
		})
		checkAttempts(ctx, t, attempts)
		group.close(t)
	})
}

// TestWritesInterruptWatchesOfOthers has a tenant update a large object
// repeatedly. A watch of another tenant, in whose namespace nothing changes, is
// interrupted and must be able to continue.
func TestWritesInterruptWatchesOfOthers(t *testing.T) {
	c := controlPlane(t)
	mallory, maps := c.editor(t)
	other, quiet := c.editor(t)
	var mine metav1.PartialObjectMetadata
	if _, body := send(t, other, http.MethodGet, quiet+"/it", ""); json.Unmarshal([]byte(body), &mine) != nil {
		t.Fatal(body)
	}
	resume := "?watch=1&resourceVersion=" + mine.ResourceVersion
	for i := range 200 {
		body := fmt.Sprintf(`{"data":{"k":"%d%s"}}`, i, strings.Repeat("x", 1_000_000))
		checkAnswer(t, "a large patch", mallory, http.MethodPatch, maps+"/it", body, mergePatch, http.StatusOK)
	}
	checkAnswer(t, "a small patch", other, http.MethodPatch, quiet+"/it", `{"data":{"a":"b"}}`, mergePatch, http.StatusOK)
	if line := firstLine(t, other, quiet+resume); !strings.HasPrefix(line, `{"type":"MODIFIED"`) {
		t.Errorf("the other tenant's watch continues with %.300s, want the event since then", line)
	}
	if line := firstLine(t, mallory, maps+resume); !strings.Contains(line, "too old resource version: "+mine.ResourceVersion+" (") {
		t.Errorf("the history of 200 MB was kept, so the test proves nothing: %.200s", line)
	}
}

// firstLine sends a GET and returns the first line of the response, which may
// not end.
func firstLine(t *testing.T, config *rest.Config, path string) string {
	t.Helper()
	l := newLoader(t, config)
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	response, err := l.do(ctx, 0, http.MethodGet, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return line
}
