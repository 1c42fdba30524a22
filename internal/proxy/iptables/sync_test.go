package iptables

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/proxy"
	"github.com/coracle-io/coracle/internal/proxy/proxytest"
)

// programs stands for the programs of iptables.
type programs struct {
	saved  string
	inputs []string         // of iptables-restore
	fail   map[string]error // by program
	lacks  []string         // matches that the kernel does not have
	asked  int              // for canaries
	listed string           // the answer
	canary error            // likewise
}

func (p *programs) run(program string, args []string, input []byte) (string, error) {
	switch {
	case strings.HasSuffix(program, "-save"):
		return p.saved, p.fail[program]
	case strings.HasSuffix(program, "-restore"):
		p.inputs = append(p.inputs, string(input))
		for _, match := range p.lacks {
			if strings.Contains(string(input), "-m "+match+" ") {
				return "", fmt.Errorf("exit status 4: Warning: Extension %s revision 0 not supported, missing kernel module?", match)
			}
		}
		return "", p.fail[program]
	}
	p.asked++
	return p.listed, p.canary
}

// canaryOf is what is listed of the canary of a proxy.
func canaryOf(owner string) string {
	return "-N KUBE-PROXY-CANARY\n-A KUBE-PROXY-CANARY -m comment --comment \"coracle:" + owner + "\"\n"
}

// fake returns a backend with programs that change nothing.
func fake(c Config) (*Backend, *programs) {
	c.Owner = "test"
	b, p := New(c), &programs{fail: map[string]error{}, listed: canaryOf("test")}
	b.run = p.run
	return b, p
}

// isFull reports whether an input of iptables-restore has everything.
func isFull(input string) bool { return strings.Contains(input, ":KUBE-POSTROUTING ") }

func apply(t *testing.T, b *Backend, rules proxy.Rules) {
	t.Helper()
	if err := b.Apply(rules); err != nil {
		t.Fatal(err)
	}
}

// oneEndpoint returns the rules of a Service with an endpoint.
func oneEndpoint(endpoint string) proxy.Rules {
	return rulesWith(func(p *proxy.ServicePort) { p.Cluster = proxytest.Endpoints(endpoint) })
}

// TestSyncs checks what is sent: everything first and after an error, else what changed,
// and nothing if nothing changed.
func TestSyncs(t *testing.T) {
	b, p := fake(Config{})
	refused := errors.New("iptables-restore: line 2 failed")
	for i, step := range []struct {
		endpoint string
		fail     error
		inputs   int
		full     bool
	}{
		{"10.9.1.3:8080", nil, 1, true},
		{"10.9.1.4:8080", nil, 2, false},
		{"10.9.1.4:8080", nil, 2, false},
		{"10.9.1.5:8080", refused, 3, false},
		{"10.9.1.5:8080", refused, 4, true},
		{"10.9.1.5:8080", nil, 5, true},
		{"10.9.1.6:8080", nil, 6, false},
	} {
		p.fail["iptables-restore"] = step.fail
		err := b.Apply(oneEndpoint(step.endpoint))
		if !errors.Is(err, step.fail) {
			t.Fatalf("step %d: %v, want %v", i, err, step.fail)
		}
		if last := p.inputs[len(p.inputs)-1]; len(p.inputs) != step.inputs || isFull(last) != step.full {
			t.Fatalf("step %d: %d inputs, want %d; the last one has everything: %v, want %v:\n%s", i, len(p.inputs), step.inputs, isFull(last), step.full, last)
		}
		if second, _, _ := strings.Cut(strings.SplitAfterN(p.inputs[len(p.inputs)-1], "\n", 3)[1], "\n"); err != nil && !strings.Contains(err.Error(), "("+second+")") {
			t.Errorf("step %d: the error %q does not name the line %q", i, err, second)
		}
	}
}

