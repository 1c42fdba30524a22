// Package webhooks bounds the responses of users' webhooks, for admission and
// for the conversion of custom resources. The process that calls them serves
// all users.
package webhooks

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// maxResponse bounds the body of a response in bytes, after decompression. It
// has room for a review that is returned whole, with two objects of the largest
// size that the API accepts, and a patch of that size.
const maxResponse = 16 << 20

// Bounded applies the bounds of this package to calls. It is a
// webhook.AuthenticationInfoResolverWrapper.
func Bounded(resolver webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
	return changed(resolver, Bound)
}

// Through returns a webhook.AuthenticationInfoResolverWrapper by which calls pass
// what wrap returns for their round tripper.
func Through(wrap func(http.RoundTripper) http.RoundTripper) webhook.AuthenticationInfoResolverWrapper {
	return func(resolver webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		return changed(resolver, func(config *rest.Config) *rest.Config {
			config = rest.CopyConfig(config)
			config.Wrap(wrap)
			return config
		})
	}
}

// changed returns a resolver of configurations that change has changed.
func changed(resolver webhook.AuthenticationInfoResolver, change func(*rest.Config) *rest.Config) webhook.AuthenticationInfoResolver {
	resolved := func(config *rest.Config, err error) (*rest.Config, error) {
		if err != nil {
			return nil, err
		}
		return change(config), nil
	}
	return &webhook.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc: func(hostPort string) (*rest.Config, error) { return resolved(resolver.ClientConfigFor(hostPort)) },
		ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
			return resolved(resolver.ClientConfigForService(name, namespace, port))
		},
	}
}

// Bound returns a configuration for clients to which the bounds of this package
// apply.
func Bound(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{next} })
	return config
}

// checkKey is the key of a Check in a context.
type checkKey struct{}

// Check examines the body of a call and the body of its response. It returns the
// body to use in place of the response's.
type Check func(request, response []byte) []byte

// WithCheck returns a context in which the responses to calls are examined before
// they are decoded.
func WithCheck(ctx context.Context, check Check) context.Context {
	return context.WithValue(ctx, checkKey{}, check)
}

// transport refuses responses that are too large, and redirects to other hosts,
// by which a webhook could make this server send requests elsewhere.
type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := checkRedirect(r.URL, response); err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	if response.ContentLength > maxResponse {
		_ = response.Body.Close()
		return nil, errTooLarge(r.URL)
	}
	response.Body = &body{ReadCloser: response.Body, left: maxResponse, from: r.URL}
	if check, ok := r.Context().Value(checkKey{}).(Check); ok {
		if err := examine(check, r, response); err != nil {
			return nil, fmt.Errorf("examining the response of the webhook at %s: %w", r.URL.Host, err)
		}
	}
	return response, nil
}

// examine replaces the body of a response by what check returns for it.
func examine(check Check, r *http.Request, response *http.Response) error {
	read := response.Body
	defer func() { _ = read.Close() }()
	answered, err := io.ReadAll(read)
	if err != nil {
		return err
	}
	var asked []byte
	if r.GetBody != nil {
		sent, err := r.GetBody()
		if err != nil {
			return err
		}
		if asked, err = io.ReadAll(sent); err != nil {
			return err
		}
	}
	used := check(asked, answered)
	response.Body = io.NopCloser(bytes.NewReader(used))
	response.ContentLength = int64(len(used))
	return nil
}

func checkRedirect(from *url.URL, response *http.Response) error {
	if response.StatusCode < http.StatusMultipleChoices || response.StatusCode >= http.StatusBadRequest {
		return nil
	}
	to, err := from.Parse(response.Header.Get("Location"))
	if err != nil || to.Scheme != from.Scheme || hostPort(to) != hostPort(from) {
		return fmt.Errorf("the webhook at %s redirects to another host, which is not followed", from.Host)
	}
	return nil
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

func errTooLarge(from *url.URL) error {
	return fmt.Errorf("the webhook at %s responds with more than %d bytes", from.Host, maxResponse)
}

// body is a response body that fails once it exceeds the limit.
type body struct {
	io.ReadCloser
	left int
	from *url.URL
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if b.left -= n; b.left < 0 {
		return 0, errTooLarge(b.from)
	}
	return n, err
}
