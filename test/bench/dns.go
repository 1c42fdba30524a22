package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/coracle-io/coracle/internal/freeport"
)

const (
	// dnsQueries is the number of queries in a round, dnsRounds how often each server is
	// measured, in turn.
	dnsQueries = 100_000
	dnsRounds  = 3
	// dnsClients is the number of addresses from which clients ask.
	dnsClients = 8
	// dnsTimeout bounds the wait for an answer. A query without one fails the measurement.
	dnsTimeout = 5 * time.Second
	dnsDomain  = "cluster.local"
)

// corefile is CoreDNS's configuration: its port, a kubeconfig, and the port of metrics. It
// is that of kubeadm, whose cache leaves the cluster's names out, without the parts for
// other names.
const corefile = `.:%d {
    bind 127.0.0.1
    errors
    kubernetes %s {
        kubeconfig %s
        ttl 30
    }
    prometheus 127.0.0.1:%d
    loadbalance
}
`

// dnsServer is a DNS server that is measured.
type dnsServer struct {
	name     string
	command  *exec.Cmd
	output   *bytes.Buffer
	port     int
	outcomes []outcome
}

// measureDNS measures this program's DNS server and CoreDNS, each in a process of its own
// with the same Services. Only one of them is asked at a time.
func measureDNS(ctx context.Context, s *settings, c *cluster, t *table) error {
	if err := c.fill(ctx, s, mostServices); err != nil {
		return err
	}
	servers, release, err := dnsServers(s, c)
	defer release()
	if err != nil {
		return err
	}
	for _, server := range servers {
		if err := server.start(ctx); err != nil {
			return err
		}
		defer server.stop()
	}
	for range dnsRounds {
		for _, server := range servers {
			o, err := server.ask(ctx, s.clients)
			if err != nil {
				return fmt.Errorf("%s: %w", server.name, err)
			}
			server.outcomes = append(server.outcomes, o)
		}
	}
	budget := ""
	if len(servers) > 1 {
		other := servers[1].best()
		budget = fmt.Sprintf("%.0f/s, p99 %.2f ms", other.rate, milliseconds(other.latencies.quantile(0.99)))
	}
	for _, server := range servers {
		o := server.best()
		t.add(fmt.Sprintf("DNS, %d Services, %d clients: %s", c.services, s.clients, server.name), budget,
			"%.0f/s, p50 %.2f ms, p99 %.2f ms", o.rate, milliseconds(o.latencies.quantile(0.5)), milliseconds(o.latencies.quantile(0.99)))
		budget = "" // of the others
	}
	if len(servers) == 1 {
		t.add("DNS: CoreDNS", "", "not there: make coredns")
	}
	return nil
}

// dnsServers returns the servers, which do not run yet, this program's first. release,
// which is never nil, releases their ports.
func dnsServers(s *settings, c *cluster) (servers []*dnsServer, release func(), err error) {
	var reserved []func()
	release = func() {
		for _, r := range reserved {
			r()
		}
	}
	reserve := func() int {
		port, free, failed := freeport.Reserve()
		if failed != nil {
			err = errors.Join(err, failed)
			return 0
		}
		reserved = append(reserved, free)
		return port
	}
	port, metrics := reserve(), reserve()
	servers = append(servers, newDNSServer("coracle", port, s.binary, "dns", "--kubeconfig="+c.kubeconfig(), "--bind-address=127.0.0.1",
		"--port="+strconv.Itoa(port), "--metrics-port="+strconv.Itoa(metrics), "--cluster-domain="+dnsDomain, "--hostname-override=bench"))
	if _, missing := os.Stat(s.coreDNS); missing != nil {
		return servers, release, err
	}
	port, metrics = reserve(), reserve()
	config := filepath.Join(c.dir, "Corefile")
	if failed := os.WriteFile(config, fmt.Appendf(nil, corefile, port, dnsDomain, c.kubeconfig(), metrics), 0o600); failed != nil {
		err = errors.Join(err, failed)
	}
	return append(servers, newDNSServer("CoreDNS", port, s.coreDNS, "-conf", config)), release, err
}

func newDNSServer(name string, port int, program string, arguments ...string) *dnsServer {
	d := &dnsServer{name: name, command: exec.Command(program, arguments...), output: &bytes.Buffer{}, port: port}
	d.command.Stdout, d.command.Stderr = d.output, d.output
	d.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the terminal is for the benchmark
	return d
}

// start starts the server and waits until it knows the last Service.
func (d *dnsServer) start(ctx context.Context) error {
	if err := d.command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", d.name, err)
	}
	if err := poll(ctx, time.Minute, d.name, func() bool {
		conn, err := d.dial(0)
		if err != nil {
			return false
		}
		defer func() { _ = conn.Close() }()
		return conn.ask(mostServices-1, 200*time.Millisecond) == nil
	}); err != nil {
		d.stop()
		return fmt.Errorf("%w\n%s", err, d.output)
	}
	return nil
}

// stop ends the server, which may have ended.
func (d *dnsServer) stop() {
	_ = d.command.Process.Kill()
	_ = d.command.Wait()
}

// ask sends the queries of a round, as many at a time as there are clients.
func (d *dnsServer) ask(ctx context.Context, clients int) (outcome, error) {
	idle := make(chan *dnsClient, clients)
	for i := range clients {
		conn, err := d.dial(i)
		if err != nil {
			return outcome{}, err
		}
		defer func() { _ = conn.Close() }()
		idle <- conn
	}
	return parallel(ctx, dnsQueries, clients, func(_ context.Context, i int) error {
		conn := <-idle
		err := conn.ask(i*7919%mostServices, dnsTimeout)
		idle <- conn
		return err
	})
}

// best returns the outcome of the round with the highest rate.
func (d *dnsServer) best() outcome {
	best := d.outcomes[0]
	for _, o := range d.outcomes {
		if o.rate > best.rate {
			best = o
		}
	}
	return best
}

// dnsClient asks one query at a time by UDP.
type dnsClient struct {
	*net.UDPConn
	buffer [1500]byte
	id     uint16
}

// dial returns the i-th client. Clients are at several addresses of loopback, as pods
// are at several addresses.
func (d *dnsServer) dial(i int) (*dnsClient, error) {
	from := &net.UDPAddr{IP: net.IPv4(127, 0, 0, byte(10+i%dnsClients))}
	conn, err := net.DialUDP("udp4", from, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: d.port})
	return &dnsClient{UDPConn: conn}, err
}

// ask asks for the address of the i-th Service, and checks that there is one.
func (c *dnsClient) ask(i int, patience time.Duration) error {
	name := serviceName(i)
	query := new(dns.Msg).SetQuestion(name.Name+"."+name.Namespace+".svc."+dnsDomain+".", dns.TypeA)
	c.id++
	query.Id = c.id
	packed, err := query.PackBuffer(c.buffer[:])
	if err != nil {
		return err
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := c.Write(packed); err != nil {
		return err
	}
	n, err := c.Read(c.buffer[:])
	if err != nil {
		return fmt.Errorf("the address of %s: %w", name, err)
	}
	var answer dns.Msg
	if err := answer.Unpack(c.buffer[:n]); err != nil {
		return err
	}
	if answer.Id != c.id || len(answer.Answer) == 0 {
		return fmt.Errorf("the address of %s: %s", name, dns.RcodeToString[answer.Rcode])
	}
	return nil
}