// TestFamiliesFailApart checks that a family that cannot be applied does not keep the
// other one from its rules, and is written anew.
func TestFamiliesFailApart(t *testing.T) {
	b, p := fake(Config{IPv6: true})
	apply(t, b, oneEndpoint("10.9.1.3:8080"))
	p.inputs, p.fail["ip6tables-restore"] = nil, errors.New("refused")
	rules := oneEndpoint("10.9.1.4:8080")
	for name, port := range proxytest.RulesOf(&proxy.ServicePort{ClusterIP: netip.MustParseAddr("fd00:96::20"), Port: 80}).Services.All() {
		rules.Services = rules.Services.With(name, port)
	}
	if err := b.Apply(rules); err == nil {
		t.Fatal("no error")
	}
	if len(p.inputs) != 2 || isFull(p.inputs[0]) || isFull(p.inputs[1]) || !strings.Contains(p.inputs[1], "fd00:96::20") {
		t.Fatalf("inputs %q", p.inputs)
	}
	p.inputs, p.fail["ip6tables-restore"] = nil, nil
	apply(t, b, rules)
	if len(p.inputs) != 1 || !isFull(p.inputs[0]) || !strings.Contains(p.inputs[0], "fd00:96::20") {
		t.Errorf("inputs %q, want all rules of IPv6", p.inputs)
	}
}

// TestSettingsThatFollowTheNode checks that all is written when the ranges of pods change.
func TestSettingsThatFollowTheNode(t *testing.T) {
	b, p := fake(Config{Local: proxy.Local{NodeRanges: true}})
	rules := oneEndpoint("10.9.1.3:8080")
	apply(t, b, rules)
	rules.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.9.7.0/24")}
	apply(t, b, rules)
	if len(p.inputs) != 2 || !isFull(p.inputs[1]) || !strings.Contains(p.inputs[1], "! -s 10.9.7.0/24 ") {
		t.Errorf("inputs %q", p.inputs)
	}
}

// TestIntact checks when canaries are looked for, and when all is written without need.
func TestIntact(t *testing.T) {
	gone := exec.CommandContext(t.Context(), "false").Run() // status 1
	synctest.Test(t, func(t *testing.T) {
		b, p := fake(Config{SyncPeriod: 30 * time.Second})
		check := func(when string, want bool, asked int) {
			t.Helper()
			if intact, err := b.Intact(); err != nil || intact != want || p.asked != asked {
				t.Fatalf("%s: intact %v, %v, %d canaries; want %v and %d", when, intact, err, p.asked, want, asked)
			}
		}
		check("before the first sync", true, 0)
		apply(t, b, oneEndpoint("10.9.1.3:8080"))
		check("at once", true, 0)
		time.Sleep(30 * time.Second)
		check("after a period", true, 3)
		check("at once again", true, 3)
		p.canary = gone
		time.Sleep(30 * time.Second)
		check("after a flush", false, 4)
		p.canary = nil
		apply(t, b, oneEndpoint("10.9.1.3:8080"))
		if !isFull(p.inputs[len(p.inputs)-1]) || len(p.inputs) != 2 {
			t.Errorf("inputs after a flush: %q", p.inputs)
		}
		p.canary = errors.New("the lock is taken")
		time.Sleep(30 * time.Second)
		if _, err := b.Intact(); err == nil {
			t.Error("an error is not told")
		}
		p.canary = nil
		asked := p.asked
		time.Sleep(time.Hour)
		check("after an hour", false, asked)
		apply(t, b, oneEndpoint("10.9.1.3:8080"))
		if !isFull(p.inputs[len(p.inputs)-1]) || len(p.inputs) != 3 {
			t.Errorf("inputs after an hour: %q", p.inputs)
		}
	})
}

// TestCanaryOfAnotherProxy checks that the rules of another proxy are not taken for those
// of this one.
func TestCanaryOfAnotherProxy(t *testing.T) {
	b, p := fake(Config{})
	apply(t, b, oneEndpoint("10.9.1.3:8080"))
	for owner, want := range map[string]bool{"test": true, "test-2": false, "test 2": false} {
		p.listed = canaryOf(owner)
		if got, err := b.hasCanary(families(false)[0], nat); err != nil || got != want {
			t.Errorf("the canary of %s: %v, %v, want %v", owner, got, err, want)
		}
	}
}

