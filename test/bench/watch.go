package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	watchers      = 50
	watchedEvents = 2000
	watchPatience = time.Minute
)

// measureWatch writes objects while many clients watch, and measures until each
// watch has delivered all of them.
func measureWatch(ctx context.Context, _ *settings, c *cluster, t *table) error {
	l, err := newLoad(c.config)
	if err != nil {
		return err
	}
	defer l.close()
	const namespace = "bench-watch"
	if err := l.namespace(ctx, namespace); err != nil {
		return err
	}
	path := namespacesPath + "/" + namespace + "/configmaps"

	watching, cancel := context.WithTimeout(ctx, watchPatience)
	defer cancel()
	streams := make([]io.ReadCloser, watchers)
	for i := range streams {
		response, err := l.open(watching, i, call{method: http.MethodGet, path: path + "?watch=1&labelSelector=bench%3Dfanout"})
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		streams[i] = response.Body
	}
	began := time.Now()
	var delivered atomic.Int64
	var all sync.WaitGroup
	for _, stream := range streams {
		all.Go(func() { countAdded(stream, &delivered) })
	}
	padding := strings.Repeat("x", 500)
	_, err = parallel(watching, watchedEvents, 8, func(ctx context.Context, i int) error {
		return l.do(ctx, i, call{method: http.MethodPost, path: path, contentType: jsonType, body: fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"w-","labels":{"bench":"fanout"}},"data":{"i":"%d","pad":%q}}`, i, padding)})
	})
	if err != nil {
		cancel()
	}
	all.Wait()
	took := time.Since(began)
	if err != nil {
		return errors.Join(err, l.removeNamespace(ctx, namespace))
	}
	n := delivered.Load()
	t.add(fmt.Sprintf("watch fan-out, %d watchers, %d writes", watchers, watchedEvents), "all, 100,000/s",
		"%d of %d delivered, %.0f/s", n, watchers*watchedEvents, float64(n)/took.Seconds())
	return l.removeNamespace(ctx, namespace)
}

// countAdded counts the ADDED events of a watch until it has seen all objects
// or ends.
func countAdded(stream io.Reader, n *atomic.Int64) {
	lines := bufio.NewReaderSize(stream, 64<<10)
	for seen := 0; seen < watchedEvents; {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return
		}
		if bytes.HasPrefix(line, []byte(`{"type":"ADDED"`)) {
			seen++
			n.Add(1)
		}
	}
}
