package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// writeBar is what the longest of others' writes must stay below during an
// attack, large ones included.
const writeBar = 5 * time.Second

// attempt is a write of somebody else during an attack.
type attempt struct {
	what              string
	as                *rest.Config
	method, path      string
	contentType, body string
	code              int
}

// attempts are small and large writes of another tenant and of the
// administrator, and the lease of a node.
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
	return append(all, attempt{"a node's lease", c.kubelet(t, "besieged"), http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?dryRun=All",
		"application/json", `{"metadata":{"name":"besieged"},"spec":{"holderIdentity":"besieged"}}`, http.StatusCreated})
}

// editor is a tenant who may edit a namespace, and the path of its ConfigMaps,
// of which there is one called "it".
func (c *cluster) editor(t *testing.T) (as *rest.Config, maps string) {
	t.Helper()
	as, namespace := c.tenant(t, "edit")
	maps = "/api/v1/namespaces/" + namespace + "/configmaps"
	eventually(t, "the tenant's rights", func() error {
		if code, body := send(t, as, http.MethodPost, maps, `{"metadata":{"name":"it"}}`); code != http.StatusCreated {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	return as, maps
}

// tried makes all attempts again and again for as long as a siege lasts: each
// must succeed, in time.
func tried(ctx context.Context, t *testing.T, attempts []attempt) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, siege)
	defer cancel()
	for ctx.Err() == nil {
		for _, a := range attempts {
			begun := time.Now()
			code, answer := send(t, a.as, a.method, a.path, a.body, "Content-Type", a.contentType)
			if took := time.Since(begun); code != a.code || took > writeBar {
				t.Errorf("%s during the attack: %d after %v: %.200s", a.what, code, took, answer)
			}
		}
	}
}

// TestBodiesThatFillTheIntake: service accounts without rights, of several
// namespaces and in the name of others, announce bodies of 3 MB to what
// everybody may ask, and send most of them and no more.
func TestBodiesThatFillTheIntake(t *testing.T) {
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
	group := crowd(ctx, 120, func() (net.Conn, error) {
		mallory := greedy[int(next.Add(1))%len(greedy)]
		conn, err := c.secure(ctx, t, "http/1.1")
		if err != nil {
			return conn, err
		}
		if err := conn.SetWriteDeadline(time.Now().Add(siege)); err != nil { // those that are cut are read no more
			return conn, err
		}
		if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 3000000\r\n\r\n", ownReviews, mallory.BearerToken); err != nil {
			return conn, err
		}
		_, err = conn.Write(part)
		return conn, err
	})
	c.meanwhile(t, func(ctx context.Context) { tried(ctx, t, attempts) })
	group.leave(t)
	c.remembers(t, before)
}

// besieged keeps so many senders sending one request again and again, over
// connections of their own, until stop is called, which returns how often each
// code was the answer.
func besieged(ctx context.Context, t *testing.T, config *rest.Config, senders int, method, path, contentType, body string) (stop func() map[int]int) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	l := newLoader(t, config)
	codes := make(chan map[int]int)
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
			}
		}()
	}
	return func() map[int]int {
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

// TestLargeRequestsOfOneTenant: a tenant sends nothing but large writes, and
// some of them to a webhook that takes its time.
func TestLargeRequestsOfOneTenant(t *testing.T) {
	c := controlPlane(t)
	attempts := c.attempts(t)
	mallory, maps := c.editor(t)
	slow, slowMaps := c.editor(t)
	slowNamespace := strings.Split(slowMaps, "/")[4]
	answer := c.hooked(t, slowNamespace, "Ignore")
	never := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the end of the connection is noticed after the body
		<-r.Context().Done()
	})
	answer.Store(&never)
	large := `{"metadata":{"generateName":"large-"},"data":{"a":"` + strings.Repeat("x", 300_000) + `"}}`
	patch := `{"data":{"a":"` + strings.Repeat("x", 20_000) + `"}}`
	c.meanwhile(t, func(ctx context.Context) {
		stopLarge := besieged(ctx, t, mallory, 60, http.MethodPost, maps+"?dryRun=All", "application/json", large)
		stopSlow := besieged(ctx, t, slow, 60, http.MethodPatch, slowMaps+"/it", mergePatch, patch)
		tried(ctx, t, attempts)
		if codes := stopLarge(); codes[http.StatusCreated] == 0 {
			t.Errorf("no attacker was served: this tries nothing: %v", codes)
		}
		stopSlow()
	})
}

// TestSlowReadersOfLargeLists: a tenant asks for lists that are put together
// as a whole, and hardly reads them.
func TestSlowReadersOfLargeLists(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "700MiB")
	c := own(t, "--nodes=0")
	attempts := c.attempts(t)
	mallory, maps := c.editor(t)
	for i := range 12 {
		answered(t, "a large object", c.admin, http.MethodPost, maps, fmt.Sprintf(`{"metadata":{"name":"m%d"},"data":{"k":%q}}`, i, strings.Repeat("x", 1_000_000)), "application/json", http.StatusCreated)
	}
	c.meanwhile(t, func(ctx context.Context) {
		group := crowd(ctx, 12, func() (net.Conn, error) {
			conn, err := c.secure(ctx, t, "http/1.1")
			if err != nil {
				return conn, err
			}
			if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAccept: application/yaml\r\nAuthorization: Bearer %s\r\n\r\n", maps, mallory.BearerToken); err != nil {
				return conn, err
			}
			_, err = io.ReadFull(conn, make([]byte, 12)) // the answer has begun
			return conn, err
		})
		tried(ctx, t, attempts)
		group.leave(t)
	})
}

// TestWritesThatEndWatchesOfOthers: a tenant writes a large object again and
// again; another, in whose namespace nothing happens, loses his watch for a
// moment and goes on with it.
func TestWritesThatEndWatchesOfOthers(t *testing.T) {
	c := controlPlane(t)
	mallory, maps := c.editor(t)
	other, quiet := c.editor(t)
	var mine metav1.PartialObjectMetadata
	if _, body := send(t, other, http.MethodGet, quiet+"/it", ""); json.Unmarshal([]byte(body), &mine) != nil {
		t.Fatal(body)
	}
	resume := "?watch=1&timeoutSeconds=1&resourceVersion=" + mine.ResourceVersion
	for i := range 200 {
		body := fmt.Sprintf(`{"data":{"k":"%d%s"}}`, i, strings.Repeat("x", 1_000_000))
		answered(t, "a large patch", mallory, http.MethodPatch, maps+"/it", body, mergePatch, http.StatusOK)
	}
	answered(t, "a small patch", other, http.MethodPatch, quiet+"/it", `{"data":{"a":"b"}}`, mergePatch, http.StatusOK)
	if _, body := send(t, other, http.MethodGet, quiet+resume, ""); !strings.HasPrefix(body, `{"type":"MODIFIED"`) {
		t.Errorf("the other's watch goes on with %.300s, want what happened since", body)
	}
	if code, body := send(t, mallory, http.MethodGet, maps+resume, ""); !strings.Contains(body, "too old resource version: "+mine.ResourceVersion+" (") {
		t.Errorf("the history of 200 MB was kept: this tries nothing: %d %.200s", code, body)
	}
}
