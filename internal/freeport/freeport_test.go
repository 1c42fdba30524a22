package freeport

import (
	"fmt"
	"net"
	"os"
	"testing"
)

// TestPortsAreDistinct checks that a port is given once, and that a server can
// listen on it.
func TestPortsAreDistinct(t *testing.T) {
	given := map[int]bool{}
	for range 50 {
		port := For(t)
		if given[port] {
			t.Fatalf("port %d was given twice", port)
		}
		given[port] = true
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
	}
}

// TestKernelChoosesOtherPorts checks that the kernel gives these ports to no
// connection, unless this machine is configured otherwise.
func TestKernelChoosesOtherPorts(t *testing.T) {
	raw, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Skip(err)
	}
	var low, high int
	if _, err := fmt.Sscan(string(raw), &low, &high); err != nil {
		t.Fatal(err)
	}
	if low < 32768 {
		t.Skipf("the kernel chooses ports from %d", low)
	}
	if port := For(t); port >= low {
		t.Errorf("port %d is one that the kernel chooses", port)
	}
}

// TestReleasedPortIsGivenAgain checks that a release ends a reservation.
func TestReleasedPortIsGivenAgain(t *testing.T) {
	port, release, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("@coracle-freeport-%d", port)
	if l, err := net.Listen("unix", name); err == nil {
		_ = l.Close()
		t.Errorf("port %d can be reserved twice", port)
	}
	release()
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}
