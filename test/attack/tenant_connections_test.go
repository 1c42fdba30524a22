package attack

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestConnectionsOfATenant has a service account without rights open many
// connections and send a request on each, so that they count as authenticated.
func TestConnectionsOfATenant(t *testing.T) {
	c := controlPlane(t)
	mallory := first(c.tenant(t, ""))
	ctx := t.Context()
	var refused atomic.Int64
	group := openMany(ctx, 1200, func() (net.Conn, error) {
		conn, err := c.secure(ctx, t, "http/1.1")
		if err != nil {
			return conn, err
		}
		if _, err := fmt.Fprintf(conn, "GET /api/v1/nodes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", mallory.BearerToken); err != nil {
			return conn, err
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return conn, err
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusTooManyRequests {
			refused.Add(1)
		}
		return conn, nil
	})
	if refused.Load() < 100 {
		t.Errorf("%d of 1,200 connections of one user are refused", refused.Load())
	}
	if _, err := c.client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err != nil {
		t.Errorf("another user during the attack: %v", err)
	}
	group.close(t)
}