// TestKernelWithoutAMatch checks that Services that need what the kernel does not have
// do not keep the others from their rules, and are tried again after an hour.
func TestKernelWithoutAMatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, p := fake(Config{SyncPeriod: 30 * time.Second})
		sticky := &proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 80, Cluster: proxytest.Endpoints("10.9.1.3:8080"), Affinity: time.Hour}
		with := func(endpoint string) proxy.Rules {
			rules := proxytest.RulesOf(sticky, &proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.21"), Port: 80, Cluster: proxytest.Endpoints(endpoint)})
			rules.HostPorts[proxy.LocalPort{Port: 8888, Protocol: v1.ProtocolSCTP, Family: v1.IPv4Protocol}] = proxy.HostPort{To: netip.MustParseAddrPort("10.9.1.3:8080")}
			return rules
		}
		check := func(when string, inputs int, full, complete bool) {
			t.Helper()
			last := p.inputs[len(p.inputs)-1]
			if len(p.inputs) != inputs || isFull(last) != full {
				t.Fatalf("%s: %d inputs, want %d; the last one has everything: %v, want %v:\n%s", when, len(p.inputs), inputs, isFull(last), full, last)
			}
			for _, match := range []string{"-m recent ", "-m sctp "} {
				if strings.Contains(last, match) != complete {
					t.Errorf("%s: %q is there: %v, want %v in\n%s", when, match, !complete, complete, last)
				}
			}
		}
		p.lacks = []string{"recent", "sctp"}
		apply(t, b, with("10.9.1.4:8080"))
		check("at first", 3, true, false)
		for _, rule := range []string{"-d 10.96.0.20 -p tcp -m tcp --dport 80 -j REJECT", "--to-destination 10.9.1.4:8080"} {
			if !strings.Contains(p.inputs[2], rule) {
				t.Errorf("no %q in\n%s", rule, p.inputs[2])
			}
		}
		apply(t, b, with("10.9.1.5:8080"))
		check("after a change", 4, false, false)
		p.lacks = nil
		time.Sleep(time.Hour)
		if intact, err := b.Intact(); err != nil || intact {
			t.Fatalf("intact %v, %v after an hour", intact, err)
		}
		apply(t, b, with("10.9.1.5:8080"))
		check("after an hour", 5, true, true)
	})
}

// TestRefusedMatches checks what is understood of the errors of both variants, and which
// Services are told of.
func TestRefusedMatches(t *testing.T) {
	for _, c := range []struct {
		text string
		want lacks
	}{
		{"exit status 4: Warning: Extension recent revision 0 not supported, missing kernel module? iptables-restore v1.8.8 (nf_tables): line 566: RULE_APPEND failed", lacks{recent: true}},
		{"exit status 2: iptables-restore v1.8.7 (legacy): Couldn't load match `recent':No such file or directory", lacks{recent: true}},
		{"Warning: Extension sctp revision 0 not supported, missing kernel module? Warning: Extension recent revision 0 not supported", lacks{recent: true, sctp: true}},
		{"Warning: Extension conntrack revision 3 not supported, missing kernel module?", lacks{}},
		{"exit status 4: Another app is currently holding the xtables lock", lacks{}},
	} {
		if got := (lacks{}).learn(errors.New(c.text)); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.text, got, c.want)
		}
	}
	rules := proxytest.RulesOf(
		&proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Affinity: time.Hour, Local: proxytest.Endpoints("10.9.1.3:8080")},
		&proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.21"), Affinity: time.Hour},
		&proxy.ServicePort{ClusterIP: netip.MustParseAddr("fd00:96::20"), Affinity: time.Hour, Cluster: proxytest.Endpoints("[fd00:9:1::3]:8080")},
		&proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.22"), Cluster: proxytest.Endpoints("10.9.1.3:8080")},
	)
	var names []proxy.PortName
	for name := range rules.Services.All() {
		names = append(names, name)
	}
	if left := (lacks{recent: true}).without(families(false)[0], rules, names); !slices.Equal(left, []string{"default/s0:http"}) {
		t.Errorf("left out: %v", left)
	}
}

