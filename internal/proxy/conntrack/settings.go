package conntrack

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// Settings are settings of the kernel's connection tracking. As in upstream, they
// raise what the kernel has and lower nothing; 0 leaves a setting as it is. They are
// those of this thread's network namespace. The kernel lets only the first one of a
// machine change Max.
type Settings struct {
	// Max is how many connections are tracked.
	Max int
	// TCPEstablished is how long idle TCP connections are known. TCPCloseWait is how
	// long those are that one side has closed: the kernel's 60 s take the translation
	// from connections that go on in one direction.
	TCPEstablished time.Duration
	TCPCloseWait   time.Duration
	// TCPBeLiberal tracks packets outside of the window of a connection, too.
	TCPBeLiberal bool
	// UDP is how long a flow without an answer is known, UDPStream one with answers.
	UDP       time.Duration
	UDPStream time.Duration
}

// kernelFiles are where the kernel shows its settings.
type kernelFiles struct{ netfilter, hashSize string }

func newKernelFiles() kernelFiles {
	return kernelFiles{"/proc/sys/net/netfilter", "/sys/module/nf_conntrack/parameters/hashsize"}
}

// Apply changes the kernel's settings. It logs what it changes and what it cannot
// change: the proxy works without.
func (c Settings) Apply(log klog.Logger) { c.apply(log, newKernelFiles()) }

func (c Settings) apply(log klog.Logger, files kernelFiles) {
	liberal := 0
	if c.TCPBeLiberal {
		liberal = 1
	}
	for _, setting := range []struct {
		name  string
		value int
	}{
		{"nf_conntrack_max", c.Max},
		{"nf_conntrack_tcp_timeout_established", int(c.TCPEstablished / time.Second)},
		{"nf_conntrack_tcp_timeout_close_wait", int(c.TCPCloseWait / time.Second)},
		{"nf_conntrack_tcp_be_liberal", liberal},
		{"nf_conntrack_udp_timeout", int(c.UDP / time.Second)},
		{"nf_conntrack_udp_timeout_stream", int(c.UDPStream / time.Second)},
	} {
		raise(log, filepath.Join(files.netfilter, setting.name), setting.value)
	}
	const chain = 4 // connections in a bucket of the kernel's table, as in upstream
	raise(log, files.hashSize, c.Max/chain)
}

// raise writes a value to a file of the kernel that has a smaller one.
func raise(log klog.Logger, file string, value int) {
	if value <= 0 {
		return
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		log.V(2).Info("The kernel does not show a setting of its connection tracking", "file", file, "err", err)
		return
	}
	have, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || have >= value {
		return
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(value)), 0o644); err != nil {
		log.Info("Cannot raise a setting of the kernel's connection tracking; it stays as it is", "file", file, "value", have, "wanted", value, "err", err)
		return
	}
	log.Info("Raised a setting of the kernel's connection tracking", "file", file, "value", value, "was", have)
}
