// Package webhooks bounds what users' webhooks, those for admission and those
// that convert custom resources, may answer: the process that calls them
// serves everybody.
package webhooks

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// MaxAnswer bounds the body of an answer in bytes, after decompression. It has
// room for a review that is sent back whole, with an object and its predecessor
// of the largest size that the API takes, and a patch of that size.
const MaxAnswer = 16 << 20

// Bounded gives calls the bounds of this package. It is a
// webhook.AuthenticationInfoResolverWrapper.
func Bounded(resolver webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
	bounded := func(config *rest.Config, err error) (*rest.Config, error) {
		if err != nil {
			return nil, err
		}
		config = rest.CopyConfig(config)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{next} })
		return config, nil
	}
	return &webhook.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc: func(hostPort string) (*rest.Config, error) { return bounded(resolver.ClientConfigFor(hostPort)) },
		ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
			return bounded(resolver.ClientConfigForService(name, namespace, port))
		},
	}
}

// transport refuses redirects to other hosts, to which a webhook would make
// this server send requests, and answers that are too large.
type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := checkRedirect(r.URL, answer); err != nil {
		_ = answer.Body.Close()
		return nil, err
	}
	if answer.ContentLength > MaxAnswer {
		_ = answer.Body.Close()
		return nil, errTooLarge(r.URL)
	}
	answer.Body = &body{ReadCloser: answer.Body, left: MaxAnswer, from: r.URL}
	return answer, nil
}

func checkRedirect(from *url.URL, answer *http.Response) error {
	if answer.StatusCode < http.StatusMultipleChoices || answer.StatusCode >= http.StatusBadRequest {
		return nil
	}
	to, err := from.Parse(answer.Header.Get("Location"))
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
	return fmt.Errorf("the webhook at %s answers with more than %d bytes", from.Host, MaxAnswer)
}

// body fails once more has been read than an answer may have.
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