// otherRules are what iptables-save says of chains of another proxy of ours.
const otherRules = "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-PROXY-CANARY - [0:0]\n" +
	"-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n" +
	"-A KUBE-PROXY-CANARY -m comment --comment \"coracle:other\"\nCOMMIT\n"

// TestRulesOfAnotherProxy checks that one proxy does not take over what another one of
// ours uses.
func TestRulesOfAnotherProxy(t *testing.T) {
	b, p := fake(Config{})
	p.saved = otherRules
	if err := b.Apply(proxy.Rules{}); err == nil || !strings.Contains(err.Error(), `those of the proxy "other"`) {
		t.Errorf("applied beside another proxy: %v", err)
	}
	if err := b.removeOf(families(false)[0], func(s *saved) bool { return !s.isOfOther("coracle:test") }); err != nil || len(p.inputs) > 0 {
		t.Errorf("removed the rules of another proxy: %v, %q", err, p.inputs)
	}
}

// TestRemoval checks that removal leaves the chains and rules of others, and a chain to
// which they lead.
func TestRemoval(t *testing.T) {
	b, p := fake(Config{})
	p.saved = `# Generated by iptables-save v1.8.9 (nf_tables)
*filter
:INPUT ACCEPT [1:60]
:FORWARD ACCEPT [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
-A INPUT -j KUBE-FIREWALL
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -j DOCKER-USER
-A FORWARD -m comment --comment "not -j KUBE-FORWARD now" -j DOCKER-USER
-A INPUT -j LOG --log-prefix "to -j KUBE-FORWARD now"
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -j DROP
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-NPX46M4PTMTKRN6Y - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A CNI-HOSTPORT-DNAT -p tcp -j KUBE-MARK-MASQ
-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-NPX46M4PTMTKRN6Y
COMMIT
`
	if err := b.removeOf(families(false)[0], func(*saved) bool { return true }); err != nil {
		t.Fatal(err)
	}
	const want = `*filter
:KUBE-FORWARD - [0:0]
-D FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-X KUBE-FORWARD
COMMIT
*nat
:KUBE-MARK-MASQ - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-NPX46M4PTMTKRN6Y - [0:0]
-D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-X KUBE-SERVICES
-X KUBE-SVC-NPX46M4PTMTKRN6Y
COMMIT
`
	if len(p.inputs) != 1 || p.inputs[0] != want {
		t.Errorf("inputs %q, want\n%s", p.inputs, want)
	}
}

// TestTakeover checks that a first sync removes chains of Services that are gone, and
// adds only the jumps that are not there.
func TestTakeover(t *testing.T) {
	b, p := fake(Config{})
	p.saved = "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]\n:KUBE-SVC-BBBBBBBBBBBBBBBB - [0:0]\n:OTHER - [0:0]\n" +
		"-A OTHER -p tcp -g KUBE-SVC-BBBBBBBBBBBBBBBB\n" +
		"-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\nCOMMIT\n"
	apply(t, b, oneEndpoint("10.9.1.3:8080"))
	_, ofNat, _ := strings.Cut(p.inputs[0], "*nat\n")
	for text, want := range map[string]bool{"-X KUBE-SVC-AAAAAAAAAAAAAAAA\n": true, ":KUBE-SVC-BBBBBBBBBBBBBBBB - ": true, "-X KUBE-SVC-BBBBBBBBBBBBBBBB\n": false, "OTHER": false, "-I PREROUTING": false, "-I OUTPUT": true} {
		if strings.Contains(ofNat, text) != want {
			t.Errorf("%q is there: %v in\n%s", text, !want, ofNat)
		}
	}
}

