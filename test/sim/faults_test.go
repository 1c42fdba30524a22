package sim

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// random is a source of a seed for several goroutines.
type random struct {
	mu     sync.Mutex // guards source
	source *rand.Rand
}

func newRandom(seed uint64) *random { return &random{source: rand.New(rand.NewPCG(seed, 1))} }

// below returns a number from 0 to n-1.
func (r *random) below(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.source.IntN(n)
}

// faults decides what the requests of the components meet.
type faults struct {
	*random
	mu     sync.Mutex // guards what follows
	ended  bool
	blind  string // the end of the paths of which the components see nothing; "": none
	writes int
	last   string // the last write that counts
}

// stop ends the faults.
func (f *faults) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
}

// setBlind sets of which resource the components see nothing, "" for none: their watches
// end, and their lists fail.
func (f *faults) setBlind(resource string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blind = resource
	if resource != "" {
		f.blind = "/" + resource
	}
}

// hides reports whether the components do not see what they read by a request.
func (f *faults) hides(r *http.Request) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.blind != "" && !f.ended && strings.HasSuffix(r.URL.Path, f.blind)
}

// one reports whether one of n requests meets a fault, and this is it.
func (f *faults) one(n int) bool {
	f.mu.Lock()
	ended := f.ended
	f.mu.Unlock()
	return !ended && f.below(n) == 0
}

// record counts the writes that change objects of users. Leases are renewed for
// ever, and events and tokens are by-products.
func (f *faults) record(r *http.Request) {
	for _, part := range []string{"/leases", "/events", "/token", "/subjectaccessreviews"} {
		if strings.Contains(r.URL.Path, part) {
			return
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	f.last = r.Method + " " + r.URL.Path
}

func (f *faults) written() (int, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes, f.last
}

// transport is the way of one component's requests to the API server. crash ends
// the component.
type transport struct {
	*faults
	base  http.RoundTripper
	crash func()
}

var errLost = errors.New("simulated: the connection was lost")

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") != "" {
		return t.watch(r)
	}
	if r.Method == http.MethodGet {
		if t.hides(r) || t.one(40) {
			return status(r, http.StatusInternalServerError, metav1.StatusReasonInternalError), nil
		}
		return t.base.RoundTrip(r)
	}
	switch {
	case t.one(400): // before the write
		t.crash()
		return nil, errLost
	case t.one(25):
		return status(r, http.StatusInternalServerError, metav1.StatusReasonInternalError), nil
	case t.one(25) && r.Method != http.MethodPost:
		return status(r, http.StatusConflict, metav1.StatusReasonConflict), nil
	case t.one(10):
		pause(time.Duration(t.below(2000)) * time.Millisecond)
	}
	response, err := t.base.RoundTrip(r)
	if err == nil && response.StatusCode < http.StatusMultipleChoices {
		t.record(r)
	}
	if t.one(400) { // after it
		t.crash()
		if err == nil {
			_ = response.Body.Close()
		}
		return nil, errLost
	}
	if err == nil && t.one(60) && r.Method != http.MethodPost { // objects with generated names would be made again
		_ = response.Body.Close()
		return nil, errLost
	}
	return response, err
}

// watch lets a watch fail, be late, or end.
func (t *transport) watch(r *http.Request) (*http.Response, error) {
	switch {
	case t.hides(r): // no client waits before it asks again what has expired
		return status(r, http.StatusInternalServerError, metav1.StatusReasonInternalError), nil
	case t.one(10):
		return status(r, http.StatusGone, metav1.StatusReasonExpired), nil
	}
	response, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	response.Body = &lateBody{t, r, response.Body}
	return response, nil
}

// lateBody is a watch whose events are late, and which ends at times.
type lateBody struct {
	*transport
	request *http.Request
	io.ReadCloser
}

// Read implements io.Reader.
func (b *lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		return n, err
	}
	switch {
	case b.hides(b.request):
		return 0, io.ErrUnexpectedEOF
	case b.one(6):
		pause(time.Duration(b.below(1500)) * time.Millisecond)
	case b.one(100):
		return 0, io.ErrUnexpectedEOF // these events come again
	}
	return n, nil
}

// status returns an answer of the API server that is an error.
func status(r *http.Request, code int, reason metav1.StatusReason) *http.Response {
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "simulated",
	})
	if err != nil {
		panic(err)
	}
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}
