package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// issuer is an API server that takes a second to issue a token or to fail.
type issuer struct {
	requests int
	failed   error
}

func (i *issuer) source() *tokenSource {
	c := fake.NewClientset()
	c.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		i.requests++
		time.Sleep(time.Second)
		if i.failed != nil {
			return true, nil, i.failed
		}
		return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
			Token: "token", ExpirationTimestamp: metav1.NewTime(time.Now().Add(tokenLifetime)),
		}}, nil
	})
	return newTokenSource(c, "kube-system", "account")
}

// While a token cannot be renewed, requests use the old one, and one of them retries from
// time to time.
func TestFailingRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{}
		s := i.source()
		if token, err := s.get(t.Context()); err != nil || token != "token" {
			t.Fatal(token, err)
		}
		time.Sleep(50 * time.Minute)
		i.requests, i.failed = 0, errors.New("no room")
		go func() { _, _ = s.get(t.Context()) }()
		synctest.Wait()
		began := time.Now()
		for range 100 {
			if token, err := s.get(t.Context()); err != nil || token != "token" {
				t.Fatal(token, err)
			}
		}
		if took := time.Since(began); took > 0 || i.requests != 1 {
			t.Errorf("100 requests wait %v for %d attempts to renew a valid token", took, i.requests)
		}
		time.Sleep(time.Second) // the attempt has failed
		for range 100 {
			_, _ = s.get(t.Context())
		}
		if i.requests != 1 {
			t.Errorf("%d attempts at once", i.requests)
		}
		time.Sleep(tokenRetry)
		_, _ = s.get(t.Context())
		if i.requests != 2 {
			t.Errorf("%d attempts after %v", i.requests, tokenRetry)
		}
		time.Sleep(tokenLifetime)
		if _, err := s.get(t.Context()); !errors.Is(err, i.failed) {
			t.Errorf("a token that has expired: %v", err)
		}
		i.failed = nil
		time.Sleep(firstTokenRetry)
		if token, err := s.get(t.Context()); err != nil || token != "token" {
			t.Error(token, err)
		}
	})
}

// A caller that waits for another caller's request does so only until its own deadline.
func TestWaitingForTokenEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := (&issuer{}).source()
		first := make(chan error)
		go func() {
			_, err := s.get(t.Context())
			first <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := s.get(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if token, err := s.get(t.Context()); err != nil || token != "token" {
			t.Error(token, err)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}