// TestMetrics checks the numbers of rules and of failures.
func TestMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	b, p := fake(Config{Metrics: r, IPv6: true})
	values := func() map[string]float64 {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := strings.TrimPrefix(f.GetName(), "kubeproxy_sync_proxy_rules_iptables_")
				for _, label := range m.GetLabel() {
					name += " " + label.GetValue()
				}
				got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		return got
	}
	expect := func(when string, want map[string]float64) {
		t.Helper()
		got := values()
		for name, value := range want {
			if have, ok := got[name]; !ok || have != value {
				t.Errorf("%s: %s is %v, want %v", when, name, have, value)
			}
		}
	}
	apply(t, b, oneEndpoint("10.9.1.3:8080"))
	// Of nat are 4 rules for the masquerading, 3 at the end of KUBE-SERVICES, the
	// canary, and 4 of the Service without a range of pods.
	expect("after the first sync", map[string]float64{
		"restore_failures_total IPv4": 0, "partial_restore_failures_total IPv6": 0,
		"total IPv4 nat": 12, "last IPv4 nat": 12, "total IPv6 nat": 8, "total IPv4 filter": 4,
	})
	p.fail["iptables-restore"] = errors.New("refused")
	_, _ = b.Apply(oneEndpoint("10.9.1.4:8080")), b.Apply(oneEndpoint("10.9.1.4:8080"))
	expect("after failures", map[string]float64{
		"restore_failures_total IPv4": 2, "partial_restore_failures_total IPv4": 1, "restore_failures_total IPv6": 0,
	})
	p.fail["iptables-restore"] = nil
	apply(t, b, oneEndpoint("10.9.1.4:8080"))
	apply(t, b, oneEndpoint("10.9.1.5:8080"))
	expect("after a change", map[string]float64{"total IPv4 nat": 12, "last IPv4 nat": 3})
}

// TestMissingProgram checks that the error names the program and the package.
func TestMissingProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := Installed(false)
	if err == nil || !strings.Contains(err.Error(), "iptables-restore") || !strings.Contains(err.Error(), "package iptables") {
		t.Errorf("without programs: %v", err)
	}
	if err := New(Config{}).Remove(); err != nil {
		t.Errorf("nothing to remove: %v", err)
	}
}

// TestKernelFollows applies changes in the kernel, whose rules are the same as if all
// had been written at once, and removes them, with what others have made left.
func TestKernelFollows(t *testing.T) {
	for _, name := range []string{"nft", "legacy"} {
		t.Run(name, func(t *testing.T) {
			use, ns := variant(t, name), netnstest.New(t)
			b := use(New(Config{Owner: "test", NetNS: int(ns), ClusterCIDRs: []netip.Prefix{proxytest.PodCIDR}}))
			if _, err := b.run("iptables", []string{"-t", "nat", "-N", "OTHER"}, nil); err != nil {
				t.Skipf("the kernel has no %s tables: %v", name, err)
			}
			steps := []proxy.Rules{
				oneEndpoint("10.9.1.3:8080"),
				rulesWith(func(p *proxy.ServicePort) {
					p.Cluster, p.NodePort, p.Affinity = proxytest.Endpoints("10.9.1.3:8080", "10.9.1.4:8080"), 30080, time.Hour
					p.LoadBalancer, p.SourceRanges = []netip.Addr{netip.MustParseAddr("203.0.113.7")}, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
				}),
				rulesWith(func(p *proxy.ServicePort) {
					p.NodePort, p.External = 30080, []netip.Addr{netip.MustParseAddr("203.0.113.8")}
				}),
				oneEndpoint("10.9.1.4:8080"),
			}
			steps[2].HostPorts[proxy.LocalPort{Port: 8888, Protocol: v1.ProtocolSCTP, Family: v1.IPv4Protocol}] = proxy.HostPort{To: netip.MustParseAddrPort("10.9.1.3:8080")}
			for i, rules := range steps {
				apply(t, b, rules)
				followed := rulesIn(t, b)
				again := use(New(Config{Owner: "test", NetNS: int(ns), ClusterCIDRs: []netip.Prefix{proxytest.PodCIDR}}))
				apply(t, again, rules)
				if written := rulesIn(t, again); followed != written {
					t.Errorf("step %d: after the change there is\n%s\nand after writing everything\n%s", i, followed, written)
				}
				if n := strings.Count(followed, "-A PREROUTING "); n != 1 {
					t.Errorf("step %d: %d rules lead to Services", i, n)
				}
			}
			if owners := b.Owners(); !slices.Equal(owners, []string{"test"}) {
				t.Errorf("the rules are those of %q", owners)
			}
			if err := b.Remove(); err != nil {
				t.Fatal(err)
			}
			if owners := b.Owners(); len(owners) > 0 {
				t.Errorf("after the removal there are rules of %q", owners)
			}
			if left := rulesIn(t, b); strings.Contains(left, "KUBE-") || !strings.Contains(left, "OTHER") {
				t.Errorf("after the removal:\n%s", left)
			}
		})
	}
}

