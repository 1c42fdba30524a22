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

// certificates authenticates by client certificate: common name is the user,
// organizations are the groups, and the extension 1.3.6.1.4.1.57683.2 the uid.
// All requests of a connection carry the same certificate value, so that a
// chain is verified once a connection, not once a request. What was found out
// is kept for as long as the certificate itself, which is with its connection:
// clients choose how large their handshakes are.
type certificates struct {
	verify x509.VerifyOptionFunc
	slow   authenticator.Request
	clock  clock.PassiveClock
	// left is told of each request for how long its certificate is still good.
	left func(time.Duration)

	mu      sync.RWMutex // guards checked
	checked map[weak.Pointer[cryptox509.Certificate]]checked
}

type checked struct {
	roots    *cryptox509.CertPool // the authorities it was checked against
	until    time.Time
	response *authenticator.Response
}

func newCertificates(verify x509.VerifyOptionFunc, c clock.PassiveClock, left func(time.Duration)) *certificates {
	if left == nil {
		left = func(time.Duration) {}
	}
	return &certificates{
		verify: verify, clock: c, left: left, slow: x509.NewDynamic(verify, x509.CommonNameUserConversion),
		checked: map[weak.Pointer[cryptox509.Certificate]]checked{},
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
	known, hit := c.checked[key]
	c.mu.RUnlock()
	if hit && known.roots == options.Roots && now.Before(known.until) {
		c.left(leaf.NotAfter.Sub(now))
		return known.response, true, nil
	}
	response, ok, err := c.slow.AuthenticateRequest(req)
	if err != nil || !ok {
		return nil, false, err
	}
	c.left(leaf.NotAfter.Sub(now))
	until := leaf.NotAfter
	for _, intermediate := range req.TLS.PeerCertificates[1:] {
		if intermediate.NotAfter.Before(until) {
			until = intermediate.NotAfter
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, again := c.checked[key]; !again {
		runtime.AddCleanup(leaf, c.forget, key)
	}
	c.checked[key] = checked{roots: options.Roots, until: until, response: response}
	return response, true, nil
}

func (c *certificates) forget(key weak.Pointer[cryptox509.Certificate]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.checked, key)
}
