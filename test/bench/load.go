package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// connections is the number of TCP connections for the requests.
const connections = 8

// load sends requests over TLS and HTTP/2 without a client library, so that the
// server is measured.
type load struct {
	base    string
	clients [connections]*http.Client
}

func newLoad(config *rest.Config) (*load, error) {
	l := &load{base: config.Host}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	for i := range l.clients {
		transport := &http.Transport{TLSClientConfig: tlsConfig.Clone(), ForceAttemptHTTP2: true}
		wrapped, err := rest.HTTPWrappersForConfig(config, transport)
		if err != nil {
			return nil, err
		}
		l.clients[i] = &http.Client{Transport: wrapped}
	}
	return l, nil
}

func (l *load) close() {
	for _, c := range l.clients {
		c.CloseIdleConnections()
	}
}

// call is a request.
type call struct {
	method, path string
	contentType  string
	body         []byte
	accept       string // "" is JSON
}

// open sends the request over the i-th connection and returns the response. It
// returns an error if the code is 300 or more.
func (l *load) open(ctx context.Context, i int, c call) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, c.method, l.base+c.path, bytes.NewReader(c.body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", cmp.Or(c.accept, jsonType))
	if c.contentType != "" {
		r.Header.Set("Content-Type", c.contentType)
	}
	response, err := l.clients[i%connections].Do(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		start, _ := io.ReadAll(io.LimitReader(response.Body, 300))
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s %s: %s: %s", c.method, c.path, response.Status, start)
	}
	return response, nil
}

// do sends the request and reads the response to its end.
func (l *load) do(ctx context.Context, i int, c call) error {
	response, err := l.open(ctx, i, c)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}

// outcome is the result of a number of equal steps.
type outcome struct {
	rate      float64 // steps a second
	latencies latencies
}

func (o outcome) String() string {
	return fmt.Sprintf("%.0f/s (p50 %.1f ms, p99 %.1f ms)", o.rate, milliseconds(o.latencies.quantile(0.5)), milliseconds(o.latencies.quantile(0.99)))
}

// parallel runs steps 0 to n-1, a number of them at a time, until one fails.
func parallel(ctx context.Context, n, atATime int, step func(ctx context.Context, i int) error) (outcome, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	took := make([]time.Duration, n)
	var next atomic.Int64
	var workers sync.WaitGroup
	began := time.Now()
	for range atATime {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				sent := time.Now()
				if err := step(ctx, i); err != nil {
					cancel(err)
				}
				took[i] = time.Since(sent)
			}
		})
	}
	workers.Wait()
	rate := float64(n) / time.Since(began).Seconds()
	if ctx.Err() != nil {
		return outcome{}, context.Cause(ctx)
	}
	return outcome{rate, sorted(took)}, nil
}