// rulesIn returns the chains of IPv4 with their rules, by table and chain.
func rulesIn(t *testing.T, b *Backend) string {
	t.Helper()
	text, err := b.run("iptables-save", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	found, table := map[string][]string{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = line
		case strings.HasPrefix(line, ":"), strings.HasPrefix(line, "-"):
			chain, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(line, ":"), "-A "), " ")
			if line[0] == ':' { // without its counters
				line = ":" + chain
			}
			found[table+" "+chain] = append(found[table+" "+chain], line)
		}
	}
	var all []string
	for _, chain := range slices.Sorted(maps.Keys(found)) {
		all = append(all, chain)
		all = append(all, found[chain]...)
	}
	return strings.Join(all, "\n")
}

// TestExecution checks what is told of a program that fails.
func TestExecution(t *testing.T) {
	run := execute(0)
	if got, err := run("cat", nil, []byte("rules")); err != nil || got != "rules" {
		t.Errorf("cat: %q, %v", got, err)
	}
	_, err := run("sh", []string{"-c", "echo first >&2; echo second >&2; exit 1"}, nil)
	if !isNotThere(err) || !strings.Contains(err.Error(), "first second") {
		t.Errorf("a program that ends with 1: %v", err)
	}
	if _, err := run("sh", []string{"-c", "exit 4"}, nil); err == nil || isNotThere(err) {
		t.Errorf("a program that ends with 4: %v", err)
	}
}

// TestLoopbackGuard checks that the kernel routes loopback addresses while node ports
// answer there, guarded by a chain, and no longer.
func TestLoopbackGuard(t *testing.T) {
	use, ns := variant(t, ""), netnstest.New(t)
	b := use(New(Config{Owner: "test", NetNS: int(ns)}))
	if _, err := b.run("iptables", []string{"-t", "nat", "-S"}, nil); err != nil {
		t.Skipf("the kernel has no tables of iptables: %v", err)
	}
	routes := func() string {
		t.Helper()
		var raw []byte
		netnstest.Do(t, ns, func() (err error) {
			raw, err = os.ReadFile("/proc/sys/net/ipv4/conf/all/route_localnet")
			return err
		})
		return strings.TrimSpace(string(raw))
	}
	netnstest.Do(t, ns, func() error { // a new namespace has the setting of the machine
		return os.WriteFile("/proc/sys/net/ipv4/conf/all/route_localnet", []byte("0"), 0o644)
	})
	rules := oneEndpoint("10.9.1.3:8080")
	for _, step := range []struct {
		loopback bool
		ranges   proxy.NodePortRanges
		want     string
	}{
		{false, nil, "0"},
		{true, proxy.NodePortRanges{netip.MustParsePrefix("192.0.2.0/24")}, "0"},
		{true, nil, "1"},
	} {
		rules.LoopbackNodePorts, rules.NodePortRanges = step.loopback, step.ranges
		apply(t, b, rules)
		if got, guarded := routes(), strings.Contains(rulesIn(t, b), ":KUBE-FIREWALL"); got != step.want || guarded != (step.want == "1") {
			t.Errorf("%v at %v: the kernel routes loopback addresses: %s, guarded: %v, want %s", step.loopback, step.ranges, got, guarded, step.want)
		}
	}
	if err := b.Remove(); err != nil {
		t.Fatal(err)
	}
	if got, left := routes(), rulesIn(t, b); got != "0" || strings.Contains(left, "KUBE-") {
		t.Errorf("after the removal the kernel routes loopback addresses: %s, with\n%s", got, left)
	}
}
