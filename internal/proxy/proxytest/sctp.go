package proxytest

import (
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/netnstest"
)

// sctp checks that the first packets of SCTP associations reach the endpoint, by the
// cluster IP and by the node port. They are made here: no kernel module of SCTP is needed.
func (s Suite) sctp(t *testing.T) {
	if s.WithoutSCTP {
		t.Skip("there is no SCTP")
	}
	l, client, service := s.lab(t)
	service.Cluster = Endpoints("10.9.1.3:8080")
	l.ApplyRules(rulesOf(v1.ProtocolSCTP, &service))
	var server int
	netnstest.Do(t, l.Members["a"], func() (err error) {
		if server, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP); err != nil {
			return err
		}
		return unix.SetsockoptTimeval(server, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
	})
	defer func() { _ = unix.Close(server) }()
	for i, to := range []struct {
		name    string
		address [4]byte
		port    uint16
	}{{"cluster IP", [4]byte{10, 96, 0, 20}, 80}, {"node port", [4]byte{10, 9, 1, 1}, 30080}} {
		tag := byte(i + 1)
		port, arrived := uint16(0), false
		for end := time.Now().Add(3 * time.Minute); !arrived && time.Now().Before(end); {
			netnstest.Do(t, client, func() error {
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
				if err != nil {
					return err
				}
				defer func() { _ = unix.Close(fd) }()
				return unix.Sendto(fd, initChunk(to.port, tag), 0, &unix.SockaddrInet4{Addr: to.address})
			})
			port, arrived = receiveInit(server, tag)
		}
		if port != 8080 {
			t.Errorf("%s: the endpoint has a packet: %v, for port %d, want 8080", to.name, arrived, port)
		}
	}
}

// initChunk returns an SCTP packet (RFC 9260, section 3.3.2) to a port that begins an
// association. The tag tells it from others.
func initChunk(port uint16, tag byte) []byte {
	packet := binary.BigEndian.AppendUint16(nil, 5000+uint16(tag)) // from this port
	packet = binary.BigEndian.AppendUint16(packet, port)
	packet = append(packet, make([]byte, 8)...) // no tag of the other side; the checksum is below
	packet = append(packet, 1, 0, 0, 20, 0, 0, 0, tag, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 100)
	binary.LittleEndian.PutUint32(packet[8:], crc32.Checksum(packet, crc32.MakeTable(crc32.Castagnoli)))
	return packet
}

// receiveInit waits for a packet of initChunk with a tag, as long as the socket does, and
// returns the port to which it went in the end.
func receiveInit(fd int, tag byte) (port uint16, ok bool) {
	b := make([]byte, 128)
	n, _, err := unix.Recvfrom(fd, b, 0)
	if err != nil || n == 0 {
		return 0, false
	}
	packet := b[min(n, int(b[0]&0xf)*4):n] // without the header of IP
	if len(packet) < 20 || packet[12] != 1 || packet[19] != tag {
		return 0, false
	}
	return binary.BigEndian.Uint16(packet[2:]), true
}
