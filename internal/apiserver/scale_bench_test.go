package apiserver_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/resource/core/pod"
)

// scaled returns a server with count pods, a hundred in each namespace and on
// each node. Ten of them have the label app=rare.
func scaled(b *testing.B, count int) *apiservertest.Server {
	b.Helper()
	s := apiservertest.Start(b)
	kind := s.Cache.Kind(pod.Pods())
	for i := range count {
		p := &corev1.Pod{}
		if err := yaml.Unmarshal(fmt.Appendf(nil, benchPod, fmt.Sprintf("pod-%06d", i)), p); err != nil {
			b.Fatal(err)
		}
		p.Namespace = fmt.Sprintf("team-%04d", i/100)
		p.UID = types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i))
		p.Spec.NodeName = fmt.Sprintf("node-%04d", i%(count/100))
		p.Status.Phase = corev1.PodRunning
		if i%(count/10) == 0 {
			p.Labels["app"] = "rare"
			p.Status.Phase = corev1.PodPending
		}
		if _, err := kind.Create(b.Context(), p); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := s.Cache.Fresh(b.Context()); err != nil {
		b.Fatal(err)
	}
	return s
}

const (
	asProtobuf = "application/vnd.kubernetes.protobuf"
	asTable    = "application/json;as=Table;v=v1;g=meta.k8s.io"
)

// BenchmarkScale is the cost of reads against the number of pods there are.
// Those above the line read a hundred pods or less and cost the same in every
// cluster; those below look at all of them.
func BenchmarkScale(b *testing.B) {
	for _, count := range []int{1_000, 10_000, 100_000} {
		h := scaled(b, count).Handler()
		for _, read := range []struct{ what, path, accept string }{
			{"get", "/api/v1/namespaces/team-0003/pods/pod-000300", ""},
			{"name", "/api/v1/pods?fieldSelector=metadata.name%3Dpod-000300,metadata.namespace%3Dteam-0003", ""},
			{"namespace", "/api/v1/namespaces/team-0003/pods", ""},
			{"node", "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-0003", ""},
			{"page", "/api/v1/pods?limit=100", ""},
			{"page-table", "/api/v1/pods?limit=100", asTable},
			// ---
			{"phase", "/api/v1/pods?fieldSelector=status.phase%3DPending", ""},
			{"label", "/api/v1/pods?labelSelector=app%3Drare", ""},
			{"all", "/api/v1/pods", ""},
			{"all-protobuf", "/api/v1/pods", asProtobuf},
			{"all-pages-500", "/api/v1/pods?limit=500", asProtobuf},
			{"all-table", "/api/v1/pods", asTable},
		} {
			b.Run(fmt.Sprintf("%s/%d", read.what, count), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if read.what == "all-pages-500" {
						pages(b, h, read.path)
					} else {
						serve(b, h, http.StatusOK, "GET", read.path, nil, "Accept", read.accept)
					}
				}
			})
		}
	}
}

// pages reads all pages of a list.
func pages(b *testing.B, h http.Handler, path string) {
	for token := ""; ; {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, path+"&continue="+token, nil)
		r.Header.Set("Accept", asProtobuf)
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			b.Fatal(w.Code, w.Body.String())
		}
		if token = url.QueryEscape(continueOf(b, w.Body.Bytes())); token == "" {
			return
		}
	}
}

// continueOf reads the token of a list without reading its items: the metadata
// is the first field of the message in the envelope.
func continueOf(b *testing.B, body []byte) string {
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(body[len("k8s\x00"):]); err != nil {
		b.Fatal(err)
	}
	size, n := binary.Uvarint(envelope.Raw[1:])
	var meta metav1.ListMeta
	if err := meta.Unmarshal(envelope.Raw[1+n : 1+n+int(size)]); err != nil {
		b.Fatal(err)
	}
	return meta.Continue
}

// BenchmarkScaleWatch is the cost of one write, until the watcher that it
// concerns has it, against the number of others that watch another node,
// namespace or name.
func BenchmarkScaleWatch(b *testing.B) {
	for _, by := range []string{"node", "namespace", "name"} {
		for _, watchers := range []int{10, 500, 5_000} {
			b.Run(fmt.Sprintf("%s/%d", by, watchers), func(b *testing.B) { oneOfMany(b, by, watchers) })
		}
	}
}

func oneOfMany(b *testing.B, by string, watchers int) {
	s := scaled(b, 1_000)
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	concerned := &lines{header: http.Header{}, more: make(chan struct{}, 1024)}
	for i := range watchers {
		path := map[string]string{
			"node":      fmt.Sprintf("/api/v1/pods?watch=true&fieldSelector=spec.nodeName%%3Dnode-%04d", i),
			"namespace": fmt.Sprintf("/api/v1/namespaces/team-%04d/pods?watch=true", i),
			"name":      fmt.Sprintf("/api/v1/namespaces/team-0000/pods?watch=true&fieldSelector=metadata.name%%3Dpod-%06d", i),
		}[by]
		w := http.ResponseWriter(&discard{header: http.Header{}})
		if i == 0 {
			w = concerned
		}
		r := httptest.NewRequest(http.MethodGet, path, nil).WithContext(ctx)
		all.Go(func() { s.Handler().ServeHTTP(flusher{w}, r) })
	}
	<-concerned.more // what is there is known
	kind := s.Cache.Kind(pod.Pods())
	e, _ := kind.Get("team-0000", "pod-000000")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p := e.Object.(*corev1.Pod).DeepCopy()
		p.Labels["n"] = fmt.Sprint(i)
		var err error
		if e, err = kind.Update(ctx, p, e); err != nil {
			b.Fatal(err)
		}
		for want := fmt.Sprintf(`"n":"%d"`, i); !concerned.has(want); {
			<-concerned.more
		}
	}
}

// lines is a response that keeps what was last written.
type lines struct {
	header http.Header
	mu     sync.Mutex // guards last
	last   string
	more   chan struct{}
}

func (l *lines) Header() http.Header { return l.header }
func (l *lines) WriteHeader(int)     {}
func (l *lines) Write(data []byte) (int, error) {
	l.mu.Lock()
	l.last = string(data)
	l.mu.Unlock()
	l.more <- struct{}{}
	return len(data), nil
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.last, text)
}

// flusher is a response writer with the methods that a watch needs.
type flusher struct{ http.ResponseWriter }

func (flusher) Flush() {}
