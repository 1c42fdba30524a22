package authn

import (
	cryptox509 "crypto/x509"
	"net/http"
	"runtime"
	"sync"
	"time"
	"weak"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/utils/clock"
)

// certificates authenticates by client certificate. The common name is the
// user, organizations are the groups, and the extension 1.3.6.1.4.1.57683.2 is
// the UID. All requests of a connection carry the same certificate value, so
// that a chain is verified once per connection. The result is cached for as
// long as the connection keeps the certificate in memory, since clients choose
// how large their certificates are.
type certificates struct {
	verify   x509.VerifyOptionFunc
	verifier authenticator.Request
	clock    clock.PassiveClock
	// observeRemaining is called for each request with the remaining lifetime
	// of its certificate.
	observeRemaining func(time.Duration)

	mu       sync.RWMutex // guards verified
	verified map[weak.Pointer[cryptox509.Certificate]]verified
}

type verified struct {
	roots    *cryptox509.CertPool // the authorities that it was verified against
	until    time.Time
	response *authenticator.Response
}

func newCertificates(verify x509.VerifyOptionFunc, c clock.PassiveClock, observeRemaining func(time.Duration)) *certificates {
	if observeRemaining == nil {
		observeRemaining = func(time.Duration) {}
	}
	return &certificates{
		verify: verify, clock: c, observeRemaining: observeRemaining, verifier: x509.NewDynamic(verify, x509.CommonNameUserConversion),
		verified: map[weak.Pointer[cryptox509.Certificate]]verified{},
	}
}

// AuthenticateRequest implements authenticator.Request.
func (c *certificates) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	leaf := req.TLS.PeerCertificates[0]
	options, ok := c.verify()
	if !ok {
		return nil, false, nil
	}
	now := c.clock.Now()
	key := weak.Make(leaf)
	c.mu.RLock()
	cached, hit := c.verified[key]
	c.mu.RUnlock()
	if hit && cached.roots == options.Roots && now.Before(cached.until) {
		c.observeRemaining(leaf.NotAfter.Sub(now))
		return cached.response, true, nil
	}
	response, ok, err := c.verifier.AuthenticateRequest(req)
	if err != nil || !ok {
		return nil, false, err
	}
	c.observeRemaining(leaf.NotAfter.Sub(now))
	until := leaf.NotAfter
	for _, intermediate := range req.TLS.PeerCertificates[1:] {
		if intermediate.NotAfter.Before(until) {
			until = intermediate.NotAfter
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, again := c.verified[key]; !again {
		runtime.AddCleanup(leaf, c.remove, key)
	}
	c.verified[key] = verified{roots: options.Roots, until: until, response: response}
	return response, true, nil
}

func (c *certificates) remove(key weak.Pointer[cryptox509.Certificate]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.verified, key)
}
