// Package freeport chooses ports for servers of tests that take a number, and
// not a listener.
//
// A port that the kernel chose and that was closed again may be taken before the
// server listens: the kernel gives it to any connection of any process. The
// ports of this package are outside the range from which the kernel chooses and
// outside the range of node ports.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

const (
	first = 20000
	count = 10000
)

// For returns a port that nothing listens on, and that no other caller on this
// machine gets until the test ends.
func For(t testing.TB) int {
	t.Helper()
	port, release, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return port
}

// Reserve returns a port that nothing listens on, and that no other caller on
// this machine gets until it is released.
func Reserve() (port int, release func(), err error) {
	start := rand.IntN(count)
	var errs []error
	for i := range 100 {
		port := first + (start+i)%count
		// An abstract socket needs no removal: it ends with its process.
		held, err := net.Listen("unix", fmt.Sprintf("@coracle-freeport-%d", port))
		if err == nil {
			if err = unused(port); err == nil {
				return port, func() { _ = held.Close() }, nil
			}
			err = errors.Join(err, held.Close())
		}
		errs = append(errs, err)
	}
	return 0, nil, fmt.Errorf("no port is free: %w", errors.Join(errs...))
}

// unused returns an error unless servers can listen on a port, at every address.
func unused(port int) error {
	address := fmt.Sprintf(":%d", port)
	stream, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	packets, err := net.ListenPacket("udp", address)
	if err != nil {
		return errors.Join(err, stream.Close())
	}
	return errors.Join(stream.Close(), packets.Close())
}
