package httpserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

const (
	// MaxAnswerHeaderBytes bounds the headers that a server answers with to which a
	// request is proxied. net/http accepts 10 MiB, which take thirty times as much in
	// memory if they are short.
	MaxAnswerHeaderBytes = 64 << 10
	// maxRefusal bounds the answer of a server that does not upgrade a connection,
	// after its headers.
	maxRefusal = 1 << 20
)

// Upgrading returns the URL and the transport with which a proxy of
// k8s.io/apimachinery or k8s.io/apiserver connects to a server, instead of to and over,
// for a connection that is to be upgraded. Those proxies read the server's answer
// without a bound. over must have a DialContext. The transport returned is for dialing
// alone: it makes the TLS connection itself, so that it sees the answer, and its URL has
// the scheme http.
func Upgrading(to *url.URL, over *http.Transport) (*url.URL, *http.Transport) {
	plain, secure := *to, to.Scheme == "https"
	plain.Scheme = "http"
	if secure && to.Port() == "" {
		plain.Host = net.JoinHostPort(to.Hostname(), "443")
	}
	return &plain, &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := over.DialContext(ctx, network, address)
		if err == nil && secure {
			conn, err = handshake(ctx, conn, address, over.TLSClientConfig)
		}
		if err != nil {
			return nil, err
		}
		return &answering{Conn: conn, from: address, left: MaxAnswerHeaderBytes}, nil
	}}
}

// handshake makes a TLS connection, which speaks HTTP/1.1, of a connection. If it fails,
// it closes the connection.
func handshake(ctx context.Context, conn net.Conn, address string, config *tls.Config) (net.Conn, error) {
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config = config.Clone()
	config.NextProtos = []string{"http/1.1"}
	if config.ServerName == "" && !config.InsecureSkipVerify {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			host = address
		}
		config.ServerName = host
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secured, nil
}

// answering is a connection whose reads fail once a server has sent too much without
// upgrading it.
type answering struct {
	net.Conn
	from     string
	left     int    // bytes that may still be read
	head     []byte // what was read, until the headers have ended
	answered bool   // the headers have ended
	upgraded bool   // there is no bound
}

// Read implements net.Conn.
func (c *answering) Read(p []byte) (int, error) {
	if c.upgraded {
		return c.Conn.Read(p)
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left+1)])
	if c.left -= n; c.left < 0 {
		return 0, fmt.Errorf("the answer of %s to a request to upgrade the connection is too long", c.from)
	}
	if !c.answered {
		c.examine(p[:n])
	}
	return n, err
}

// examine looks for the end of the headers, an empty line, which net/http accepts
// without carriage returns.
func (c *answering) examine(more []byte) {
	begin := max(len(c.head)-2, 0) // the end may have begun
	c.head = append(c.head, more...)
	rest := c.head[begin:]
	if !bytes.Contains(rest, []byte("\n\r\n")) && !bytes.Contains(rest, []byte("\n\n")) {
		return
	}
	line, _, _ := strings.Cut(string(c.head), "\n")
	status := strings.Fields(line)
	c.upgraded = len(status) > 1 && status[1] == "101"
	c.answered, c.left, c.head = true, maxRefusal, nil
}
