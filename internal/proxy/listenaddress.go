package proxy

import (
	"errors"
	"fmt"
	"net"
	"strconv"
)

// ListenAddress is where a server listens.
type ListenAddress struct {
	Host string
	Port int // 0: there is no server
}

// String returns address:port, or "" if there is no server.
func (a *ListenAddress) String() string {
	if a.Port == 0 {
		return ""
	}
	return net.JoinHostPort(a.Host, strconv.Itoa(a.Port))
}

// Set parses address:port, or "" for no server.
func (a *ListenAddress) Set(s string) error {
	if s == "" {
		a.Port = 0
		return nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("want address:port, or nothing for none")
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("port %q is not from 0 to 65535", port)
	}
	a.Host, a.Port = host, n
	return nil
}
