package podquery_test

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/podquery"
)

func TestHostPorts(t *testing.T) {
	always, never := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever
	with := func(policy *v1.ContainerRestartPolicy, ports ...v1.ContainerPort) v1.Container {
		return v1.Container{RestartPolicy: policy, Ports: ports}
	}
	port := func(number int32, ip string) v1.ContainerPort {
		return v1.ContainerPort{HostPort: number, ContainerPort: number + 1, HostIP: ip}
	}
	for _, test := range []struct {
		name string
		spec v1.PodSpec
		want []string
	}{
		{"none", v1.PodSpec{Containers: []v1.Container{with(nil, v1.ContainerPort{ContainerPort: 80})}}, nil},
		{"of regular containers", v1.PodSpec{Containers: []v1.Container{with(nil, port(80, ""), port(81, "")), with(nil, port(82, ""))}}, []string{"all 80", "all 81", "all 82"}},
		{"of sidecars alone", v1.PodSpec{
			InitContainers: []v1.Container{with(nil, port(70, "")), with(&always, port(71, "")), with(&never, port(72, ""))},
			Containers:     []v1.Container{with(nil, port(80, ""))},
		}, []string{"all 71", "all 80"}},
		{"of ephemeral containers none", v1.PodSpec{EphemeralContainers: []v1.EphemeralContainer{{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Ports: []v1.ContainerPort{port(80, "")}},
		}}}, nil},
		{"in the host's network", v1.PodSpec{HostNetwork: true, Containers: []v1.Container{with(nil, port(80, ""))}}, []string{"all 80"}},
		{"spellings of an address", v1.PodSpec{Containers: []v1.Container{with(nil,
			port(1, "192.0.2.1"), port(2, "::ffff:192.0.2.1"), port(3, "192.0.2.001"), port(4, "FD00:0::1"),
			port(5, "0.0.0.0"), port(6, "::"), port(7, "::ffff:0.0.0.0"), port(8, "node"), port(9, "fe80::1%eth0"),
		)}}, []string{"192.0.2.1 1", "192.0.2.1 2", "192.0.2.1 3", "fd00::1 4", "all 5", "all 6", "all 7", "all 8", "all 9"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for p, declared := range podquery.HostPorts(&test.spec) {
				address := "all"
				if p.Address.IsValid() {
					address = p.Address.String()
				}
				if p.Protocol != v1.ProtocolTCP || declared.HostPort != p.Port || declared.ContainerPort != p.Port+1 {
					t.Errorf("%v of %v", p, declared)
				}
				got = append(got, fmt.Sprint(address, " ", p.Port))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	for range podquery.HostPorts(&v1.PodSpec{Containers: []v1.Container{with(nil, port(80, ""), port(81, ""))}}) {
		break // stops at once
	}
}

func TestConflictsOfHostPorts(t *testing.T) {
	for _, test := range []struct {
		a, b v1.ContainerPort
		want bool
	}{
		{v1.ContainerPort{HostPort: 80}, v1.ContainerPort{HostPort: 80}, true},
		{v1.ContainerPort{HostPort: 80}, v1.ContainerPort{HostPort: 81}, false},
		{v1.ContainerPort{HostPort: 80}, v1.ContainerPort{HostPort: 80, Protocol: v1.ProtocolUDP}, false},
		{v1.ContainerPort{HostPort: 80}, v1.ContainerPort{HostPort: 80, HostIP: "192.0.2.1"}, true},
		{v1.ContainerPort{HostPort: 80, HostIP: "192.0.2.2"}, v1.ContainerPort{HostPort: 80, HostIP: "192.0.2.1"}, false},
		{v1.ContainerPort{HostPort: 80, HostIP: "::"}, v1.ContainerPort{HostPort: 80, HostIP: "192.0.2.1"}, true},
		{v1.ContainerPort{HostPort: 80, HostIP: "FD00::1"}, v1.ContainerPort{HostPort: 80, HostIP: "fd00:0::1"}, true},
		{v1.ContainerPort{HostPort: 80, HostIP: "a"}, v1.ContainerPort{HostPort: 80, HostIP: "b"}, true},
	} {
		of := func(p v1.ContainerPort) (host podquery.HostPort) {
			for h := range podquery.HostPorts(&v1.PodSpec{Containers: []v1.Container{{Ports: []v1.ContainerPort{p}}}}) {
				host = h
			}
			return host
		}
		a, b := of(test.a), of(test.b)
		if a.Conflicts(b) != test.want || b.Conflicts(a) != test.want {
			t.Errorf("%v and %v: conflict is %t, want %t", a, b, !test.want, test.want)
		}
		for one, other := range map[podquery.HostPort]podquery.HostPort{a: b, b: a} {
			var set podquery.HostPortSet
			empty := set.Empty() && !set.Conflicts(other)
			set.Add(one)
			if set.Conflicts(other) != test.want || !empty || set.Empty() {
				t.Errorf("%v in a set and %v: conflict is %t, want %t", one, other, !test.want, test.want)
			}
			set.Add(one) // of another pod
			set.Remove(one)
			if set.Conflicts(other) != test.want {
				t.Errorf("%v twice in a set, and once removed, and %v: conflict is %t, want %t", one, other, !test.want, test.want)
			}
			if set.Remove(one); set.Conflicts(other) || !set.Empty() {
				t.Errorf("%v is removed from a set and conflicts with %v", one, other)
			}
		}
	}
}
