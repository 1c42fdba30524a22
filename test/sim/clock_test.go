package sim

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/supervise"
)

// skewed is the way of the requests of a component whose clock is ahead of the API server's by
// skew. The component itself has the clock of the bubble: the times in what it writes are moved
// by skew, and those in what it reads back.
type skewed struct {
	base http.RoundTripper
	skew time.Duration
}

// RoundTrip implements http.RoundTripper.
func (s *skewed) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.skew != 0 && r.Body != nil && isJSON(r.Header) {
		raw, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
		raw = moveTimes(raw, s.skew)
		r = r.Clone(r.Context())
		r.Body, r.ContentLength, r.GetBody = io.NopCloser(bytes.NewReader(raw)), int64(len(raw)), nil
	}
	response, err := s.base.RoundTrip(r)
	if err != nil || s.skew == 0 || response.Body == nil || !isJSON(response.Header) {
		return response, err
	}
	response.Body = &movedBody{lines: bufio.NewReader(response.Body), skew: -s.skew, Closer: response.Body}
	response.ContentLength = -1
	response.Header.Del("Content-Length")
	return response, nil
}

// isJSON reports whether a body has times as text. Metadata alone is protobuf, and has few times.
func isJSON(h http.Header) bool { return strings.Contains(h.Get("Content-Type"), "json") }

// movedBody is an answer whose times are moved: one line, or one for each event of a watch.
type movedBody struct {
	lines *bufio.Reader
	left  []byte // of the current line
	skew  time.Duration
	io.Closer
}

// Read implements io.Reader.
func (b *movedBody) Read(p []byte) (int, error) {
	if len(b.left) == 0 {
		line, err := b.lines.ReadBytes('\n')
		if len(line) == 0 {
			return 0, err
		}
		b.left = moveTimes(line, b.skew) // an error comes again with the next call
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	return n, nil
}

var timeInJSON = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z"`)

// moveTimes moves all times of a JSON document.
func moveTimes(document []byte, by time.Duration) []byte {
	return timeInJSON.ReplaceAllFunc(document, func(quoted []byte) []byte {
		at, err := time.Parse(`"`+time.RFC3339Nano+`"`, string(quoted))
		if err != nil {
			return quoted // 31 February
		}
		format := time.RFC3339
		if bytes.IndexByte(quoted, '.') > 0 {
			format = "2006-01-02T15:04:05.000000Z07:00"
		}
		return at.Add(by).AppendFormat(nil, `"`+format+`"`)
	})
}

// skew returns by how much the clock of a component is ahead during its next life. Clocks differ
// in runs with odd seeds, if a flag says so.
func (w *world) skew() time.Duration {
	if !*clocks || w.rules.undisturbed {
		return 0
	}
	skews := []time.Duration{0, 0, 7 * time.Minute, -7 * time.Minute, time.Hour, -time.Hour}
	return skews[w.clocks.below(len(skews))]
}

// kubelet runs the kubelet of a node until ctx ends, with a clock of its own.
func (w *world) kubelet(ctx context.Context, n *silentNode, shared *provider) error {
	p := shared
	if skew := w.skew(); skew != 0 {
		own, err := newProvider(w.config, func(base http.RoundTripper) http.RoundTripper { return &skewed{base, skew} })
		if err != nil {
			return err
		}
		life, end := context.WithCancel(ctx)
		var informers sync.WaitGroup
		informers.Go(func() { _ = own.Run(life) })
		defer informers.Wait()
		defer end()
		p = own
	}
	c, err := p.As(n.node.Name())
	if err != nil {
		return err
	}
	return supervise.RunOnce(ctx, n.node.Name(), func(ctx context.Context) error { return n.node.Run(ctx, c) })
}

func TestMoveTimes(t *testing.T) {
	const given = `{"a":"2026-03-01T10:00:00Z","b":"2026-03-01T23:30:00.000001Z","c":"at 2026-03-01T10:00:00Z","d":"2026-02-31T10:00:00Z","e":null}`
	const want = `{"a":"2026-03-01T11:00:00Z","b":"2026-03-02T00:30:00.000001Z","c":"at 2026-03-01T10:00:00Z","d":"2026-02-31T10:00:00Z","e":null}`
	moved := moveTimes([]byte(given), time.Hour)
	if string(moved) != want {
		t.Errorf("got  %s\nwant %s", moved, want)
	}
	if back := moveTimes(moved, -time.Hour); string(back) != given {
		t.Errorf("moved back: %s", back)
	}
	b := &movedBody{lines: bufio.NewReader(strings.NewReader(given + "\n" + given)), skew: time.Hour}
	if read, err := io.ReadAll(b); err != nil || string(read) != want+"\n"+want {
		t.Errorf("read %s, %v", read, err)
	}
}
